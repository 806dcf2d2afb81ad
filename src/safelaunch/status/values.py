"""A run's status for programs (docs/python.md): a part of what is known of it, in the form of the API's version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TypeVar

from safelaunch.run.fold.state import Ended
from safelaunch.status.overview import Brief, NewestCheckpoint, Overview, RunAttempt, RunJob

T = TypeVar("T")


@dataclass(frozen=True)
class RunStatus:
    """How a run is doing; None = not known. Times are epoch seconds. `json`: that of `status --json`, with more."""

    name: str
    run_id: str
    run_dir: str
    state: str
    sentence: str
    now_t: float
    since_t: float | None
    ended: Ended | None
    job: RunJob | None
    attempt: RunAttempt | None
    attempts: int
    step: int | None
    step_total: int | None
    loss: float | None
    pace_s: float | None
    eta_t: float | None
    checkpoint: NewestCheckpoint | None
    restarts: int
    max_restarts: int
    json: dict[str, object] = field(repr=False)


@dataclass(frozen=True)
class RunSummary:
    """A run's line in the table of all runs."""

    name: str
    run_id: str
    run_dir: str
    owner: str
    cluster_name: str | None
    state: str
    sentence: str
    since_t: float | None
    ended_t: float | None
    job: str | None
    job_ends_t: float | None
    attempts: int
    step: int | None
    step_total: int | None
    eta_t: float | None
    restarts: int
    max_restarts: int
    is_stale: bool


@dataclass(frozen=True)
class RunTable:
    """Runs, the newest first. `silent`: folders that do not answer; `closed`: how many may not be read; `trouble`: why
    Slurm gave no clear answer.
    """

    runs: tuple[RunSummary, ...]
    silent: tuple[str, ...]
    closed: int
    trouble: str
    now_t: float

    def __iter__(self) -> Iterator[RunSummary]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)


def status_of(seen: Overview) -> RunStatus:
    """What a program is handed of a run."""
    return _made(RunStatus, seen, json=seen.to_json(), loss=None if seen.loss is None else float(seen.loss))


def table_of(briefs: Sequence[Brief], silent: tuple[str, ...], closed: int, trouble: str,
             now_t: float) -> RunTable:
    """The table of all runs for programs."""
    return RunTable(tuple(_made(RunSummary, one) for one in briefs), silent, closed, trouble, now_t)


def _made(kind: type[T], seen: object, **others: object) -> T:
    """A value of that class: its fields are those of that name in what is known, but for the others."""
    return kind(**{**{one.name: getattr(seen, one.name) for one in fields(kind) if one.name not in others},   # type: ignore[arg-type]
                   **others})
