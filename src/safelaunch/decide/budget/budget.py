"""Why nothing may be started any more: a proof, a policy that says stop, or a spent budget.

All budgets refill only by progress (decide.facts.advance). `continue` costs none: decide.budget.endless bounds it.
"""

from __future__ import annotations

from typing import NamedTuple

from safelaunch.base.model import BUDGET_SPENT, FAILED_FOR_GOOD
from safelaunch.decide.budget import nanback
from safelaunch.decide.budget.blame import is_held
from safelaunch.decide.budget.policy import response
from safelaunch.decide.facts.trained import behind_training, fails_as_behind, has_counted, has_failed_again, tell_done
from safelaunch.decide.jobs import links
from safelaunch.run.fold.state import Attempt, State, ToldFigure
from safelaunch.run.plan import Plan
from safelaunch.why.categories import BAD_NODE, SPARES_CHECKPOINT

SURE = 0.8               # a verdict below this never stops a run by itself
DO_NOT_RESTART = 93      # NVIDIA Resiliency Extension, ft_launcher: "workload should not be restarted"
KILLED = (137, 143)      # SIGKILL, SIGTERM: never a program's own doing
MOST_HELD = 3            # nodes on which a GPU is held: what was left of one job may have had two of them
LONG_S = 300.0           # an attempt whose log names no steps, and that lived for so long, has come somewhere


class GiveUp(NamedTuple):
    """The row that found it, the job's exit code, and the sentence."""

    row: str
    exit_code: int
    why: str


def reason_to_give_up(state: State, plan: Plan) -> GiveUp | None:
    """The first reason to start nothing any more; None = go on."""
    last = state.attempt
    if last is not None and last.lost_surely and plan.restart.on_lost_progress == "stop":
        return _lost_progress(last)
    if last is not None and (nan := state.had_nan(last.number)) is not None and plan.on_nan in (
            "stop", "previous_checkpoint"):
        return _nan(nan) if plan.on_nan == "stop" else _nan_again(state, last, nan) or _run_budgets(state, plan)
    if (why := links.why_no_more(state, max(1, plan.restart.max_without_progress))) is not None:
        return GiveUp("links", FAILED_FOR_GOOD, why)
    if last is None or not last.has_failed:
        return _run_budgets(state, plan)
    if last.asked_row == "step_stuck":
        return _stuck_again(state, last) or _run_budgets(state, plan)
    if state.starts_from_rejected(last):   # the checkpoint before it gets its turn: resume.keep_trying bounds that
        return _do_not_restart(state, last, plan) or _run_budgets(state, plan)
    for row in (_do_not_restart, _trained, _held_everywhere, _proven, _policy_says_stop, _category_budget):
        found = row(state, last, plan)
        if found is not None:
            return found
    return _run_budgets(state, plan)


def _lost_progress(last: Attempt) -> GiveUp:
    """The next attempt would start from the beginning as well, and cost the checkpoints that there are."""
    return GiveUp("lost_progress", FAILED_FOR_GOOD,
                  f"a restart would start too low again, and overwrite newer checkpoints: {last.lost}. See that the "
                  "training loads $SAFELAUNCH_RESUME_PATH or takes ${RESUME_ARGS}, and submit it again; if these steps "
                  "mean something else: restart.on_lost_progress: warn")


def _stuck_again(state: State, last: Attempt) -> GiveUp | None:
    """One more try: what held the nodes may have gone with the attempt. The same again is the job's own shape."""
    before = state.attempts[-2] if len(state.attempts) > 1 else None
    if before is None or before.asked_row != last.asked_row:
        return None
    return GiveUp("step_stuck", FAILED_FOR_GOOD,
                  f"{last.summary} (attempts {before.number} and {last.number}): a restart would wait as well")


def _nan(found: ToldFigure) -> GiveUp:
    """From the same checkpoint the same data mostly lead to it again."""
    return GiveUp("nan", FAILED_FOR_GOOD,
                  f"the loss of attempt {found.attempt} was {found.value} from step {found.step} on (on_nan: stop). "
                  "Look for the cause (learning rate, data, precision), and submit again from a checkpoint before it")


