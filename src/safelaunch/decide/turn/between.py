"""The rows for between two attempts, in order; each names the incident or the law it stands for."""

from __future__ import annotations

import zlib

from safelaunch.base.endings import AttemptEnd, JobEnd, RunEnd, tell_ending
from safelaunch.base.model import CHECK_FAILED, DONE, FAILED_FOR_GOOD, STOPPED, STOPS, tell_stop
from safelaunch.decide.budget import alone, endless
from safelaunch.decide.budget.giveup import has_to_move, why_give_up
from safelaunch.decide.budget.policy import response
from safelaunch.decide.facts import advance, after
from safelaunch.decide.facts.actions import (
    Action,
    AskNodes,
    BenchNodes,
    CheckNodes,
    Finish,
    HandOver,
    Launch,
    Preserve,
    Row,
    Wait,
)
from safelaunch.decide.facts.seen import Observation
from safelaunch.decide.nodes import checks, resize, slowness
from safelaunch.decide.nodes.nodes import bad_nodes, good_nodes
from safelaunch.run.fold.state import State
from safelaunch.run.plan import Plan
from safelaunch.slurm import nodefold, via

SKEW_S = 60.0          # by which clocks of two hosts may differ, and a pause be longer
MAX_PAUSE_S = 3600.0   # a clock that has jumped must not keep a run from starting


def _ended(state: State, facts: Observation, plan: Plan) -> Action | None:
    """An end is final."""
    return Finish(state.ended.how, state.ended.exit_code, state.ended.why) if state.ended else None


def _completed(state: State, facts: Observation, plan: Plan) -> Action | None:
    """The command ended with 0 by itself; nothing that comes later changes that."""
    last = state.attempt
    if last is None or last.ended != AttemptEnd.COMPLETED:
        return None
    early = f". It {last.reach.told_early}" if last.reach is not None and last.reach.is_early else ""
    odd = f". But {last.nan_end}" if last.nan_end is not None else ""
    return Finish(RunEnd.COMPLETED, DONE, f"attempt {last.number} ended with exit code 0{early}{odd}")


def _killed_by_person(state: State, facts: Observation, plan: Plan) -> Action | None:
    """A person's request is final."""
    asked = facts.asked(*STOPS)
    if asked is None:
        return None
    found = facts.resume if asked.name == "checkpoint" else None
    at = f"; its newest complete checkpoint is of step {found.step}" if found is not None else ""
    return Finish(RunEnd.STOPPED, STOPPED, f"{tell_stop(asked)}{at}")


def _cancelled(state: State, facts: Observation, plan: Plan) -> Action | None:
    """scancel by a person, or by the script, is final; by Slurm (limit, preemption, requeue) it is not."""
    link = state.attempt.link if state.attempt is not None else None
    if link is not None and link.get("kind") == "cancel":
        return Finish(RunEnd.STOPPED, STOPPED, "the script has cancelled its own job (scancel)")
    return Finish(RunEnd.STOPPED, STOPPED, "the job was cancelled by a person (scancel)") if (
        facts.ending == JobEnd.CANCELLED) else None


def _vanished(state: State, facts: Observation, plan: Plan) -> Action | None:
    """Without its folder a run has no journal, no claims and no kill switch. Nothing is started any more; a job whose
    folder a `git clean` had removed kept its nodes for as long as its time limit said.
    """
    if facts.gone is None:
        return None
    last = state.attempt
    code = (last.exit_code if last is not None else None) or FAILED_FOR_GOOD
    return Finish(RunEnd.GAVE_UP, code, f"{facts.gone}, and without its journal no attempt can be started")


