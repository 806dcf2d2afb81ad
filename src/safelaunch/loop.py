"""The name by which job scripts start a supervisor: it stays, since jobs that were submitted earlier import it."""

from __future__ import annotations

from safelaunch.supervisor.loop import main

__all__ = ["main"]
