"""Whether a zip archive is whole, by its structure.

A zip is read from its end: the end record names the central directory, which names every member. Writers put both
there last, so a file that stops early, at any byte, has no end record in its last bytes. Source: PKWARE APPNOTE 4.3.

What structure cannot tell: bytes that were damaged inside a member; that needs every byte and its CRC. Nor pages that a
crashed machine lost and that read as zeros, save where a sampled member header or data.pkl lies in them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from safelaunch.checkpoints.model import CheckpointTree

MAGIC = b"PK\x03\x04"
END = b"PK\x05\x06"
_END = struct.Struct("<4s4H2LH")
END_BYTES = _END.size
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_MEMBER = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_FULL_32 = 0xFFFFFFFF
_FULL_16 = 0xFFFF
# A comment may stand behind the end record; torch and zipfile write none.
_LONGEST_COMMENT = 0xFFFF
# One entry takes about 100 bytes, so this is a checkpoint of more than 100,000 tensors. The rest stays unread, because
# the reader may be the leader, which lives within 40 MB.
_MOST_DIRECTORY_BYTES = 16 << 20
# Each look at a member is one small read, about 1 ms on a busy parallel filesystem.
_MOST_MEMBERS_LOOKED_AT = 64
_MOST_NAME_BYTES = 256


class _Directory(NamedTuple):
    offset: int
    size: int
    members: int


class _Member(NamedTuple):
    name: str
    offset: int
    stored: bool
    packed_bytes: int
    unpacked_bytes: int


def judge_archive(folder: CheckpointTree, path: str, size: int) -> str | None:
    """What is wrong with the zip file, None when its structure is whole."""
    directory = _find_directory(folder, path, size)
    if isinstance(directory, str):
        return directory
    body = folder.read(path, directory.offset, min(directory.size, _MOST_DIRECTORY_BYTES))
    members = list(_list_members(body))
    if directory.size <= _MOST_DIRECTORY_BYTES and len(members) != directory.members:
        return f"zip directory lists {len(members)} of {directory.members} members"
    if not members:
        return "zip archive without members"
    odd = next((one for one in members if one.stored and one.packed_bytes != one.unpacked_bytes), None)
    if odd is not None:
        return f"zip directory gives member {odd.name}, stored as it is, two sizes"
    members.sort(key=lambda member: member.offset)
    for member in _sample(members):
        reason = _judge_member(folder, path, member, directory.offset)
        if reason:
            return reason
    return None


def list_names(folder: CheckpointTree, path: str, size: int) -> list[str]:
    """The names of an archive's members; of a torn one that of the first."""
    head = folder.read(path, 0, _LOCAL.size + _MOST_NAME_BYTES)
    if len(head) < _LOCAL.size or not head.startswith(MAGIC):
        return []
    name_bytes = _LOCAL.unpack_from(head)[9]
    first = head[_LOCAL.size : _LOCAL.size + name_bytes].decode("utf-8", "replace")
    directory = None if first.endswith("data.pkl") else _find_directory(folder, path, size)
    if directory is None or isinstance(directory, str):
        return [first]
    body = folder.read(path, directory.offset, min(directory.size, _MOST_DIRECTORY_BYTES))
    return [member.name for member in _list_members(body)]


def top_of(folder: CheckpointTree, path: str) -> str:
    """The folder of the archive's first member: torch.save calls it after the file, "archive" for an open one."""
    head = folder.read(path, 0, _LOCAL.size + _MOST_NAME_BYTES)
    if len(head) < _LOCAL.size or not head.startswith(MAGIC):
        return ""
    name_bytes = _LOCAL.unpack_from(head)[9]
    return head[_LOCAL.size : _LOCAL.size + name_bytes].decode("utf-8", "replace").partition("/")[0]


