"""What restarts have cost a run, how fast it goes, and when it will be done: from the journal's times of its steps.

The journal holds the first step of each attempt, one a minute, and the last one, with the time at which the log named
it (`at_t`); times between them are interpolated. A suspected hang tells since when there was no step, and that piece is
interpolated by nobody. Of a long series a reader may take fewer (run.io.journal.read).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from safelaunch.base.model import Event
from safelaunch.trainlog.figures import median

PACE_POINTS = 30      # half an hour of steps: evaluations and checkpoints between them are counted, old habits are not
TREND_POINTS = 5      # minutes: an evaluation among them moves no median
READ_LATE_S = 2.5     # of an older journal's lines, half of the 5 s between two looks: it has no `at_t`, no `counter`
LEAST_PACE_S = 5.0    # two steps closer together say nothing of the pace


class QuietSpell(NamedTuple):
    """A suspected hang: since when no step came, and the step before. `is_work`: whether its check has seen the ranks
    work; None = it has not ended.
    """

    since_t: float
    step: int
    is_work: bool | None = None


class Track(NamedTuple):
    """The steps that an attempt made and when: (epoch s, step), in order."""

    number: int
    job: str
    started_t: float
    resume_step: int
    points: tuple[tuple[float, int], ...] = ()
    ended_t: float | None = None
    why: str = ""
    silences: tuple[QuietSpell, ...] = ()
    is_timed: bool = False     # its last point has the time at which the log named the step
    was_hung: bool = False     # it was ended because it hung, or that is the verdict
    is_hook: bool = False      # before_resize: it makes no steps
    is_own_start: bool = False     # nobody told it where to begin: its first step tells

    @property
    def last_step(self) -> int:
        """The highest step that it is known to have made; without any the one that it began with."""
        return max((step for _, step in self.points), default=self.resume_step)

    @property
    def has_hung(self) -> bool:
        """Whether it made no step from a suspected hang on, and nobody saw its ranks work since."""
        last = self.silences[-1] if self.silences else None
        return self.was_hung or (last is not None and not last.is_work and last.step >= self.last_step)

    @property
    def passed(self) -> tuple[tuple[float, float], ...]:
        """Hangs that passed by themselves, as of a frozen folder: from the last step before to the next one."""
        found = []
        for one in self.silences:
            later = next(((t, step) for t, step in self.points if step > one.step), None)
            if later is not None and one.is_work is False:
                again_s = (later[1] - one.step) * (self.pace_s or 0.0)
                found.append((one.since_t, max(one.since_t, later[0] - again_s)))
        return tuple(found)

    @property
    def pace_s(self) -> float | None:
        """Seconds a step by the wall clock, checkpoints and evaluations included; None = it is not known."""
        paces = [(later_t - t) / (later - step) for (t, step), (later_t, later) in pairwise(self.points[-PACE_POINTS:])
                 if later > step and later_t - t >= LEAST_PACE_S]
        return median(paces) if paces else None

    @property
    def trend(self) -> float | None:
        """How the last TREND_POINTS paces compare with those before them: 0.1 = 10 % slower; None = too few."""
        now = self._replace(points=self.points[-TREND_POINTS - 1:]).pace_s
        before = self._replace(points=self.points[:-TREND_POINTS]).pace_s
        if now is None or before is None or len(self.points) < 3 * TREND_POINTS:
            return None
        return now / before - 1


class RestartCost(NamedTuple):
    """What a restart has cost: steps that are made again, and the time until the run was as far as before."""

    attempt: int          # the one that it began
    t: float              # when the one before it ended
    why: str
    from_step: int        # as far as the run had come
    to_step: int          # where the attempt began
    steps: int
    seconds: float
    queued_s: float       # of them, those in which no job of the run had nodes
    is_over: bool         # it is as far as before, or has nothing left to do


class Costs(NamedTuple):
    """All restarts, and the share of the time since the first attempt began that was lost to them."""

    restarts: tuple[RestartCost, ...] = ()
    steps: int = 0
    seconds: float = 0.0
    since_t: float | None = None
    overhead: float | None = None


class Tracks:
    """The tracks of a journal that grows."""

    def __init__(self) -> None:
        self._tracks: dict[int, Track] = {}
        self._points: dict[int, list[tuple[float, int]]] = {}   # a journal may hold ten thousand

    def add(self, events: Iterable[Event]) -> None:
        """Its next lines."""
        for event in events:
            try:
                _note(self._tracks, self._points, event)
            except (KeyError, TypeError, ValueError, OverflowError):
                continue   # of another version's form

    def until(self, now: float, step: int | None = None, step_t: float | None = None,
              silent_t: float | None = None) -> tuple[Track, ...]:
        """All of them, in order; `step` is where the living one is `now`, by its log, which named it at `step_t`.
        `silent_t`: since when it makes no step that it should have made.
        """
        found = [_with_points(track, self._points[number]) for number, track in sorted(self._tracks.items())]
        if found and found[-1].ended_t is None and step is not None and step > found[-1].last_step:
            at_t = now if step_t is None else min(now, step_t)
            found[-1] = _with_points(found[-1], [*self._points[found[-1].number], (at_t, step)])
        if silent_t is not None and found and found[-1].points and not found[-1].has_hung:
            last = found[-1]
            found[-1] = last._replace(silences=(*last.silences, QuietSpell(silent_t, last.last_step)))
        return tuple(found)


def follow(events: Iterable[Event], now: float, step: int | None = None,
           step_t: float | None = None) -> tuple[Track, ...]:
    """The attempts' tracks in order; `step` is where the living one is `now`, by its log."""
    tracks = Tracks()
    tracks.add(events)
    return tracks.until(now, step, step_t)


