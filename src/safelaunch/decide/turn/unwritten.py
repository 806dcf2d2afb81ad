"""What a supervisor that died may have left, although the journal does not tell: attempts, and jobs to be ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from safelaunch.base.model import Event
from safelaunch.decide.facts.actions import FAILED_GRACE_S, Kill
from safelaunch.decide.facts.seen import Live
from safelaunch.decide.turn.alive import ASKING
from safelaunch.run.fold.state import Attempt, Intent, State


class ThisJob(NamedTuple):
    """The job of the supervisor that asks. `is_same`: an earlier supervisor led this very job."""

    id: str
    host: str
    nodes: tuple[str, ...]
    restart_count: int = 0
    is_same: bool = False
    has_taken_over: bool = False


def announced(state: State, intent: Intent, here: ThisJob) -> dict[str, object] | None:
    """The fields of the missing `attempt_started` of an announced launch; None = nothing is missing.

    What this host's own earlier supervisor launched is found on its disk.
    """
    if intent.act != "launch" or "nodes" not in intent.data:
        return None
    number, job = int(intent.data["attempt"]), str(intent.data.get("job"))
    is_ours = not here.has_taken_over and job == here.id and here.is_same
    if is_ours or _has_attempt(state, number):
        return None
    return {"attempt": number, "job": job, "nodes": list(intent.data["nodes"]), "resize": intent.data.get("resize"),
            "note": "announced by a supervisor that died"}


def claimed(
    state: State, history: Iterable[Event], claim: Mapping[str, Any], here: ThisJob
) -> dict[str, object] | None:
    """The same for an attempt of which only the claim is left: its host died with the journal's last lines (simulated:
    test_found "attempt of which only the claim is left keeps its number").
    """
    if _has_attempt(state, claim["attempt"]):
        return None
    job, host = str(claim["job"]), str(claim.get("host"))
    is_own = (job, host) == (here.id, here.host) and not here.has_taken_over
    if is_own and (here.is_same or not here.restart_count):
        return None   # its files are on this host's disk, or it was never launched
    if any(event.event == "intent" and event.data.get("claim") == claim["claim"] for event in history):
        return None   # the journal has it
    nodes = next((one.nodes for one in state.jobs if one.id == job and one.nodes), ())
    return {"attempt": claim["attempt"], "job": job, "nodes": list(here.nodes if job == here.id else nodes),
            "note": "claimed by a supervisor that died"}


class Adopt(Enum):
    """What a leader that starts makes of the run's last attempt."""

    NOTHING = "it is another job's, and nobody has written its end yet"
    RESUME = "there is none that could live: find what the next one starts from"
    TAKE = "it is this job's, and may live: take it over"


def adopt(last: Attempt | None, job: str) -> Adopt:
    """Whether the last attempt is taken over; `job`: the leader's."""
    if last is None or last.ended is not None:
        return Adopt.RESUME
    return Adopt.TAKE if last.job == job else Adopt.NOTHING


class AfterAdopting(Enum):
    """What is still due for an attempt that was taken over."""

    MOVE_RECORD = "tell its guards of this endpoint by the record"
    ASK_ON = "go on with a request to end that its last leader began"
    FENCE = "end it: its last leader's host is silent, and only its guards can tell"


def after_adopting(
    asked_row: str | None, *, has_process: bool, has_moved: bool, has_taken_over: bool
) -> tuple[AfterAdopting, ...]:
    """In order. `has_process`: its srun runs on this host; `has_moved`: another process has the last leader's port."""
    if not has_process:
        return (AfterAdopting.FENCE,) if has_taken_over else ()
    due = ((AfterAdopting.MOVE_RECORD, has_moved), (AfterAdopting.ASK_ON, asked_row in ASKING))
    return tuple(act for act, is_due in due if is_due)


def _has_attempt(state: State, number: int) -> bool:
    return state.attempt is not None and state.attempt.number >= number


def is_left_running(state: State, job: str, here: ThisJob) -> bool:
    """Whether the cancel of `job` was announced by a supervisor that had passed the run on, to the job of this one."""
    return job != here.id and any(one.id == job and one.started_t is not None for one in state.jobs)


def is_host_lost(live: Live | None, attempt: int, host: str, *, answers: bool) -> bool:
    """Whether the host of the supervisor before is lost, once its guards have had time to call this one. If only the
    supervisor stood still, its attempt can be over by then, and the next one's guards on their way. (In a drill under
    load that healthy node was lost.)
    """
    return live is not None and live.number == attempt and host in live.nodes and not answers


def end_of_silent(host: str) -> Kill:
    """How the attempt ends that a supervisor on `host` led, which is silent now and cannot be asked for its facts."""
    return Kill(FAILED_GRACE_S, f"its supervisor on {host} is silent")
