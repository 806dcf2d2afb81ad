"""What to do next: the only place that chooses.

`decide` walks two short ordered tables of named rows, one for while an attempt lives and one for between attempts; the
first row that has an opinion wins. A row is a pure function; its docstring names the incident or the law it stands for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from safelaunch.core.checkpoints.model import Checkpoint
from safelaunch.core.decide import patience
from safelaunch.core.decide.budget import reason_to_give_up
from safelaunch.core.decide.policy import response
from safelaunch.core.model import DONE, STOPPED, STOPS, Exit, Request, tell_ending, tell_stop
from safelaunch.core.plan import Plan
from safelaunch.core.state import State

# How long ranks have between TERM and KILL once their attempt has failed: survivors of a dead collective have nothing
# left to save, and Slurm's own KillWait (30 s) is far too long for a restart.
FAILED_GRACE_S = 5.0
# After this long since the TERM there is no more to wait for: the fence finds out, node by node, what is left.
KILL_PATIENCE_S = 20.0
# Rows that end an attempt for want of a supervisor: no word against the training, or against a node that answers.
LEADERLESS = ("took_over", "unconfirmed")
ASKING = ("kill", "checkpoint", "limit_near")    # rows that ask gently first
BY_PERSON = ("kill", "kill_now", "checkpoint")   # rows that end an attempt on a person's word
MAX_BARREN = 3         # jobs in a row that hand over without an attempt
SKEW_S = 60.0          # by which clocks of two hosts may differ, and a pause be longer
MAX_PAUSE_S = 3600.0   # a clock that has jumped must not keep a run from starting


@dataclass(frozen=True)
class Live:
    """The attempt that the supervisor looks after, as its node guards and srun report it."""

    number: int
    nodes: tuple[str, ...]
    exits: tuple[Exit, ...] = ()          # in the order in which they were reported
    tasks: int = 1
    srun_code: int | None = None          # srun's own exit code, once it has ended
    fenced: bool = False                  # no process of the attempt is left anywhere (see adapters.control)
    end_asked_t: float | None = None      # when it was asked, gently, to end
    end_row: str | None = None            # the row that asked
    heard: int | None = None              # processes that took the signal; None = nobody knows (yet)
    saved: str | None = None              # the checkpoint that has become complete since
    saved_t: float | None = None
    killed_t: float | None = None
    hung: str | None = None               # two witnesses say so: what they saw
    lost: str | None = None               # it has surely started below all its checkpoints (core.progress.lost): why

    @property
    def failed(self) -> bool:
        """Some task ended badly."""
        return any(exit.code for exit in self.exits) or bool(self.srun_code)

    @property
    def reported(self) -> bool:
        """Every task's guard has told how it ended."""
        return len({(exit.node, exit.task) for exit in self.exits}) >= self.tasks


@dataclass(frozen=True)
class Seen:
    """What the supervisor sees now. `ending`: why the job is being ended from outside, if it is."""

    now: float
    nodes: tuple[str, ...]                     # the allocation's nodes, in order
    live: Live | None = None
    requests: tuple[Request, ...] = ()
    ending: str | None = None                  # cancelled | time_limit | preempted | requeued | orphaned | unknown
    limit_near: bool = False                   # Slurm's warning signal before the time limit has come
    lost: tuple[tuple[str, str], ...] = ()     # node, why: dead or silent
    frozen: bool = False                       # the run folder does not answer
    trouble: str | None = None                 # what keeps the run's folders from being written
    unconfirmed: bool = False                  # for a lease nothing has shown that no other supervisor leads by now
    alone: bool = False                        # cut off: neither the other nodes nor Slurm answer
    suspended: bool = False                    # the whole job was stopped during the attempt (scontrol suspend)
    resume: Checkpoint | None = None
    jitter: float = 0.0                        # 0..1, drawn by the loop

    def asked(self, *names: str) -> Request | None:
        """The first of the named requests that has been made."""
        return next((request for request in self.requests if request.name in names), None)


@dataclass(frozen=True)
class Launch:
    """Start the next attempt on these nodes."""

    nodes: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class AskToEnd:
    """Signal the ranks that handle `signal`; core.decide.patience says how long they have."""

    signal: str
    why: str


@dataclass(frozen=True)
class Kill:
    """End every process of the attempt: TERM, and KILL after `grace_s`."""

    grace_s: float
    why: str


@dataclass(frozen=True)
class Fence:
    """Make sure that nothing of the attempt is left, on silent nodes by waiting for their lease."""

    why: str


