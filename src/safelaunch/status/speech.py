"""What people are told about, and how: what Slurm says of a run, and the forms of times and node lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from safelaunch.base.numbers import figure, percent
from safelaunch.slurm import jobstates
from safelaunch.slurm.slurmtext import QueuedJob


class SchedulerAnswer(NamedTuple):
    """What the scheduler says of a run's unfinished jobs; `jobs` None = no clear answer, and `trouble` says why.

    `asked_t`: when it said so (epoch s), None = just now: a screen asks once a minute.
    """

    jobs: tuple[QueuedJob, ...] | None
    trouble: str = ""
    asked_t: float | None = None

    def job(self, id: str | None) -> QueuedJob | None:
        """The job of that id, if it is known as unfinished."""
        return next((job for job in self.jobs or () if job.id == id), None)

    @property
    def pending(self) -> tuple[QueuedJob, ...]:
        return tuple(job for job in self.jobs or () if job.state == jobstates.PENDING)


class Speech(NamedTuple):
    """The forms that depend on this machine: `clock` has its zone, `fold` needs a library of node sets."""

    clock: Callable[[float], str]
    span: Callable[[float], str]
    fold: Callable[[Iterable[str]], str]

    def nodes(self, names: Iterable[str]) -> str:
        """n[0-3]; "no nodes yet" of none."""
        return self.fold(names) or "no nodes yet"


def duration(seconds: float, span: Callable[[float], str]) -> str:
    """The time of a step in its own unit: "450 ms", "12.5 s", and "3 min" as `span` says it."""
    if seconds < 1:
        return f"{figure(seconds * 1e3)} ms"
    return f"{figure(seconds)} s" if seconds < 100 else span(seconds)


def tell_slower(step: int, from_s: float, to_s: float) -> str:
    """ "0.509 s a step since step 388, before 0.2136 s (138 % longer)"."""
    return (f"{figure(to_s, 4)} s a step since step {step}, before {figure(from_s, 4)} s "
            f"({percent(to_s / from_s - 1)} longer)")
