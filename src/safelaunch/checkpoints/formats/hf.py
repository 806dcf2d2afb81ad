"""Format `hf`: checkpoint-100/ of the Trainer of transformers, and folders of Accelerate's save_state.

The Trainer writes weights, optimizer, scheduler, each rank's generator, and trainer_state.json last (source:
transformers/trainer.py, _save_checkpoint). Accelerate writes each rank's random_states_N.pkl last (source:
accelerate/checkpointing.py, save_accelerator_state). Weights are one file or several with an index, in either form, of
a model or of PEFT's adapter. FSDP keeps them in pytorch_model_fsdp_0/ as a distributed checkpoint, DeepSpeed in the
folder that `latest` names. Each file must be whole. A folder of weights alone, as save_pretrained writes it, is
complete by its weights. If its neighbours are checkpoints of a trainer, it is an unfinished one.

What structure cannot tell: a set of rng files that lacks its last ranks; a save of weights alone (save_only_model) from
one that has lost optimizer, scheduler and rng files all three; a damaged text without JSON's form (merges.txt).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from safelaunch.checkpoints import names, tree
from safelaunch.checkpoints.formats import dcp, deepspeed, safetensors
from safelaunch.checkpoints.model import Candidate, CheckpointTree, join
from safelaunch.checkpoints.tree import FolderNames

TRAINER_STATE = "trainer_state.json"
# Deep enough for runs/NAME/checkpoints/checkpoint_0 and a search's run-3/checkpoint-500.
_DEEPEST = 3
_TRAINER_FOLDER = re.compile(r"checkpoint-(\d+)")
# Not optimizer.pt: a plain training may well call its file so.
_TRAINER_FILE = re.compile(r"trainer_state\.json|training_args\.bin|rng_state(?:_\d+)?\.pth")
_TRAINER_RNG = re.compile(r"rng_state(?:_(\d+))?\.pth")
_ACCELERATE_RNG = re.compile(r"random_states_(\d+)\.pkl")
_ACCELERATE_FILE = re.compile(
    r"random_states_\d+\.pkl|(?:optimizer|scheduler|sampler|dl_state_dict)(?:_\d+)?\.bin|custom_checkpoint_\d+\.pkl"
)
_WEIGHTS = re.compile(
    r"(?:model|adapter_model|pytorch_model)(?:_\d+)?(?:\.[\w-]+)?(?:-\d+-of-\d+)?\.(?:safetensors|bin)"
    r"|pytorch_model_fsdp(?:_\d+)?(?:\.bin)?"
)
_CONFIG = re.compile(r"(?:adapter_)?config\.json")
_FSDP_FOLDER = re.compile(r"(?:pytorch_model_fsdp|optimizer)_\d+")
# What every save of one training writes, or none.
_AS_BESIDE = ("config.json", "scheduler.bin")
# Accelerate numbers what it is given: model, model_1, …
_NUMBERED = re.compile(r"(model|pytorch_model|optimizer|scheduler|sampler|random_states)(?:_(\d+))?\.\w+")


def list_candidates(folder: CheckpointTree) -> tuple[Candidate, ...]:
    """Every folder that looks like a checkpoint of the Trainer or of Accelerate, or like a model's."""
    found: dict[str, Candidate] = {}
    beside: dict[str, set[str]] = {}
    begun: list[FolderNames] = []
    for place in tree.walk(folder, _DEEPEST):
        if tree.is_within(place.parent, found):   # a part of the one above
            continue
        if place.unlisted:
            if _TRAINER_FOLDER.fullmatch(place.base):
                found[place.path] = Candidate(place.path, names.step_in(place.base), "hf", refused=place.unlisted)
        elif is_like(place) and (place.path or not _has_steps(folder, place)):
            found[place.path] = Candidate(place.path, names.step_in(place.base), "hf", refused=_refuse(place))
            beside.setdefault(place.parent, set()).update(place.names)
        elif names.is_step_folder(place.base) and any(map(_WEIGHTS.fullmatch, place.names)):
            begun.append(place)
    # Weights come first in a save: alone they tell nothing, beside a trainer's checkpoints they are an unfinished one.
    found |= {place.path: Candidate(place.path, names.step_in(place.base), "hf") for place in begun
              if any(map(_is_end_mark, beside.get(place.parent, ())))}
    return tuple(_compare(folder, one, beside.get(one.path.rpartition("/")[0], set())) if not one.refused else one
                 for one in found.values())