@dataclass(frozen=True)
class HandOver:
    """Leave the run to the successor job, which must not use `exclude`; `held`: nor start before it is released."""

    exclude: tuple[str, ...]
    why: str
    held: bool = False


@dataclass(frozen=True)
class Finish:
    """End the run for good."""

    how: str
    exit_code: int
    why: str


@dataclass(frozen=True)
class Preserve:
    """Keep the nodes for people until `until` (epoch s), then give up."""

    until: float
    why: str


@dataclass(frozen=True)
class Wait:
    """Nothing to do before `until` (epoch s)."""

    until: float
    why: str


Action = Launch | AskToEnd | Kill | Fence | HandOver | Finish | Preserve | Wait


@dataclass(frozen=True)
class Decision:
    """The row that spoke and what it wants; `action` None = go on watching."""

    row: str
    action: Action | None


Row = Callable[[State, Seen, Plan], Action | None]


def decide(state: State, seen: Seen, plan: Plan) -> Decision:
    """The first opinion of the table that fits: attempt alive, or none."""
    rows = ALIVE if seen.live is not None else BETWEEN
    for row in rows:
        action = row(state, seen, plan)
        if action is not None:
            return Decision(row.__name__.strip("_"), action)
    return Decision("watch", None)


# --- while an attempt lives ---------------------------------------------------------------------------------------


def _over(state: State, seen: Seen, plan: Plan) -> Action | None:
    """Nothing restarts before the old attempt is fenced (two writers were seen after a slurmd was killed)."""
    live = _live(seen)
    return Fence("every task of the attempt has ended") if is_over(live, seen) and not live.fenced else None


def _unconfirmed(state: State, seen: Seen, plan: Plan) -> Action | None:
    """A supervisor that has taken over waits for a lease, then starts its own attempt: be gone by then, at once."""
    if not seen.unconfirmed or _live(seen).killed_t is not None:
        return None
    return Kill(0.0, f"for {plan.lease_s:.0f} s neither run folder nor standby has answered: it may lead by now")


def _srun_gone(state: State, seen: Seen, plan: Plan) -> Action | None:
    """srun can end before its tasks do: killed, or told to by scancel while ranks ignore TERM."""
    live = _live(seen)
    if live.srun_code is None or live.reported or live.killed_t is not None:
        return None
    return Kill(FAILED_GRACE_S, f"srun has ended with exit code {live.srun_code}, and not every task with it")


def _kill_now(state: State, seen: Seen, plan: Plan) -> Action | None:
    """The only person who could stop a job was asleep: any member of the group can, at once."""
    asked = seen.asked("kill-now")
    if asked is None or _live(seen).killed_t is not None:
        return None
    return Kill(0.0, f"{asked.who} touched kill-now")


def _lost_progress(state: State, seen: Seen, plan: Plan) -> Action | None:
    """A training that has not loaded its checkpoint overwrites the newer ones, or prunes them: end it before its next
    save. At once: upon a TERM many trainings save, and what it has is older.
    """
    live = _live(seen)
    if live.lost is None or live.killed_t is not None or plan.restart.on_lost_progress != "stop":
        return None
    return Kill(0.0, live.lost)


def _grace_over(state: State, seen: Seen, plan: Plan) -> Action | None:
    """Asked gently, and the time is up."""
    live = _live(seen)
    if live.end_asked_t is None or live.killed_t is not None:
        return None
    if not patience.is_over(patience_of(live, seen, plan), seen.now, live.heard, live.saved_t):
        return None
    if live.saved_t is not None:
        return Kill(FAILED_GRACE_S, f"its next checkpoint is complete: {live.saved}")
    return Kill(FAILED_GRACE_S, f"still running {seen.now - live.end_asked_t:.0f} s after it was asked to end")


def _kill(state: State, seen: Seen, plan: Plan) -> Action | None:
    """The kill switch: gently first; it overrules a wait for a checkpoint."""
    asked, live = seen.asked("kill"), _live(seen)
    if asked is None or live.end_row not in (None, "checkpoint") or live.killed_t is not None:
        return None
    return AskToEnd(plan.kill_switch.signal, f"{asked.who} touched the kill switch")


def _checkpoint(state: State, seen: Seen, plan: Plan) -> Action | None:
    """`stop --checkpoint`: no step is to be lost; the signal asks for a checkpoint where a process takes it."""
    asked = seen.asked("checkpoint")
    if asked is None or _live(seen).end_asked_t is not None or _live(seen).killed_t is not None:
        return None
    return AskToEnd(plan.kill_switch.signal, f"{asked.who} wants it to stop at its next checkpoint")


