"""Where the time of a run went: every second from its submission on has one kind.

Useful time makes steps that the run had not made before. All other time has a cause, a row of KINDS. What is left is
"down". It goes from the last step to the end of an attempt that failed, and from there to the next attempt in the same
job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from safelaunch.core.endings import GOOD_ENDS
from safelaunch.core.model import Event
from safelaunch.core.progress.figures import median
from safelaunch.core.records import NamedTuple
from safelaunch.core.state import State
from safelaunch.core.status.costs import Track, last_step_t, when_reached

USEFUL, REDONE, QUEUE, BOOT, START, HANG, KEPT, DOWN = (
    "useful", "redone", "queue", "boot", "start", "hang", "preserved", "down")

# Kind → its name for people, and what it means, in the order of the bar.
KINDS: dict[str, tuple[str, str]] = {
    USEFUL: ("useful", "steps that the run had not made before"),
    REDONE: ("made again", "steps behind the checkpoint that a restart went back to"),
    START: ("start-up", "from the start of an attempt to its first step"),
    BOOT: ("boot", "from the start of a job to its first attempt: checks of the nodes"),
    QUEUE: ("queue", "no job of the run had nodes"),
    HANG: ("hang", "from the last step to the end of an attempt that hung"),
    KEPT: ("preserved", "nodes were kept for people to look at"),
    DOWN: ("down", "from the last step of a failed attempt to the next attempt in the same job"),
}


class Span(NamedTuple):
    """A piece of time of one kind; `attempt` None = between two."""

    kind: str
    start_t: float
    end_t: float
    attempt: int | None = None

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end_t - self.start_t


class Jobs(NamedTuple):
    """What the journal says of the time outside of attempts."""

    submitted_t: float | None
    starts: tuple[tuple[float, str], ...]           # when a job started, and which
    kept: tuple[tuple[float, float], ...]           # from when to when nodes were preserved
    hung: frozenset[int]                            # attempts with a suspected hang after which no step came


def read_jobs(events: Sequence[Event], until: float) -> Jobs:
    """Starts of jobs, preserved nodes and hangs in a journal; lines in another version's form are left out."""
    submitted_t: float | None = None
    starts: list[tuple[float, str]] = []
    kept: list[tuple[float, float]] = []
    hung: set[int] = set()
    steps: dict[int, Any] = {}
    for event in events:
        number = event.data.get("attempt")
        match event.event:
            case "submitted" if submitted_t is None:
                submitted_t = event.t
            case "job_started":
                starts.append((event.t, str(event.data.get("job"))))
            case "preserved":
                kept.append((event.t, _number(event.data.get("until"), until)))
            case "released" | "attempt_started" if kept and kept[-1][1] > event.t:
                kept[-1] = (kept[-1][0], event.t)
            case "hang_suspected" if isinstance(number, int):
                hung.add(number)
            case "progress" if isinstance(number, int) and (step := event.data.get("step")) != steps.get(number):
                hung.discard(number)   # the end of an attempt tells its last step again
                steps[number] = step
    return Jobs(submitted_t, tuple(starts), tuple(kept), frozenset(hung))


def is_in_no_queue(state: State) -> bool:
    """Whether the time since the last attempt is none in the queue: the run has ended, or its job goes on."""
    job, attempt = state.job, state.attempt
    return state.ended is not None or (job is not None and attempt is not None and job.id == attempt.job
                                       and not job.over)