def _nan_again(state: State, last: Attempt, found: ToldFigure) -> GiveUp | None:
    """An older checkpoint, twice; the policy for `numerical` is for failures that nobody goes back for."""
    why = nanback.why_no_further(state, last, found)
    return None if why is None else GiveUp("nan", FAILED_FOR_GOOD, f"{why} (on_nan: previous_checkpoint)")


def _do_not_restart(state: State, last: Attempt, plan: Plan) -> GiveUp | None:
    """The launcher knows: a word between NVRx's ft_launcher and whoever runs it."""
    if last.exit_code != DO_NOT_RESTART:
        return None
    return GiveUp("do_not_restart", FAILED_FOR_GOOD,
                  f"the launcher ended with exit code {DO_NOT_RESTART}, by which NVRx says: do not restart")


def _trained(state: State, last: Attempt, plan: Plan) -> GiveUp | None:
    """A crash at exit trained the last part of a run three times more: what is trained is not trained again."""
    row = response(plan, last.category)
    if not has_failed_again(state, last) or (row.is_own and row.then not in ("once", "stop")):
        return None
    return GiveUp("trained", FAILED_FOR_GOOD,
                  f"the training is complete ({tell_done(state, last)}), and what comes behind it has failed twice; "
                  f"last: {last.category}: {last.summary}. Run that part by itself, or mend it and submit again: the "
                  "training is not repeated")


def _held_everywhere(state: State, last: Attempt, plan: Plan) -> GiveUp | None:
    """A GPU that another process holds is its node's matter, until one node after the other shows the same."""
    nodes = tuple(dict.fromkeys(node for one in state.attempts if is_held(one.fingerprint) and not one.made_steps
                                for node in one.blamed))
    if not is_held(last.fingerprint) or last.made_steps or len(nodes) < MOST_HELD:
        return None
    return GiveUp("proven", FAILED_FOR_GOOD,
                  f"{len(nodes)} nodes after each other ({', '.join(nodes[:4])}) failed alike before the first step: "
                  f"the training's own processes may share a GPU ({last.summary})")


def _proven(state: State, last: Attempt, plan: Plan) -> GiveUp | None:
    """The same failure at the same step on other nodes is no node's fault, and no chance: it is deterministic."""
    if not last.fingerprint or last.category in BAD_NODE:
        return None
    is_bare = last.category == "unknown" and last.step is None
    if last.confidence < SURE and (is_bare or last.exit_code in KILLED):
        # (simulated: test_found "two ranks that were killed on two nodes before their first step are no proof")
        return None
    before = next((known for known in reversed(state.attempts[:-1]) if _has_failed_by_itself(state, known)), None)
    if before is None or before.fingerprint != last.fingerprint or before.step != last.step:
        return None
    if last.step is None and last.resume_step != before.resume_step:
        return None
    both = set(last.blamed) & set(before.blamed)
    if not last.blamed or not before.blamed or len(both) == 1:   # one node can have done all that (decide.budget.alone)
        return None
    # Who ends first is a matter of chance, unless the other node had no part in it.
    if (last.is_first_only or before.is_first_only) and not both and set(before.blamed) <= set(last.nodes):
        return None
    at = f"at step {last.step}" if last.step is not None else "before the first step"
    where = f"on {', '.join(before.blamed[:4])} and on {', '.join(last.blamed[:4])}"
    return GiveUp("proven", FAILED_FOR_GOOD,
                  f"attempts {before.number} and {last.number} failed alike {at}, {where}: no node is to blame, and a "
                  f"restart would fail again ({last.summary})")


def _policy_says_stop(state: State, last: Attempt, plan: Plan) -> GiveUp | None:
    """stop, and once without getting further. Unsure verdicts stop nothing, unless the user wrote the row himself."""
    row = response(plan, last.category)
    if row.then not in ("once", "stop") or (last.confidence < SURE and not row.is_own):
        return None
    if row.then == "stop":
        return GiveUp("policy", FAILED_FOR_GOOD, f"{last.category}: {last.summary}; the policy says stop")
    before = next((known for known in reversed(state.attempts[:-1])
                   if _has_failed_by_itself(state, known) and known.category == last.category), None)
    since = state.attempts if before is None else state.attempts[state.attempts.index(before) + 1:]
    if any(_got_somewhere(state, known) and (before is None or _got_further(known, before)) for known in since):
        return None
    start = f"attempt {before.number} failed like this" if before else "the start"
    return GiveUp("policy", FAILED_FOR_GOOD,
                  f"{last.category}: {last.summary}; no step was made since {start}: a restart would fail again")


