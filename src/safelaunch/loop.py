"""The name by which job scripts start a supervisor: it stays, since jobs that were submitted earlier import it."""

from __future__ import annotations

import gc

gc.disable()   # of what importing makes nothing is garbage: looking for some takes 5 to 10 ms of each start
from safelaunch.supervisor.loop import main  # noqa: E402

gc.enable()

__all__ = ["main"]