def is_like(place: FolderNames) -> bool:
    """Whether the names are those of a checkpoint of the Trainer or of Accelerate, or of a model, finished or not."""
    inside = place.names
    if any(map(_ACCELERATE_FILE.fullmatch, inside)):
        return True
    has_config, has_weights = any(map(_CONFIG.fullmatch, inside)), any(map(_WEIGHTS.fullmatch, inside))
    if _TRAINER_FOLDER.fullmatch(place.base.removeprefix("tmp-")):   # older Trainers saved into tmp-checkpoint-N
        return has_config or has_weights or any(map(_TRAINER_FILE.fullmatch, inside))
    return TRAINER_STATE in inside or (has_config and has_weights and names.is_step_folder(place.base))


def _has_steps(folder: CheckpointTree, root: FolderNames) -> bool:
    """Whether the folder that is searched holds checkpoints, and so is none, although a model lies in it."""
    return any(names.is_step_folder(name) and folder.is_dir(name) for name in root.names)


def _is_end_mark(name: str) -> bool:
    return name == TRAINER_STATE or _ACCELERATE_RNG.fullmatch(name) is not None


def _refuse(place: FolderNames) -> str | None:
    """Why a folder cannot be meant, by its names alone."""
    if names.is_temporary(place.base) or place.base.startswith("tmp-"):
        return names.UNFINISHED
    if any(map(_is_end_mark, place.names)):
        return None
    if _TRAINER_FOLDER.fullmatch(place.base) or any(map(_TRAINER_FILE.fullmatch, place.names)):
        wanted = "random_states_0.pkl" if any(map(_ACCELERATE_FILE.fullmatch, place.names)) else TRAINER_STATE
        return f"no {wanted}, which is written last: the save has not finished"
    if any(map(_ACCELERATE_FILE.fullmatch, place.names)):
        return "no random_states_0.pkl, which is written last: the save has not finished"
    return None


def _compare(folder: CheckpointTree, one: Candidate, beside: set[str]) -> Candidate:
    """The same, or refused when it lacks what a neighbour of the same trainer has."""
    inside = folder.names(one.path)
    marks = set(filter(_is_end_mark, beside))
    lost = [name for name in _AS_BESIDE if name in beside and name not in inside]
    if marks and not any(map(_is_end_mark, inside)):
        lost.append(min(marks))
    if not lost:
        return one
    refused = f"no {lost[-1]}, which the checkpoints beside it have: the save has not finished"
    return Candidate(one.path, one.step, one.format, refused=refused)


def judge(folder: CheckpointTree, candidate: Candidate) -> str | None:
    """What is wrong with the folder, None when all that belongs to it is there and whole."""
    path, inside = candidate.path, sorted(folder.names(candidate.path))
    reason = _judge_weights(folder, path, inside)
    if reason is None and TRAINER_STATE in inside:
        reason = _judge_trainer(folder, candidate, inside)
    elif reason is None and any(map(_ACCELERATE_FILE.fullmatch, inside)):
        reason = _judge_accelerate(folder, path, inside)
    return (
        reason
        or safetensors.judge_folder(folder, path, inside)
        or _judge_folders(folder, path, inside)
    )


def _judge_weights(folder: CheckpointTree, path: str, inside: Iterable[str]) -> str | None:
    """Why the folder holds no model: neither weights, nor adapters (PEFT keeps further ones in folders), nor a tag."""
    if any(map(_WEIGHTS.fullmatch, inside)):
        has_adapter = any(name.startswith("adapter_model") for name in inside)
        return "no adapter_config.json" if has_adapter and "adapter_config.json" not in inside else None
    # Of diffusers: pytorch_lora_weights.safetensors, unet/diffusion_pytorch_model.safetensors.
    if deepspeed.LATEST in inside or any(name.endswith(safetensors.SUFFIX) for name in inside) or any(
            _is_model_part(below) for name in inside for below in _names_in(folder, path, name)):
        return None
    return "no weights: neither model nor adapter_model, in safetensors or .bin"


