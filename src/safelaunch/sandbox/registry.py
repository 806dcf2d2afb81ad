"""Who is up: name → folder and ports of every sandbox of this machine, one small file each, under one lock.

Only sandboxes that see each other's files are in it. Ports are shared with others as well: ports.py.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import filelock

from safelaunch.base.io import durable, modes, owners
from safelaunch.errors import SandboxError
from safelaunch.sandbox import ports

ROOT = Path("/tmp/safelaunch-sandboxes")  # noqa: S108 - owner and mode are checked before use
MARKER = "sandbox.json"
LOCK_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class RegisteredSandbox:
    """One sandbox: slurmctld listens on `port`, node i on `port + 1 + i`, slurmdbd on the port after those."""

    name: str
    dir: str
    port: int
    nodes: int
    cpus: int
    gpus: int
    memory_mb: int
    accounting: bool = False
    netns: bool = False
    preemption: bool = False
    cgroup: bool = False

    @property
    def dbd_port(self) -> int:
        """Where slurmdbd listens, if there is one; reserved in any case."""
        return self.port + self.nodes + 1


@contextmanager
def locked(name: str = "lock", timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
    """Hold a machine-wide lock of all sandboxes (root only)."""
    ROOT.mkdir(mode=0o755, exist_ok=True)
    _trust(ROOT)
    with filelock.FileLock(ROOT / name, timeout=timeout_s):
        yield


def _trust(folder: Path) -> None:
    """Raise SandboxError for a folder that another user than root may have filled: root would obey what lies in it."""
    if (reason := owners.why_not_own(folder, is_folder=True, or_roots=True)) is not None:
        raise SandboxError(f"{reason}: nothing in it is believed", hint=f"look who made it: ls -la {folder}; then "
                           f"remove it, or name another folder")


def claim(wanted: RegisteredSandbox) -> tuple[RegisteredSandbox, ports.PortHold]:
    """The entry of a new sandbox, its folder made and its ports held; SandboxError if name or folder is taken."""
    name, folder = wanted.name, Path(wanted.dir)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise SandboxError(f"sandbox name {name!r}: letters, digits, '-', '_' and '.' only")
    with locked():
        _forget_the_dead()
        for other in entries():
            if other.name == name or Path(other.dir) == folder:
                raise SandboxError(
                    f"sandbox '{other.name}' is already up in {other.dir}",
                    hint=f"safelaunch sandbox down {other.name}",
                )
        _make_folder(folder)
        held = ports.take(wanted.nodes + 2)
        entry = replace(wanted, port=held.first)
        text = json.dumps(asdict(entry), indent=1) + "\n"
        _publish(folder / MARKER, text)
        _publish(ROOT / f"{name}.json", text)
    return entry, held


def forget(entry: RegisteredSandbox) -> None:
    """Give the name back."""
    with locked(), suppress(FileNotFoundError):
        path = ROOT / f"{entry.name}.json"
        if read(path).dir == entry.dir:
            path.unlink()


def entries() -> list[RegisteredSandbox]:
    """Every sandbox whose folder is there, by name. Raises SandboxError where another user may have written it."""
    if not os.path.lexists(ROOT):
        return []
    _trust(ROOT)
    found = []
    for path in sorted(ROOT.glob("*.json")):
        with suppress(FileNotFoundError):  # another one went down meanwhile
            entry = read(path)
            if (Path(entry.dir) / MARKER).exists():
                _trust(Path(entry.dir))
                found.append(entry)
    return found


def find(which: str | None) -> RegisteredSandbox:
    """The sandbox of this name or folder; None: the one called default, or the only one. Else SandboxError."""
    found = lookup("default" if which is None else which)
    up = entries()
    if found is None and which is None and len(up) == 1:
        found = up[0]
    if found is None:
        names = ", ".join(entry.name for entry in up) or "none"
        asked = f"no sandbox '{which}' is up" if which else "which sandbox?" if up else "no sandbox is up"
        raise SandboxError(f"{asked}; up: {names}", hint="safelaunch sandbox list; safelaunch sandbox up")
    return found


def lookup(which: str) -> RegisteredSandbox | None:
    """The sandbox of this name or folder, None if there is none."""
    folder = Path(which).resolve()
    return next((entry for entry in entries() if entry.name == which or Path(entry.dir) == folder), None)


def read(path: Path) -> RegisteredSandbox:
    """The entry in a registry file or in a sandbox's own marker file."""
    facts = json.loads(path.read_text())
    known = {field.name for field in fields(RegisteredSandbox)}   # another release of safelaunch may write down more
    return RegisteredSandbox(**{key: value for key, value in facts.items() if key in known})


def _forget_the_dead() -> None:
    # A folder removed by hand leaves its entry behind.
    for path in ROOT.glob("*.json"):
        if not (Path(read(path).dir) / MARKER).exists():
            path.unlink()


def _publish(path: Path, text: str) -> None:
    # Whole or not at all: `list` and `env` read without the lock.
    durable.put(path, text.encode(), 0o644)


def _make_folder(folder: Path) -> None:
    for parent in folder.parents:   # as munged asks for
        if not parent.exists():
            continue
        status = parent.stat()
        if status.st_uid not in (0, os.geteuid()):
            raise SandboxError(f"{parent} belongs to {owners.name_of(status.st_uid)}, who could put another folder in "
                               f"place of {folder}", hint="name a folder below one of root's, such as /tmp")
        if status.st_mode & owners.OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
            raise SandboxError(f"others may write {parent}, and put another folder in place of {folder}",
                               hint="name a folder below one that nobody else may write, or a sticky one such as /tmp")
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    _trust(folder)
    modes.set_mode(folder, 0o755)
    if any(folder.iterdir()):
        raise SandboxError(f"{folder} is not empty: a sandbox makes its folder, and removes all of it at the end")