def _with_points(track: Track, points: Sequence[tuple[float, int]]) -> Track:
    """With its points in order, and one where each hang that passed was over."""
    found = track._replace(points=tuple(points))
    ends = [(end_t, next(one.step for one in track.silences if one.since_t == since_t))
            for since_t, end_t in found.passed] if track.silences else []
    return found._replace(points=tuple(sorted((*points, *ends), key=lambda point: point[::-1]))) if ends else found


def _note(tracks: dict[int, Track], points: dict[int, list[tuple[float, int]]], event: Event) -> None:
    data = event.data
    if event.event not in _TOLD or (event.event == "decision" and data.get("row") != "hang"):
        return
    number = int(data["attempt"])
    if event.event == "attempt_started":
        tracks.setdefault(number, Track(number, str(data["job"]), event.t, int(data.get("resume_step") or 0),
                                        is_hook=data.get("resize") is not None,
                                        is_own_start=(data.get("resume_step") is None
                                                      and data.get("resume_path") is None)))
        points.setdefault(number, [])
    if number not in tracks:
        return
    track = tracks[number]
    match event.event:
        case "progress":
            told_t = _time(data.get("at_t"), event.t)
            late_s = 0.0 if "counter" in data else READ_LATE_S
            at_t = max(track.started_t, event.t - late_s) if told_t is None else told_t
            if _add_point(points[number], at_t, int(data["step"])):
                track = track._replace(is_timed=told_t is not None)
            if track.is_own_start and isinstance(first := data.get("first"), int) and data.get("counter") != "":
                track = track._replace(resume_step=max(0, first - 1))
        case "hang_suspected":
            track = _suspect(track, points[number], event)
        case "decision" if track.silences:   # what its check has shown
            told = data.get("is_work")
            last = track.silences[-1]._replace(is_work=told if isinstance(told, bool) else None)
            track = track._replace(silences=(*track.silences[:-1], last))
        case "verdict":
            track = track._replace(was_hung=track.was_hung or data.get("category") == "hang")
        case "attempt_ended" if track.ended_t is None:
            track = track._replace(ended_t=event.t, why=str(data["how"]),
                                   was_hung=track.was_hung or data.get("asked") == "hung")
    tracks[number] = track


_TOLD = frozenset({"attempt_started", "progress", "hang_suspected", "decision", "verdict", "attempt_ended"})


def _suspect(track: Track, points: list[tuple[float, int]], event: Event) -> Track:
    """The track with a hang that is suspected: the event knows the last step, and since when there was none."""
    named = event.data.get("step")
    since_t = max(track.started_t, event.t - float(event.data.get("silent_s") or 0.0))
    step = int(named) if named is not None else points[-1][1] if points else track.resume_step
    if named is not None:
        told_t = _time(event.data.get("step_t"), event.t)
        _add_point(points, since_t if told_t is None else told_t, step)
        since_t, track = min(since_t, points[-1][0]), track._replace(is_timed=True)
    one = next((one for one in track.silences if one.step == step), QuietSpell(since_t, step))
    return track._replace(silences=(*(other for other in track.silences if other.step != step),
                                    one._replace(is_work=False if event.data.get("frozen") is True else None)))


