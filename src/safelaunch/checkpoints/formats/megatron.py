"""Format `megatron`: latest_checkpointed_iteration.txt and iter_0000100/ (or release/).

Two layouts: mp_rank_TT[_PPP[_EEE]]/*.pt, and a distributed checkpoint (metadata.json, .metadata, common.pt). Megatron
writes the tracker after all ranks have saved, and loads what the tracker names. A folder that is newer than the tracker
is an unfinished save. Source: megatron/training/checkpointing.py. A tracker that is empty or names no folder is a torn
one, and then the folders' own structure decides.

A damaged folder that the tracker names is passed over here, but Megatron's own --load follows the tracker: give it
"--load DIR --ckpt-step {step}". The zarr layout is judged by its metadata.json alone, which is written last.
"""

from __future__ import annotations

import re

from safelaunch.checkpoints import names
from safelaunch.checkpoints.formats import dcp, nemo, torchfile
from safelaunch.checkpoints.model import Candidate, CheckpointTree, join

TRACKER = "latest_checkpointed_iteration.txt"
RELEASE = "release"
_ITERATION = re.compile(r"iter_(\d+)")
_RANKS = re.compile(r"mp_rank_(\d+)(?:_(\d+))?(?:_(\d+))?")
_AXES = ("tensor", "pipeline", "expert")


def list_candidates(folder: CheckpointTree) -> tuple[Candidate, ...]:
    """Every iter_N folder, `release` where the tracker names it, and a tracker that cannot be believed."""
    found = [(name, int(told.group(1))) for name in folder.names("") if (told := _ITERATION.fullmatch(name))]
    if not found and not folder.is_dir(RELEASE):
        return ()
    said = _read_tracker(folder)
    like = {name for name, _ in found if _is_like(folder, name)}
    steps = {name: step for name, step in found if name in like or (said is not None and like)}
    if not steps and said != RELEASE:
        return ()
    release = (Candidate(RELEASE, None, "megatron"),) if said == RELEASE else ()
    announced = int(said) if said is not None and said.isdecimal() else None
    torn = said is not None and not release and announced not in steps.values()
    if torn:
        wrong = f"names iteration {said}, which has no folder" if said else "is empty"
        release = (Candidate(TRACKER, None, "megatron", refused=wrong),)
    listed = []
    for name, step in steps.items():
        refused = None if torn else _refuse(folder, name, step, said, announced)
        listed.append(Candidate(name, step, "megatron", refused=refused))
    return (*release, *listed)


def _is_like(folder: CheckpointTree, name: str) -> bool:
    """Whether a folder has Megatron's marks, or nothing in it. With other files it is one of a trainer of one's own."""
    try:
        inside = folder.names(name)
    except OSError:
        return True
    has_marks = dcp.is_like(inside) or any(
        one in (nemo.METADATA, nemo.COMMON) or _RANKS.fullmatch(one) for one in inside)
    return has_marks or not inside


def _refuse(folder: CheckpointTree, name: str, step: int, said: str | None, announced: int | None) -> str | None:
    """Why an iteration's folder cannot be meant, as the tracker says."""
    if said == RELEASE:
        return f"{TRACKER} says release"
    if announced is not None and step > announced:
        return f"newer than iteration {announced} in {TRACKER}: its save has not finished"
    # The distributed layout has its own mark of the end (.metadata), the other one has none.
    if announced is None and not _is_distributed(folder, name):
        return f"no {TRACKER}: no save was ever finished"
    return None


def _read_tracker(folder: CheckpointTree) -> str | None:
    """What the tracker says, None without a tracker."""
    if folder.size(TRACKER) is None:
        return None
    return folder.read(TRACKER, 0, 64).decode("ascii", "replace").strip()


def _is_distributed(folder: CheckpointTree, path: str) -> bool:
    try:
        return dcp.is_like(folder.names(path))
    except OSError:
        return False


def judge(folder: CheckpointTree, candidate: Candidate) -> str | None:
    """What is wrong with one iteration's folder, None when whole."""
    inside = sorted(folder.names(candidate.path))
    ranks = {name: found for name in inside if (found := _RANKS.fullmatch(name))}
    if ranks:
        return _judge_grid(list(ranks.values())) or _judge_ranks(folder, candidate.path, list(ranks))
    if nemo.METADATA in inside or nemo.COMMON in inside:
        return nemo.judge_folder(folder, candidate.path, inside)
    if dcp.is_like(inside):
        return dcp.judge_folder(folder, candidate.path)
    return "neither mp_rank_ folders nor metadata.json"


def _judge_grid(ranks: list[re.Match[str]]) -> str | None:
    """What is missing in the grid of ranks: every axis counts from 0, and tensor × pipeline is full."""
    if len({tuple(axis is None for axis in found.groups()) for found in ranks}) > 1:
        return "mp_rank_ folders of two different layouts"
    for number, axis in enumerate(_AXES, 1):
        missing = names.missing_in(int(found.group(number)) for found in ranks if found.group(number) is not None)
        if missing:
            return f"no folder of {axis} rank {missing[0]}"
    tensor = {found.group(1) for found in ranks}
    pipeline = {found.group(2) for found in ranks}
    pairs = {found.group(1, 2) for found in ranks}
    if len(pairs) != len(tensor) * len(pipeline):
        return f"{len(pairs)} of {len(tensor)} × {len(pipeline)} tensor × pipeline ranks"
    return None


def _judge_ranks(folder: CheckpointTree, path: str, ranks: list[str]) -> str | None:
    """What is wrong with the ranks' files: all hold a model file, and each file is whole."""
    for rank in ranks:
        files = [name for name in sorted(folder.names(join(path, rank))) if names.is_torch(name)]
        if not any(name.startswith("model") for name in files):
            return f"{rank}: no model file"
        reason = torchfile.judge_files(folder, tuple(join(path, rank, name) for name in files))
        if reason:
            return reason
    return _judge_same_files(folder, path, ranks)


def _judge_same_files(folder: CheckpointTree, path: str, ranks: list[str]) -> str | None:
    """Which file some ranks have and another lacks: distrib_optim.pt is written after model_optim_rng.pt."""
    sets = {rank: {name for name in folder.names(join(path, rank)) if names.is_torch(name)} for rank in ranks}
    everything = set().union(*sets.values())
    for rank, files in sets.items():
        if files != everything:
            return f"{rank}: no {min(everything - files)}, which other ranks have"
    return None
