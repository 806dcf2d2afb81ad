"""Where the time of a run went: every second from its submission on has one kind.

Useful time makes steps that the run had not made before. All other time has a cause, a row of KINDS. What is left is
"down". It goes from the last step to the end of an attempt that did not complete, and from there to the next attempt in
the same job. `settle` makes the one account that `status`, the report, its drawings and the figures are taken from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from safelaunch.base.endings import GOOD_ENDS, AttemptEnd
from safelaunch.base.model import Event
from safelaunch.run.fold.folding import HANDED_OVER
from safelaunch.run.fold.state import State
from safelaunch.status import costs
from safelaunch.status.costs import Costs, Track, last_step_t, when_reached
from safelaunch.trainlog.figures import median

USEFUL, REDONE, QUEUE, BOOT, START, HANG, KEPT, DOWN, UNREAD = (
    "useful", "redone", "queue", "boot", "start", "hang", "preserved", "down", "unread")
UNREAD_S = 300.0     # an attempt of a run whose log names no step is no longer than that at its start
UNREAD_SHARE = 0.01  # of all time: above it nobody can say what was useful

# Kind → its name for people, and what it means, in the order of the bar.
KINDS: dict[str, tuple[str, str]] = {
    USEFUL: ("useful", "steps that the run had not made before"),
    REDONE: ("made again", "steps behind the checkpoint that a restart went back to"),
    START: ("start-up", "from the start of an attempt to its first step"),
    BOOT: ("boot", "from the start of a job to its first attempt: checks of the nodes"),
    QUEUE: ("queue", "no job of the run had nodes"),
    HANG: ("hang", "from the last step to the end of a hang: the attempt's end, or its next step"),
    KEPT: ("preserved", "nodes were kept for people to look at"),
    DOWN: ("down", "from the last step of an attempt that did not complete to the next one in the same job"),
    UNREAD: ("steps not read", "an attempt in whose log no step could be read"),
}


class Span(NamedTuple):
    """A piece of time of one kind; `attempt` None = between two."""

    kind: str
    start_t: float
    end_t: float
    attempt: int | None = None

    @property
    def seconds(self) -> float:
        return self.end_t - self.start_t


class Jobs(NamedTuple):
    """What the journal says of the time outside of attempts."""

    submitted_t: float | None
    starts: tuple[tuple[float, str], ...]           # when a job started, and which
    kept: tuple[tuple[float, float], ...]           # from when to when nodes were preserved
    left: tuple[float, ...] = ()                    # when a job gave the run on to the next one


class Account(NamedTuple):
    """The time of a run: its attempts, the spans, the cost of its restarts."""

    tracks: tuple[Track, ...]
    spans: tuple[Span, ...]
    costs: Costs

    @property
    def seconds(self) -> dict[str, float]:
        return totals(self.spans)

    @property
    def goodput(self) -> float | None:
        """The share of useful time in all of it; None where nobody can tell it from the rest."""
        return goodput_of(self.seconds) if self.is_known else None

    @property
    def is_known(self) -> bool:
        """False: of steps that the journal tells of only once an attempt nobody knows when they were made."""
        return usual_pace_s(self.tracks) is not None or not any(track.points for track in self.tracks)


def goodput_of(seconds: Mapping[str, float]) -> float | None:
    """The share of useful time; None where steps could not be read."""
    whole = sum(seconds.values())
    return seconds[USEFUL] / whole if whole > 0 and seconds.get(UNREAD, 0.0) <= UNREAD_SHARE * whole else None


class Books:
    """The accounts of a journal that grows."""

    def __init__(self) -> None:
        self._tracks = costs.Tracks()
        self._rest: list[Event] = []   # of the time outside of attempts

    def add(self, events: Iterable[Event]) -> None:
        """Its next lines."""
        known = tuple(events)
        self._tracks.add(known)
        self._rest += [event for event in known if event.event in _OUTSIDE]

    def until(self, state: State, now: float, step: int | None = None, step_t: float | None = None,
              silent_t: float | None = None) -> Account:
        """The account to the run's end, or until `now`, when its log names `step`, since `step_t`. `silent_t`: it is
        silent since then, which counts as a hang until its next step.
        """
        until = state.ended.t if state.ended else now
        tracks = self._tracks.until(until, step, step_t, silent_t)
        spans = divide(tracks, read_jobs(self._rest, until), until, is_in_no_queue(state))
        starts = {job.id: job.started_t for job in state.jobs if job.started_t is not None}
        return Account(tracks, spans, costs.count(tracks, starts, now, state.ended.t if state.ended else None))


_OUTSIDE = frozenset({"submitted", "job_started", "preserved", "released", "attempt_started", *HANDED_OVER})


def settle(events: Iterable[Event], state: State, now: float, step: int | None = None,
           step_t: float | None = None, silent_t: float | None = None) -> Account:
    """The account of a whole journal."""
    books = Books()
    books.add(events)
    return books.until(state, now, step, step_t, silent_t)


def read_jobs(events: Iterable[Event], until: float) -> Jobs:
    """Starts of jobs and preserved nodes in a journal; lines in another version's form are left out."""
    submitted_t: float | None = None
    starts: list[tuple[float, str]] = []
    kept: list[tuple[float, float]] = []
    left: list[float] = []
    for event in events:
        match event.event:
            case "submitted" if submitted_t is None:
                submitted_t = event.t
            case "job_started":
                starts.append((event.t, str(event.data.get("job"))))
            case "preserved" if kept and kept[-1][1] > event.t:   # it was extended
                kept[-1] = (kept[-1][0], _number(event.data.get("until"), until))
            case "preserved":
                kept.append((event.t, _number(event.data.get("until"), until)))
            case "released" | "attempt_started" if kept and kept[-1][1] > event.t:
                kept[-1] = (kept[-1][0], event.t)
            case one if one in HANDED_OVER:
                left.append(event.t)
    return Jobs(submitted_t, tuple(starts), tuple(kept), tuple(left))


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
    is_read = any(track.points for track in tracks)
    for index, track in enumerate(tracks):
        spans += _between(at, track.started_t, jobs, before, track.job)
        end_t = track.ended_t
        if end_t is None:   # it lives, or its end is in no journal
            end_t = tracks[index + 1].started_t if index + 1 < len(tracks) else until
        spans += _within(track, end_t, high, track.pace_s or pace_s, is_read or track.is_hook, jobs.kept)
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
    begun = [t for t, _ in jobs.starts if start <= t <= end]
    left = [t for t in jobs.left if start <= t <= end]
    is_same = bool(before) and before == after and not begun
    # Where no line says when the job before was left, it was at its attempt's end.
    has_nodes = bool(before) and (is_same or bool(left and (not begun or left[0] < begun[0])))
    marks = [(start, DOWN if has_nodes else QUEUE), *((t, BOOT) for t in begun),
             *((t, QUEUE) for t in left if not is_same), (end, "")]
    marks.sort(key=lambda mark: mark[0])
    return [span for (low, kind), (high, _) in pairwise(marks) for span in _cut_out(low, high, kind, jobs.kept, KEPT)]


