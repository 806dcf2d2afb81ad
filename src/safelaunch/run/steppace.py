"""The level of a run's seconds per step, as its journal passes it on from one supervisor to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_MOST_S = 1e9


class StepPace(NamedTuple):
    """How long a step takes as of `step`, and took before a drop that lasts (None = there is none). `noise` is of the
    logarithms. `source`: the log's own figures, or the clock.
    """

    attempt: int
    step: int
    level_s: float
    noise: float
    source: str
    normal_s: float | None = None


def to_event(pace: StepPace) -> dict[str, object]:
    """The fields of an event."""
    return pace._asdict()


def from_event(data: Mapping[str, Any]) -> StepPace:
    """What such fields say; raises ValueError, TypeError or KeyError where they make no level."""
    normal_s = data.get("normal_s")
    return StepPace(int(data["attempt"]), int(data["step"]), _positive(data["level_s"]), _positive(data["noise"]),
                    str(data["source"]), None if normal_s is None else _positive(normal_s))


def _positive(value: Any) -> float:
    number = float(value)
    if not 0 < number < _MOST_S:
        raise ValueError(f"not a positive number: {value!r}")
    return number
