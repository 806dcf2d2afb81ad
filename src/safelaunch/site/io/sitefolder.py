"""A shared folder, measured for site.sitefolder to judge. A disposable child with a deadline makes each touch."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from safelaunch.base.io import durable
from safelaunch.base.io.probe import run_in_child
from safelaunch.run.io import journal

DEADLINE_S = 30.0         # of a probe: on a busy host the races of the slowest took over 10 s (measured)
RENAMES, RENAME_S = 200, 2.0
RACES, RACERS = 10, 4
LINES = 50
BYTES = 1 << 20

Found = dict[str, Any]


def measure(folder: str) -> dict[str, Found]:
    """What this host finds, by check; it makes a folder of its own there and removes it."""
    place = run_in_child(lambda: tempfile.mkdtemp(prefix=".safelaunch-check-", dir=folder), DEADLINE_S)
    if place.late or place.value is None:
        return {"write": {"late": True} if place.late else {"error": place.error}}
    try:
        found = {}
        for name, probe in PROBES.items():
            answer = run_in_child(lambda: probe(Path(str(place.value))), DEADLINE_S)   # noqa: B023 - called at once
            found[name] = {"late": True} if answer.late else {"error": answer.error} if answer.error else answer.value
            if answer.late:
                break   # ask a folder that hangs only once
        return {name: value for name, value in found.items() if value is not None}
    finally:
        run_in_child(lambda: shutil.rmtree(str(place.value), ignore_errors=True), DEADLINE_S)


# --- on this host; each in a child ----------------------------------------------------------------------------------


def _mount(place: Path) -> Found:
    """The line of proc(5), mountinfo, whose mount point is the longest that the folder lies below."""
    real = os.path.realpath(place)
    best: tuple[str, str, str, list[str]] | None = None
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        head, _, tail = line.partition(" - ")
        point, options = _unescape(head.split()[4]), head.split()[5]
        kind, source, super_options = tail.split()[:3]
        if f"{real}/".startswith(point.rstrip("/") + "/") and (best is None or len(point) >= len(best[0])):
            best = point, kind, source, [*options.split(","), *super_options.split(",")]
    if best is None:
        raise OSError(0, "no mount point of it is known")
    return {"kind": best[1], "source": best[2], "options": best[3]}


def _write(place: Path) -> Found:
    data = os.urandom(4096) * (BYTES // 4096)
    begun_s = time.monotonic()
    _store(place / "written", data)
    took_s = time.monotonic() - begun_s
    return {"took_s": took_s, "same": (place / "written").read_bytes() == data}


def _append(place: Path) -> Found:
    """Two processes append lines to one file, each by an open file of its own."""
    def work(who: int) -> None:
        descriptor = os.open(place / "lines", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        for number in range(LINES):
            os.write(descriptor, f"{who} {number}\n".encode())
        os.fsync(descriptor)
        os.close(descriptor)

    with _children(2, work):
        pass
    lines = (place / "lines").read_text(errors="replace").splitlines()
    wanted = {f"{who} {number}" for who in range(2) for number in range(LINES)}
    return {"made": len(wanted), "right": len(wanted & set(lines))}


def _rename(place: Path) -> Found:
    name = place / "replaced"
    _store(name, b"x" * 64)

    def work(who: int) -> None:
        until_s, number = time.monotonic() + RENAME_S, 0
        while number < RENAMES and time.monotonic() < until_s:
            draft = place / f"draft{number}"
            draft.write_bytes(b"x" * 64)
            draft.replace(name)
            number += 1
        (place / "over").write_text(str(number))

    reads = torn = 0
    with _children(1, work):
        while not (place / "over").exists():
            reads += 1
            try:
                torn += len(name.read_bytes()) != 64
            except FileNotFoundError:
                torn += 1
            except OSError:   # ESTALE: the file was replaced while it was read, and is read again
                continue
    return {"renames": int((place / "over").read_text()), "reads": reads, "torn": torn}


def _link(place: Path) -> Found:
    os.mkdir(place / "claims")   # noqa: PTH102
    wins = lies = 0
    for number in range(RACES):
        path = f"claims/{number}"

        def work(who: int, path: str = path, number: int = number) -> None:
            won = journal.Direct(place).publish(path, f"{who} {number}\n".encode())
            (place / f"won.{number}.{who}").write_text("1" if won else "0")

        with _children(RACERS, work):
            pass
        wins += sum((place / f"won.{number}.{who}").read_text() == "1" for who in range(RACERS))
    draft = place / "draft"
    _store(draft, b"x")
    try:
        os.link(draft, place / "linked")
    except FileExistsError:
        lies += 1
    return {"rounds": RACES, "wins": wins, "racers": RACERS, "lies": lies}


def _clock(place: Path) -> Found:
    before_t = time.time()
    _store(place / "time", b"x")
    after_t = time.time()
    server_t = (place / "time").stat().st_mtime
    is_between = before_t - 0.05 <= server_t <= after_t + 0.05   # the kernel's tick is some milliseconds
    return {"offset_s": 0.0 if is_between else server_t - (before_t + after_t) / 2}


def _space(place: Path) -> Found:
    status = os.statvfs(place)
    return {"free_bytes": status.f_bavail * status.f_frsize, "free_files": status.f_favail if status.f_files else None}


def _groups(place: Path) -> Found:
    return {"count": len({*os.getgroups(), os.getgid()}), "is_nfs": _mount(place)["kind"].startswith("nfs")}


PROBES: dict[str, Callable[[Path], Found]] = {
    "mount": _mount, "write": _write, "append": _append, "rename": _rename, "link": _link, "clock": _clock,
    "space": _space, "exec": lambda place: {"noexec": bool(os.statvfs(place).f_flag & os.ST_NOEXEC)}, "groups": _groups,
}


# --- files ----------------------------------------------------------------------------------------------------------


def _store(path: Path, data: bytes) -> None:
    """Append, fsync and close: each of them may say that there is no room."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        durable.write(descriptor, data)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _children(count: int, work: Callable[[int], None]) -> Iterator[None]:
    """Run so many processes; OSError where one of them failed."""
    reader, writer = os.pipe()
    pids = []
    for who in range(count):
        pid = os.fork()
        if pid == 0:
            try:
                work(who)
            except BaseException as error:  # noqa: BLE001 - told to the parent
                os.write(writer, f"{error}\n".encode()[:200])
            finally:
                os._exit(0)
        pids.append(pid)
    os.close(writer)
    try:
        yield
    finally:
        for pid in pids:
            os.waitpid(pid, 0)
        with os.fdopen(reader) as told:
            trouble = told.read()
    if trouble:
        raise OSError(0, trouble.splitlines()[0])


def _unescape(text: str) -> str:
    return text.encode().decode("unicode_escape") if "\\" in text else text
