"""Format `deepspeed`: `latest` and the folder that it names, usually global_step100/.

Rank 0 writes `latest` when its own files are written; DeepSpeed before 2023 did so without waiting for the other ranks.
So `latest` is needed but proves nothing: the ranks' files must be a set without gaps, and each a whole file. A folder
newer than `latest` is an unfinished save; a `latest` that is empty or names no folder is torn, and structure decides.
The trainer of transformers keeps `latest` inside checkpoint-100/, beside global_step100/: then checkpoint-100 is the
checkpoint. Source: deepspeed/runtime/engine.py, save_checkpoint.

What structure cannot tell: a set that lacks exactly its last data-parallel ranks, for all model-parallel ranks alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from safelaunch.checkpoints import names
from safelaunch.checkpoints.formats import torchfile
from safelaunch.checkpoints.model import Candidate, CheckpointTree, join

LATEST = "latest"
_STEP_FOLDER = re.compile(r"global_step(\d+)")
# (kind, name with one group per axis). "bf16_" and the like may stand before "zero_"; stage 3 names model states so.
_KINDS = (
    ("model states", re.compile(r"mp_rank_(\d+)_model_states\.pt")),
    ("model states", re.compile(r"(?:[a-z0-9]{1,64}_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_model_states\.pt")),
    ("optimizer states", re.compile(r"(?:[a-z0-9]{1,64}_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt")),
    ("layer states", re.compile(r"layer_(\d+)-model_(\d+)-model_states\.pt")),
    ("expert optimizer states", re.compile(r"expp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt")),
)


def list_candidates(folder: CheckpointTree) -> tuple[Candidate, ...]:
    """The tags in the folder, and direct subfolders that hold a `latest` of their own."""
    inside = sorted(folder.names(""))
    said = read_latest(folder, LATEST)
    tags = [name for name in inside if (_STEP_FOLDER.fullmatch(name) or name == said) and folder.is_dir(name)]
    nested = [found for name in inside if name not in tags and (found := _find_nested(folder, name))]
    return (*_list_tags(tags, said), *nested)


def _list_tags(tags: list[str], said: str | None) -> Iterator[Candidate]:
    """The folders of checkpoints, held against what `latest` says."""
    torn = bool(tags) and said is not None and said not in tags
    if torn:
        wrong = f"names {said}, which is no folder" if said else "is empty"
        yield Candidate(LATEST, None, "deepspeed", refused=wrong)
    newest = names.step_in(said) if said and not torn else None
    for tag in tags:
        step, refused = names.step_in(tag), None
        if said is None:
            refused = f"no {LATEST}: no save was ever finished"
        elif newest is not None and step is not None and step > newest:
            refused = f"newer than {said} in {LATEST}: its save has not finished"
        yield Candidate(tag, step, "deepspeed", (tag,), refused)


def _find_nested(folder: CheckpointTree, name: str) -> Candidate | None:
    """checkpoint-100 as the trainer of transformers writes it; its loader follows `latest`, so that must be right."""
    if not folder.is_dir(name):
        return None
    try:
        said = read_latest(folder, join(name, LATEST))
    except OSError as error:
        return Candidate(name, names.step_in(name), "deepspeed", refused=names.unlisted(error))
    if said is None:
        return None
    refused = None if said and folder.is_dir(join(name, said)) else f"its {LATEST} names no folder"
    step = names.step_in(name)
    return Candidate(name, names.step_in(said) if step is None else step, "deepspeed", (join(name, said),), refused)


def read_latest(folder: CheckpointTree, path: str) -> str | None:
    """The tag in `latest`, "" when it is torn, None without one."""
    if folder.size(path) is None:
        return None
    said = folder.read(path, 0, 256).decode("utf-8", "replace").strip()
    return "" if "/" in said or said.startswith(".") else said


def judge(folder: CheckpointTree, candidate: Candidate) -> str | None:
    """What is wrong with the files of the candidate's tag, None when whole."""
    return judge_tag(folder, candidate.parts[0])


def judge_tag(folder: CheckpointTree, path: str) -> str | None:
    """What is wrong with the files of one tag, None when all ranks' are there and whole."""
    inside = sorted(folder.names(path))
    files = [name for name in inside if names.is_torch(name) and not names.is_temporary(name)]
    if not any(name.endswith("model_states.pt") for name in files):
        return "no model states"
    grids = [(kind, _ranks_of(pattern, files)) for kind, pattern in _KINDS]
    for kind, ranks in grids:
        reason = _judge_grid(kind, ranks)
        if reason:
            return reason
    model, partitioned, optimizer, *_ = [{ranks[-1] for ranks in grid} for _, grid in grids]
    if optimizer and optimizer != (model or partitioned):
        return f"optimizer states of {len(optimizer)} model-parallel ranks, model states of {len(model or partitioned)}"
    return torchfile.judge_files(folder, tuple(join(path, name) for name in files))


def _ranks_of(pattern: re.Pattern[str], files: Iterable[str]) -> list[tuple[int, ...]]:
    return [tuple(map(int, found.groups())) for name in files if (found := pattern.fullmatch(name))]


def _judge_grid(kind: str, ranks: list[tuple[int, ...]]) -> str | None:
    """What is missing: the last axis counts from 0, and all pairs of the axes are there.

    Layers are numbered with gaps (a layer without weights writes none), so only their model ranks are counted.
    """
    if not ranks:
        return None
    axes = [sorted(set(axis)) for axis in zip(*ranks, strict=True)]
    for axis in axes if kind != "layer states" else axes[-1:]:
        missing = names.missing_in(axis)
        if missing:
            return f"{kind}: no file of rank {missing[0]} of {axis[-1] + 1}"
    whole = len(axes[0]) * (len(axes[1]) if len(axes) > 1 else 1)
    return f"{kind}: {len(ranks)} of {whole} files" if len(ranks) != whole else None
