"""Format `nemo`: folders of NeMo and of Megatron's dist_checkpointing: metadata.json, common.pt, .metadata, shards.

NeMo calls them NAME--val_loss=0.1-step=99-consumed_samples=100, NeMo 2 with weights/ and context/ inside. While one is
written, an empty file NAME-unfinished stands beside it (source: ModelCheckpoint of nemo/lightning/pytorch/callbacks).
The file metadata.json is written when all ranks have saved, and names the layout of the shards. What is the same on all
ranks is in common.pt (source: megatron/core/dist_checkpointing/serialization.py, save). Folders iter_N are Megatron's
own.

What structure cannot tell: what it cannot of a distributed checkpoint. The zarr layout is judged by metadata.json and
common.pt alone.
"""

from __future__ import annotations

import re

from safelaunch.checkpoints import names, tree
from safelaunch.checkpoints.formats import dcp, torchfile
from safelaunch.checkpoints.model import Candidate, CheckpointTree, join
from safelaunch.checkpoints.tree import FolderNames

METADATA, COMMON, WEIGHTS = "metadata.json", "common.pt", "weights"
UNFINISHED = "-unfinished"
# Deep enough for EXPERIMENT/VERSION/checkpoints/NAME.
_DEEPEST = 4
# Numbers behind these words are no step: consumed_samples=128.0.
_STEP = re.compile(r"\bstep=(\d+)")
_MEGATRON = re.compile(r"iter_\d+|release")


def list_candidates(folder: CheckpointTree) -> tuple[Candidate, ...]:
    """Every folder that holds Megatron's files, itself or in weights/."""
    found: dict[str, Candidate] = {}
    for place in tree.walk(folder, _DEEPEST):
        if tree.is_within(place.parent, found) or _MEGATRON.fullmatch(place.base):
            continue
        weights = WEIGHTS if WEIGHTS in place.names and folder.is_dir(join(place.path, WEIGHTS)) else ""
        inside = folder.names(join(place.path, WEIGHTS)) if weights else place.names
        if METADATA in inside or (COMMON in inside and dcp.is_like(inside)) or (weights and "context" in place.names):
            refused = _refuse(folder, place)
            parts = (join(place.path, weights),)
            found[place.path] = Candidate(place.path, _step_in(place.base), "nemo", parts, refused)
    return tuple(found.values())


def _refuse(folder: CheckpointTree, place: FolderNames) -> str | None:
    if names.is_temporary(place.base):
        return names.UNFINISHED
    marker = place.base.removesuffix(".ckpt").removesuffix("-EMA") + UNFINISHED
    if place.path and marker in folder.names(place.parent):
        return f"{marker} stands beside it: the save has not finished"
    return None


def _step_in(name: str) -> int | None:
    found = _STEP.search(name)
    return int(found.group(1)) if found else names.step_in(name)


def judge(folder: CheckpointTree, candidate: Candidate) -> str | None:
    """What is wrong with the folder that holds the shards, and with the texts of context/; None when whole."""
    path = candidate.parts[0]
    reason = judge_folder(folder, path, sorted(folder.names(path)))
    context = join(candidate.path, "context")
    if reason is None and path != candidate.path and folder.is_dir(context):
        texts = (name for name in sorted(folder.names(context)) if name.endswith(".json"))
        reason = next((f"context/{name}: {wrong}" for name in texts
                       if (wrong := tree.judge_json(folder, join(context, name)))), None)
    return reason


def judge_folder(folder: CheckpointTree, path: str, inside: list[str]) -> str | None:
    """What is wrong with a folder of Megatron's dist_checkpointing, None when whole."""
    if METADATA not in inside:
        return f"no {METADATA}, which is written last: the save has not finished"
    try:
        said = tree.read_json(folder, join(path, METADATA))
    except ValueError as error:
        return f"{METADATA}: {error}"
    if not isinstance(said, dict) or not said.get("sharded_backend"):
        return f"{METADATA} names no sharded_backend"
    if said.get("common_backend", "torch") == "torch" and COMMON not in inside:
        return f"no {COMMON}"
    if said["sharded_backend"] == "torch_dist":
        return dcp.judge_folder(folder, path)
    return torchfile.judge_files(folder, tuple(join(path, name) for name in inside if names.is_torch(name)))
