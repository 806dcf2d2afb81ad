"""The folder that a run of a config writes its checkpoints to, by its one real path; and a turn to submit to it."""

from __future__ import annotations

import fcntl
import os
import time
import zlib

from safelaunch.base.io.probe import run_in_child
from safelaunch.launch.settings import Settings
from safelaunch.run.io import registry

REAL_S = 2.0     # for a folder of another filesystem, which may be frozen
TURN_S = 20.0    # sbatch of another submission may be slow; after that both go on
LOOK_S = 0.02


def of_settings(settings: Settings, cwd: str) -> str | None:
    """The folder, without links; None without resume.dir, or where it is said to be shared."""
    folder = settings.resume_folder(cwd)
    if folder is None or settings.resume.shared:
        return None
    path = os.path.normpath(folder)
    if path.startswith(f"{cwd.rstrip('/')}/"):
        return os.path.realpath(path)
    return run_in_child(lambda: os.path.realpath(path), REAL_S).value or path


class Turns:
    """Of two submissions at once with one folder the second waits until the first is on the list of runs. A turn is a
    byte of one file, by the folder's name; without a home that can be written everybody has it.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None

    def take(self, folder: str) -> None:
        """Wait for it; `close` gives it back."""
        until_s = time.monotonic() + TURN_S
        try:
            if self._descriptor is None:
                path = registry.file().with_name("turns")
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            while True:
                try:
                    fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, zlib.crc32(os.fsencode(folder)))
                except (BlockingIOError, PermissionError):   # either, fcntl(2)
                    if time.monotonic() >= until_s:
                        return
                    time.sleep(LOOK_S)
                else:
                    return
        except OSError:
            return

    def close(self) -> None:
        """Give all turns back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