def _give_up(state: State, facts: Observation, plan: Plan) -> Action | None:
    """Chains burn through their budget in minutes: look before anything is started."""
    reason = why_give_up(state, plan, good_nodes(state, facts), facts.partition)
    if reason is None:
        return None
    last, preserve = state.attempt, plan.preserve
    if facts.ending is None and facts.asked("release") is None:
        if state.preserving_until is None and preserve.for_s and last and (last.category or "unknown") in preserve.when:
            return Preserve(facts.now + preserve.for_s, reason.why)
        extended = facts.asked("extend")
        until = state.preserving_until
        if until is not None and extended is not None:   # from the touch on, as long again
            until = max(until, extended.t + preserve.for_s)
        if until is not None and facts.now < until:
            return Wait(until, "preserving the site for people")
    return Finish(RunEnd.GAVE_UP, reason.exit_code, reason.why)


def _endless(state: State, facts: Observation, plan: Plan) -> Action | None:
    """A `sleep` went on at each time limit for ever: what costs no budget is bounded by what it brings."""
    if facts.frozen or facts.asked("hold") is not None:   # nobody knows yet whether a checkpoint is new
        return None
    return endless.why_no_attempt(state, plan, facts.now) or endless.judge(
        state, plan, is_ending=facts.ending is not None or facts.limit_near)


def _held(state: State, facts: Observation, plan: Plan) -> Action | None:
    """A person wants no new attempt for now: the nodes go back, and the next job waits until it is released.

    A run without a next job has no queue to wait in: it waits where it is.
    """
    asked = facts.asked("hold")
    if asked is None:
        return None
    why = f"{state.holder(asked.who)} put the run on hold"
    if not via.has_next_job(plan.cluster):
        return None if facts.ending else Wait(facts.now + 2.0, why)
    return HandOver(bad_nodes(state, facts), why, held=True)


def _job_ends(state: State, facts: Observation, plan: Plan) -> Action | None:
    """Time limit, preemption, requeue or an unknown end of the job: the run goes on in the next one."""
    if not (facts.ending or facts.limit_near):
        return None
    return HandOver(bad_nodes(state, facts), f"this job ends: {tell_ending(facts.ending)}",
                    pause_s=endless.pause_s(state, plan))


def _without_node(state: State, facts: Observation, plan: Plan) -> Action | None:
    """What one node alone has shown is tried once without it, where the run would be given up: in the next job, as this
    one has no spare.
    """
    if not has_to_move(state, plan, good_nodes(state, facts), facts.partition):
        return None
    return HandOver(bad_nodes(state, facts), f"{_told_alone(state)}, and this job has no other node")


def _told_alone(state: State) -> str:
    return "; ".join(one.why for one in alone.left_out(state))


def _follows(state: State, facts: Observation, plan: Plan) -> Action | None:
    """It waits for other runs (--after, max_parallel), and one of them goes on in a job that its own did not wait for.
    """
    if not plan.after or state.attempts:
        return None
    may = after.judge(facts.before) if facts.before is not None else after.May(False, why="it asks how others do")
    if may.is_free:
        return None
    if may.never:
        return Finish(RunEnd.GAVE_UP, FAILED_FOR_GOOD, may.never)
    if may.behind and state.successor is not None:
        return HandOver(bad_nodes(state, facts), may.why, behind=may.behind)
    return Wait(facts.now + 2.0, may.why)


def _alone(state: State, facts: Observation, plan: Plan) -> Action | None:
    """Cut off with this node only: whoever is on the other side goes on, and nothing can be asked of Slurm here."""
    return Wait(facts.now + 2.0, "this node is cut off from the others and from Slurm") if facts.alone else None


def _no_full_set(state: State, facts: Observation, plan: Plan) -> Action | None:
    """Checks have failed on so many nodes that no job of the run can have enough others."""
    why = checks.why_no_full_set(state, facts, plan)
    return None if why is None else Finish(RunEnd.GAVE_UP, CHECK_FAILED, why)


def _ask_nodes(state: State, facts: Observation, plan: Plan) -> Action | None:
    """An allocation expired, and 52 nodes became 24: whether a full set can be had again, the queue knows."""
    count = resize.nodes_to_ask(state, facts, plan)
    if not count:
        return None
    return AskNodes(count, resize.nodes_to_avoid(state, facts), f"asking Slurm for {count} nodes that are missing")


