"""Format `orbax`: folders named by their step that Orbax's CheckpointManager has committed.

A save goes on in STEP.orbax-checkpoint-tmp-TIME and is renamed when all hosts are through. Where renaming is not
atomic, commit_success.txt is written last instead; current versions write it in any case (source:
orbax/checkpoint/_src/path/atomicity.py). The file _CHECKPOINT_METADATA lists the items, each a folder. An item's
_METADATA tells whether its arrays are in OCDBT: manifest.ocdbt, and data in d/ and ocdbt.process_N/. Manifests and tree
nodes begin with a magic number and their length, and end with a CRC-32C (seen in files of tensorstore 0.1.86). Values
are frames of zstd, whose blocks tell their lengths (RFC 8878, 3.1.1). So what is cut or zeroed is seen.

What structure cannot tell: which data files there have to be, because the tree that names them is compressed; bytes
damaged inside a value; a cut between two values; a text file in an item of the user's own.
"""

from __future__ import annotations

from collections.abc import Iterable

from safelaunch.checkpoints import names, tree
from safelaunch.checkpoints.model import Candidate, CheckpointTree, join
from safelaunch.checkpoints.tree import FolderNames

METADATA, COMMITTED = "_CHECKPOINT_METADATA", "commit_success.txt"
ITEM_METADATA, MANIFEST = "_METADATA", "manifest.ocdbt"
TEMPORARY = ".orbax-checkpoint-tmp"
# Deep enough for NAME/checkpoints/100.
_DEEPEST = 3
# The items that hold the state, by Orbax's and Flax's own examples; metrics may be left out of a save.
_STATE_ITEMS = ("default", "state", "params")
_MANIFEST_MAGIC, _NODE_MAGIC = bytes.fromhex("0cdb3a2a"), bytes.fromhex("0cdb20de")
_ZSTD_MAGIC = bytes.fromhex("28b52ffd")
_HEAD_BYTES = 12
_CHUNK_BYTES = 4096
_MOST_BLOCK_BYTES = 1 << 17
# A block holds at most 128 kB and is looked at for some 5 us: 0.1 s a file.
_MOST_WALKED_BYTES = 1 << 30
# A checksum in Python takes 0.1 s a MB.
_MOST_CHECKED_BYTES = 1 << 20


def list_candidates(folder: CheckpointTree) -> tuple[Candidate, ...]:
    """Every committed folder, and those that a save has left unfinished."""
    found: dict[str, Candidate] = {}
    marks: dict[str, set[str]] = {}
    for place in tree.walk(folder, _DEEPEST):
        if tree.is_within(place.parent, found):
            continue
        if TEMPORARY in place.base:
            step = names.step_in(place.base.partition(TEMPORARY)[0])
            found[place.path] = Candidate(place.path, step, "orbax", refused=names.UNFINISHED)
        elif _is_like(folder, place):
            found[place.path] = Candidate(place.path, names.step_in(place.base), "orbax")
            marks.setdefault(place.parent, set()).update(name for name in (METADATA, COMMITTED) if name in place.names)
    return tuple(_beside(folder, one, marks.get(one.path.rpartition("/")[0], set())) for one in found.values())


def _is_like(folder: CheckpointTree, place: FolderNames) -> bool:
    """Whether the names are Orbax's; an item without the step's own text is one of an older release."""
    if METADATA in place.names or MANIFEST in place.names or ITEM_METADATA in place.names:
        return True
    return names.step_in(place.base) is not None and any(
        ITEM_METADATA in folder.names(join(place.path, item))
        for item in _STATE_ITEMS if item in place.names and folder.is_dir(join(place.path, item))
    )


def _beside(folder: CheckpointTree, one: Candidate, marks: set[str]) -> Candidate:
    """The same, or refused when it lacks a mark that its neighbours have."""
    lost = marks - set(folder.names(one.path)) if not one.refused else None
    if not lost:
        return one
    refused = f"no {max(lost)}, which the checkpoints beside it have: the save has not finished"
    return Candidate(one.path, one.step, one.format, refused=refused)


def judge(folder: CheckpointTree, candidate: Candidate) -> str | None:
    """What is wrong with the step's text or with an item, None when whole."""
    inside = folder.names(candidate.path)
    items = [name for name in sorted(inside) if folder.is_dir(join(candidate.path, name))]
    if METADATA in inside:
        reason = _judge_step(folder, join(candidate.path, METADATA), items)
        if reason:
            return f"{METADATA}: {reason}"
    if ITEM_METADATA in inside or MANIFEST in inside:   # saved by a Checkpointer: the folder is the item
        return _judge_item(folder, candidate.path, inside)
    for item in items:
        reason = _judge_item(folder, join(candidate.path, item), folder.names(join(candidate.path, item)))
        if reason:
            return f"{item}/{reason}"
    if COMMITTED in inside and not folder.size(join(candidate.path, COMMITTED)):
        return f"{COMMITTED} is empty"
    return None if items else "no item"


