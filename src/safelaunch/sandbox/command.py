"""The one place where the sandbox runs a system command and waits for it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from safelaunch.errors import SandboxError


def run_command(
    argv: Sequence[str], *, hint: str | None = None, timeout_s: float = 30.0, stdin: str = "",
    env: Mapping[str, str] | None = None,
) -> str:
    """What the command printed when it succeeds; SandboxError with the command, its exit code and what it said."""
    try:
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=timeout_s, cwd="/", env=env)
    except subprocess.TimeoutExpired as late:
        raise SandboxError(f"{' '.join(argv)} did not end within {timeout_s:.0f} s", hint=hint) from late
    except FileNotFoundError as missing:
        raise SandboxError(f"{argv[0]} is not installed", hint=hint) from missing
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise SandboxError(f"{' '.join(argv)} ended with exit code {done.returncode}: {said}", hint=hint)
    return done.stdout
