"""The heartbeat: what a leader writes into the run's folder again and again, and how all that read it do.

A node guard, which can import nothing of this, reads `count` and `successor` by itself (node/guard);
tests/pure/run/test_heartbeat.py holds it to what is written here.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from safelaunch.base.timing import HEARTBEAT_S

FILE = "pulse.json"
VERSION = 1


@dataclass(frozen=True)
class Heartbeat:
    """The content of pulse.json; docs/protocol.md explains each key."""

    count: int
    gen: int
    host: str
    job: str
    state: str = ""
    attempt: int | None = None
    step: int | None = None
    successor: str | None = None    # the next job
    over: bool = False              # the last one of its job, whose leader has done all that was to do
    t: float | None = None
    every_s: float = HEARTBEAT_S        # the next one is due
    endpoint: tuple[str, int] | None = None
    alone: bool = False             # cut off, and nothing of the attempt is left on its node
    standby: str | None = None
    eligible: tuple[str, ...] | None = None   # hosts of standbys
    hang_t: float | None = None
    guards: int | None = None       # that are connected
    step_t: float | None = None     # since when there is no new step, as far as the log was read
    late_t: float | None = None     # from then on the next one is later than its phase ever was
    phase: str = ""                 # what the training does between two of them, by its log

    @property
    def beat(self) -> tuple[int, int]:
        """What changes while a leader lives; one that starts again counts from 0 under a new generation."""
        return (self.gen, self.count)


def to_json(pulse: Heartbeat) -> dict[str, object]:
    """The object of pulse.json."""
    return {
        "v": VERSION, "count": pulse.count, "t": pulse.t, "gen": pulse.gen, "host": pulse.host, "job": pulse.job,
        "state": pulse.state, "attempt": pulse.attempt, "step": pulse.step, "successor": pulse.successor,
        "every_s": pulse.every_s, "endpoint": pulse.endpoint, "alone": pulse.alone, "standby": pulse.standby,
        "watchers": pulse.eligible, "hang_t": pulse.hang_t, "over": pulse.over, "guards": pulse.guards,
        "step_t": pulse.step_t, "late_t": pulse.late_t, "phase": pulse.phase,
    }


def dump(pulse: Heartbeat) -> bytes:
    """The text of pulse.json."""
    return json.dumps(to_json(pulse)).encode() + b"\n"


def parse(raw: Any) -> Heartbeat | None:
    """The heartbeat of pulse.json's object; None where it is of another form or version."""
    try:
        if raw["v"] != VERSION:
            return None
        endpoint, eligible, standby = raw.get("endpoint"), raw.get("watchers"), raw.get("standby")
        return Heartbeat(
            int(raw["count"]), int(raw["gen"]), str(raw["host"]), str(raw["job"]), str(raw.get("state", "")),
            _whole(raw.get("attempt")), _whole(raw.get("step")),
            str(int(raw["successor"])) if raw.get("successor") else None, raw.get("over") is True,
            _number(raw.get("t")), float(raw.get("every_s", HEARTBEAT_S)),
            (str(endpoint[0]), int(endpoint[1])) if endpoint else None, bool(raw.get("alone")),
            None if standby is None else str(standby), None if eligible is None else tuple(map(str, eligible)),
            _number(raw.get("hang_t")), _whole(raw.get("guards")), _number(raw.get("step_t")),
            _number(raw.get("late_t")), str(raw.get("phase", "")))
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError):
        return None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