def divide(tracks: Sequence[Track], jobs: Jobs, until: float, is_over: bool) -> tuple[Span, ...]:
    """The spans from the submission to `until`, in order and without gaps. `is_over`: what comes behind the last
    attempt is no time in the queue.
    """
    begins = [t for t in (jobs.submitted_t, tracks[0].started_t if tracks else None) if t is not None]
    since_t = at = min(begins, default=until)
    spans: list[Span] = []
    high, before, pace_s = 0, "", usual_pace_s(tracks)
    for index, track in enumerate(tracks):
        spans += _between(at, track.started_t, jobs, before, track.job)
        end_t = track.ended_t
        if end_t is None:   # it lives, or its end is in no journal
            end_t = tracks[index + 1].started_t if index + 1 < len(tracks) else until
        spans += _within(track, end_t, high, track.pace_s or pace_s, track.number in jobs.hung)
        high, at, before = max(high, track.last_step), max(at, end_t), track.job
    if at < until:
        spans += _between(at, until, jobs, before, before if is_over else None)
    return tuple(_in_order(spans, since_t))


def _in_order(spans: Iterable[Span], at: float) -> Iterator[Span]:
    """The same without what is empty or overlaps: the clocks of a run's hosts differ."""
    for span in spans:
        if span.end_t > at:
            yield span._replace(start_t=at)
            at = span.end_t


def totals(spans: Iterable[Span]) -> dict[str, float]:
    """Seconds of each kind, all of them named."""
    found = dict.fromkeys(KINDS, 0.0)
    for span in spans:
        found[span.kind] += span.seconds
    return found


def _between(start: float, end: float, jobs: Jobs, before: str, after: str | None) -> list[Span]:
    """The time between two attempts; `before` and `after` are their jobs, None = the next one is not known yet."""
    later = [t for t, job in jobs.starts if start <= t <= end and (job == after or after is None)]
    if before and before == after and not later:
        return _with_kept(start, end, DOWN, jobs.kept)
    begun_t = later[-1] if later else end
    return [*_with_kept(start, begun_t, QUEUE, jobs.kept), *_with_kept(begun_t, end, BOOT, jobs.kept)]


def _with_kept(start: float, end: float, kind: str, kept: Sequence[tuple[float, float]]) -> list[Span]:
    """The piece in spans of `kind`, with those in which nodes were kept taken out."""
    cuts = sorted({start, end, *(t for pair in kept for t in pair if start < t < end)})
    return [Span(KEPT if any(a <= low and high <= b for a, b in kept) else kind, low, high)
            for low, high in pairwise(cuts)]


def usual_pace_s(tracks: Sequence[Track]) -> float | None:
    """Seconds a step in the whole run, for attempts too short to tell; None = no attempt has told two steps."""
    paces = [pace_s for track in tracks if (pace_s := track.pace_s) is not None]
    if not paces:
        paces = [(later_t - t) / (later - step) for track in tracks for (t, step), (later_t, later)
                 in pairwise(track.points) if later > step and later_t > t]
    return median(paces) if paces else None


def _within(track: Track, end_t: float, high: int, pace_s: float | None, has_hung: bool) -> list[Span]:
    """The time of one attempt; `high` is as far as the run had come before it."""
    number, start_t = track.number, track.started_t
    if not track.points:
        return [Span(HANG if has_hung else START, start_t, end_t, number)]
    first_t = _clip(when_reached(track, min(track.resume_step + 1, track.points[0][1]), pace_s), start_t, end_t)
    is_smooth = track.ended_t is None or track.why in GOOD_ENDS
    last_t = end_t if is_smooth and not has_hung else _clip(last_step_t(track), first_t, end_t)
    again_t = first_t
    if high > track.resume_step:
        again_t = _clip(when_reached(track, high, pace_s), first_t, last_t)
    return [Span(START, start_t, first_t, number), Span(REDONE, first_t, again_t, number),
            Span(USEFUL, again_t, last_t, number), Span(HANG if has_hung else DOWN, last_t, end_t, number)]


def _clip(t: float | None, low: float, high: float) -> float:
    """`t` within the bounds; the upper one where it is not known."""
    return high if t is None else max(low, min(high, t))


def _number(value: object, most: float) -> float:
    """The time, not later than `most`; `most` where it is none."""
    return min(most, float(value)) if isinstance(value, (int, float)) and value == value else most
