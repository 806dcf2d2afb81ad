"""The shared ledger on disk: a folder with one file for each user, host and month, which only that user writes.

O_APPEND is atomic on one host and not between two (open(2), on NFS): hence a file for each. A team's folder is setgid,
so that its group can read the files, and sticky, so that nobody removes what others wrote. Other users' files are
untrusted: the file's owner is the author, and nodehealth.ledgerlines says what a line may claim.

All functions block where the folder does: call them in a child with a deadline (base.io.probe, shared.ask).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safelaunch.base.io import modes, sharedfile
from safelaunch.base.io.owners import name_of
from safelaunch.node.host import short_host
from safelaunch.nodehealth.ledger import NodeEvidence, of_cluster
from safelaunch.nodehealth.ledgerlines import is_node_name, parse_line, render_line
from safelaunch.nodehealth.nodeuse import judge_fleet, parse_use, rate_evidence, render_use
from safelaunch.run.io.ledgerfolder import folder_of as folder_of

if TYPE_CHECKING:
    from safelaunch.nodehealth.nodeuse import NodeUse  # submit has no time for it

# A line has some 250 bytes: 4,000 witnesses of one user, host and month. More than that is a runaway program.
FILE_MAX_BYTES = 1 << 20
# What a reader takes of each user, newest months first: a user who fills the folder hides only his own evidence.
USER_MAX_FILES = 250
USER_MAX_BYTES = 2 << 20
ALL_MAX_BYTES = 16 << 20   # half a second of reading
# Nodes in all lines of use that count, each line as LEAST_PLACES at least.
MOST_PLACES, LEAST_PLACES = 100_000, 20   # judged within half a second
MOST_TOLD = 5000   # witnesses that a supervisor gets
_NAME = re.compile(r"[0-9]{1,12}-[A-Za-z0-9._-]{1,255}-([0-9]{4}-[0-9]{2})\.jsonl", re.ASCII)


def append(folder: Path, evidences: Iterable[NodeEvidence]) -> int:
    """How many lines are durable now: all of them, in one write. Raises OSError."""
    found = tuple(evidences)
    if found:
        _append(folder, b"".join(map(render_line, found)), max(one.t for one in found))
    return len(found)


def append_use(folder: Path, use: NodeUse) -> None:
    """Write down that an attempt has used its nodes. Raises OSError."""
    _append(folder, render_use(use), use.t)


def _append(folder: Path, data: bytes, t: float) -> None:
    _make(folder)
    path = folder / _name(t)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    is_teams = modes.is_shared(folder) or folder.stat().st_mode & stat.S_IWGRP
    mode = modes.GROUP_FILE if is_teams else modes.FILE
    descriptor = os.open(path, flags, mode)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
            raise PermissionError(errno.EPERM, f"{path} is not yours: {name_of(status.st_uid)} has put it there")
        if status.st_size + len(data) > FILE_MAX_BYTES:
            raise OSError(errno.EFBIG, f"{path} is full for this month")
        os.fchmod(descriptor, mode)   # whatever the umask is: a team reads it
        if os.write(descriptor, data) != len(data):   # the disk is full; a torn line is skipped by readers
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(folder: Path) -> tuple[NodeEvidence, ...]:
    """All evidence of a ledger; () where there is none yet. Raises OSError where the folder cannot be listed."""
    return parse_raw(read_raw(folder))


def read_raw(folder: Path) -> list[list[str]]:
    """[owner, content] of the ledger's files as text that survives JSON (latin-1), for an answer of a child."""
    used_bytes: Counter[int] = Counter()
    found: list[list[str]] = []
    for name in _files(folder):
        if used_bytes.total() >= ALL_MAX_BYTES:
            break
        try:
            uid, content = _read_file(folder / name, used_bytes)
        except OSError:
            continue   # not readable for us, or gone; the others still count
        used_bytes[uid] += len(content)
        found.append([name_of(uid), content.decode("latin-1")])
    return found


def parse_raw(raw: Iterable[Iterable[str]]) -> tuple[NodeEvidence, ...]:
    """The evidence from `read_raw`, each witness once."""
    found: dict[NodeEvidence, None] = {}
    for owner, content in raw:
        for line in content.encode("latin-1").split(b"\n"):
            evidence = parse_line(line, owner)
            if evidence is not None:
                found[evidence] = None
    return tuple(found)


