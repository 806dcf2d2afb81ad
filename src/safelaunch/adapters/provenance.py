"""Which code a run was made of: git's commit and diff of the working tree, read during the submission."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from typing import IO

MAX_DIFF_BYTES = 1 << 20


class GitFacts:
    """Two git commands, started at once and read later; a slow repository never delays a submission."""

    def __init__(self, cwd: str) -> None:
        self._runs = {"commit": _start(cwd, "rev-parse", "HEAD"), "diff": _start(cwd, "diff", "--no-color", "HEAD")}

    def collect(self, within_s: float) -> dict[str, str] | None:
        """{"commit", "diff"}, {} outside of a repository; None when git needs longer."""
        end_s = time.monotonic() + within_s
        facts = {}
        for name, (process, out) in self._runs.items():
            if process is None:
                return {}
            try:
                if process.wait(max(0.0, end_s - time.monotonic())) != 0:
                    return {}
            except subprocess.TimeoutExpired:
                return None
            out.seek(0)
            facts[name] = out.read(MAX_DIFF_BYTES).decode(errors="replace").rstrip("\n")
        return facts

    def close(self) -> None:
        """End what still runs."""
        for process, out in self._runs.values():
            if process is not None and process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            out.close()


def _start(cwd: str, *words: str) -> tuple[subprocess.Popen[bytes] | None, IO[bytes]]:
    out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - read later
    try:
        # No optional locks: a submission must not block the person's own git. No pager, no external diff.
        argv = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", *words]
        if words[0] == "diff":
            argv[-1:] = ["--no-ext-diff", "--no-textconv", "HEAD"]
        return subprocess.Popen(argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL,
                                start_new_session=True), out
    except OSError:
        return None, out
