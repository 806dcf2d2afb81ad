"""Acting as another user within a test that runs as root."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def acting_as(uid: int, gid: int = 0) -> Iterator[None]:
    """What happens meanwhile is done by this user, in this group; then this process is root again."""
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def open_paths(run_dir: Path, others: int = 0o077) -> list[str]:
    """"name mode" of each path in a run folder, itself included, that gives any right of `others` away."""
    return [f"{path.relative_to(run_dir)} {stat.S_IMODE(path.lstat().st_mode):o}"
            for path in (run_dir, *sorted(run_dir.rglob("*"))) if stat.S_IMODE(path.lstat().st_mode) & others]


def read_all(folder: Path, uid: int, gid: int) -> dict[str, bytes]:
    """All that a user, in this group, can read in a folder and below: path → content."""
    found = {}
    with acting_as(uid, gid):
        for parent, _, names in os.walk(folder):
            for name in names:
                with contextlib.suppress(PermissionError):
                    found[os.path.relpath(f"{parent}/{name}", folder)] = Path(parent, name).read_bytes()
    return found


def command_lines_seen_by(uid: int) -> dict[int, str]:
    """pid → command line of each process of this machine, as this user reads it."""
    found = {}
    with acting_as(uid, uid):
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:   # some have just ended
                found[int(name)] = file.read().replace(b"\0", b" ").decode(errors="replace")
    return found
