"""Format `dcp`: folders written by torch.distributed.checkpoint: .metadata and __RANK_N.distcp.

.metadata is renamed into place after every rank has written, and it says which bytes of which file each shard has
(source: torch/distributed/checkpoint/filesystem.py, FileSystemWriter.finish). So a folder is whole when .metadata is
a whole pickle and every file that it names reaches as far as it says. Files that it does not name are not judged: a
rank with nothing to save leaves an empty one.

What structure cannot tell: a save that overwrites an older one of the same shapes in the same folder, cut short.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial

from safelaunch.core.checkpoints import names, torchfile
from safelaunch.core.checkpoints.model import Candidate, Folder, join
from safelaunch.core.checkpoints.pickled import Atom, LongPickle, TornPickle, walk_pickle

METADATA = ".metadata"
# Savers without collectives write one per rank: __0.metadata …
_METADATA = re.compile(r"(?:__(\d+))?\.metadata")
_SHARD = re.compile(r"__(\d+)_(\d+)\.distcp")
_FIELDS = ("relative_path", "offset", "length")
# About 60 opcodes a shard; 3 million take 4 s. A larger one is judged by what was read of it and by its last byte.
_MOST_OPS = 3_000_000


def list_candidates(folder: Folder) -> tuple[Candidate, ...]:
    """The folder itself and its direct subfolders, where they hold shards or .metadata."""
    found = []
    for path in ("", *(name for name in sorted(folder.names("")) if folder.is_dir(name))):
        refused = names.UNFINISHED if path and names.is_temporary(path) else None
        try:
            inside = folder.names(path)
        except OSError as error:
            inside, refused = (METADATA,) if names.is_step_folder(path) else (), names.unlisted(error)
        if is_like(inside):
            found.append(Candidate(path, names.step_in(path), "dcp", refused=refused))
    return tuple(found)


def is_like(inside: Iterable[str]) -> bool:
    """Whether these names are those of a distributed checkpoint, finished or not."""
    return any(_METADATA.fullmatch(name) or _SHARD.fullmatch(name) for name in inside)


def judge(folder: Folder, candidate: Candidate) -> str | None:
    """What is wrong with the candidate's folder, None when whole."""
    return judge_folder(folder, candidate.path)


def judge_folder(folder: Folder, path: str) -> str | None:
    """What is wrong with a distributed checkpoint, other torch files in its folder included; None when whole."""
    inside = sorted(folder.names(path))
    metadata = [found for name in inside if (found := _METADATA.fullmatch(name))]
    if not metadata:
        return "no .metadata: the save has not finished"
    missing = names.missing_in(int(found.group(1)) for found in metadata if found.group(1))
    if missing:
        return f"no __{missing[0]}.metadata, although later ranks have theirs"
    needed: dict[str, int] = {}
    for found in metadata:
        reason = _note_needed(folder, join(path, found.group()), needed)
        if reason:
            return f"{found.group()}: {reason}"
    # A form of .metadata that names no file: all that is left to ask is that no shard is empty.
    needed = needed or {name: 1 for name in inside if _SHARD.fullmatch(name)}
    return _judge_sizes(folder, path, needed) or torchfile.judge_files(
        folder, tuple(join(path, name) for name in inside if names.is_torch(name) and not names.is_temporary(name))
    )


def _judge_sizes(folder: Folder, path: str, needed: dict[str, int]) -> str | None:
    if not needed:
        return "no data file: .metadata names none and none is there"
    for name, bytes_needed in sorted(needed.items()):
        size = folder.size(join(path, name))
        if size is None:
            return f"{name} is missing"
        if size < bytes_needed:
            return f"{name} has {size} of {bytes_needed} bytes"
    return None


def _note_needed(folder: Folder, path: str, needed: dict[str, int]) -> str | None:
    """What is wrong with a metadata file; adds how far each data file that it names must reach."""
    size = folder.size(path)
    if not size:
        return "empty"
    atoms = walk_pickle(partial(folder.read, path), 0, size, _MOST_OPS, _is_recalled)
    end = 0
    try:
        for name, bytes_needed, end in _list_extents(atoms):  # noqa: B007 - `end` is that of the STOP
            if name:
                needed[name] = max(needed.get(name, 1), bytes_needed)
    except TornPickle as error:
        return f"truncated: {error}"
    except LongPickle:
        return None if folder.read(path, -1, 1) == b"." else "truncated: its last byte does not end a pickle"
    return None if end == size else f"{size - end} bytes follow the end of its pickle"


def _is_recalled(text: str) -> bool:
    return text in _FIELDS or text.endswith(".distcp")


def _list_extents(atoms: Iterator[Atom]) -> Iterator[tuple[str, int, int]]:
    """(file, byte behind a shard, offset) of each _StorageInfo(relative_path, offset, length); ("", 0, end) at last."""
    fields: dict[str, str | int] = {}
    key = ""
    for atom in atoms:
        if atom.value in _FIELDS:
            key = str(atom.value)
            continue
        if key and isinstance(atom.value, str if key == "relative_path" else int):
            fields[key] = atom.value
            if key == "length" and len(fields) == 3:
                yield str(fields["relative_path"]), int(fields["offset"]) + int(fields["length"]), atom.end
                fields = {}
        key = ""
        if atom.op == "STOP":
            yield "", 0, atom.end