def _ending(state: State, seen: Seen, plan: Plan) -> Action | None:
    """Slurm is ending the job: it kills at KillWait, so be first and leave a whole journal."""
    if seen.ending is None or _live(seen).killed_t is not None:
        return None
    return Kill(FAILED_GRACE_S, f"the job is being ended: {tell_ending(seen.ending)}")


def _limit_near(state: State, seen: Seen, plan: Plan) -> Action | None:
    """The time limit comes: ask for a checkpoint and go on in the successor, at no cost to the budget."""
    if not seen.limit_near or _live(seen).end_asked_t is not None or _live(seen).killed_t is not None:
        return None
    return AskToEnd(plan.kill_switch.signal, "the job's time limit is near")


def _node_lost(state: State, seen: Seen, plan: Plan) -> Action | None:
    """A silent node holds every collective, and Slurm notices after 300 s only (440 s measured)."""
    live = _live(seen)
    gone = [(node, why) for node, why in seen.lost if node in live.nodes]
    if not gone or live.killed_t is not None:
        return None
    return Kill(FAILED_GRACE_S, "; ".join(f"{node} is lost: {why}" for node, why in gone))


def _hung(state: State, seen: Seen, plan: Plan) -> Action | None:
    """35 h were lost to hangs that nobody noticed; ended when silence and the ranks agree (supervisor.hangs)."""
    live = _live(seen)
    if live.hung is None or live.killed_t is not None:
        return None
    return Kill(FAILED_GRACE_S, f"the attempt hangs: {live.hung}")


def _task_failed(state: State, seen: Seen, plan: Plan) -> Action | None:
    """One rank died: the others wait in a collective for ever (NCCL time-outs are 10-30 min); end them now."""
    live = _live(seen)
    if not live.failed or live.killed_t is not None or not plan.srun.kill_on_bad_exit:
        return None
    first = next((exit for exit in live.exits if exit.code), None)
    return Kill(FAILED_GRACE_S, first.text if first else f"srun ended with exit code {live.srun_code}")


ALIVE: tuple[Row, ...] = (
    _over, _kill_now, _unconfirmed, _lost_progress, _srun_gone, _grace_over, _node_lost, _task_failed, _kill,
    _checkpoint, _hung, _ending, _limit_near,
)


# --- between attempts ---------------------------------------------------------------------------------------------


def _ended(state: State, seen: Seen, plan: Plan) -> Action | None:
    """An end is final."""
    return Finish(state.ended.how, state.ended.exit_code, state.ended.why) if state.ended else None


def _completed(state: State, seen: Seen, plan: Plan) -> Action | None:
    """The command ended with 0 by itself; nothing that comes later changes that."""
    last = state.attempt
    if last is None or last.ended != "completed":
        return None
    return Finish("completed", DONE, f"attempt {last.number} ended with exit code 0")


def _killed_by_person(state: State, seen: Seen, plan: Plan) -> Action | None:
    """A person's word is final."""
    asked = seen.asked(*STOPS)
    if asked is None:
        return None
    found = seen.resume if asked.name == "checkpoint" else None
    at = f"; its newest complete checkpoint is of step {found.step}" if found is not None else ""
    return Finish("stopped", STOPPED, f"{tell_stop(asked)}{at}")


def _cancelled(state: State, seen: Seen, plan: Plan) -> Action | None:
    """scancel by a person is final; by Slurm (limit, preemption, requeue) it is not."""
    return Finish("stopped", STOPPED, "the job was cancelled by a person (scancel)") if (
        seen.ending == "cancelled") else None


def _give_up(state: State, seen: Seen, plan: Plan) -> Action | None:
    """Chains burn through their budget in minutes: look before anything is started."""
    reason = reason_to_give_up(state, plan)
    if reason is None:
        return None
    last, preserve = state.attempt, plan.preserve
    if seen.ending is None and seen.asked("release") is None:
        if state.preserving_until is None and preserve.for_s and last and (last.category or "unknown") in preserve.when:
            return Preserve(seen.now + preserve.for_s, reason.why)
        extended = seen.asked("extend")
        until = state.preserving_until
        if until is not None and extended is not None:   # from the touch on, as long again
            until = max(until, extended.t + preserve.for_s)
        if until is not None and seen.now < until:
            return Wait(until, "preserving the site for people")
    return Finish("gave_up", reason.exit_code, reason.why)