def _is_model_part(name: str) -> bool:
    return name == "adapter_config.json" or name.endswith(safetensors.SUFFIX) or name == "diffusion_pytorch_model.bin"


def _names_in(folder: CheckpointTree, path: str, name: str) -> Iterable[str]:
    return folder.names(join(path, name)) if folder.is_dir(join(path, name)) else ()


def _judge_trainer(folder: CheckpointTree, candidate: Candidate, inside: Iterable[str]) -> str | None:
    """What is wrong with the Trainer's own files: the states are there all or none, and all are of one step."""
    present = set(inside)
    with_deepspeed = deepspeed.LATEST in present
    has = {
        "optimizer": with_deepspeed or any(re.fullmatch(r"optimizer(?:\.pt|\.bin|_\d+)", name) for name in present),
        "scheduler.pt": "scheduler.pt" in present,
        "rng_state.pth": any(map(_TRAINER_RNG.fullmatch, present)),
    }
    needed = {state: there for state, there in has.items() if not (with_deepspeed and state == "scheduler.pt")}
    if any(needed.values()) and not all(needed.values()):
        lost = next(state for state, there in needed.items() if not there)
        return f"no {lost}, although other states of the training are there"
    ranks = [int(found.group(1)) for name in present if (found := _TRAINER_RNG.fullmatch(name)) and found.group(1)]
    if missing := names.missing_in(ranks):
        return f"no rng_state_{missing[0]}.pth of {max(ranks) + 1} ranks"
    return _judge_step(folder, candidate)


def _judge_step(folder: CheckpointTree, candidate: Candidate) -> str | None:
    """Whether trainer_state.json speaks of the step in the folder's name."""
    try:
        said = tree.read_json(folder, join(candidate.path, TRAINER_STATE))
    except ValueError as error:
        return f"{TRAINER_STATE}: {error}"
    if not _TRAINER_FOLDER.fullmatch(candidate.path.rpartition("/")[2]) or said is None:
        return None
    step = said.get("global_step") if isinstance(said, dict) else None
    return None if step == candidate.step else f"{TRAINER_STATE} is of step {step}"


def _judge_accelerate(folder: CheckpointTree, path: str, inside: Iterable[str]) -> str | None:
    """What is missing of what Accelerate numbers, and whether there is an optimizer to each scheduler."""
    counted: dict[str, list[int]] = {}
    for name in inside:
        if found := _NUMBERED.fullmatch(name):
            counted.setdefault(found.group(1), []).append(int(found.group(2) or 0))
    for kind, numbers in counted.items():
        if missing := names.missing_in(numbers):
            return f"{kind}: number {missing[0]} of {max(numbers) + 1} is missing"
    has_optimizer = "optimizer" in counted or deepspeed.LATEST in inside or any(
        name.startswith("optimizer_") and folder.is_dir(join(path, name)) for name in inside)
    return "no optimizer.bin, although scheduler.bin is there" if "scheduler" in counted and not has_optimizer else None


def _judge_folders(folder: CheckpointTree, path: str, inside: Iterable[str]) -> str | None:
    """What is wrong in the folders: FSDP's shards, DeepSpeed's tag, further adapters."""
    if deepspeed.LATEST in inside:
        said = deepspeed.read_latest(folder, join(path, deepspeed.LATEST))
        if not said or said not in inside:
            return f"its {deepspeed.LATEST} names no folder"
        if reason := deepspeed.judge_tag(folder, join(path, said)):
            return f"{said}: {reason}"
    for name in inside:
        there = join(path, name)
        if not folder.is_dir(there):
            continue
        held = sorted(folder.names(there))
        reason = None
        if _FSDP_FOLDER.fullmatch(name) or dcp.is_like(held):
            reason = dcp.judge_folder(folder, there)
        elif "adapter_config.json" in held:
            lost = not any(map(_WEIGHTS.fullmatch, held))
            reason = "no weights" if lost else safetensors.judge_files(folder, there, held)
        if reason:
            return f"{name}: {reason}"
    return None
