"""How many nodes the next attempt has, and what must become of its checkpoint first (min_nodes, before_resize).

Laws:
- Never fewer than min_nodes, and always a multiple of nodes_multiple_of.
- A checkpoint goes to another number of nodes only through before_resize, where the run has that, and only once it has
  ended well. After a failure of it that checkpoint stays with the number of nodes that has written it.
- One failure is enough, and so are three tries that did not come to their end; what has been converted is used again.
- An output is removed only when no attempt goes on from it; that it is gone is journalled first.
"""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.base.endings import AttemptEnd
from safelaunch.checkpoints.model import Checkpoint
from safelaunch.decide.facts.seen import MissingNodes, Observation
from safelaunch.decide.nodes.nodes import bad_nodes, begins_nothing, good_nodes
from safelaunch.run.fold.state import Attempt, Resize, State
from safelaunch.run.plan import Plan
from safelaunch.slurm import via

MOST_TRIES = 3       # of before_resize for one checkpoint and number of nodes
ASK_EVERY_S = 60.0   # what the queue says of free nodes
SOON_S = 30.0        # Slurm's own passes over its queue
SLACK_S = 3600.0     # by which its estimate may be too late: other jobs end before their limits


def most_nodes(plan: Plan, count: int) -> int:
    """The most nodes that an attempt can have of `count`; 0 = none."""
    if count >= plan.nodes or plan.min_nodes is None:
        return plan.nodes if count >= plan.nodes else 0
    size = count - count % plan.nodes_multiple_of
    return size if size >= plan.min_nodes else 0


def next_size(state: State, facts: Observation, plan: Plan) -> int:
    """The nodes of the next attempt; 0 = the good ones of this job are too few for any."""
    good = len(good_nodes(state, facts))
    size = most_nodes(plan, good)
    if not size or not is_barred(state, plan, facts.resume, size):
        return size
    own = size_of(state, plan, facts.resume)
    return own if own <= good and most_nodes(plan, own) == own else 0


def size_of(state: State, plan: Plan, resume: Checkpoint | None) -> int:
    """The number of nodes that wrote a checkpoint: of the last attempt that started below it, when it was not there, or
    that did not load it and came as far again. One that was there before all attempts has that of the plan.
    """
    step = None if resume is None else resume.step
    for known in reversed(state.attempts):
        started_below = step is None or known.resume_step is None or step > known.resume_step
        is_own = step is None or (step not in known.whole_steps and started_below) or (
            known.lost is not None and (known.step or 0) >= step)   # it has overwritten it
        if known.resize is None and is_own:
            return len(known.nodes)
    return plan.nodes


def why_convert(state: State, plan: Plan, resume: Checkpoint | None, size: int) -> Resize | None:
    """What before_resize has to do before an attempt of so many nodes; None = nothing."""
    own = size_of(state, plan, resume)
    if not plan.before_resize or resume is None or own == size or output_of(state, plan, resume, size) is not None:
        return None
    return Resize(own, size)


def is_barred(state: State, plan: Plan, resume: Checkpoint | None, size: int) -> bool:
    """Whether a checkpoint that would have to be converted for so many nodes cannot be. One whose name tells no step
    may have been overwritten since: nobody would know what was converted.
    """
    if resume is None or why_convert(state, plan, resume, size) is None:
        return False
    tries = tuple(_hooks(state, resume, size_of(state, plan, resume), size))
    return resume.step is None or len(tries) >= MOST_TRIES or any(
        known.ended in (AttemptEnd.UNCONVERTED, AttemptEnd.CONVERTED) for known in tries)   # its output was rejected


def size_in_slurm(plan: Plan, nodes: int) -> dict[str, str]:
    """What of a pending job `scontrol update` must change for so many nodes: with tasks or processors of more it waits
    for ever. NumNodes alone would take nodes from a job that has just started; beside the others Slurm refuses it then
    (22.05, measured).
    """
    tasks = nodes * plan.ntasks_per_node
    return {"NumNodes": str(nodes), "NumTasks": str(tasks), "NumCPUs": str(tasks * (plan.cpus_per_task or 1))}


def may_wait_smaller(state: State, plan: Plan) -> bool:
    """Whether a job in the queue may ask for fewer nodes. Not where before_resize could not make the newest checkpoint
    fit these: then the run waits for the full set. Nor a job that is to be requeued: Slurm lets it keep its size for
    ever (22.05, measured).
    """
    if plan.min_nodes is None or (state.via or plan.restart.via) == via.REQUEUE:
        return False
    hooks = [known for known in state.attempts if known.resize is not None
             and (known.resume_step or 0) >= (state.best_step or 0)]
    bad = [known for known in hooks if known.ended == AttemptEnd.UNCONVERTED or (
        known.resize is not None and (known.resize.output, known.resume_step) in state.rejected)]
    return not bad and sum(known.ended != AttemptEnd.CONVERTED for known in hooks) < MOST_TRIES


