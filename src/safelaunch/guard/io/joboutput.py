"""A job's output in the folder that it was submitted from, where sbatch writes it: for a supervisor whose run folder is
gone. A disposable child writes, since that folder may be frozen.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from safelaunch.base.io.probe import ChildAnswer, run_in_child

WRITE_S = 2.0
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def leave_line(path: str, line: str, beside: Callable[[], None] | None = None) -> bool:
    """Whether the line is there now; never in another user's file, nor behind a link."""
    answer: ChildAnswer[bool] = run_in_child(lambda: _append(path, line.encode()), WRITE_S, beside)
    return answer.value is True


def _append(path: str, data: bytes) -> bool:
    try:
        descriptor = os.open(path, _FLAGS, 0o600)
    except OSError as error:
        if error.errno != errno.ELOOP or os.path.exists(path) or os.lstat(path).st_uid != os.geteuid():   # noqa: PTH110
            raise
        os.unlink(path)   # noqa: PTH108 - our own link to the output in the run folder, which is gone
        descriptor = os.open(path, _FLAGS, 0o600)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return False
        return os.write(descriptor, data) == len(data)
    finally:
        os.close(descriptor)
