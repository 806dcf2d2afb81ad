"""Format `dcp`: folders written by torch.distributed.checkpoint: .metadata and __RANK_N.distcp.

.metadata is renamed into place after every rank has written, and it says which bytes of which file each shard has
(source: torch/distributed/checkpoint/filesystem.py, FileSystemWriter.finish). So a folder is whole when .metadata is a
whole pickle, and every file that it names reaches as far as it says. Such a file has a shard at the first and the last
place. Files that it does not name are not judged: a rank with nothing to save leaves an empty one. A .metadata may be
too long to be looked through. Then its last byte is looked at, and the end of each file that its beginning does not
name.

What structure cannot tell: a save that overwrites an older one of the same shapes in the same folder, cut short; bytes
damaged inside a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from safelaunch.checkpoints import archive, names, tree
from safelaunch.checkpoints.formats import torchfile
from safelaunch.checkpoints.model import Candidate, CheckpointTree, join
from safelaunch.checkpoints.pickled import Atom, LongPickle, PickleFile, TornPickle

METADATA = ".metadata"
# Deep enough for checkpoints/step-100/model.
_DEEPEST = 3
# Savers without collectives write one per rank: __0.metadata …
_METADATA = re.compile(r"(?:__(\d+))?\.metadata")
_SHARD = re.compile(r"__(\d+)_(\d+)\.distcp")
_FIELDS = ("relative_path", "offset", "length")


class _Extent(NamedTuple):
    """Where the shards of a file are: the first one, the last one, and the byte behind it."""

    first: int = 0
    last: int = 0
    end: int = 1

    def widen(self, start: int, end: int) -> _Extent:
        return _Extent(min(self.first, start), max(self.last, start), max(self.end, end))


def list_candidates(folder: CheckpointTree) -> tuple[Candidate, ...]:
    """Every folder that holds shards or .metadata, or the step's folder around it: step-100/model, step-100/optim."""
    found: dict[str, Candidate] = {}
    for place in tree.walk(folder, _DEEPEST):
        refused = names.UNFINISHED if place.path and names.is_temporary(place.base) else place.unlisted
        if is_like(place.names) or (place.unlisted and names.is_step_folder(place.base)):
            path = tree.owner_of(place.path)
            base = path.rpartition("/")[2]
            found.setdefault(path, Candidate(path, names.step_in(base), "dcp", refused=refused))
    return tuple(found.values())


def is_like(inside: Iterable[str]) -> bool:
    """Whether these names are those of a distributed checkpoint, finished or not."""
    return any(_METADATA.fullmatch(name) or _SHARD.fullmatch(name) for name in inside)


def judge(folder: CheckpointTree, candidate: Candidate) -> str | None:
    """What is wrong with the candidate's folder, or with those of shards in it; None when whole."""
    if is_like(folder.names(candidate.path)):
        return judge_folder(folder, candidate.path)
    for place in tree.walk(folder, _DEEPEST, candidate.path):
        if is_like(place.names) and (reason := judge_folder(folder, place.path)):
            return f"{place.path[len(candidate.path) + 1 :]}: {reason}"
    return None


def judge_folder(folder: CheckpointTree, path: str) -> str | None:
    """What is wrong with a distributed checkpoint, other torch files in its folder included; None when whole."""
    inside = sorted(folder.names(path))
    metadata = [found for name in inside if (found := _METADATA.fullmatch(name))]
    if not metadata:
        return "no .metadata: the save has not finished"
    missing = names.missing_in(int(found.group(1)) for found in metadata if found.group(1))
    if missing:
        return f"no __{missing[0]}.metadata, although later ranks have theirs"
    needed: dict[str, _Extent] = {}
    is_read = True
    for found in metadata:
        try:
            reason = _note_needed(folder, join(path, found.group()), needed)
        except LongPickle:
            is_read = False
            reason = _judge_last_byte(folder, join(path, found.group()))
        if reason:
            return f"{found.group()}: {reason}"
    shards = [name for name in inside if _SHARD.fullmatch(name)]
    if not is_read and (reason := _judge_unnamed(folder, path, [name for name in shards if name not in needed])):
        return reason
    # A form of .metadata that names no file: all that is left to ask is that no shard is empty.
    needed = needed or {name: _Extent() for name in shards}
    return _judge_shards(folder, path, needed) or torchfile.judge_files(
        folder, tuple(join(path, name) for name in inside if names.is_torch(name) and not names.is_temporary(name))
    )