def output_of(state: State, plan: Plan, resume: Checkpoint | None, size: int) -> str | None:
    """What before_resize has made of a checkpoint for so many nodes; None = it has not, or that did not load."""
    if resume is None or resume.step is None:
        return None
    return next((known.resize.output for known in _hooks(state, resume, size_of(state, plan, resume), size)
                 if known.resize is not None and known.ended == AttemptEnd.CONVERTED
                 and (known.resize.output, resume.step) not in state.rejected), None)


def spent_outputs(state: State, resume: Checkpoint | None) -> tuple[Attempt, ...]:
    """The hooks whose outputs nothing goes on from any more. They are not of the newest checkpoint, not loaded by the
    last attempt, and not the newest that is whole.
    """
    hooks = [known for known in state.attempts if known.resize is not None and known.ended is not None]
    whole = [known for known in hooks if known.ended == AttemptEnd.CONVERTED]
    point = None if resume is None else (resume.path, resume.step)
    kept = [*whole[-1:], *(known for known in whole if (known.resume_path, known.resume_step) == point)]
    loaded = None if state.attempt is None else state.attempt.resume_path
    return tuple(known for known in hooks
                 if known not in kept and known.resize is not None and known.resize.output != loaded)


def _hooks(state: State, resume: Checkpoint, own: int, size: int) -> Iterator[Attempt]:
    """An output that was removed is no more: the checkpoint can be converted again, unless that did not load."""
    point = (resume.path, resume.step)
    return (known for known in state.attempts if known.resize is not None and known.resize[:2] == (own, size)
            and (known.resume_path, known.resume_step) == point
            and not (known.resize.is_removed and known.ended == AttemptEnd.CONVERTED
                     and (known.resize.output, known.resume_step) not in state.rejected))


# --- waiting for a full set -----------------------------------------------------------------------------------------


def nodes_to_ask(state: State, facts: Observation, plan: Plan) -> int:
    """How many nodes to ask Slurm for, because they are missing; 0 = it is settled, or was asked just now."""
    good = len(good_nodes(state, facts))
    if good >= plan.nodes or facts.frozen or not next_size(state, facts, plan) or _is_settled(state, facts, plan):
        return 0
    is_told = _answer(state, facts, plan) is not None
    return 0 if is_told else plan.allocated_nodes - good   # the next job has its spares, too


def nodes_to_avoid(state: State, facts: Observation) -> tuple[str, ...]:
    """Nodes that are no missing ones: those of this job, and those that it must not use."""
    return tuple(sorted({*facts.nodes, *bad_nodes(state, facts)}))


def waits_until(state: State, facts: Observation, plan: Plan) -> float | None:
    """Until when to wait with idle nodes for the missing ones (epoch s), and ask again; None = no longer.

    Only before the first attempt of this job that has fewer: later ones take a full set that is there, or go on.
    """
    answer = _answer(state, facts, plan)
    until = since_t(state) + plan.restart.wait_for_nodes_s
    if answer is None or has_full_set(state, facts, plan) or _is_small_here(state, plan):
        return None
    # A clock that has jumped must not make it longer.
    is_over = not facts.now < until <= facts.now + plan.restart.wait_for_nodes_s
    if is_over or (answer.free_t is not None and answer.free_t > until + SLACK_S):
        return None
    return min(until, answer.t + ASK_EVERY_S)


def has_full_set(state: State, facts: Observation, plan: Plan) -> bool:
    """Whether Slurm has the missing nodes by now, so that the next job gets them."""
    answer = _answer(state, facts, plan)
    return answer is not None and answer.free_t is not None and answer.free_t <= facts.now + SOON_S


def _answer(state: State, facts: Observation, plan: Plan) -> MissingNodes | None:
    """Slurm's last word, unless it is old, or would change nothing. An attempt that has ended in the future tells of a
    clock that was set back, and not that the answer is older. (A simulated leader asked Slurm at each tick.)
    """
    answer, since = facts.missing, since_t(state)
    is_new = answer is not None and (since <= answer.t or since > facts.now) and (
        answer.t <= facts.now < answer.t + ASK_EVERY_S)
    return answer if is_new and not _is_settled(state, facts, plan) else None


def since_t(state: State) -> float:
    """Since when the next attempt of this job is due."""
    started_t = state.job.started_t if state.job is not None and state.job.started_t is not None else 0.0
    last = state.attempt
    return started_t if last is None or last.ended_t is None else max(started_t, last.ended_t)


def _is_settled(state: State, facts: Observation, plan: Plan) -> bool:
    """Nothing is asked after a conversion, which is for fewer nodes, nor in a row of jobs that begin nothing. Nor does
    a job ask that has waited in the queue and got fewer (watch.watch).
    """
    last = state.attempt
    is_new = last is not None and state.job is not None and last.job == state.job.id
    is_small = len(facts.nodes) < plan.nodes and bool(state.lives) and state.lives[-1][2] == len(state.attempts)
    return begins_nothing(state) or is_small or (
        is_new and last is not None and last.ended == AttemptEnd.CONVERTED)


def _is_small_here(state: State, plan: Plan) -> bool:
    """Whether this job has already gone on with fewer nodes."""
    return any((len(known.nodes) if known.resize is None else known.resize.to_nodes) < plan.nodes
               for known in state.attempts if state.job is not None and known.job == state.job.id)
