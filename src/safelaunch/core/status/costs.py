"""What restarts have cost a run, how fast it goes, and when it will be done: from the journal's times of its steps.

The journal holds a step a minute, and the last one of each attempt; times between them are interpolated. Of a long
series a reader may take fewer (adapters.journal.read).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from safelaunch.core.model import Event
from safelaunch.core.progress.figures import median
from safelaunch.core.records import NamedTuple

PACE_POINTS = 30      # half an hour of steps: evaluations and checkpoints between them are counted, old habits are not
TREND_POINTS = 5      # minutes: an evaluation among them moves no median
LEAST_PACE_S = 5.0    # two steps closer together say nothing of the pace


class Track(NamedTuple):
    """The steps that an attempt made and when: (epoch s, step), in order."""

    number: int
    job: str
    started_t: float
    resume_step: int
    points: tuple[tuple[float, int], ...] = ()
    ended_t: float | None = None
    why: str = ""
    is_own: bool = False    # it was told of no checkpoint

    @property
    def last_step(self) -> int:
        """The highest step that it is known to have made; without any the one that it began with."""
        return max((step for _, step in self.points), default=self.resume_step)

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
    is_over: bool         # it is as far as before


class Costs(NamedTuple):
    """All restarts, and the share of the time since the first attempt began that was not lost to them."""

    restarts: tuple[RestartCost, ...] = ()
    steps: int = 0
    seconds: float = 0.0
    since_t: float | None = None
    goodput: float | None = None


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

    def until(self, now: float, step: int | None = None) -> tuple[Track, ...]:
        """All of them, in order; `step` is where the living one is `now`, by its log."""
        found = [track._replace(points=tuple(self._points[number])) for number, track in sorted(self._tracks.items())]
        if found and found[-1].ended_t is None and step is not None and step > found[-1].last_step:
            found[-1] = found[-1]._replace(points=(*found[-1].points, (now, step)))
        return tuple(found)


def follow(events: Iterable[Event], now: float, step: int | None = None) -> tuple[Track, ...]:
    """The attempts' tracks in order; `step` is where the living one is `now`, by its log."""
    tracks = Tracks()
    tracks.add(events)
    return tracks.until(now, step)


def _note(tracks: dict[int, Track], points: dict[int, list[tuple[float, int]]], event: Event) -> None:
    data = event.data
    if event.event not in ("attempt_started", "progress", "attempt_ended"):
        return
    number = int(data["attempt"])
    if event.event == "attempt_started":
        tracks.setdefault(number, Track(number, str(data["job"]), event.t, int(data.get("resume_step") or 0),
                                        is_own=(data.get("resume_step"), data.get("resume_path")) == (None, None)))
        points.setdefault(number, [])
    elif event.event == "progress" and number in points:
        step = int(data["step"])
        if tracks[number].is_own and data.get("first") and data.get("counter"):   # where it began by itself
            tracks[number] = tracks[number]._replace(resume_step=int(data["first"]) - 1)
        if not points[number] or step > points[number][-1][1]:
            points[number].append((event.t, step))
    elif number in tracks and tracks[number].ended_t is None:
        tracks[number] = tracks[number]._replace(ended_t=event.t, why=str(data["how"]))


def count(tracks: Sequence[Track], starts: dict[str, float], now: float, ended_t: float | None = None) -> Costs:
    """What the restarts between the attempts have cost; `starts`: when each job started. `ended_t`: the run's end."""
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
    goodput = max(0.0, 1 - seconds / (until - since_t)) if until > since_t else None
    return Costs(tuple(restarts), sum(restart.steps for restart in restarts), seconds, since_t, goodput)


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
                       reached_t is not None)


def last_step_t(track: Track) -> float:
    """When it made its last step. The journal hears of that at its end, which a hang may have put off by half an hour.
    """
    if not track.points:
        return track.started_t
    end_t, step = track.points[-1]
    if len(track.points) < 2 or track.ended_t is None or track.ended_t - end_t > LEAST_PACE_S:
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
