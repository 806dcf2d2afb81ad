"""The one place where the sandbox runs a system command and waits for it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from safelaunch.errors import SandboxError


def run_command(argv: Sequence[str], *, hint: str | None = None, timeout_s: float = 30.0) -> None:
    """Return when the command has succeeded; SandboxError with the command, its exit code and what it said."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, cwd="/"
        )
    except subprocess.TimeoutExpired as late:
        raise SandboxError(f"{' '.join(argv)} did not end within {timeout_s:.0f} s", hint=hint) from late
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise SandboxError(f"{' '.join(argv)} ended with exit code {done.returncode}: {said}", hint=hint)
