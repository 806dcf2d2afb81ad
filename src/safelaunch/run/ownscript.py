"""A user's own sbatch script, besides its text: what its job would be under sbatch."""

from __future__ import annotations

from typing import NamedTuple


class OwnScript(NamedTuple):
    """A user's own sbatch script as sbatch would see it: its file, its arguments, and options as it writes them (None:
    it does not) where safelaunch sets those of the job.
    """

    path: str = ""
    job_name: str | None = None   # None: the run's name
    output: str | None = None
    error: str | None = None
    open_mode: str | None = None
    signal: str | None = None
    args: tuple[str, ...] = ()
    array: str = ""               # ARRAY_TASK of an array's task

    def traps_signal(self, text: str) -> bool:
        """Whether the shell of this script wants the signal before the time limit itself (sbatch(1), --signal=B:)."""
        return (self.signal or "").upper().startswith("B:") and "trap" in text
