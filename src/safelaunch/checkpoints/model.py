"""The values of a search for checkpoints: what is seen of a folder, what may be resumed from, what may not and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from safelaunch.checkpoints.pickled import Allowance


class CheckpointTree(Protocol):
    """A read-only view of one directory tree; paths are relative to it, with "/", and "" is the folder itself.

    `names`, `read` raise OSError when the world refuses; `size` is None for whatever is no regular file.
    `allowance`: what this search may still spend on pickles.
    """

    allowance: Allowance

    def names(self, path: str) -> Sequence[str]:
        """The names in a directory, in any order."""
        ...

    def is_dir(self, path: str) -> bool:
        """Whether a directory (or a link to one) is there."""
        ...

    def size(self, path: str) -> int | None:
        """Bytes in a regular file; None if there is none."""
        ...

    def read(self, path: str, start: int, length: int) -> bytes:
        """At most `length` bytes from `start` on; a negative `start` counts from the end."""
        ...

    def link(self, path: str) -> str | None:
        """Where a symbolic link of that name points, relative to the tree if it is in it; None for anything else."""
        ...

    def mtime_s(self, path: str) -> float | None:
        """When the content last changed, in epoch seconds; None if nobody can say."""
        ...


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose structure is whole; `step` is None when its name tells none."""

    path: str
    step: int | None
    format: str


@dataclass(frozen=True)
class Skipped:
    """Something that looks like a checkpoint and must not be resumed from."""

    path: str
    reason: str


class JudgedCheckpoint(NamedTuple):
    """A candidate after the look at it: `reason` says why it must not be resumed from, None when it is complete."""

    path: str
    step: int | None
    format: str
    changed_s: float | None
    reason: str | None


@dataclass(frozen=True)
class FoundCheckpoints:
    """The newest whole checkpoint, the next older whole ones, and everything that was passed over on the way."""

    best: Checkpoint | None
    older: tuple[Checkpoint, ...] = ()
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """Something that looks like a checkpoint: `parts` are the files to judge, `refused` a reason known by its name.

    `counts`: what its step counts ("step", "epoch", else the pattern of its name); None: the last name of its path
    tells. Steps that count different things are not compared. `order` sorts where the step alone does not.
    """

    path: str
    step: int | None
    format: str
    parts: tuple[str, ...] = ()
    refused: str | None = None
    counts: str | None = None
    order: tuple[int, ...] = ()


class Format(NamedTuple):
    """How one format is recognised (cheap: names only) and judged (reads; returns what is wrong, None when whole)."""

    candidates: Callable[[CheckpointTree], tuple[Candidate, ...]]
    judge: Callable[[CheckpointTree, Candidate], str | None]


def join(*parts: str) -> str:
    """The relative path made of the parts that are not empty."""
    return "/".join(part for part in parts if part)
