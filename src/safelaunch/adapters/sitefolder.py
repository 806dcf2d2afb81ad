"""A shared folder, measured for core.sitefolder to judge. A disposable child with a deadline makes each touch."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from safelaunch.adapters import durable, journal
from safelaunch.adapters.probe import run_in_child
from safelaunch.node import lookout

DEADLINE_S = 30.0         # of a probe: on a busy host the races of the slowest took over 10 s (measured)
RENAMES, RENAME_S = 200, 2.0
RACES, RACERS = 10, 4
LINES = 50
BYTES = 1 << 20
OTHER_START_S = 120.0     # a node that must be allocated first, or a slow ssh
OTHER_WAIT_S = 70.0       # above acdirmax of nfs(5), 60 s
OTHER_RACES = 10

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


def measure_from(folder: str, prefix: Sequence[str]) -> dict[str, Found]:
    """What another host sees of this one's changes; `prefix` runs a command there: ("ssh", "n1"), ("srun", "-N1")."""
    names = [name for name, _ in OTHERS]
    place = run_in_child(lambda: tempfile.mkdtemp(prefix=".safelaunch-check-", dir=folder), DEADLINE_S)
    if place.late or place.value is None:
        return {name: {"late": True} if place.late else {"error": place.error} for name in names}
    try:
        with _Other(prefix) as other:
            host = other.ask({"do": "host"}, OTHER_START_S)
            return {name: {**probe(other, Path(str(place.value))), "host": host} for name, probe in OTHERS}
    except OSError as error:
        return {name: {"error": str(error)} for name in names}
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


# --- with another host ----------------------------------------------------------------------------------------------


class _Other:
    """A lookout on another host."""

    def __init__(self, prefix: Sequence[str]) -> None:
        text = Path(lookout.__file__).read_text()
        self._argv = [*prefix, "python3", "-I", "-S", "-c", text]

    def __enter__(self) -> _Other:
        self._process = subprocess.Popen(self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):
            self._process.communicate(timeout=2.0)
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)

    def say(self, asked: Found) -> None:
        """Ask without waiting."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()

    def receive(self, deadline_s: float) -> Any:
        """Its answer; raises OSError where none comes."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], deadline_s)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            why = f"no answer within {deadline_s:.0f} s" if not ready else "it ended without an answer"
            raise OSError(0, f"{' '.join(self._argv[:-5])}: {why}")
        told = json.loads(line)
        if "error" in told:
            raise OSError(0, str(told["error"]))
        return told["value"]

    def ask(self, asked: Found, deadline_s: float = DEADLINE_S) -> Any:
        """Both."""
        self.say(asked)
        return self.receive(deadline_s)


def _new_there(other: _Other, place: Path) -> Found:
    path = place / "new"
    other.ask({"do": "read", "path": str(path)})   # so that it remembers that there is none
    return _wait_there(other, path, lambda: _store(path, b"1"), "1")


def _replaced_there(other: _Other, place: Path) -> Found:
    path = place / "pulse"
    _here(lambda: _store(path, b"1"))
    other.ask({"do": "wait", "path": str(path), "wanted": "1", "for_s": OTHER_WAIT_S}, OTHER_WAIT_S + DEADLINE_S)
    return _wait_there(other, path, lambda: _replace(path, b"2"), "2")


def _appended_there(other: _Other, place: Path) -> Found:
    path = place / "journal"
    _here(lambda: _store(path, b"1\n"))
    other.ask({"do": "wait", "path": str(path), "wanted": "1\n", "for_s": OTHER_WAIT_S}, OTHER_WAIT_S + DEADLINE_S)
    return _wait_there(other, path, lambda: _store(path, b"2\n"), "1\n2\n")


def _afresh_there(other: _Other, place: Path) -> Found:
    fresh, pulse = place / "fresh", place / "fresh-pulse"
    _here(lambda: _store(pulse, b"1"))
    other.ask({"do": "afresh", "path": str(pulse)})
    other.ask({"do": "read", "path": str(fresh)})
    _here(lambda: _store(fresh, b"1"))
    _here(lambda: _replace(pulse, b"2"))
    return {"new": other.ask({"do": "afresh", "path": str(fresh)}) == "1",
            "replaced": other.ask({"do": "afresh", "path": str(pulse)}) == "2"}


def _race_there(other: _Other, place: Path) -> Found:
    wins = 0
    for number in range(OTHER_RACES):
        path = place / f"claim{number}"
        other.say({"do": "claim", "path": str(path)})
        wins += bool(_here(lambda: lookout.claim(str(path)))) + bool(other.receive(DEADLINE_S))   # noqa: B023 - at once
    return {"rounds": OTHER_RACES, "wins": wins}


OTHERS: tuple[tuple[str, Callable[[_Other, Path], Found]], ...] = (
    ("other host: new file", _new_there), ("other host: replaced file", _replaced_there),
    ("other host: appended line", _appended_there), ("other host: looking afresh", _afresh_there),
    ("other host: claims", _race_there),
)


def _wait_there(other: _Other, path: Path, change: Callable[[], object], wanted: str) -> Found:
    """Seconds until the other host reads `wanted` in the file that this host has changed; None = not in time."""
    _here(change)
    seen_s = other.ask({"do": "wait", "path": str(path), "wanted": wanted, "for_s": OTHER_WAIT_S},
                       OTHER_WAIT_S + DEADLINE_S)
    return {"seen_s": seen_s, "waited_s": OTHER_WAIT_S}


def _here(act: Callable[[], Any]) -> Any:
    """What the act returns, from a child; raises OSError where the folder does not answer."""
    answer = run_in_child(act, DEADLINE_S)
    if not answer.is_ok:
        raise OSError(answer.errno, answer.error or "the folder does not answer here")
    return answer.value


# --- files ----------------------------------------------------------------------------------------------------------


def _store(path: Path, data: bytes) -> None:
    """Append, fsync and close: each of them may say that there is no room."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        durable.write(descriptor, data)
    finally:
        os.close(descriptor)


def _replace(path: Path, data: bytes) -> None:
    durable.put(path, data)


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
