"""Format `lightning`: .ckpt files of Lightning, its sharded .ckpt folders, and what it saves when Slurm ends a job.

They lie in lightning_logs/version_N/checkpoints or wherever ModelCheckpoint is told: epoch=3-step=1200.ckpt, last.ckpt,
hpc_ckpt_N.ckpt (N counts saves; source: lightning/pytorch/trainer/connectors/checkpoint_connector.py). The first words
of the pickle inside hold global_step, which is the step where the name tells none, and Lightning's version. A sharded
folder is one of torch's distributed checkpoints with meta.pt, written last (source: strategies/fsdp.py and
model_parallel.py), or one of DeepSpeed with the tag "checkpoint".

What structure cannot tell: what it cannot of a torch file (docs/checkpoints.md).
"""

from __future__ import annotations

import re

from safelaunch.checkpoints import inside, names, tree
from safelaunch.checkpoints.formats import dcp, deepspeed, torchfile
from safelaunch.checkpoints.model import Candidate, CheckpointTree, join
from safelaunch.checkpoints.tree import FolderNames

SUFFIX = ".ckpt"
META = "meta.pt"
# Deep enough for tb_logs/NAME/version_0/checkpoints.
_DEEPEST = 4
_TAG = "checkpoint"   # source: lightning/pytorch/strategies/deepspeed.py, save_checkpoint
_ITS_NAME = re.compile(r"(?:.{0,255}?\b(?:epoch|step)=\d{1,18}.{0,255}|last(?:-v\d{1,18})?|hpc_ckpt_\d{1,18})\.ckpt")
_SAYS_STEP = re.compile(r"step=\d+")
_VERSION = "pytorch-lightning_version"
# A read and the first opcodes: the keys that are asked for are the first ones, and no other program's file has them.
_MOST_OPS = 500


def list_candidates(folder: CheckpointTree) -> tuple[Candidate, ...]:
    """Every .ckpt file or folder that is Lightning's by its name, or by what the file begins with."""
    found: list[Candidate] = []
    for place in tree.walk(folder, _DEEPEST):
        if place.base.endswith(SUFFIX):   # the folder is a checkpoint, its files are parts
            continue
        found += (one for name in place.names if SUFFIX in name and (one := _examine(folder, place, name)))
    return tuple(found)


def _examine(folder: CheckpointTree, place: FolderNames, name: str) -> Candidate | None:
    """The candidate of that name, None when nothing says that it is Lightning's."""
    path = join(place.path, name)
    is_folder = folder.is_dir(path)
    if names.is_temporary(name):
        named = _ITS_NAME.search(name[: name.index(SUFFIX) + len(SUFFIX)]) is not None
        return Candidate(path, names.step_in(name), "lightning", refused=names.UNFINISHED) if named else None
    if not name.endswith(SUFFIX) or (is_folder and not _is_sharded(folder, path)):
        return None
    step = names.step_in(name) if _SAYS_STEP.search(name) else None
    if step is None and not is_folder:
        is_its_own, step = _peek(folder, path)
        if not is_its_own and not _ITS_NAME.fullmatch(name):
            return None
    return Candidate(path, step if step is not None else _named_step(name), "lightning")


def _named_step(name: str) -> int | None:
    """The step in a name of the user's own; hpc_ckpt_3 and last-v1 only count saves."""
    return None if name.startswith(("hpc_ckpt_", "last")) else names.step_in(name)


def _is_sharded(folder: CheckpointTree, path: str) -> bool:
    held = folder.names(path)
    return dcp.is_like(held) or META in held or deepspeed.LATEST in held or not held


def _peek(folder: CheckpointTree, path: str) -> tuple[bool, int | None]:
    """Whether the file's dictionary begins with Lightning's keys, and its global_step."""
    try:
        told = inside.read_file(folder, path, _MOST_OPS)
    except OSError:
        return False, None
    return _VERSION in told.keys, told.step


def judge(folder: CheckpointTree, candidate: Candidate) -> str | None:
    """What is wrong with the file, or with the folder's shards, None when whole."""
    path = candidate.path
    if not folder.is_dir(path):
        return torchfile.judge_file(folder, path)
    held = folder.names(path)
    if deepspeed.LATEST in held or _TAG in held:
        return deepspeed.judge_tag(folder, join(path, _TAG))
    if META not in held:
        return f"no {META}, which is written last: the save has not finished" if held else "empty folder"
    return dcp.judge_folder(folder, path)
