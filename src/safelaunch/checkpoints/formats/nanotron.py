"""Format `nanotron`: latest.txt and folders named by their step, with config.yaml, model/, optimizer/ and more.

The parallel ranks stand in the files' names ("…_pp-rank-0-of-2_tp-rank-1-of-2.safetensors", "…_tp-0-of-2.pt"). So a
missing one is seen. The file checkpoint_metadata.json is written after weights and optimizer, latest.txt when all ranks
are through: a folder newer than latest.txt is an unfinished save. Source: nanotron/serialize/main.py,
nanotron/trainer.py.

What structure cannot tell: a tensor that no rank has saved, a cut config.yaml, damaged bytes inside a tensor.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import prod

from safelaunch.checkpoints import tree
from safelaunch.checkpoints.formats import safetensors
from safelaunch.checkpoints.model import Candidate, CheckpointTree

LATEST, METADATA = "latest.txt", "checkpoint_metadata.json"
# Deep enough for model/model/decoder/12/pp_block/attn/qkv_proj.
_DEEPEST = 10
_RANK = re.compile(r"(pp|dp|tp|exp)(?:-rank)?-(\d+)-of-(\d+)")


def list_candidates(folder: CheckpointTree) -> tuple[Candidate, ...]:
    """Every folder named by a number that holds nanotron's texts, held against latest.txt."""
    said = _read_latest(folder)
    found = []
    for name in sorted(folder.names("")):
        if name.isdecimal() and folder.is_dir(name) and _is_like(folder, name):
            newer = said is not None and int(name) > said
            refused = f"newer than {said} in {LATEST}: its save has not finished" if newer else None
            found.append(Candidate(name, int(name), "nanotron", refused=refused))
    return tuple(found)


def _is_like(folder: CheckpointTree, name: str) -> bool:
    try:
        inside = folder.names(name)
    except OSError:
        return False
    return METADATA in inside or ("config.yaml" in inside and ("model" in inside or "optimizer" in inside))


def _read_latest(folder: CheckpointTree) -> int | None:
    """The step in latest.txt; None without one, or when it is torn: then the folders' own structure decides."""
    if folder.size(LATEST) is None:
        return None
    said = folder.read(LATEST, 0, 64).decode("ascii", "replace").strip()
    return int(said) if said.isdecimal() else None


def judge(folder: CheckpointTree, candidate: Candidate) -> str | None:
    """What is wrong with the folder's files or with the sets of their ranks, None when whole."""
    inside = folder.names(candidate.path)
    for needed in (METADATA, "config.yaml", "model"):
        if needed not in inside:
            return f"no {needed}"
    for place in tree.walk(folder, _DEEPEST, candidate.path):
        reason = place.unlisted or _judge_ranks(place.names) or safetensors.judge_files(
            folder, place.path, place.names)
        if reason:
            below = place.path[len(candidate.path) + 1 :]
            return f"{below}/{reason}" if below else reason
    return None


def _judge_ranks(inside: Iterable[str]) -> str | None:
    """Which ranks' files are missing: those that differ by their ranks only are as many as the sizes that they name.

    A tensor's file is that of one pipeline stage, whose rank tells nothing of the others.
    """
    grids: dict[str, set[tuple[int, ...]]] = {}
    wanted: dict[str, int] = {}
    for name in inside:
        axes = [(int(rank), int(count)) for axis, rank, count in _RANK.findall(name)
                if axis != "pp" or not name.endswith(safetensors.SUFFIX)]
        if axes:
            grid = _RANK.sub(r"\1", name)
            grids.setdefault(grid, set()).add(tuple(rank for rank, _ in axes))
            wanted[grid] = prod(count for _, count in axes)
    for grid, found in sorted(grids.items()):
        if len(found) != wanted[grid]:
            return f"{grid}: {len(found)} of {wanted[grid]} ranks' files"
    return None
