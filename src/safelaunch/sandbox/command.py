"""The one place where the sandbox runs a system command and waits for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from safelaunch.base.io import program
from safelaunch.errors import SandboxError


def run_command(
    argv: Sequence[str], *, hint: str | None = None, timeout_s: float = 30.0, stdin: str = "",
    env: Mapping[str, str] | None = None,
) -> str:
    """What the command printed when it succeeds; SandboxError with the command, its exit code and what it said."""
    try:
        ended = program.run(argv, timeout_s, env=env, stdin=stdin.encode())
    except FileNotFoundError as missing:
        raise SandboxError(f"{argv[0]} is not installed", hint=hint) from missing
    if ended.code is None:
        raise SandboxError(f"{' '.join(argv)} did not end within {timeout_s:.0f} s", hint=hint)
    if ended.code:
        said = (ended.err or ended.out).decode(errors="replace").strip()
        raise SandboxError(f"{' '.join(argv)} ended with exit code {ended.code}: {said}", hint=hint)
    return ended.out.decode(errors="replace")