def _wait_for_nodes(state: State, facts: Observation, plan: Plan) -> Action | None:
    """Fewer nodes cost speed, and perhaps a conversion: a full set may be there soon. The good ones are kept for it."""
    until = resize.waits_until(state, facts, plan)
    if until is None:
        return None
    return Wait(until, f"{_few(state, facts, plan)}; waiting for a full set (restart.wait_for_nodes)")


def _too_few_nodes(state: State, facts: Observation, plan: Plan) -> Action | None:
    """Not enough good nodes are left in the allocation, and the next job can have them, or fewer will not do."""
    if len(good_nodes(state, facts)) >= plan.nodes:
        return None
    is_smaller = resize.next_size(state, facts, plan) and not resize.has_full_set(state, facts, plan)
    if is_smaller or (plan.min_nodes is not None and facts.frozen):
        return None   # frozen: nobody knows yet from which checkpoint
    return HandOver(bad_nodes(state, facts), _few(state, facts, plan))


def _few(state: State, facts: Observation, plan: Plan) -> str:
    good = good_nodes(state, facts)
    without = ", ".join(sorted(set(facts.nodes) - set(good)))
    return f"of the {plan.nodes} nodes needed only {len(good)} can be used (without {without})"


def _back_off(state: State, facts: Observation, plan: Plan) -> Action | None:
    """The first restart is at once; from the second failure in a row without progress on, wait: slow down, not give up.

    A node that was found dead and is excluded is no reason to wait: its failures are not counted.
    """
    last, failures = state.attempt, state.failures_without_progress
    if last is None or last.ended_t is None or state.restart is not None:   # a person wants it now
        return None
    if last.not_before is not None and facts.now < last.not_before < facts.now + MAX_PAUSE_S:
        return Wait(last.not_before, f"Slurm could not start attempt {last.number}, or ended it")
    wait_at_once = last.has_failed and response(plan, last.category).then == "wait"
    if failures < 2 and not wait_at_once:
        return None
    pause_s = plan.restart.backoff_s * 2 ** min(max(failures - 2, 0), 4) * (1 + 0.1 * _spread(plan.run_id, last.number))
    until = last.ended_t + pause_s
    # (simulated: test_found "a clock that is set back by two hours during a pause costs the run no two hours")
    is_due = not facts.now < until < facts.now + pause_s + SKEW_S
    return None if is_due else Wait(until, "a pause before the next attempt" + (
        f", after {failures} failures in a row without progress" if failures > 1 else ""))


def _spread(run_id: str, attempt: int) -> float:
    """0..1, another number for each run and attempt, so that runs that failed together do not start together. The same
    one at each decision: with a new one a start came seconds before the time that people were told.
    """
    return zlib.crc32(f"{run_id} {attempt}".encode()) / 2**32


def _unfenced(state: State, facts: Observation, plan: Plan) -> Action | None:
    """Two writers were seen after a slurmd was killed: an attempt whose end nobody wrote down may still be alive."""
    last = state.attempt
    if last is None or last.ended is not None:
        return None
    return Wait(facts.now + 2.0, f"nobody knows that attempt {last.number} has ended")


def _frozen(state: State, facts: Observation, plan: Plan) -> Action | None:
    """A training started on a frozen filesystem hangs in its first read: observe only, look again."""
    return Wait(facts.now + 2.0, "the run folder does not answer") if facts.frozen else None


def _no_storage(state: State, facts: Observation, plan: Plan) -> Action | None:
    """A full filesystem fails every attempt: wait until it takes writes again, then restart."""
    return Wait(facts.now + 2.0, f"the run's folders cannot be written: {facts.trouble}") if facts.trouble else None


def _check_nodes(state: State, facts: Observation, plan: Plan) -> Action | None:
    """A node that cannot work is found before the training's start, not by a hang of all others."""
    nodes = checks.unchecked(state, facts, plan)
    return CheckNodes(nodes, f"checking {nodefold.fold(nodes)} before the attempt",
                      first=good_nodes(state, facts)[0]) if nodes else None