def read_judged(folder: Path, own: Iterable[NodeEvidence], cluster: str, now: float) -> list[list[Any]]:
    """The fields of all evidence of that cluster, with one's own and what the rates of failures tell, for an answer of
    a child: others write the ledger, so nothing of it is expanded or judged in a leader.
    """
    raw = read_raw(folder)
    evidence, uses = of_cluster(dict.fromkeys((*own, *parse_raw(raw))), cluster), parse_uses(raw)
    rates = judge_fleet(evidence, uses, cluster, now)
    told = _newest_of_each(tuple(evidence), frozenset(own))
    return [list(astuple(one)) for one in (*told, *rate_evidence(evidence, uses, rates, now))]


def _newest_of_each(evidence: tuple[NodeEvidence, ...], own: frozenset[NodeEvidence]) -> list[NodeEvidence]:
    """One's own, and of all others as much as a leader weighs at once: of each owner the newest."""
    if len(evidence) <= MOST_TOLD:
        return list(evidence)
    share = MOST_TOLD // len({one.owner for one in evidence})
    told, kept = Counter[str](), set(own)
    for one in sorted(evidence, key=lambda one: one.t, reverse=True):
        told[one.owner] += 1
        if told[one.owner] <= share:
            kept.add(one)
    return [one for one in evidence if one in kept]


def parse_uses(raw: Iterable[Iterable[str]]) -> tuple[NodeUse, ...]:
    """The uses of nodes from `read_raw`, each once: of each owner the newest. They are so few that they are read within
    half a second.
    """
    files = [(owner, content) for owner, content in raw]
    left = dict.fromkeys((owner for owner, _ in files), MOST_PLACES // max(1, len({owner for owner, _ in files})))
    found: dict[NodeUse, None] = {}
    for owner, content in files:
        for line in reversed(content.encode("latin-1").split(b"\n")):
            if left[owner] <= 0:
                break
            use = parse_use(line)
            if use is not None or b'"used":' in line:
                left[owner] -= max(LEAST_PLACES, len(use.nodes) if use is not None else 0)
            if use is not None:
                found[use] = None
    return tuple(found)


def _make(folder: Path) -> None:
    """Make the folder: for the team below a setgid folder, else for its owner alone."""
    try:
        folder.mkdir(0o700)
    except FileExistsError:
        return
    except FileNotFoundError:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(0o700, exist_ok=True)
    if folder.parent.stat().st_mode & stat.S_ISGID:
        modes.set_mode(folder, modes.GROUP_CONTROL)


def _name(t: float) -> str:
    host = short_host()
    month = time.strftime("%Y-%m", time.gmtime(t))
    return f"{os.geteuid()}-{host if is_node_name(host) else 'host'}-{month}.jsonl"


def _files(folder: Path) -> list[str]:
    """Names of the ledger's files, those of the newest month first: of each user the newest USER_MAX_FILES, so that
    100,000 of them cost a look at each and no more.
    """
    try:
        matches = [found for found in map(_NAME.fullmatch, os.listdir(folder)) if found]   # noqa: PTH208 - faster
    except FileNotFoundError:
        return []
    kept: Counter[int] = Counter()
    found = []
    for match in sorted(matches, key=lambda found: (found[1], found[0]), reverse=True):
        with contextlib.suppress(OSError):   # gone since
            owner = (folder / match[0]).lstat().st_uid
            kept[owner] += 1
            if kept[owner] <= USER_MAX_FILES:
                found.append(match[0])
    return found


def _read_file(path: Path, used_bytes: Counter[int]) -> tuple[int, bytes]:
    """(owner's uid, the file's end). It opens no pipe, which could block, and no link."""
    descriptor = sharedfile.open_file(path)
    try:
        status = os.fstat(descriptor)
        room = min(FILE_MAX_BYTES, USER_MAX_BYTES - used_bytes[status.st_uid])
        if room <= 0:
            raise OSError(errno.EINVAL, "one file of the ledger too many")
        os.lseek(descriptor, max(0, status.st_size - room), os.SEEK_SET)
        return status.st_uid, os.read(descriptor, room)
    finally:
        os.close(descriptor)