def _find_directory(folder: CheckpointTree, path: str, size: int) -> _Directory | str:
    """Where the central directory lies, or why there is none: it must end exactly where the end records begin."""
    tail = folder.read(path, -min(size, _END.size), _END.size)
    if not _is_end(tail, 0):
        tail = folder.read(path, -min(size, _END.size + _LONGEST_COMMENT), _END.size + _LONGEST_COMMENT)
    at = len(tail) - _END.size
    while at >= 0 and not _is_end(tail, at):
        at = tail.rfind(END, 0, at + 3)
    if at < 0:
        return f"truncated: no zip end record in the last bytes of {size}"
    end_at = size - len(tail) + at
    _, _, _, _, members, length, offset, _ = _END.unpack_from(tail, at)
    locator = folder.read(path, max(end_at - _END64_LOCATOR.size, 0), _END64_LOCATOR.size)
    if locator.startswith(b"PK\x06\x07") and len(locator) == _END64_LOCATOR.size:
        end_at = _END64_LOCATOR.unpack(locator)[2]
        record = folder.read(path, end_at, _END64.size)
        if len(record) != _END64.size or not record.startswith(b"PK\x06\x06"):
            return "zip64 end record is not where its locator points"
        short = (members, length, offset)
        *_, members, length, offset = _END64.unpack(record)
        long = (members, length, offset)
        if any(one not in (wide, _FULL_16, _FULL_32) for one, wide in zip(short, long, strict=True)):
            return "the zip end record and the zip64 end record differ"
    elif _FULL_32 in (length, offset) or members == _FULL_16:
        return "zip64 end record is missing"
    if offset + length != end_at:
        return f"zip directory ends at byte {offset + length}, the end record begins at {end_at}"
    return _Directory(offset, length, members)


def _is_end(tail: bytes, at: int) -> bool:
    """Whether an end record stands here and its comment ends exactly at the end of the file."""
    if len(tail) < at + _END.size or tail[at : at + 4] != END:
        return False
    comment_bytes = int.from_bytes(tail[at + 20 : at + 22], "little")
    return at + _END.size + comment_bytes == len(tail)


def is_end_of(tail: bytes, size: int) -> bool:
    """Whether these last bytes end an archive of `size` bytes as torch.save writes it: without a comment."""
    if len(tail) != END_BYTES or not _is_end(tail, 0):
        return False
    *_, members, length, offset, _ = _END.unpack(tail)
    directory_ends = (size - END_BYTES, size - END_BYTES - _END64.size - _END64_LOCATOR.size)
    return members > 0 and (_FULL_32 in (length, offset) or offset + length in directory_ends)


def _list_members(body: bytes) -> Iterator[_Member]:
    """The members that the central directory names, as far as it can be read."""
    at = 0
    while at + _MEMBER.size <= len(body) and body.startswith(b"PK\x01\x02", at):
        fields = _MEMBER.unpack_from(body, at)
        method, packed, unpacked, offset = fields[4], fields[8], fields[9], fields[16]
        name_bytes, extra_bytes, comment_bytes = fields[10:13]
        name_at = at + _MEMBER.size
        extra = body[name_at + name_bytes : name_at + name_bytes + extra_bytes]
        unpacked, packed, offset = _widen(extra, unpacked, packed, offset)
        name = body[name_at : name_at + name_bytes].decode("utf-8", "replace")
        yield _Member(name, offset, method == 0, packed, unpacked)
        at = name_at + name_bytes + extra_bytes + comment_bytes


def _widen(extra: bytes, unpacked: int, packed: int, offset: int) -> tuple[int, int, int]:
    """Both sizes and the offset; where 32 bits are full, extra field 1 has the 64-bit values, in this order."""
    at = 0
    while at + 4 <= len(extra):
        tag, length = struct.unpack_from("<2H", extra, at)
        if tag == 1:
            values = list(struct.unpack_from(f"<{length // 8}Q", extra[at + 4 :].ljust(length, b"\0")))
            full = [values.pop(0) if field == _FULL_32 and values else field for field in (unpacked, packed, offset)]
            return full[0], full[1], full[2]
        at += 4 + length
    return unpacked, packed, offset


def _sample(members: list[_Member]) -> list[_Member]:
    """First, last, data.pkl, and others evenly between."""
    every = max(1, len(members) // _MOST_MEMBERS_LOOKED_AT)
    picked = members[::every]
    return [*picked, members[-1], *(member for member in members if member.name.endswith("/data.pkl"))]


def _judge_member(folder: CheckpointTree, path: str, member: _Member, limit: int) -> str | None:
    """What is wrong with one member: its header must be where the directory says, its data before the directory."""
    header = folder.read(path, member.offset, _LOCAL.size)
    if len(header) != _LOCAL.size or not header.startswith(MAGIC):
        return f"no header of member {member.name} at byte {member.offset}"
    name_bytes, extra_bytes = _LOCAL.unpack(header)[9:]
    data_at = member.offset + _LOCAL.size + name_bytes + extra_bytes
    if data_at + member.packed_bytes > limit:
        return f"data of member {member.name} runs past byte {limit}"
    # Every pickle ends with STOP; pages that a crashed machine lost read as zeros.
    is_pickle = member.name.endswith("/data.pkl") and member.stored
    if is_pickle and folder.read(path, data_at + max(member.packed_bytes, 1) - 1, 1) != b".":
        return f"member {member.name} is no whole pickle"
    return None
