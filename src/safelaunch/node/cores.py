"""Core files that a crashed task has left, and the stack in each, by pystack or gdb where they are installed.

The kernel says where cores go (core(5), /proc/sys/kernel/core_pattern): a name relative to the process's folder, a
path, or a program that takes them (systemd-coredump, apport). Such a program is named with the command that asks it.
Travels with node.collect as text: standard library, Python 3.9.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import shutil
import struct

from safelaunch.node import children, devices, spy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Optional

FIND_S = 3.0        # to look through the folders, which may be frozen
READ_S = 20.0       # pystack and gdb read symbols of gigabytes
MOST = 8            # cores of one node; each says the same
MOST_NAMES = 20_000
MOST_FRAMES = 40
_TAKERS = {"systemd-coredump": "coredumpctl info", "apport": "apport-unpack, /var/crash", "abrt": "abrt list"}
_GDB_FRAME = re.compile(r"^#\d{1,6}\s{1,8}(?:0x[0-9a-f]{1,32} in )?(\S.{0,1000}?) \(.{0,1000}?\)"
                        r"(?: (?:at|from) (\S{1,4096}))?$")
_NT_PRPSINFO, _NT_SIGINFO = 3, 0x53494749   # elf.h
_PT_NOTE = 4


def look(folders: Sequence[str], since_t: float, until_s: float, pystack: Optional[str] = None) -> dict[str, Any]:
    """{"cores": [{"path", "bytes", "t", "pid", "program", "signal", "by", "backtrace", "why"}], "notes"}. The cores are
    younger than `since_t` and this user's own, in `folders` and where the kernel puts them. `pystack`: its path.
    """
    pattern = _pattern()
    notes = []
    if pattern.startswith("|"):
        taker = os.path.basename(pattern[1:].split()[0])
        ask = next((words for name, words in _TAKERS.items() if name in taker), "")
        notes.append("cores go to %s%s" % (taker, ": %s" % ask if ask else ""))
    places = dict.fromkeys([*folders, *_folder_of(pattern)])
    task = children.Task("find", lambda: _find(places, pattern, since_t), FIND_S)
    found = children.run_all([task], 1, until_s)["find"]
    if found.late:
        notes.append("no core was looked for: %s does not answer" % ", ".join(places))
    rows = [] if not found.out else _parse(found.text)
    for row in rows:
        _read_stack(row, pystack, until_s)
    return {"cores": rows, "notes": notes}


def _pattern() -> str:
    try:
        with open("/proc/sys/kernel/core_pattern") as file:
            return file.read().strip()
    except OSError:
        return "core"


def _folder_of(pattern: str) -> list[str]:
    folder = os.path.dirname(pattern)
    return [folder] if pattern.startswith("/") and "%" not in folder else []


def _parse(text: str) -> list[dict[str, Any]]:
    import json

    rows: list[dict[str, Any]] = json.loads(text)
    return rows


def _find(folders: Iterable[str], pattern: str, since_t: float) -> bytes:
    """Runs in a child."""
    import json

    name = os.path.basename(pattern) if not pattern.startswith("|") else "core"
    shape = re.sub(r"%.", "*", name.replace("%%", "\\0")).replace("\\0", "%") + "*"   # core_uses_pid adds ".PID"
    rows = []
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry, _ in zip(entries, range(MOST_NAMES)):  # noqa: B905 - 3.10's
                if fnmatch.fnmatchcase(entry.name, shape) and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    if status.st_uid == os.getuid() and status.st_mtime >= since_t - 1 and status.st_size:
                        rows += _row(entry.path, status.st_size, status.st_mtime)
    rows.sort(key=lambda row: row["t"])
    return json.dumps(rows[:MOST]).encode()


def _row(path: str, size: int, written_t: float) -> list[dict[str, Any]]:
    """One row for a core, none for any other file of such a name."""
    try:
        with open(path, "rb") as file:
            head = file.read(1 << 20)
    except OSError as error:
        return [{"path": path, "bytes": size, "t": written_t, "pid": None, "program": "", "command": "",
                 "signal": None, "by": "", "backtrace": [], "why": error.strerror or "unreadable"}]
    if head[:4] != b"\x7fELF" or head[16:18] != b"\x04\x00":   # ET_CORE, little-endian
        return []
    pid, program, command, number = read_notes(head)
    return [{"path": path, "bytes": size, "t": written_t, "pid": pid, "program": program, "command": command,
             "signal": number, "by": "", "backtrace": [], "why": ""}]


def read_notes(head: bytes) -> tuple[Optional[int], str, str, Optional[int]]:
    """(pid, program, command line, signal) of a 64-bit core's notes: elf(5), linux/elfcore.h; None, "" = not there."""
    pid, program, command, number = None, "", "", None
    with contextlib.suppress(struct.error, IndexError):
        table, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
        for row in range(min(count, 64)):
            kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", head, table + row * size)
            if kind != _PT_NOTE:
                continue
            place, end = offset, min(offset + length, len(head))
            while place + 12 <= end:
                name_size, data_size, note = struct.unpack_from("<III", head, place)
                data = place + 12 + (name_size + 3) // 4 * 4
                if note == _NT_PRPSINFO:   # state 4, nice 8, flag 8 → pid at 24 after uid and gid
                    pid = struct.unpack_from("<i", head, data + 24)[0]
                    program = _text(head[data + 40:data + 56])
                    command = _text(head[data + 56:data + 136])
                elif note == _NT_SIGINFO:
                    number = struct.unpack_from("<i", head, data)[0]
                place = data + (data_size + 3) // 4 * 4
    return pid, program, command, number