def _held(state: State, seen: Seen, plan: Plan) -> Action | None:
    """A person wants no new attempt for now: the nodes go back, and the next job waits until it is released.

    A local run has no queue to wait in, and takes nobody's nodes: it waits where it is.
    """
    asked = seen.asked("hold")
    if asked is None:
        return None
    why = f"{asked.who} put the run on hold"
    if plan.cluster == "local":
        return None if seen.ending else Wait(seen.now + 2.0, why)
    return HandOver(_bad(state, seen), why, held=True)


def _job_ends(state: State, seen: Seen, plan: Plan) -> Action | None:
    """Time limit, preemption, requeue or an unknown end of the job: the run goes on in the next one."""
    if not (seen.ending or seen.limit_near):
        return None
    return HandOver(_bad(state, seen), f"this job ends: {tell_ending(seen.ending)}")


def _alone(state: State, seen: Seen, plan: Plan) -> Action | None:
    """Cut off with this node only: whoever is on the other side goes on, and nothing can be asked of Slurm here."""
    return Wait(seen.now + 2.0, "this node is cut off from the others and from Slurm") if seen.alone else None


def _too_few_nodes(state: State, seen: Seen, plan: Plan) -> Action | None:
    """Not enough good nodes are left in the allocation."""
    good = good_nodes(state, seen)
    if len(good) >= plan.nodes:
        return None
    bad = ", ".join(node for node in _bad(state, seen) if node in seen.nodes)
    return HandOver(_bad(state, seen), f"of the {plan.nodes} nodes needed only {len(good)} can be used (without {bad})")


def _back_off(state: State, seen: Seen, plan: Plan) -> Action | None:
    """The first restart is at once; from the second failure in a row without progress on, wait: slow down, not give up.

    A node that was found dead and is kept out is no reason to wait: its failures are not counted.
    """
    last, failures = state.attempt, state.failures_without_progress
    if last is None or last.ended_t is None:
        return None
    if last.not_before is not None and seen.now < last.not_before < seen.now + MAX_PAUSE_S:
        return Wait(last.not_before, f"Slurm could not start attempt {last.number}, or ended it")
    wait_at_once = last.has_failed and response(plan, last.category).then == "wait"
    if failures < 2 and not wait_at_once:
        return None
    pause_s = plan.restart.backoff_s * 2 ** min(max(failures - 2, 0), 4) * (1 + 0.1 * seen.jitter)
    until = last.ended_t + pause_s
    # A clock that was set back by hours would make the run wait for hours (simulated).
    is_due = not seen.now < until < seen.now + pause_s + SKEW_S
    return None if is_due else Wait(until, f"{failures} failures in a row without progress")


def _unfenced(state: State, seen: Seen, plan: Plan) -> Action | None:
    """Two writers were seen after a slurmd was killed: an attempt whose end nobody wrote down may still be alive."""
    last = state.attempt
    if last is None or last.ended is not None:
        return None
    return Wait(seen.now + 2.0, f"nobody knows that attempt {last.number} has ended")


def _frozen(state: State, seen: Seen, plan: Plan) -> Action | None:
    """A training started on a frozen filesystem hangs in its first read: observe only, look again."""
    return Wait(seen.now + 2.0, "the run folder does not answer") if seen.frozen else None


def _no_storage(state: State, seen: Seen, plan: Plan) -> Action | None:
    """A full filesystem fails every attempt: wait until it takes writes again, then restart."""
    return Wait(seen.now + 2.0, f"the run's folders cannot be written: {seen.trouble}") if seen.trouble else None


def _launch(state: State, seen: Seen, plan: Plan) -> Action | None:
    """Go on, on the good nodes in Slurm's order."""
    last, chosen = state.attempt, good_nodes(state, seen)[: plan.nodes]
    nodes = tuple(node for node in seen.nodes if node in chosen)
    if last is None:
        return Launch(nodes, "first attempt")
    none = f"no complete checkpoint, {len(state.skipped)} skipped" if state.skipped else "no checkpoint yet"
    if seen.resume is None:
        at = f"the start: {none}"
    else:
        at = f"checkpoint {f'at step {seen.resume.step}' if seen.resume.step is not None else seen.resume.path}"
    return Launch(nodes, f"attempt {last.number} {last.ended or 'is over'}"
                         f"{f' ({last.summary})' if last.summary else ''}; going on from {at}")


