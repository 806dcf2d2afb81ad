"""All that a report of a run shows. Each field is one of `report --json` (docs/report.md), under its name, in its
order. Times are epoch seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from safelaunch.base.jsonform import to_json
from safelaunch.nodehealth.slow.changepoint import PaceChange
from safelaunch.report.curves import Spike
from safelaunch.run.fold.state import EarlyEnd, Ended
from safelaunch.status.shares import Span

VERSION = 1


class AttemptRow(NamedTuple):
    """An attempt, as it ended."""

    number: int
    job: str
    nodelist: str
    nodes: tuple[str, ...]
    started_t: float
    ended_t: float | None
    resume_step: int | None
    step: int | None
    ended: str | None
    exit_code: int | None
    category: str | None
    failed_node: str | None
    blamed: tuple[str, ...]


class EvidenceLine(NamedTuple):
    """A line that shows a cause."""

    file: str
    line_number: int | None
    text: str
    role: str


class VerdictCard(NamedTuple):
    """What was found out about an attempt that failed."""

    attempt: int
    t: float | None
    category: str | None
    summary: str
    confidence: float | None
    follows: str
    node: str | None
    suspects: tuple[str, ...]
    evidence: tuple[EvidenceLine, ...]
    changes: str


class StackGroup(NamedTuple):
    """Ranks that stood at one place together."""

    count_: str
    kind: str
    ranks: str
    nodes: str
    stack: tuple[str, ...]


class StackCheck(NamedTuple):
    """What a hang check saw."""

    attempt: int
    t: float | None
    kind: str
    summary: str
    groups: tuple[StackGroup, ...]


class DrawnCurve(NamedTuple):
    """A figure of one attempt by step, thinned."""

    attempt: int
    points: tuple[tuple[int, float], ...]


class ToldEvent(NamedTuple):
    """An event of the story."""

    t: float
    host: str
    event: str
    text: str


class ConfigRow(NamedTuple):
    """A key that is set, and the place that it came from."""

    key: str
    value: str
    origin: str
    layer: str


class RunReport(NamedTuple):
    """A run, from `since_t` to `until_t`."""

    name: str
    run_id: str
    run_dir: str
    cluster_name: str | None
    made_t: float
    since_t: float
    until_t: float
    ended: Ended | None
    ended_early: EarlyEnd | None
    step: int | None
    checkpoint_step: int | None
    restarts: int
    seconds: Mapping[str, float]
    goodput: float | None
    lost_steps: int
    spans: tuple[Span, ...]
    attempts: tuple[AttemptRow, ...]
    verdicts: tuple[VerdictCard, ...]
    stacks: tuple[StackCheck, ...]
    curves: Mapping[str, tuple[DrawnCurve, ...]]
    pace_changes: tuple[PaceChange, ...]
    spikes: Mapping[str, tuple[Spike, ...]]
    events: tuple[ToldEvent, ...]
    config: tuple[ConfigRow, ...]
    script: tuple[str, ...] | None
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """The object of `report --json`."""
        return {"v": VERSION, **to_json(self)}
