"""The leader's last heartbeat, as `status`, `why` and the plan's confirmation show it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from safelaunch.adapters import sharedfile
from safelaunch.core.heartbeat import FILE, parse
from safelaunch.core.state import State
from safelaunch.core.timing import STALE_S


def read_pulse(run_dir: Path, state: State, now: float) -> dict[str, Any] | None:
    """The leader's last pulse and its age; None when there is none yet. It is stale only where a leader should be
    alive. The file's time is the file server's, `t` is the leader's: the later one counts, so that a slow clock raises
    no alarm.
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
    expected = state.ended is None and job is not None and job.started_t is not None
    return {"age_s": round(age_s, 1), "is_stale": expected and age_s > STALE_S, "host": pulse.host,
            "gen": pulse.gen, "guards": pulse.guards,
            "hang_t": None if pulse.hang_t is None else round(pulse.hang_t, 3), "attempt": pulse.attempt,
            "step": pulse.step, "step_t": pulse.step_t, "late_t": pulse.late_t, "phase": pulse.phase}
