"""What looks like a checkpoint and is read by no format: said, because silence would look like "none yet"."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from safelaunch.core.checkpoints import names, tree
from safelaunch.core.checkpoints.model import Candidate, CheckpointTree, join
from safelaunch.core.checkpoints.tree import FolderNames

FORMAT = "unknown"
_DEEPEST = 2
# Forms that trainings save states in and that no format here reads by itself.
_STATE_FILE = re.compile(
    r".+\.(?:bin|npz|npy|pkl|pickle|h5|hdf5|keras|msgpack|nemo|tar|ckpt|index|onnx|gguf|params|pdparams|weights)"
    r"|.+\.data-\d+-of-\d+", re.IGNORECASE
)
# A file counts by its name, too: "data_3.npz" is no checkpoint, "step_3.npz" and "model-3.npz" are.
_STATE_NAME = re.compile(
    r"(?:^|.*[._-])(?:step|iter|iteration|ckpt|checkpoint|epoch|save|model|state)s?[-_=.]?\d+", re.IGNORECASE
)
_MOST_NAMES_SHOWN = 3


def list_candidates(folder: CheckpointTree, taken: Collection[str]) -> tuple[Candidate, ...]:
    """What is named like a step's checkpoint, and is neither a candidate of a format nor holds or is part of one."""
    found = []
    for place in tree.walk(folder, _DEEPEST):
        if place.path and _is_near(place.path, taken):
            continue
        if place.path and _is_named(place):
            found.append(Candidate(place.path, names.step_in(place.base), FORMAT, refused=_describe(folder, place)))
        elif not _is_named(place):
            found += _list_files(folder, place, taken)
    return tuple(found)


def _is_near(path: str, taken: Collection[str]) -> bool:
    """Whether the path is a candidate's, lies in one, or holds one."""
    return any(path == one or path.startswith(f"{one}/") or one.startswith(f"{path}/") for one in taken if one)


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


def _list_files(folder: CheckpointTree, place: FolderNames, taken: Collection[str]) -> Iterator[Candidate]:
    for name in place.names:
        path = join(place.path, name)
        if path in taken or not _STATE_FILE.fullmatch(name) or not _STATE_NAME.match(name) or folder.is_dir(path):
            continue
        why = "read by no format; say how it is named: resume.format: pattern"
        yield Candidate(path, names.step_in(name.rpartition(".")[0]), FORMAT,
                        refused=names.UNFINISHED if names.is_temporary(name) else why)
