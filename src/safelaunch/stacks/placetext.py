"""Where a rank stands, for people: what it waits for, and the program's own line, as in "barrier, train.py:47"."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from safelaunch.stacks.activity import (
    COLLECTIVE,
    DATA,
    LOCK,
    NOTHING,
    RENDEZVOUS,
    Activity,
    classify,
    is_in_backward,
)
from safelaunch.stacks.ranks import ObservedRank, Stack
from safelaunch.stacks.scene import names_of
from safelaunch.stacks.stacks import STUCK, RankGroup, is_plumbing, split_frame

BACKWARD = "backward's all-reduce"   # the engine is native: DistributedDataParallel's collective is on no Python stack
_NAMES = {RENDEZVOUS: "the rendezvous", DATA: "its data loader", LOCK: "a lock file"}
# Packages by the first part of a path as py-spy shortens it; Megatron's own files are mostly a clone of the user's.
_LIBRARY = re.compile(
    r"site-packages/|dist-packages/|/lib/python\d|^<|^(?:torch\w*|functorch|triton|deepspeed|transformers|accelerate"
    r"|datasets|lightning\w*|pytorch_lightning|numpy|pandas|webdataset|streaming|litdata|petastorm|nvidia|horovod|mpi4py"
    r"|jax|jaxlib|flax|optax|ray|trl|peft|timm|safetensors|h5py|zarr|fsspec|filelock|tensorflow|keras|composer)/")
_UNNAMED = ("<module>", "main")


def tell_place(stack: Stack) -> str:
    """What a rank is at and where: "barrier, train.py:47", "broadcast, train.py:47 (evaluate)"; "" = not known."""
    at = classify(stack)
    if at.kind == NOTHING:
        return ""
    frame, line = own_frame(stack)
    short = next((split_frame(one)[0].rpartition(".")[2] for one in stack if not is_plumbing(one)), at.what)
    what = BACKWARD if is_in_backward(stack) else _NAMES.get(at.kind) or (at.what if at.kind == COLLECTIVE else short)
    inside = f" ({frame})" if frame and frame not in (*_UNNAMED, what) else ""
    return f"{frame if what in _UNNAMED and frame else what}, {line}{inside}" if line else what


def own_frame(stack: Stack) -> tuple[str, str]:
    """(function, "file:line") of the innermost frame of the program's own; ("", "") where there is none."""
    for frame in stack:
        name, file = split_frame(frame)
        if file and file != "import" and not _LIBRARY.search(file) and not _is_standard(file):
            return name.rpartition(".")[2], frame[len(name) + 2:-1]
    return "", ""


def _is_standard(file: str) -> bool:
    """Whether a file is of Python's library; py-spy leaves its folder out."""
    return file.partition("/")[0].removesuffix(".py") in sys.stdlib_module_names


def tell_doing(at: Activity, group: RankGroup, count: int) -> str:
    """ "waits in barrier, train.py:47", "is in save_extra, train.py:10"; `count`: of how many ranks that is said."""
    waits = at.kind in (COLLECTIVE, RENDEZVOUS) or is_in_backward(group.stack)
    verb = ("waits", "wait") if waits and group.kind == STUCK else ("is", "are")
    return f"{verb[count > 1]} in {tell_place(group.stack) or 'unreadable code'}"


def all_of(ranks: Sequence[ObservedRank]) -> str:
    """For people: "all 8 ranks"."""
    return ranks[0].name if len(ranks) == 1 else f"all {len(ranks)} ranks"


def standing(ranks: Sequence[ObservedRank]) -> str:
    """For people: "rank 3 on n1 stands"."""
    return f"{names_of(ranks)} {'stands' if len(ranks) == 1 else 'stand'}"


def file_of(rank: ObservedRank) -> str:
    """The file that it waits for, as the end of a sentence."""
    place = rank.stuck_in or rank.main
    return f" ({place.path})" if place is not None and place.path else ""


def worker_of(rank: ObservedRank) -> str:
    """Its loader's worker that sleeps, as the end of a sentence."""
    asleep = next((place for place in rank.below if place.state in "DTZ"), None)
    if asleep is None:
        return "" if rank.below else ", and has no worker process left"
    return f", whose worker {asleep.pid} is in state {asleep.state}{f' in {asleep.call}()' if asleep.call else ''}" \
           f"{f' on {asleep.mount}' if asleep.mount else ''}"
