"""The values of the watch: what a run's folder says, what Slurm says of it, and what may be done about it.

Nothing here compares the clocks of two hosts: durations are measured by the watch's own monotonic clock, from its first
sight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from safelaunch.base.model import Event, Request
from safelaunch.run.acts import NOTE
from safelaunch.run.fold.state import State
from safelaunch.run.heartbeat import Heartbeat
from safelaunch.run.plan import Plan
from safelaunch.slurm.slurmtext import JobAccount, KnownJob

CANCELLED = "cancelled"                 # the row for a scancel that squeue shows
CANCELLED_NEXT = "next_job_cancelled"   # the row for a person's scancel of a waiting job
SMALLER = "make_smaller"                # the act by which a watcher lets a job start with fewer nodes


class Notes(NamedTuple):
    """What the watch reads in the journal beside the state."""

    cancelled: tuple[str, ...] = ()        # jobs that a person cancelled, as some watcher saw
    requeued: int = 0                      # jobs queued by watchers since the training last moved
    last_seq: int = 0                      # the highest number of generation 0
    is_needed: bool = False                # a leader whose job ends has left the next one to a watch
    needs_excluded: tuple[str, ...] = ()   # ... without these nodes
    refused: tuple[str, ...] = ()          # what watchers' sbatch was refused with, in a row
    smaller: tuple[tuple[str, int], ...] = ()   # jobs that a watch has made smaller, and for how many nodes they ask


class Watched(NamedTuple):
    """One run. `silent_s`, `quiet_s`: for how long heartbeat, claims have not moved while this watcher looked."""

    plan: Plan
    state: State
    heartbeat: Heartbeat | None = None
    silent_s: float = 0.0
    quiet_s: float = 0.0
    requests: tuple[Request, ...] = ()
    # Jobs in whose own output slurmstepd wrote of a scancel: the newest that started, or one after it, whose supervisor
    # was not started.
    scancelled: tuple[str, ...] = ()
    notes: Notes = Notes()
    mine: bool = True                      # its folder belongs to this user
    at_home: bool = True                   # this Slurm is the one that the run was submitted to
    # Jobs that no person cancelled: a node guard did, since nobody led them any more, or Slurm, since a Prolog failed.
    orphaned: tuple[str, ...] = ()
    elsewhere: str = ""                    # the cluster that it is known to be on, where that is not this one

    def asked(self, *names: str) -> Request | None:
        """The first of the named requests that has been made."""
        return next((request for request in self.requests if request.name in names), None)


class SlurmAnswer(NamedTuple):
    """What Slurm says of one run. `jobs` None = no clear answer; `absences`: clear answers in a row without a live job.
    """

    jobs: tuple[KnownJob, ...] | None = None
    absences: int = 0
    same_s: float = 0.0                    # for how long its unfinished jobs have looked exactly like this
    accounts: Mapping[str, JobAccount] | None = None      # what sacct says; None = not asked yet
    nodes: tuple[tuple[str, str], ...] | None = None   # state, nodelist of the partition; None = not asked yet
    reserved: tuple[str, ...] | None = None   # nodes of the run's own reservation; None = it has none, or nobody says
    trouble: str = ""
    short_s: float = 0.0                   # for how long its waiting job has lacked nodes, and nothing else


@dataclass(frozen=True)
class Queue:
    """Queue the run's next job. `after`: the job that still runs; None = there is none, or it hangs at its end.

    `beside`: its leader lives and must not be superseded.
    """

    after: str | None
    exclude: tuple[str, ...]
    why: str
    beside: bool = False
    suspects: tuple[str, ...] = ()         # nodes found dead or silent: noted, and excluded


@dataclass(frozen=True)
class Relax:
    """Let a waiting job use nodes again that safelaunch keeps out; `keep` is its whole new list."""

    job: str
    keep: tuple[str, ...]
    drop: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class MakeSmaller:
    """Let a waiting job ask for so many nodes, fewer than it asks for."""

    job: str
    nodes: int
    why: str


@dataclass(frozen=True)
class Free:
    """Let a waiting job start although the one before it hangs at its end, without the nodes on which that hangs."""

    job: str
    exclude: tuple[str, ...]
    why: str
    suspects: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cancel:
    """End a job that nobody supervises any more; `successor` goes on, without `suspects`."""

    job: str
    successor: str | None
    exclude: tuple[str, ...]
    why: str
    suspects: tuple[str, ...] = ()


@dataclass(frozen=True)
class StartNow:
    """Let a job that safelaunch requeued start at once: Slurm holds it back for two minutes."""

    job: str
    exclude: tuple[str, ...]               # its whole new list; () = as it is
    why: str


@dataclass(frozen=True)
class WriteEnd:
    """Write the run's end down."""

    how: str
    exit_code: int
    why: str


@dataclass(frozen=True)
class Note:
    """Write down that a person cancelled a job: Slurm forgets that within minutes."""

    job: str
    why: str


Act = Queue | Relax | MakeSmaller | Free | Cancel | StartNow | WriteEnd | Note
ACTS: dict[str, type[Act]] = {kind.__name__: kind for kind in (
    Queue, Relax, MakeSmaller, Free, Cancel, StartNow, WriteEnd, Note)}


class Judgement(NamedTuple):
    """The row that spoke, a sentence for people, what to do, and what must be asked first (sacct, nodes)."""

    row: str
    text: str
    act: Act | None = None
    asks: frozenset[str] = frozenset()


def read_notes(events: Iterable[Event]) -> Notes:
    """The notes of a merged journal."""
    cancelled, requeued, last_seq = [], 0, 0
    smaller: list[tuple[str, int]] = []
    needed: tuple[str, ...] | None = None
    answers: list[tuple[float, str | None]] = []   # of sbatch, by time: generation 0 stands before all others
    queueing: set[tuple[int, str]] = set()         # generation and host of watchers: "queue" is the watch's word
    for event in events:
        data, act = event.data, event.data.get("act")
        if event.gen == 0:
            last_seq = max(last_seq, event.seq)
        if event.event in ("progress", "checkpoint"):
            requeued = 0
        elif event.event == "decision" and data.get("action") == "queue":
            queueing.add((event.gen, event.host))
        elif event.event == "outcome" and act == "queue_successor" and (event.gen, event.host) in queueing:
            requeued += data.get("ok") is True and event.gen > 0   # 0: beside a leader that lives
            answers.append((event.t, str(data.get("why", "")) if data.get("ok") is False else None))
        elif event.event == "outcome" and act == SMALLER and data.get("ok") is True and type(data.get("nodes")) is int:
            smaller.append((str(data.get("job")), data["nodes"]))
        elif event.event == "intent" and act == NOTE:
            cancelled.append(str(data.get("job")))
        elif event.event == "need_successor":
            needed = _names(data.get("exclude"))
        elif event.event == "job_started":
            needed = None
            answers.append((event.t, None))
    refused: list[str] = []
    for _, why in sorted(answers, key=lambda answer: answer[0]):
        refused = [] if why is None else [*refused, why]
    return Notes(tuple(cancelled), requeued, last_seq, needed is not None, needed or (), tuple(refused),
                 tuple(smaller))


def _names(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()


def act_of(name: str, fields: Mapping[str, object]) -> Act:
    """An act that has gone through JSON, which knows no tuples."""
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    kind: Any = ACTS[name]
    act: Act = kind(**plain)
    return act
