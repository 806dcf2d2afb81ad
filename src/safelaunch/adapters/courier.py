"""The name by which job scripts of 0.1 start a courier: it stays, since jobs that were submitted earlier import it."""

from __future__ import annotations

from safelaunch.run.io.courier import main

__all__ = ["main"]
