"""What file names tell: the step, the rank, and whether somebody is still writing."""

from __future__ import annotations

import re
from collections.abc import Iterable

TORCH_SUFFIXES = (".pt", ".pth", ".ckpt")

UNFINISHED = "temporary name: its writer has not finished"

# A number right after one of these words is the step, wherever it stands: Lightning's "epoch=3-step=1200-v1.ckpt".
_STEP_WORD = re.compile(r"(?:step|iter|iteration)s?[-_= ]?(\d+)", re.IGNORECASE)
_DECIMAL = re.compile(r"\d{1,255}\.\d{1,255}")
_RANK = re.compile(r"[-_.]?(?:[a-z]{0,4}_?)?rank[-_=]?(\d+)", re.IGNORECASE)
_FOLDER_WORD = re.compile(r"(?:step|iter|iteration|ckpt|checkpoint|epoch|save)s?[-_=]?\d+|\d+", re.IGNORECASE)
# The usual names of a file that is renamed when it is done; a leading dot is what rsync and many writers use.
_TEMPORARY = re.compile(
    r"(?:^|[._-])(?:tmp|partial|incomplete|inprogress|saving|writing)(?:[._-]|$)|\.tmp\w*$|\.(?:part|temp)$|~$",
    re.IGNORECASE,
)


def step_in(name: str) -> int | None:
    """The step in a file's or folder's name: the number after "step" or "iter", else its last whole number.

    >>> step_in("epoch=3-step=1200-v1.ckpt"), step_in("model_0000100.pt"), step_in("last.pt")
    (1200, 100, None)
    """
    stem = _RANK.sub("", without_suffix(name))
    by_word = _STEP_WORD.findall(stem)
    if by_word:
        return int(by_word[-1])
    numbers: list[str] = re.findall(r"\d+", _DECIMAL.sub("", stem))
    return int(numbers[-1]) if numbers else None


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
    return _FOLDER_WORD.fullmatch(name) is not None


def rank_in(name: str) -> int | None:
    """The rank in a file's name, "step_5_rank3.pt" → 3; None when there is none."""
    found = _RANK.search(without_suffix(name))
    return int(found.group(1)) if found else None


def without_rank(name: str) -> str:
    """The name that all ranks' files of one checkpoint share."""
    return _RANK.sub("", name)


def missing_in(numbers: Iterable[int]) -> list[int]:
    """The numbers that are absent from 0 … max: a set of ranks has no gap."""
    present = set(numbers)
    return [number for number in range(max(present, default=-1) + 1) if number not in present]


def unlisted(error: OSError) -> str:
    """The reason to skip a folder whose names cannot be read."""
    return f"cannot be listed: {error.strerror or error}"