def _judge_step(folder: CheckpointTree, path: str, items: Iterable[str]) -> str | None:
    """What the step's own text says of the save: whether it was committed, and which items it has."""
    try:
        said = tree.read_json(folder, path)
    except ValueError as error:
        return str(error)
    if not isinstance(said, dict) or "tree_metadata" in said:
        return "no description of a step"
    if "commit_timestamp_nsecs" in said and not said["commit_timestamp_nsecs"]:
        return "the save was not committed"
    listed = said.get("item_handlers")
    needed = [item for item in listed if item in _STATE_ITEMS] if isinstance(listed, dict) else []
    lost = [item for item in needed if item not in items]
    return f"item {lost[0]} is missing" if lost else None


def _judge_item(folder: CheckpointTree, path: str, inside: Iterable[str]) -> str | None:
    """What is wrong with an item's texts, manifests and tree nodes; None when nothing speaks against it."""
    if TEMPORARY in path:
        return names.UNFINISHED
    if ITEM_METADATA not in inside and MANIFEST in inside:
        return f"no {ITEM_METADATA}"
    if ITEM_METADATA in inside:
        try:
            said = tree.read_json(folder, join(path, ITEM_METADATA))
        except ValueError as error:
            return f"{ITEM_METADATA}: {error}"
        if not isinstance(said, dict) or "tree_metadata" not in said:
            return f"{ITEM_METADATA}: no description of a tree"
        if MANIFEST not in inside and said.get("use_ocdbt"):
            return f"no {MANIFEST}"
    if MANIFEST not in inside:
        return None
    for place in tree.walk(folder, _DEEPEST, path):
        for name in place.names:
            there = join(place.path, name)
            if folder.is_dir(there):
                continue
            reason = _judge_ocdbt(folder, there) if name == MANIFEST or place.base == "d" else None
            if reason:
                return f"{there[len(path) + 1 :]}: {reason}"
    return None


def _judge_ocdbt(folder: CheckpointTree, path: str) -> str | None:
    """What is wrong with a manifest, or with a data file, which is a row of tree nodes and values; None when whole."""
    size = folder.size(path)
    if not size:
        return "not a regular file" if size is None else "empty"
    if path.endswith(MANIFEST) and folder.read(path, 0, 4) != _MANIFEST_MAGIC:
        return "does not begin as a manifest"
    at = 0
    if any(magic.startswith(folder.read(path, 0, 4)) for magic in (_NODE_MAGIC, _ZSTD_MAGIC)) and size < _HEAD_BYTES:
        return f"truncated after {size} bytes"
    while at < size:
        head = folder.read(path, at, _HEAD_BYTES)
        if head[:4] in (_MANIFEST_MAGIC, _NODE_MAGIC):
            length = int.from_bytes(head[4:12], "little")
            if at + length > size or length <= _HEAD_BYTES + 4:
                return f"truncated: it needs byte {at + length} of a file of {size}"
            if length <= _MOST_CHECKED_BYTES and not _has_its_checksum(folder.read(path, at, length)):
                return f"the checksum of its part at byte {at} does not fit"
            at += length
        elif head.startswith(_ZSTD_MAGIC) and size <= _MOST_WALKED_BYTES:
            end = _end_of_frame(folder, path, at)
            if end is None or end > size:
                return f"truncated: the value at byte {at} goes on behind its end"
            at = end
        elif at and len(head) < len(_ZSTD_MAGIC) and any(one.startswith(head) for one in (_NODE_MAGIC, _ZSTD_MAGIC)):
            return f"truncated: {size - at} bytes of a part that begins at byte {at}"
        else:
            # Values without compression, or large ones: no more than that they are there.
            written = folder.read(path, at, _CHUNK_BYTES).rstrip(b"\0")
            is_none = len(written) < len(_ZSTD_MAGIC) and any(
                magic.startswith(written) for magic in (_NODE_MAGIC, _ZSTD_MAGIC))   # or the first bytes of a part
            return "reads as zeros" if is_none else None
    return None


def _end_of_frame(folder: CheckpointTree, path: str, at: int) -> int | None:
    """The byte behind the frame of zstd that begins here, None when its blocks make no sense."""
    flags = folder.read(path, at + 4, 1)
    if not flags:
        return None
    single, checksum = flags[0] >> 5 & 1, flags[0] >> 2 & 1
    at += 5 + (1 - single) + (0, 1, 2, 4)[flags[0] & 3] + (single, 2, 4, 8)[flags[0] >> 6]
    while True:
        head = folder.read(path, at, 3)
        block = int.from_bytes(head, "little")
        kind, length = block >> 1 & 3, block >> 3
        if len(head) < 3 or kind == 3 or length > _MOST_BLOCK_BYTES:
            return None
        at += 3 + (1 if kind == 1 else length)   # a run of one byte is written once
        if block & 1:
            return at + 4 * checksum


def _has_its_checksum(part: bytes) -> bool:
    return _crc32c(part[:-4]) == int.from_bytes(part[-4:], "little")


def _make_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_CRC_TABLE = _make_table()


def _crc32c(data: bytes) -> int:
    """The Castagnoli checksum; source: RFC 3720, appendix B.4."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