def _text(data: bytes) -> str:
    return data.partition(b"\0")[0].decode(errors="replace").strip()


def _read_stack(row: dict[str, Any], pystack: Optional[str], until_s: float) -> None:
    """Fill in the stack, by pystack for Python's frames, else by gdb for the kernel's."""
    if row["why"]:
        return
    gdb = shutil.which("gdb", path=devices.SYSTEM_PATH)
    tries: list[tuple[str, list[str]]] = []
    if pystack is not None and "python" in row["program"] + row["command"]:
        tries.append(("pystack", [pystack, "core", "--native", row["path"]]))
    program = row["command"].split()[0] if row["command"] else ""
    if gdb is not None and program.startswith("/"):
        tries.append(("gdb", [gdb, "-nx", "-batch", "-iex", "set auto-load off", "-iex", "set debuginfod enabled off",
                              "-ex", "bt %d" % MOST_FRAMES, program, row["path"]]))
    row["why"] = "" if tries else "neither pystack nor gdb can read it on this node"
    for name, argv in tries:
        outcome = children.run_all([children.Task(name, argv, READ_S)], 1, until_s)[name]
        frames = read_pystack_core(outcome.text) if name == "pystack" else read_gdb(outcome.text)
        if frames:
            row["by"], row["backtrace"], row["why"] = name, frames[:MOST_FRAMES], ""
            return
        row["why"] = "%s: %s" % (name, "no answer in time" if outcome.late else outcome.said[:200] or "no frames")


def read_pystack_core(text: str) -> list[str]:
    """Frames of the thread that crashed, or holds the interpreter, innermost first."""
    threads = spy.read_dump(text)
    chosen = next((thread for thread in threads if thread["gil"]), threads[0] if threads else None)
    return [frame for frame in chosen["frames"] if not frame.startswith("??? ")] if chosen is not None else []


def read_gdb(text: str) -> list[str]:
    """Frames of gdb's `bt` as "function (file)", innermost first; nameless ones are left out."""
    frames = []
    for line in text.splitlines():
        match = _GDB_FRAME.match(line.strip())
        if match and match.group(1) != "??":
            where = os.path.basename(match.group(2) or "")
            frames.append("%s (%s)" % (match.group(1), where) if where else match.group(1))
    return frames
