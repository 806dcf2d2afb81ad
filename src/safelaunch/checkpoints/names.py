"""What file names tell: the step, the rank, and whether somebody is still writing."""

from __future__ import annotations

import re
from collections.abc import Iterable

from safelaunch.checkpoints import steps

TORCH_SUFFIXES = (".pt", ".pth", ".ckpt", ".pth.tar", ".pt.tar")

UNFINISHED = "temporary name: its writer has not finished"

_RANK = re.compile(r"[-_.]?(?<![a-z])(?:[a-z]{1,4}_)?rank[-_=]?(\d+)", re.IGNORECASE)
_WORLD_SIZE = re.compile(r"world_?size[-_=]?(\d+)", re.IGNORECASE)
# The usual names of a file that is renamed when it is done; a leading dot is what rsync and many writers use.
_TEMPORARY = re.compile(
    r"(?:^|[._-])(?:tmp|partial|incomplete|inprogress|saving|writing)(?:[._-]|$)|\.tmp\w*$|\.(?:part|temp)$|~$",
    re.IGNORECASE,
)


def step_in(name: str) -> int | None:
    """The step that a file's or folder's name tells by itself; see checkpoints/steps.py."""
    return steps.read_name(name).step


def without_suffix(name: str) -> str:
    """The name without the suffix of a torch file."""
    for suffix in TORCH_SUFFIXES:
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return name


def is_torch(name: str) -> bool:
    """Whether the name ends as torch files do."""
    return name.lower().endswith(TORCH_SUFFIXES)


def is_temporary(name: str) -> bool:
    """Whether the name says that its writer has not finished: ".tmp", "tmp_…", ".part", a leading dot."""
    return name.startswith(".") or _TEMPORARY.search(name) is not None


def is_step_folder(name: str) -> bool:
    """Whether a folder of this name holds one checkpoint: "step_100", "checkpoint-100", "100"."""
    return step_in(name) is not None


def rank_in(name: str) -> int | None:
    """The rank in a file's name, "step_5_rank3.pt" → 3; None when there is none."""
    found = _RANK.search(without_suffix(name))
    return int(found.group(1)) if found else None


def missing_ranks(paths: Iterable[str]) -> str | None:
    """Which rank's file is not there, of each kind of file; by a world size in the name, or by the gaps."""
    kinds: dict[str, tuple[set[int], int]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        rank = rank_in(name)
        if rank is not None:
            size = _WORLD_SIZE.search(name)
            kind = kinds.setdefault(f"{folder}/{_RANK.sub('', name)}", (set(), int(size.group(1)) if size else 0))
            kind[0].add(rank)
    for ranks, wanted in kinds.values():
        count = max(wanted, max(ranks) + 1) if len(ranks) > 1 or wanted else 0
        if missing := sorted(set(range(count)) - ranks):
            return f"no file of rank {missing[0]} of {count}"
    return None


def missing_in(numbers: Iterable[int]) -> list[int]:
    """The numbers that are absent from 0 … max: a set of ranks has no gap."""
    present = set(numbers)
    return [number for number in range(max(present, default=-1) + 1) if number not in present]


def unlisted(error: OSError) -> str:
    """The reason to skip a folder whose names cannot be read."""
    return f"cannot be listed: {error.strerror or error}"