def _has_failed_by_itself(state: State, attempt: Attempt) -> bool:
    """It failed, and not because of a checkpoint that has been left out since."""
    return attempt.has_failed and not state.starts_from_rejected(attempt)


def _got_somewhere(state: State, attempt: Attempt) -> bool:
    if any(known.step is not None for known in state.attempts):
        return attempt.made_steps
    return attempt.ended_t is not None and attempt.ended_t - attempt.started_t > LONG_S


def _got_further(attempt: Attempt, before: Attempt) -> bool:
    if attempt.step is None or before.step is None:
        return attempt.step is not None or before.step is None
    return attempt.step > before.step


def _category_budget(state: State, last: Attempt, plan: Plan) -> GiveUp | None:
    row = response(plan, last.category)
    count = sum(category == last.category for category in state.failed_categories)
    if row.budget is None or count <= row.budget:
        return None
    return GiveUp("spent", FAILED_FOR_GOOD,
                  f"{count} failures of the category {row.category} without a new checkpoint, and its budget is "
                  f"{row.budget}; last: {last.summary}")


def _run_budgets(state: State, plan: Plan) -> GiveUp | None:
    last, budget = state.attempt, plan.restart
    because = f"; last: {last.summary}" if last and last.summary else ""
    if state.failures_without_progress >= budget.max_without_progress and not _runs_elsewhere(state, last):
        failures = state.failures_without_progress
        which = "one attempt" if failures == 1 else f"{failures} attempts in a row"
        missed = "a further step (no checkpoint folder is known: resume.dir)" if plan.resume.dir is None else (
            "a new checkpoint")
        return GiveUp("spent", FAILED_FOR_GOOD, f"{which} failed without {missed}{because}")
    if state.restarts > budget.max_restarts:
        return GiveUp("spent", BUDGET_SPENT, f"all {budget.max_restarts} restarts are used{because}")
    return None


def _runs_elsewhere(state: State, last: Attempt | None) -> bool:
    """A node of the last attempt has been excluded since: other nodes have not had their turn. The cap on exclusions
    and max_restarts bound that (a drill under load gave up two failures after it had found the node that killed all).
    """
    return last is not None and last.has_failed and not set(last.nodes).isdisjoint(state.excluded)


def rejects_checkpoint(state: State, plan: Plan) -> str | None:
    """Why the checkpoint that the last attempt started from is not to be loaded again; None = it is not to blame.

    No step was to be made from the last one, and a failure right behind its save may well come again by itself.
    There are two kinds of evidence. One is a sure verdict: the log names the checkpoint. The other is two attempts in a
    row that made no step from it, though another start did make steps. And no node, person, limit or line of their own
    explains their ends: what raises without a word of loading would raise with each checkpoint. That other start may
    have left no steps in the journal (simulated: test_found "a checkpoint that does not load is left out though no word
    is left of the steps that made it").
    """
    last = state.attempt
    if last is None or not last.has_failed or last.resume_path is None or has_counted(last):
        return None
    is_loaders = response(plan, last.category).then == "fall_back"
    if any(one is last for one in behind_training(state)) and not (is_loaders and last.confidence >= SURE):
        return None   # no step was left to make
    if is_loaders:
        return f"attempt {last.number} died while loading it: {last.summary}"
    same, others = list[Attempt](), list[Attempt]()
    for known in state.attempts:
        is_same = (known.resume_path, known.resume_step) == (last.resume_path, last.resume_step)
        (same if is_same else others).append(known)
    if any(fails_as_behind(last, known) for known in others):
        return None
    tried = [known for known in same if known.has_failed]   # one that was ended before its first step says nothing
    alike = [known for known in tried[-2:] if not has_counted(known) and known.category not in SPARES_CHECKPOINT
             and known.is_of_loading is not False]
    others_work = any(has_counted(known) or _is_older(known.resume_step, last.resume_step)
                      for known in others)
    if len(alike) == 2 and others_work and not any(has_counted(known) for known in same):
        return f"attempts {alike[0].number} and {alike[1].number} died before their first step from it"
    return None


def _is_older(step: int | None, than: int | None) -> bool:
    return than is not None and (step is None or step < than)