def _add_point(points: list[tuple[float, int]], t: float, step: int) -> bool:
    """Add a step, if it is further than those before, or an earlier time of the last one; False = it says nothing."""
    if points and step == points[-1][1] and t < points[-1][0]:
        points[-1] = (max(t, points[-2][0]) if len(points) > 1 else t, step)
        return True
    if not points or step > points[-1][1]:
        points.append((max(t, points[-1][0]) if points else t, step))
        return True
    return False


def _time(value: object, latest: float) -> float | None:
    return float(value) if isinstance(value, (int, float)) and 0 < value <= latest else None


def count(tracks: Sequence[Track], starts: dict[str, float], now: float, ended_t: float | None = None) -> Costs:
    """What the restarts between the attempts have cost; `starts`: when each job started. `ended_t`: the run's end."""
    tracks = _begun([track for track in tracks if not track.is_hook])
    if not tracks:
        return Costs()
    restarts, high = [], 0
    for before, after in pairwise(tracks):
        high = max(high, before.last_step)
        restarts.append(_restart(before, after, high, starts, now if after is tracks[-1] and ended_t is None else None))
    seconds = sum(restart.seconds for restart in restarts)
    last = tracks[-1]
    if ended_t is None and last.ended_t is not None:   # the next one has not begun
        seconds += max(0.0, now - last_step_t(last))
    since_t, until = tracks[0].started_t, now if ended_t is None else ended_t
    overhead = min(1.0, seconds / (until - since_t)) if until > since_t else None
    return Costs(tuple(restarts), sum(restart.steps for restart in restarts), seconds, since_t, overhead)


def _begun(tracks: Sequence[Track]) -> list[Track]:
    """Where an attempt found its own begin and made no step, nothing is known to be made again: that tells the next."""
    found: list[Track] = []
    for track in tracks:
        is_unknown = track.is_own_start and not track.points and found
        found.append(track._replace(resume_step=found[-1].last_step) if is_unknown else track)
    return found


def _restart(before: Track, after: Track, high: int, starts: dict[str, float], now: float | None) -> RestartCost:
    """`now`: the attempt lives, and has until now to be as far as before."""
    lost_t = last_step_t(before)
    reached_t = when_reached(after, high, after.pace_s or before.pace_s)
    end_t = reached_t if reached_t is not None else now if now is not None and after.ended_t is None else (
        max(last_step_t(after), after.started_t))
    ended_t = before.ended_t if before.ended_t is not None else lost_t
    begun_t = starts.get(after.job, after.started_t)
    queued_s = max(0.0, begun_t - max(ended_t, starts.get(before.job, ended_t))) if after.job != before.job else 0.0
    return RestartCost(after.number, ended_t, before.why, before.last_step, after.resume_step,
                       max(0, before.last_step - after.resume_step), max(0.0, end_t - lost_t), queued_s,
                       reached_t is not None or after.why == "completed")


def last_step_t(track: Track) -> float:
    """When it made its last step. An older journal hears of that at its end only, which a hang may have put off by half
    an hour.
    """
    if not track.points:
        return track.started_t
    end_t, step = track.points[-1]
    if track.is_timed or len(track.points) < 2 or track.ended_t is None or track.ended_t - end_t > LEAST_PACE_S:
        return end_t
    (before_t, before), pace_s = track.points[-2], track._replace(points=track.points[:-1]).pace_s
    return min(end_t, before_t + (step - before) * pace_s) if pace_s is not None else end_t


def when_reached(track: Track, step: int, pace_s: float | None) -> float | None:
    """When an attempt was as far as `step`; None = it never was."""
    if not track.points:
        return None
    first_t, first = track.points[0]
    if first >= step:   # what it took to start is behind it, and the journal may be a minute late
        again = first - max(step, track.resume_step)
        return max(track.started_t, first_t - again * pace_s) if pace_s is not None else first_t
    for (t, at), (later_t, later) in pairwise(track.points):
        if later >= step:
            return t + (later_t - t) * (step - at) / (later - at)
    return None


def remaining_s(step: int | None, total: int | None, pace_s: float | None) -> float | None:
    """Seconds until the last step is made, if it goes on like this; None = nobody can say."""
    if step is None or total is None or pace_s is None or total < step:
        return None
    return (total - step) * pace_s
