"""Who holds a GPU's memory when there is none left: processes of somebody else, or the training itself.

PyTorch names the card's size, what is free, what this process has, and mostly each other process. Ranks that share a
card by mistake look alike from each of them, so it is the training's own in any doubt: where this process is no dwarf
beside the others, where two messages name the same process, where the log names that process elsewhere, and on more
than one node at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

DWARF = 4.0          # times as much another process must have; ranks on one card have about the same
SHARE = 0.5          # of the card that others must hold
OWN_SHARE = 0.05     # the most that this process may have where the others are not named (a context takes 0.5 GiB)
MOST_DIGITS = 3      # of a number that any line may hold: a container's processes are 1, 2, …
_UNITS = {"KiB": 2.0 ** -20, "MiB": 2.0 ** -10, "GiB": 1.0, "TiB": 1024.0}
_SIZE = r"([\d.]{1,12}) ([KMGT]iB)"
# PyTorch, c10/cuda/CUDACachingAllocator.cpp: from 2.1 on, and before.
_TOTAL = re.compile(rf"total capacity of {_SIZE}|{_SIZE} total capacity")
_FREE = re.compile(rf"of which {_SIZE} is free|{_SIZE} free")
_OWN = re.compile(rf"this process has {_SIZE}|{_SIZE} reserved in total|{_SIZE} already allocated")
# vLLM, before it takes any; a model or a training that is there already is the program's own.
_AT_START = re.compile(r"Free memory on device \S{0,20} ?\(([\d.]{1,8})/([\d.]{1,8}) GiB\) on startup")
_OWN_USE = re.compile(r"(?i)model loading took|\bloading (?:model|weights|checkpoint|safetensors)|\bloss\b")
_OTHERS = re.compile(rf"Process (\d{{1,9}}) has {_SIZE} memory in use")


class GpuMemory(NamedTuple):
    """Of one message, in GiB; `others` by their process ids."""

    total: float
    free: float
    own: float
    others: dict[str, float]


def parse_memory(text: str) -> GpuMemory | None:
    """What a message says of the card; None = not all of it."""
    if start := _AT_START.search(text):
        return GpuMemory(_gib(start[2], "GiB"), _gib(start[1], "GiB"), 0.0, {})
    total, free, own = (_first(pattern, text) for pattern in (_TOTAL, _FREE, _OWN))
    if total is None or free is None or own is None:
        return None
    return GpuMemory(total, free, own, {pid: _gib(size, unit) for pid, size, unit in _OTHERS.findall(text)})


def are_others(texts: Iterable[str], elsewhere: Sequence[str], hosts: Sequence[str]) -> bool:
    """Whether processes that are not the training's hold the memory. `texts`: all messages of one kind, `elsewhere`:
    other lines of the log, `hosts`: who printed the messages.
    """
    different = tuple(dict.fromkeys(texts))
    if any(map(_AT_START.search, different)) and any(map(_OWN_USE.search, elsewhere)):
        return False
    found = [parse_memory(text) for text in different]
    if len(set(hosts)) > 1 or not all(one is not None and _is_crowded_out(one) for one in found):
        return False
    pids = [pid for one in found if one is not None for pid in one.others]
    if len(set(pids)) < len(pids) or (not pids and len(different) > 1):
        return False
    known = [pid for pid in pids if len(pid) > MOST_DIGITS]
    return not known or not any(re.search(rf"\b(?:{'|'.join(known)})\b", line) for line in elsewhere)


def _is_crowded_out(seen: GpuMemory) -> bool:
    if seen.others:
        return max(seen.others.values()) >= DWARF * seen.own and sum(seen.others.values()) >= SHARE * seen.total
    return seen.total - seen.free - seen.own >= SHARE * seen.total and seen.own <= OWN_SHARE * seen.total


def _first(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    if match is None:
        return None
    size, unit = filter(None, match.groups())
    return _gib(size, unit)


def _gib(size: str, unit: str) -> float:
    try:
        return float(size) * _UNITS[unit]
    except ValueError:   # "1.2.3"
        return 0.0