def _cut_out(start: float, end: float, kind: str, others: Sequence[tuple[float, float]], other: str,
             attempt: int | None = None) -> list[Span]:
    """The piece in spans of `kind`, with those within `others` as `other`."""
    cuts = sorted({start, end, *(t for pair in others for t in pair if start < t < end)})
    return [Span(other if any(a <= low and high <= b for a, b in others) else kind, low, high, attempt)
            for low, high in pairwise(cuts)]


def usual_pace_s(tracks: Sequence[Track]) -> float | None:
    """Seconds a step in the whole run, for attempts too short to tell; None = no attempt has told two steps."""
    paces = [pace_s for track in tracks if (pace_s := track.pace_s) is not None]
    if not paces:
        paces = [(later_t - t) / (later - step) for track in tracks for (t, step), (later_t, later)
                 in pairwise(track.points) if later > step and later_t > t]
    return median(paces) if paces else None


def _within(track: Track, end_t: float, high: int, pace_s: float | None, is_read: bool,
            kept: Sequence[tuple[float, float]]) -> list[Span]:
    """The time of one attempt; `high` is as far as the run had come before it. `is_read`: steps of the run are read."""
    number, start_t = track.number, track.started_t
    tail = HANG if track.has_hung else DOWN
    if not track.points:
        kind = START if is_read or _is_start(track, end_t) else UNREAD
        return _cut_out(start_t, end_t, HANG if track.has_hung else kind, kept, KEPT, number)
    first_t = _clip(when_reached(track, min(track.resume_step + 1, track.points[0][1]), pace_s), start_t, end_t)
    is_smooth = track.ended_t is None or track.why in GOOD_ENDS
    last_t = end_t if is_smooth and not track.has_hung else _clip(last_step_t(track), first_t, end_t)
    again_t = first_t
    if high > track.resume_step:
        again_t = _clip(when_reached(track, high, pace_s), first_t, last_t)
    return [Span(START, start_t, first_t, number), *_cut_out(first_t, again_t, REDONE, track.passed, HANG, number),
            *_cut_out(again_t, last_t, USEFUL, track.passed, HANG, number),
            *_cut_out(last_t, end_t, tail, kept, KEPT, number)]


def _is_start(track: Track, end_t: float) -> bool:
    """Whether an attempt of a run without any step was still at its start, as far as anybody can say."""
    return track.why not in (*GOOD_ENDS, AttemptEnd.INTERRUPTED) and end_t - track.started_t <= UNREAD_S


def _clip(t: float | None, low: float, high: float) -> float:
    """`t` within the bounds; the upper one where it is not known."""
    return high if t is None else max(low, min(high, t))


def _number(value: object, most: float) -> float:
    """The time, not later than `most`; `most` where it is none."""
    return min(most, float(value)) if isinstance(value, (int, float)) and value == value else most
