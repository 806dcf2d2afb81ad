"""Filesystems that can be frozen: the incident of the seeds (a rank asleep for ever in a log write), on demand.

Two kinds, because they hang differently (measured on Linux 6.18):

* `loop_mount`: ext4 on a loop device, frozen by the FIFREEZE ioctl. Writes, creations and renames hang in an
  *unkillable* D state; stat and read still work. It can also be small (disk full) or turned read-only.
* `fuse_mount`: bindfs without any cache, frozen by SIGSTOP of its server. stat, read and exec hang as well; what hangs
  can be killed.

Both are writable by every user, thaw before anything else when the test ends or fails, and thaw by themselves after
`MAX_FROZEN_S` so that a wrong test hangs for five minutes and not for ever.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

# linux/fs.h: _IOWR('X', 119, int) and _IOWR('X', 120, int); what fsfreeze(8) calls.
FIFREEZE, FITHAW = 0xC0045877, 0xC0045878
MAX_FROZEN_S = 300.0
DEFAULT_SIZE_MB = 64
COMMAND_DEADLINE_S = 30.0


@dataclass
class LoopMount:
    """An ext4 of its own at `path`."""

    path: Path
    _watchdog: threading.Timer | None = field(default=None, repr=False)

    def freeze(self) -> None:
        """Freeze it: writers hang in D state until `thaw`."""
        _ioctl(self.path, FIFREEZE)
        self._watchdog = _start_watchdog(self.thaw)

    def thaw(self) -> None:
        """Thaw it; nothing happens where it is not frozen."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        with contextlib.suppress(OSError):  # EINVAL: not frozen
            _ioctl(self.path, FITHAW)

    def read_only(self, yes: bool = True) -> None:
        """Remount it read-only, as a storage system does with a filesystem it no longer trusts (or writable again)."""
        _run("mount", "-o", "remount," + ("ro" if yes else "rw"), str(self.path))

    def free_bytes(self) -> int:
        """Bytes that an ordinary user may still write."""
        stat = os.statvfs(self.path)
        return stat.f_bavail * stat.f_frsize


