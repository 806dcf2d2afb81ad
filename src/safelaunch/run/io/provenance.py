"""Which code a run was made of: git's commit and diff of the working tree, read during the submission."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from safelaunch.base.io.program import ProgramRun

MAX_DIFF_BYTES = 1 << 20
DEADLINE_S = 60.0   # a submission waits for less


class GitFacts:
    """Two git commands, started at once and read later; a slow repository never delays a submission. None is started
    where no repository can be: both take 5 ms of processor time to say so.
    """

    def __init__(self, cwd: str) -> None:
        self._runs: dict[str, ProgramRun] = {}
        self.is_cut = False   # the diff that was collected is longer than MAX_DIFF_BYTES
        if not _may_be_in_repository(cwd):
            return
        with contextlib.suppress(OSError):   # no git here
            self._runs["commit"] = _start(cwd, "rev-parse", "HEAD")
            self._runs["diff"] = _start(cwd, "diff", "--no-color", "--no-ext-diff", "--no-textconv", "HEAD")

    def collect(self, within_s: float) -> dict[str, str] | None:
        """{"commit", "diff"}, {} outside of a repository; None when git needs longer."""
        end_s = time.monotonic() + within_s
        facts: dict[str, str] = {}
        for name in ("commit", "diff"):
            if name not in self._runs:
                return {}
            ended = self._runs[name].wait(max(0.0, end_s - time.monotonic()))
            if ended is None or (ended.code is None and not ended.is_cut):   # DEADLINE_S has passed
                return None
            if ended.code != 0 and not ended.is_cut:
                return {}
            self.is_cut = ended.is_cut
            facts[name] = ended.out.decode(errors="replace").rstrip("\n")
        return facts

    def close(self) -> None:
        """End what still runs."""
        for run in self._runs.values():
            run.close()


def _may_be_in_repository(cwd: str) -> bool:
    """Whether git might find a working tree: it searches this folder and those above it (gitrepository-layout(5))."""
    return "GIT_DIR" in os.environ or any(
        os.path.lexists(folder / ".git") for folder in (Path(cwd), *Path(cwd).parents))


def _start(cwd: str, *words: str) -> ProgramRun:
    # No optional locks: a submission must not block the person's own git. No pager, no external diff.
    return ProgramRun(["git", "--no-optional-locks", "-c", "core.fsmonitor=false", *words], DEADLINE_S, cwd=cwd,
                      most_bytes=MAX_DIFF_BYTES)
