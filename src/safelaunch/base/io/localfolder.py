"""A supervisor's folder on its node's own disk."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

# Cleaners of /tmp delete what nobody has touched for days: 10 with systemd-tmpfiles (tmpfiles.d(5)), 7 with
# tmpreaper(8). A job can run longer, and a restarted leader needs its packages and its token.
TOUCH_EVERY_S = 86_400.0


def touch(folder: Path) -> None:
    """Set the access time of all in the folder to now; the modification times stay."""
    now_ns = time.time_ns()
    for root, _, names in os.walk(folder):
        for path in (root, *(os.path.join(root, name) for name in names)):  # noqa: PTH118 - plain strings
            with contextlib.suppress(OSError):
                os.utime(path, ns=(now_ns, os.lstat(path).st_mtime_ns), follow_symlinks=False)