BETWEEN: tuple[Row, ...] = (
    _ended, _completed, _killed_by_person, _cancelled, _give_up, _alone, _held, _job_ends, _too_few_nodes, _unfenced,
    _frozen, _no_storage, _back_off, _launch,
)


# --- shared judgements --------------------------------------------------------------------------------------------


def _bad(state: State, seen: Seen) -> tuple[str, ...]:
    """Nodes that the next job must not use: those kept out, and whatever is lost now, evidence or not."""
    kept_out = () if _begins_nothing(state) else state.excluded
    return tuple(sorted({*kept_out, *(node for node, _ in seen.lost)}))


def _begins_nothing(state: State) -> bool:
    """Whether the last three jobs, this one included, have launched nothing: then what they get must do.

    Simulated: two hosts whose clocks were hours apart disagreed on which node to keep out, and the run went from one
    job to the next each three seconds, for ever.
    """
    last = [job.id for job in state.jobs if job.started_t is not None][-MAX_BARREN:]
    return len(last) == MAX_BARREN and not any(attempt.job in last for attempt in state.attempts)


def good_nodes(state: State, seen: Seen) -> tuple[str, ...]:
    """The allocation's nodes that are neither lost nor excluded, in Slurm's order; suspects that no job of the run can
    do without come last, so that a spare takes their place.
    """
    bad, doubted = set(_bad(state, seen)), dict(state.left_out)
    return tuple(sorted((node for node in seen.nodes if node not in bad), key=lambda node: node in doubted))


def how_it_ended(live: Live, seen: Seen) -> str:
    """The word for an attempt's end: completed | failed | lost | stopped | interrupted.

    Exit code 0 counts only of a training that nobody told to end: one that watches the kill switch, or saves on Slurm's
    TERM at the time limit, ends well because of it, and is not complete.
    """
    asked_by_person = live.end_row in BY_PERSON or seen.asked(*STOPS) is not None
    job_ends = live.end_row in ("limit_near", "ending", *LEADERLESS) or seen.ending is not None
    was_told = asked_by_person or job_ends or live.end_asked_t is not None or live.killed_t is not None
    never_knew = live.end_row == "checkpoint" and live.heard == 0 and live.killed_t is None
    if never_knew and _ended_well(live) and not (job_ends or seen.asked("kill-now", "kill")):
        was_told = asked_by_person = False   # it has come to its own end first
    ended_well = _ended_well(live) and not was_told
    if ended_well and live.reported:
        return "completed"   # every task has said so; what its node does afterwards takes nothing back
    if any(node in live.nodes for node, _ in seen.lost):
        return "lost"
    if seen.suspended and not _ended_well(live):
        return "interrupted"   # the guards' fence ends ranks that stood still for longer than a lease
    if asked_by_person:
        return "stopped"
    if job_ends:
        return "interrupted"
    return "completed" if ended_well else "failed"


def _ended_well(live: Live) -> bool:
    """Every task said exit code 0, or srun did where the guards could not."""
    ends = {(exit.node, exit.task): exit.code for exit in live.exits}
    if any(ends.values()):
        return False
    return len(ends) >= live.tasks or live.srun_code == 0


def _live(seen: Seen) -> Live:
    assert seen.live is not None
    return seen.live


def is_over(live: Live, seen: Seen) -> bool:
    """Every task that can still speak has ended, as guards or srun say; or nothing more can be done to end them."""
    if live.reported or (live.srun_code is not None and (live.srun_code == 0 or live.killed_t is not None)):
        return True
    if live.killed_t is None:
        return False
    lost = {node for node, _ in seen.lost}
    silent = sum(node in lost for node in live.nodes) * (live.tasks // max(1, len(live.nodes)))
    spoken = len({(exit.node, exit.task) for exit in live.exits if exit.node not in lost})
    return spoken >= live.tasks - silent or seen.now > live.killed_t + KILL_PATIENCE_S


def patience_of(live: Live, seen: Seen, plan: Plan) -> patience.Patience:
    """How long the attempt, which was asked to end, has for that."""
    request = seen.asked("checkpoint")
    return patience.judge(plan, live.end_row, live.end_asked_t or seen.now, live.heard, request.t if request else 0.0)


def mark_asked(live: Live, row: str, now: float) -> Live:
    """The attempt after AskToEnd, which can be said twice: a kill switch overrules a wait for a checkpoint."""
    return replace(live, end_asked_t=now, end_row=row, heard=None)


def mark_killed(live: Live, row: str, now: float) -> Live:
    """The attempt after Kill."""
    return replace(live, killed_t=now, end_row=live.end_row or row)
