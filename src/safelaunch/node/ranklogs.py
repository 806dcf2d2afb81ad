"""One file for each rank of a log, written by the pump while the training runs (launch.logs).

Standard library, Python 3.9.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

OTHER = "other.log"   # lines of no rank: of launchers, of srun, of safelaunch
PREFIX = re.compile(rb"(\[([^\[\]\s:]{1,255}):(\d{1,9})\]:) ?")   # as verbs/logs/rankfold.py
_HOST = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")   # the log says it, and it becomes part of a file's name
MOST_FILES = 20_000   # of an attempt: a log full of odd prefixes fills no folder with files
MOST_LINE = 1 << 20   # bytes; what follows in a longer one goes to OTHER
HELD_BYTES = 8 << 20  # of lines that wait to be written
LINE_COSTS = 64       # bytes of memory beside its text
FILES_A_SECOND = 100  # written to a shared folder: a thousand ranks that print each second are written every 10 s
READ_BYTES = 1 << 20
FILE, FOLDER, GROUP_FILE, GROUP_FOLDER = 0o600, 0o700, 0o640, 0o2750   # as base/io/modes.py


def rank_file(line: bytes, nodes: tuple[str, ...], per_node: Optional[int]) -> str:
    """`rank-5-n1.log` of a line that begins with "[n1:…]:".

    `nodes` are the attempt's, in Slurm's order; () where they are unknown. `per_node`: the ranks of a node where the
    launcher numbers them on each node; None where the number in the prefix is the global one.
    """
    found = PREFIX.match(line)
    if found is None or _HOST.fullmatch(found[2]) is None:
        return OTHER
    host, number = found[2].decode(), int(found[3])
    if nodes and host not in nodes:
        return OTHER
    if per_node is None:
        return f"rank-{number}-{host}.log"
    if number >= per_node:
        return OTHER
    return f"rank-{nodes.index(host) * per_node + number}-{host}.log" if nodes else f"local-rank-{number}-{host}.log"


class RankFiles:
    """The files of one folder, which is there; one of them at a time is open."""

    def __init__(self, folder: str, nodes: tuple[str, ...], per_node: Optional[int]) -> None:
        self.names: set[str] = set()
        self._folder, self._nodes, self._per_node = folder, nodes, per_node
        self._known: dict[bytes, str] = {}        # prefix → file
        self._held: dict[str, list[bytes]] = {}   # file → lines that are to be written
        self._held_bytes = 0
        self._rest = b""                          # of a line whose end has not come
        self._due_s = 0.0

    def feed(self, data: bytes) -> None:
        """The next bytes of the log. Raises OSError."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.add(line)
        if len(self._rest) > MOST_LINE:
            self.add(self._rest)
            self._rest = b""

    def add(self, line: bytes) -> None:
        """One line, without its end. Raises OSError."""
        found = PREFIX.match(line)
        prefix = found[1] if found else b""
        name = self._known.get(prefix)
        if name is None:
            name = rank_file(line, self._nodes, self._per_node)
            if name not in self.names and len(self.names) >= MOST_FILES:
                name = OTHER
            if len(self._known) < MOST_FILES:
                self._known[prefix] = name
            self.names.add(name)
        self._held.setdefault(name, []).append(line + b"\n")
        self._held_bytes += len(line) + LINE_COSTS
        if self._held_bytes > HELD_BYTES:
            self.write()

    def write_if_due(self) -> None:
        """Write what waits, often enough for people and seldom enough for a shared folder. Raises OSError."""
        if self._held and time.monotonic() >= self._due_s:
            self.write()

    def write(self) -> None:
        """Write what waits. Raises OSError."""
        held, self._held, self._held_bytes = self._held, {}, 0
        for name, lines in held.items():
            _append(self._folder, name, b"".join(lines))
        self._due_s = time.monotonic() + max(1.0, len(held) / FILES_A_SECOND)

    def end(self) -> None:
        """Write all, a last line without an end included. Raises OSError."""
        if self._rest:
            self.add(self._rest)
            self._rest = b""
        self.write()


class LogSplit:
    """The rank files beside an attempt's log while that grows, and how far they have come in it (`at`, bytes)."""

    def __init__(self, facts: str, log: str, stopped: str) -> None:
        """`facts`: the file in which the leader has written down the attempt. `stopped`: where a pump that was told to
        leave has noted how far it had come. One that was killed noted nothing: they are written again. Raises OSError,
        ValueError, KeyError, TypeError.
        """
        with open(facts, "rb") as file:
            told = json.loads(file.read())
        self._log, self._stopped = log, stopped
        folder = os.path.join(os.path.dirname(log), "ranks")
        self.at = _take(stopped) if stat.S_ISDIR(_mode(folder)) else 0
        if not self.at:
            _make_empty(folder)
        self._files = RankFiles(folder, tuple(told["nodes"]), told["rank_logs"] or None)

    def feed(self, start: int, data: bytes) -> None:
        """The log's bytes from `start` on; those that it had, or that come too early, are left. Raises OSError."""
        if 0 <= self.at - start < len(data):
            self._files.feed(data[self.at - start:])
            self.at = start + len(data)

    def catch_up(self, size: int) -> bool:
        """Whether the first `size` bytes of the log are split; if not, some more are now. What waits is written when it
        is time. Raises OSError.
        """
        if self.at < size:
            with open(self._log, "rb") as file:
                file.seek(self.at)
                data = file.read(min(READ_BYTES, size - self.at))
            self.feed(self.at, data)
            self.at = self.at if data else size   # somebody has cut it
        self._files.write_if_due()
        return self.at >= size

    def end(self) -> None:
        """Write all, and note for a pump that goes on how far that is. Raises OSError."""
        self._files.end()
        with open(self._stopped, "w") as file:
            file.write(str(self.at))


def _take(note: str) -> int:
    """What a pump has noted; 0 = nothing. It counts once: whoever goes on may be killed."""
    try:
        with open(note) as file:
            at = int(file.read())
        os.unlink(note)
    except (OSError, ValueError):
        return 0
    return at


def _mode(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return 0


def _make_empty(folder: str) -> None:
    """Make the folder, or delete what is in it; another file of that name is left."""
    parent = os.stat(os.path.dirname(folder)).st_mode
    try:
        os.mkdir(folder, FOLDER)
    except FileExistsError:
        if not stat.S_ISDIR(_mode(folder)):
            raise
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
    if parent & stat.S_ISGID and parent & stat.S_IRGRP:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(opened, GROUP_FOLDER)
        finally:
            os.close(opened)


def _append(folder: str, name: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(os.path.join(folder, name), flags, FILE)
    try:
        if not os.fstat(file).st_size and os.stat(folder).st_mode & stat.S_ISGID:
            os.fchmod(file, GROUP_FILE)
        view = memoryview(data)
        while view:
            view = view[os.write(file, view):]
    finally:
        os.close(file)