def _judge_last_byte(folder: CheckpointTree, path: str) -> str | None:
    return None if folder.read(path, -1, 1) == b"." else "truncated: its last byte does not end a pickle"


def _judge_unnamed(folder: CheckpointTree, path: str, shards: Iterable[str]) -> str | None:
    """What is wrong with the end of the first damaged one of these files; an empty one may be a rank's without data."""
    for name in shards:
        there = join(path, name)
        head = folder.read(there, 0, 4)
        if head and head == bytes(len(head)):
            return f"{name} reads as zeros"
        tail = folder.read(there, -archive.END_BYTES, archive.END_BYTES)
        if head == archive.MAGIC and not tail.startswith(archive.END):
            return f"{name} has no end"
    return None


def _judge_shards(folder: CheckpointTree, path: str, needed: dict[str, _Extent]) -> str | None:
    if not needed:
        return "no data file: .metadata names none and none is there"
    for name, extent in sorted(needed.items()):
        there = join(path, name)
        size = folder.size(there)
        if size is None:
            return f"{name} is missing"
        if size < extent.end:
            return f"{name} has {size} of {extent.end} bytes"
        if reason := _judge_ends(folder, there, extent):
            return f"{name}: {reason}"
    return None


def _judge_ends(folder: CheckpointTree, path: str, extent: _Extent) -> str | None:
    """What is wrong with the first or the last shard in a file; torch.save writes each as a zip of its own.

    Pages that a crashed machine lost read as zeros. A writer of another form is not judged.
    """
    for start in {extent.first, extent.last}:
        if folder.read(path, start, 4) == bytes(4):
            return f"reads as zeros from byte {start} on"
    head = folder.read(path, extent.last, 4)
    tail = folder.read(path, max(extent.end - archive.END_BYTES, 0), archive.END_BYTES)
    if head == archive.MAGIC and not archive.is_end_of(tail, extent.end - extent.last):
        return f"the shard from byte {extent.last} to {extent.end} has no end"
    return None


def _note_needed(folder: CheckpointTree, path: str, needed: dict[str, _Extent]) -> str | None:
    """What is wrong with a metadata file; adds where the shards are in each data file that it names.

    Raises LongPickle when that is not all of them.
    """
    size = folder.size(path)
    if not size:
        return "empty"
    atoms = PickleFile(partial(folder.read, path), size, folder.allowance.share()).walk(0, _is_recalled)
    at = 0
    try:
        for name, start, end, at in _list_extents(atoms):  # noqa: B007 - the last `at` is that of the STOP
            if name:
                needed[name] = needed[name].widen(start, end) if name in needed else _Extent(start, start, max(end, 1))
    except TornPickle as error:
        return f"truncated: {error}"
    return None if at == size else f"{size - at} bytes follow the end of its pickle"


def _is_recalled(text: str) -> bool:
    return text in _FIELDS or text.endswith(".distcp")


def _list_extents(atoms: Iterator[Atom]) -> Iterator[tuple[str, int, int, int]]:
    """(file, start, end, place) of each _StorageInfo(relative_path, offset, length); ("", 0, 0, end) at last."""
    fields: dict[str, str | int] = {}
    key = ""
    for atom in atoms:
        if atom.value in _FIELDS:
            key = str(atom.value)
            continue
        if key and isinstance(atom.value, str if key == "relative_path" else int):
            fields[key] = atom.value
            if key == "length" and len(fields) == 3:
                start = int(fields["offset"])
                yield str(fields["relative_path"]), start, start + int(fields["length"]), atom.end
                fields = {}
        key = ""
        if atom.op == "STOP":
            yield "", 0, 0, atom.end
