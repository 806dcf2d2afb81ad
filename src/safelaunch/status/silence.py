"""Whether a running attempt is silent: a step is later than its phase ever was (hangs.late), by the leader's last
pulse and by the log, which is newer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from safelaunch.run.fold.state import State
from safelaunch.status.speech import duration
from safelaunch.status.states import RUNNING

SILENT = "silent"


class LateStep(NamedTuple):
    """No step since `since_t` (epoch s), which is later than ever since `late_t`."""

    since_t: float
    late_t: float
    step: int | None
    usual_s: float | None
    phase: str


class SeenHeartbeat(NamedTuple):
    """A leader's last heartbeat, and its age. `step_t`: when its attempt made that step; `late_t`: when the next one
    is late.
    """

    age_s: float
    is_stale: bool
    host: str
    gen: int | None
    guards: int | None
    hang_t: float | None
    attempt: int | None
    step: int | None
    step_t: float | None
    late_t: float | None
    phase: str = ""


def judge(
    told: SeenHeartbeat, named: int | None, grew_t: float | None, usual_s: float | None, now: float
) -> LateStep | None:
    """The silence at `now`; `named`: the step that the log names by itself, which has last grown at `grew_t`."""
    if told.step_t is None or told.late_t is None:
        return None
    since_t, late_t, step = told.step_t, told.late_t, told.step
    if named is not None and grew_t is not None and named != step:   # a step that this pulse does not know
        later_s = max(0.0, grew_t - since_t)
        since_t, late_t, step = since_t + later_s, late_t + later_s, named
    return LateStep(since_t, late_t, step, usual_s, told.phase) if now > late_t else None


def sentence(found: LateStep, now: float, span: Callable[[float], str]) -> str:
    """ "the last step, 89, was 2 min ago; usually one comes each 216 ms"."""
    usual = f"; usually one takes {duration(found.usual_s, span)}" if found.usual_s else ""
    what = "" if found.phase in ("", "step", "warm-up", "start") else f" (phase: {found.phase})"
    if found.step is None:
        return f"no step for {span(now - found.since_t)} after its start, longer than the attempts before took{what}"
    return f"the last step, {found.step}, was {span(now - found.since_t)} ago{usual}{what}"


def rounded(found: LateStep | None) -> LateStep | None:
    """The same in tenths of a second."""
    return None if found is None else found._replace(since_t=round(found.since_t, 1), late_t=round(found.late_t, 1))


def find(state: State, pulse: SeenHeartbeat | None, named: int | None, grew_t: float | None,
         usual_s: float | None, now: float) -> LateStep | None:
    """The silence of an attempt that runs, by its leader's last heartbeat; None = it is not, or nobody knows. All
    pages (`status`, `top`, `why`) ask here.
    """
    attempt = state.attempt if state.name == RUNNING else None
    if attempt is None or pulse is None or pulse.attempt != attempt.number:
        return None
    return judge(pulse, named, grew_t, usual_s, now)


def step_t(pulse: SeenHeartbeat | None, step: int | None, grew_t: float | None) -> float | None:
    """When the living attempt's log has named its last step, which has last grown at `grew_t`; None = nobody knows."""
    told_t = pulse.step_t if pulse is not None and pulse.step == step else None
    return grew_t if told_t is None else told_t


def with_sentence(plain: str, found: LateStep | None, now: float, span: Callable[[float], str]) -> str:
    """The sentence on a run's state, with its silence first."""
    return plain if found is None else f"{sentence(found, now, span)}; {plain}"
