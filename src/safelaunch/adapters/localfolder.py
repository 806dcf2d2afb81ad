"""A supervisor's folder on its node's own disk."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

# Cleaners of /tmp take what nobody has touched for days: 10 by systemd-tmpfiles (tmpfiles.d(5)), 7 by tmpreaper(8). A
# job can run for longer, and a leader that is born again needs its packages and its token.
TOUCH_EVERY_S = 86_400.0


def touch(folder: Path) -> None:
    """Make all in the folder look used just now; what was written when is kept."""
    now_ns = time.time_ns()
    for root, _, names in os.walk(folder):
        for path in (root, *(os.path.join(root, name) for name in names)):  # noqa: PTH118 - plain strings
            with contextlib.suppress(OSError):
                os.utime(path, ns=(now_ns, os.lstat(path).st_mtime_ns), follow_symlinks=False)
