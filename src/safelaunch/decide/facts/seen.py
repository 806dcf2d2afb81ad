"""What the supervisor sees when it decides: the live attempt, people's requests, the job's end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from safelaunch.base.model import Exit, Request
from safelaunch.checkpoints.model import Checkpoint
from safelaunch.decide.facts.after import RunBefore


@dataclass(frozen=True)
class Live:
    """The attempt that the supervisor looks after, as its guards and srun report it."""

    number: int
    nodes: tuple[str, ...]
    exits: tuple[Exit, ...] = ()          # in the order in which they were reported
    tasks: int = 1
    failed_t: float | None = None         # when the first task ended badly (epoch s)
    srun_code: int | None = None          # srun's own exit code, once it has ended
    fenced: bool = False                  # no process of the attempt is left anywhere (see guard.io.control)
    end_asked_t: float | None = None      # when it was asked, gently, to end
    end_row: str | None = None            # the row that asked
    heard: int | None = None              # processes that took the signal; None = nobody knows (yet)
    may_have_heard: bool = False          # ... from a supervisor that died before anybody had answered
    saved: str | None = None              # the checkpoint that has become complete since
    saved_t: float | None = None
    killed_t: float | None = None
    stuck: str | None = None              # its job step never starts: srun's words, and likely causes
    hung: str | None = None               # two witnesses say so: what they saw
    is_hook: bool = False                 # it runs before_resize
    lost: str | None = None               # it has surely started below all its checkpoints (run.lost): why

    @property
    def failed(self) -> bool:
        return any(exit.code for exit in self.exits) or bool(self.srun_code)

    @property
    def may_hang(self) -> bool:
        """Nobody ends it, no task has failed, and not every one has ended."""
        return self.killed_t is None and not self.failed and not self.reported

    @property
    def reported(self) -> bool:
        """Every task's guard has told how it ended."""
        return len({(exit.node, exit.task) for exit in self.exits}) >= self.tasks


class MissingNodes(NamedTuple):
    """What Slurm said at `t` of the nodes that a full set lacks: when they are free. Infinite: never; None: no clear
    answer. `said`: its own words; `nodes`: those that it would give.
    """

    t: float
    free_t: float | None
    said: str = ""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Observation:
    """What the supervisor sees now. `ending`: why the job is being ended from outside, if it is."""

    now: float
    nodes: tuple[str, ...]                     # the allocation's nodes, in order
    live: Live | None = None
    requests: tuple[Request, ...] = ()
    ending: str | None = None                  # a word of JobEnd
    limit_near: bool = False                   # Slurm's warning signal before the time limit has come
    partition: tuple[str, ...] | None = None   # all nodes of the job's partition; None = not known
    lost: tuple[tuple[str, str], ...] = ()     # node, why: dead or silent
    frozen: bool = False                       # the run folder does not answer
    trouble: str | None = None                 # what keeps the run's folders from being written
    gone: str | None = None                    # the run folder was removed or renamed, in words
    unconfirmed: bool = False                  # for a lease nothing has shown that no other supervisor leads by now
    alone: bool = False                        # cut off: neither the other nodes nor Slurm answer
    suspended: bool = False                    # the whole job was stopped during the attempt (scontrol suspend)
    resume: Checkpoint | None = None
    missing: MissingNodes | None = None        # asked for last
    measuring: bool = False                    # the nodes are being measured, for the next attempt
    ran_s: float = 0.0                         # the live attempt, as long as this supervisor has known it
    before: tuple[RunBefore, ...] | None = None   # the runs that this one waits for; None = not known yet

    @property
    def attempt(self) -> Live:
        assert self.live is not None
        return self.live

    def asked(self, *names: str) -> Request | None:
        """The first of the named requests that has been made."""
        return next((request for request in self.requests if request.name in names), None)


def mark_asked(live: Live, row: str, now: float) -> Live:
    """The attempt after AskToEnd, which can come twice: a kill switch overrules a wait for a checkpoint."""
    return replace(live, end_asked_t=now, end_row=row, heard=None)


def move_times(live: Live, by_s: float) -> Live:
    """The same where the wall clock has stepped: no grace gets longer or shorter by that."""
    def moved(t: float | None) -> float | None:
        return None if t is None else t + by_s

    return replace(live, failed_t=moved(live.failed_t), end_asked_t=moved(live.end_asked_t),
                   saved_t=moved(live.saved_t), killed_t=moved(live.killed_t))


def mark_killed(live: Live, row: str, now: float) -> Live:
    """The attempt after Kill."""
    return replace(live, killed_t=now, end_row=live.end_row or row)
