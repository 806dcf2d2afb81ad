"""What looks like a checkpoint and is read by no format: said, because silence would look like "none yet"."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from safelaunch.checkpoints import names, tree, words
from safelaunch.checkpoints.model import Candidate, CheckpointTree, join
from safelaunch.checkpoints.tree import FolderNames

FORMAT = "unknown"
_DEEPEST = 2
# Forms that trainings save states in and that no format here reads by itself.
_STATE_FILE = re.compile(
    r".+\.(?:bin|npz|npy|pkl|pickle|h5|hdf5|keras|msgpack|nemo|tar|ckpt|index|onnx|gguf|params|pdparams|weights|pdopt|zip)"
    r"|.+\.data-\d+-of-\d+|[^.]+", re.IGNORECASE
)
_MOST_NAMES_SHOWN = 3
# Where nothing else is there, a number and such a suffix are enough; other forms need words for a model alone.
_WEIGHTS = re.compile(
    r".+\.(?:weights|h5|hdf5|keras|msgpack|params|pdparams|onnx|gguf|nemo|caffemodel|solverstate|state|mdl|model|net|sav"
    r"|chk|cpt|cbm|ubj|(?:pth|pt|ckpt)\.(?:gz|xz|zst|bz2))", re.IGNORECASE)
_OTHER = re.compile(
    r".+\.(?:npy|npz|zip|gz|xz|zst|json|txt|bin|dat|raw)(?:\.snapshot_iter_\d+)?", re.IGNORECASE)
_WHY = "read by no format; say how it is named: resume.format: pattern"


def list_candidates(folder: CheckpointTree, taken: Collection[str]) -> tuple[Candidate, ...]:
    """What is named like a step's checkpoint, and is neither a candidate of a format nor holds or is part of one."""
    found: list[Candidate] = []
    holders = {above for path in taken for above in tree.folders_above(path)}
    for place in tree.walk(folder, _DEEPEST):
        if tree.is_within(place.path, taken):
            continue
        if place.path in holders or not _is_named(place):
            found += _list_files(folder, place, taken)
        else:
            found.append(Candidate(place.path, names.step_in(place.base), FORMAT, refused=_describe(folder, place)))
    return tuple(found)


def _is_named(place: FolderNames) -> bool:
    """Whether a folder's name is a step's; a bare number counts only with such files in it, or without any."""
    if not names.is_step_folder(place.base):
        return False
    return not place.base.isdecimal() or not place.names or any(map(_STATE_FILE.fullmatch, place.names))


def _describe(folder: CheckpointTree, place: FolderNames) -> str:
    if place.unlisted:
        return place.unlisted
    if not place.names:
        return "empty folder"
    shown = ", ".join(place.names[:_MOST_NAMES_SHOWN]) + (", …" if len(place.names) > _MOST_NAMES_SHOWN else "")
    return f"read by no format (it holds {shown}); say how it is named: resume.format: pattern"


def _list_files(folder: CheckpointTree, place: FolderNames, parts: Collection[str]) -> Iterator[Candidate]:
    for name in place.names:
        path = join(place.path, name)
        if not parts and _is_lone(name) and not folder.is_dir(path):
            refused = names.UNFINISHED if names.is_temporary(name) else _WHY
            yield Candidate(path, names.step_in(name), FORMAT, refused=refused)
            continue
        if path in parts or not _STATE_FILE.fullmatch(name) or folder.is_dir(path):
            continue
        step = names.step_in(name)
        # Without a number it counts where nothing else is there: "data_3.npz" is no checkpoint, "model.h5" may be one.
        if words.is_saved_state(name) if step is not None else (
                not parts and "." in name and words.is_of_training(name)):
            yield Candidate(path, step, FORMAT, refused=names.UNFINISHED if names.is_temporary(name) else _WHY)


def _is_lone(name: str) -> bool:
    """Whether a file of no format here is a state by its suffix and number, or by a word that says so."""
    stem = name.partition(".")[0]
    if _WEIGHTS.fullmatch(name):
        return not words.is_of_data(stem) and bool(re.search(r"\d", name.rpartition(".")[0]) or words.is_copy(stem))
    return bool(_OTHER.fullmatch(name) and re.search(r"\d", name) and words.is_of_model(stem))
