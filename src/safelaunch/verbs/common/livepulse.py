"""What is seen of an attempt that lives: its leader's last heartbeat, and its log's end. All pages read both here, so
that none calls a run silent that another one calls well.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from safelaunch.base.io import sharedfile
from safelaunch.base.io.cputime import TookTooLong, within
from safelaunch.base.timing import STALE_S
from safelaunch.run.fold.state import State
from safelaunch.run.heartbeat import FILE, parse
from safelaunch.run.io import runfolder
from safelaunch.run.io.runfolder import Run
from safelaunch.status import silence
from safelaunch.status.costs import Track
from safelaunch.status.silence import SeenHeartbeat
from safelaunch.trainlog.figures import Metrics, measure
from safelaunch.trainlog.steps import AUTO, cut_lines, latest_of

TAIL_BYTES = 64 << 10
BRIEF_BYTES = 8 << 10
OWN_PATTERNS_S = 1.0     # of processor time

T = TypeVar("T")


class LogEnd(NamedTuple):
    """The newest attempt's last step, their total, the log's end, and when it has last grown."""

    step: int | None = None
    total: int | None = None
    tail: bytes = b""
    grew_t: float | None = None


def read_heartbeat(run_dir: Path, state: State, now: float) -> SeenHeartbeat | None:
    """The leader's last pulse and its age; None when there is none yet. It is stale only where a leader should be
    alive. The file's time is the file server's, `t` is the leader's: the later one counts, so that a slow clock raises
    no alarm. None is expected in a queue or on hold, when its job has handed over.
    """
    try:
        with os.fdopen(sharedfile.open_file(run_dir / FILE), "rb") as file:
            written_t = os.fstat(file.fileno()).st_mtime
            pulse = parse(sharedfile.parse_json(file.read(sharedfile.HEARTBEAT_BYTES)))
    except (OSError, ValueError):
        return None
    if pulse is None or pulse.t is None:
        return None
    age_s = max(0.0, now - max(written_t, pulse.t))
    job = state.job
    expected = state.ended is None and job is not None and job.started_t is not None and state.life_t is not None
    return SeenHeartbeat(round(age_s, 1), expected and age_s > STALE_S, pulse.host, pulse.gen, pulse.guards,
                         None if pulse.hang_t is None else round(pulse.hang_t, 3), pulse.attempt, pulse.step,
                         pulse.step_t, pulse.late_t, pulse.phase)


def read_log(run: Run, state: State, pulse: SeenHeartbeat | None, tail_bytes: int = TAIL_BYTES) -> LogEnd:
    """What the newest attempt's log has last said: the journal is a minute old, the log a second."""
    attempt = state.attempt
    if attempt is None:
        return LogEnd()
    log = run.dir / runfolder.attempt_folder(attempt.number) / "main.log"
    tail, grew_t = cut_lines(_tail(log, tail_bytes)), _written_t(log)
    named, total = _in_time(lambda: latest_of(tail, run.plan.step_pattern), lambda: latest_of(tail, AUTO))
    steps = [attempt.step, named]
    if pulse is not None and pulse.attempt == attempt.number:
        steps.append(pulse.step)
    return LogEnd(max((step for step in steps if step is not None), default=None), total, tail, grew_t)


def read_log_briefly(run: Run, state: State, pulse: SeenHeartbeat | None, now: float) -> LogEnd:
    """The same from less of the log; all of it where the run would be silent, as another line may name its step."""
    log = read_log(run, state, pulse, BRIEF_BYTES)
    is_late = silence.find(state, pulse, log.step, log.grew_t, None, now) is not None
    return read_log(run, state, pulse) if is_late else log


def read_figures(run: Run, tail: bytes) -> Metrics:
    """What the log's last steps say of themselves."""
    return _in_time(lambda: measure(tail, run.plan.loss_pattern, run.plan.step_time_pattern), lambda: measure(tail))


def usual_s(figures: Metrics, tracks: tuple[Track, ...]) -> float | None:
    """How long a step usually takes, by the log's own words, else by the journal."""
    return figures.typical_step_s or (tracks[-1].pace_s if tracks else None)


def _in_time(own: Callable[[], T], auto: Callable[[], T]) -> T:
    """What the user's own patterns find; if they take too long, the figures without them, as in the leader."""
    try:
        return within(OWN_PATTERNS_S, own)
    except TookTooLong:
        return auto()


def _written_t(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _tail(path: Path, most_bytes: int) -> bytes:
    try:
        return sharedfile.read_end(path, most_bytes)
    except OSError:
        return b""