@dataclass
class FuseMount:
    """A bindfs mirror of `behind` at `path`; `behind` can be looked at while `path` is frozen."""

    path: Path
    behind: Path
    server_pid: int
    _watchdog: threading.Timer | None = field(default=None, repr=False)

    def stop(self) -> None:
        """Stop the server: from now on every call on `path` hangs, stat and exec included."""
        os.kill(self.server_pid, signal.SIGSTOP)
        self._watchdog = _start_watchdog(self.cont)

    def cont(self) -> None:
        """Let the server run again; nothing happens where it runs."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.server_pid, signal.SIGCONT)

    # The same words as LoopMount, so that one test can be run on both kinds.
    freeze = stop
    thaw = cont


@contextlib.contextmanager
def mount_loop(size_mb: int = DEFAULT_SIZE_MB) -> Iterator[LoopMount]:
    """A LoopMount of `size_mb`; thawed, unmounted and removed afterwards."""
    _require("losetup", "mkfs.ext4", package="e2fsprogs and mount")
    with _open_folder("safelaunch-loop-") as folder:
        image, path = folder / "image", folder / "mnt"
        path.mkdir()
        with image.open("wb") as file:
            file.truncate(size_mb << 20)
        # -m 0: no blocks set aside for root, or a full disk would not be full for a test that runs as root.
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
        _mount_or_skip("mount", "-o", "loop,noatime", str(image), str(path))
        mount = LoopMount(path)
        try:
            path.chmod(0o1777)
            yield mount
        finally:
            mount.thaw()
            _unmount(path)


@contextlib.contextmanager
def mount_fuse() -> Iterator[FuseMount]:
    """A FuseMount over a folder of its own; set going again, unmounted and removed afterwards."""
    _require("bindfs", "fusermount3", package="bindfs and fuse3")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        _skip("no /dev/fuse on this machine")
    with _open_folder("safelaunch-fuse-") as folder:
        behind, path = folder / "behind", folder / "mnt"
        behind.mkdir()
        path.mkdir()
        behind.chmod(0o1777)
        # Timeouts of 0: with the kernel's caches a stat would still be answered while the server is stopped.
        options = "allow_other,attr_timeout=0,entry_timeout=0,negative_timeout=0"
        argv = ["bindfs", "-f", "-o", options, str(behind), str(path)]
        nothing = subprocess.DEVNULL
        server = subprocess.Popen(argv, cwd="/", start_new_session=True, stdin=nothing, stdout=nothing)
        mount = FuseMount(path, behind, server.pid)
        try:
            _wait_until_mounted(path, server)
            yield mount
        finally:
            mount.cont()
            _unmount(path)
            _end(server)


@pytest.fixture
def loop_mount(request: pytest.FixtureRequest) -> Iterator[LoopMount]:
    """An ext4 that can be frozen, of 64 MB or of the size given by `parametrize("loop_mount", [8], indirect=True)`."""
    with mount_loop(getattr(request, "param", DEFAULT_SIZE_MB)) as mount:
        yield mount


@pytest.fixture
def fuse_mount() -> Iterator[FuseMount]:
    """A FUSE folder whose server can be stopped."""
    with mount_fuse() as mount:
        yield mount


@pytest.fixture(params=["fsfreeze", "stopped-fuse"])
def freezable(request: pytest.FixtureRequest) -> Iterator[LoopMount | FuseMount]:
    """Each of the two kinds in turn, behind the same `path`, `freeze()` and `thaw()`."""
    with mount_loop() if request.param == "fsfreeze" else mount_fuse() as mount:
        yield mount


def _require(*programs: str, package: str) -> None:
    if os.geteuid() != 0:
        _skip("needs root: mounts a filesystem")
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    missing = [name for name in programs if shutil.which(name, path=path) is None]
    if missing:
        _skip(f"{', '.join(missing)} missing; install the Debian package(s) {package}")


def _skip(reason: str) -> None:
    """Skip with the reason, or fail with it where the caller insists on the whole test bed."""
    if os.environ.get("SAFELAUNCH_REQUIRE_SLURM") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def _mount_or_skip(*argv: str) -> None:
    try:
        _run(*argv)
    except subprocess.CalledProcessError as error:
        _skip(f"cannot mount here (a container without CAP_SYS_ADMIN or loop devices?): {error.stderr.strip()}")


@contextlib.contextmanager
def _open_folder(prefix: str) -> Iterator[Path]:
    """A folder that every user may enter (pytest's tmp_path is root's alone); removed once nothing is mounted there."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        if not (folder / "mnt").is_mount():
            shutil.rmtree(folder, ignore_errors=True)


def _wait_until_mounted(path: Path, server: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + COMMAND_DEADLINE_S
    while not os.path.ismount(path):
        if server.poll() is not None:
            _skip(f"bindfs cannot mount here: it ended with exit code {server.returncode}")
        if time.monotonic() > deadline_s:
            _skip("bindfs did not mount in time")
        time.sleep(0.01)


def _unmount(path: Path) -> None:
    """Unmount; processes that a failed test left behind are given two seconds, then it is detached lazily."""
    for _ in range(20):
        with contextlib.suppress(subprocess.CalledProcessError):
            _run("umount", str(path))
            return
        time.sleep(0.1)
    _run("umount", "-l", str(path))


def _end(server: subprocess.Popen[bytes]) -> None:
    try:
        server.wait(timeout=5)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait(timeout=COMMAND_DEADLINE_S)


def _ioctl(path: Path, request: int) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(folder, request, 0)
    finally:
        os.close(folder)


def _start_watchdog(thaw: object) -> threading.Timer:
    assert callable(thaw)
    watchdog = threading.Timer(MAX_FROZEN_S, thaw)
    watchdog.daemon = True
    watchdog.start()
    return watchdog


def _run(*argv: str) -> None:
    subprocess.run(
        argv, check=True, capture_output=True, text=True, timeout=COMMAND_DEADLINE_S, stdin=subprocess.DEVNULL,
    )
