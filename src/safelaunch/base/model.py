"""The nouns of a run's life: journal events, attempts, what a supervisor sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# Exit codes of the command line and of the job (a public contract); those of errors are in safelaunch.errors.
DONE, REFUSED, UNREACHABLE = 0, 3, 4
FAILED_FOR_GOOD, BUDGET_SPENT, STOPPED, CHECK_FAILED = 10, 11, 12, 13
TIMED_OUT = 124
# Why a suspect is not excluded: it is of an earlier or another cluster, which is no news where this run is.
NO_SUCH_NODE = "this cluster knows no such node"
UNKNOWN_HERE = "under suspicion, but this cluster knows no node of that name"
ELSEWHERE = (NO_SUCH_NODE, UNKNOWN_HERE)


@dataclass(frozen=True)
class Event:
    """One journal line. `gen` is the supervisor's generation (0 = the submitter), `seq` its own count of lines."""

    t: float
    gen: int
    seq: int
    host: str
    event: str
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def order(self) -> tuple[int, int, float, str]:
        """Sort key of merged journals: generations are fenced by claims, so they follow each other in time."""
        return (self.gen, self.seq, self.t, self.host)


class NewEvent(NamedTuple):
    """A line for the journal, before it has its time, number and author."""

    event: str
    data: Mapping[str, Any]


class Exit(NamedTuple):
    """How one task of an attempt ended: `code` 0..255, or `signal` when a signal ended it. `node` "": a script of which
    nobody knows where it failed.
    """

    node: str
    task: int
    code: int
    signal: int | None = None

    @property
    def text(self) -> str:
        how = f"killed by signal {self.signal}" if self.signal else f"exit code {self.code}"
        return f"task {self.task} on {self.node}: {how}" if self.node else f"the script: {how}"


# The control files that end the run, the most urgent first.
STOPS = ("kill-now", "kill", "checkpoint")
# Those that want the next attempt now. Each touch counts once, by its time: the file stays.
RESTARTS = ("restart-now", "restart")


class Request(NamedTuple):
    """A touched control file: which, by whom, when (epoch seconds)."""

    name: str
    who: str
    t: float


def tell_stop(request: Request) -> str:
    """Who has stopped the run, and how, in words."""
    if request.name == "checkpoint":
        return f"{request.who} wanted it to stop at its next checkpoint"
    return f"{request.who} touched {request.name}"


class Silent(NamedTuple):
    """A node that did not answer, and why if known. `is_node_mute` False = it was not asked: Slurm did not answer, or
    the helper was never started; that says nothing about the node.
    """

    node: str
    why: str
    is_node_mute: bool = True