def _bench_nodes(state: State, facts: Observation, plan: Plan) -> Action | None:
    """Steps take longer for good: one round on all nodes names the slow one, before the next attempt uses it again."""
    nodes = slowness.nodes_to_measure(state, facts, plan)
    return BenchNodes(nodes, f"measuring {nodefold.fold(nodes)}, because steps take longer") if nodes else None


def _check_again(state: State, facts: Observation, plan: Plan) -> Action | None:
    """The nodes of the next attempt, lightly: in the last seconds of a pause, or where the user wants to wait for them.
    """
    pause = _back_off(state, facts, plan)
    left_s = pause.until - facts.now if isinstance(pause, Wait) else 0
    nodes, limit_s = checks.unchecked_again(state, facts, plan, left_s)
    last = state.attempt
    if not nodes or last is None:
        return None
    return CheckNodes(nodes, f"checking {nodefold.fold(nodes)} after attempt {last.number} has failed", limit_s,
                      last.number, nodes[0])


def _launch(state: State, facts: Observation, plan: Plan) -> Action | None:
    """Go on, on the good nodes in Slurm's order; first, on one of them, the conversion that a checkpoint needs."""
    last, size = state.attempt, resize.next_size(state, facts, plan)
    chosen = good_nodes(state, facts)[:size]
    nodes = tuple(node for node in facts.nodes if node in chosen)
    convert = resize.why_convert(state, plan, facts.resume, size)
    if convert is not None and facts.resume is not None:
        return Launch(nodes[:1], f"before_resize: checkpoint {facts.resume.path} is of {convert.from_nodes} nodes, and "
                                 f"the next attempt has {size}{_size(facts, plan, size)}", convert)
    if last is None:
        return Launch(nodes, f"first attempt{_size(facts, plan, size)}")
    at = _from_where(state, plan) if facts.resume is None else (
        f"checkpoint {f'at step {facts.resume.step}' if facts.resume.step is not None else facts.resume.path}")
    if last.ended == AttemptEnd.LINKED:
        return Launch(nodes, f"attempt {last.number} has ended, and its script goes on with its next link")
    return Launch(nodes, f"attempt {last.number} {last.ended or 'is over'}"
                         f"{f' ({last.summary})' if last.summary else ''}; going on from {at}{_size(facts, plan, size)}"
                         f"{_without(state, facts, nodes)}")


def _without(state: State, facts: Observation, nodes: tuple[str, ...]) -> str:
    """Which nodes of this job are left idle for what they alone have shown."""
    idle = {one.node: one.why for one in alone.shown_alone(state) if one.node in facts.nodes and one.node not in nodes}
    return "".join(f"; without {node}, as {why}" for node, why in idle.items())


def _from_where(state: State, plan: Plan) -> str:
    """Where an attempt goes on that is told of no checkpoint: the training may find its own."""
    if plan.resume.dir is None:
        return "wherever the training resumes by itself: no checkpoint folder is known (resume.dir)"
    none = f"no complete checkpoint, {len(state.skipped)} skipped" if state.skipped else "no checkpoint yet"
    before = advance.trainings(state.attempts)
    if before and advance.began_at(before[-1], before[:-1]) is not None:
        return f"wherever the training resumes by itself: {none} in {plan.resume.dir}"
    return f"the start: {none}"


def _size(facts: Observation, plan: Plan, size: int) -> str:
    missing = facts.missing
    said = f" (Slurm says of the others: {missing.said})" if missing is not None and missing.said else ""
    return "" if size == plan.nodes else f", with {size} of {plan.nodes} nodes: no full set is to be had now{said}"


BETWEEN: tuple[Row, ...] = (
    _ended, _completed, _killed_by_person, _cancelled, _vanished, _give_up, _alone, _endless, _held, _job_ends,
    _without_node, _follows, _no_full_set, _ask_nodes, _wait_for_nodes, _too_few_nodes, _unfenced, _frozen, _no_storage,
    _check_again, _back_off, _check_nodes, _bench_nodes, _launch,
)
