"""Which old runs `safelaunch clean` may delete, and why it keeps the others: pure, from what each folder shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from safelaunch.run import heartbeat

LEAST_AGE_S = 600.0   # the last words of a run's job, and a log's last lines, come after its end
# What safelaunch, and the job's own output, leave in a run folder. Everything else there is the training's.
FILES = ("run.json", "job.sbatch", "submit.env", "git.json", "resume.args", heartbeat.FILE, "metrics.prom", "job.out",
         "later-jobs.json")
FOLDERS = ("attempts", "claims", "control", "journal")


class OldRun(NamedTuple):
    """A run of the list, as its folder shows it; times in epoch s."""

    dir: str
    name: str = ""
    how: str = ""                       # how it ended; "" = it has not
    ended_t: float = 0.0
    trouble: str = ""                   # why it is not its user's alone, or cannot be read
    resume: str = ""                    # the real path of its resume.dir
    after: tuple[str, ...] = ()         # folders of the runs that it waits for
    bytes: int = 0                      # of what would go
    left: tuple[str, ...] = ()          # names in the folder that would stay


def is_own_name(name: str) -> bool:
    """Whether safelaunch, or Slurm for it, has made this entry of a run folder."""
    is_output = name.startswith("slurm-") and name.endswith(".out")
    return name in FILES or name in FOLDERS or is_output or name.startswith((".begun", ".run.json"))


def why_kept(
    run: OldRun, others: Sequence[OldRun], now: float, older_s: float, *, with_checkpoints: bool
) -> str | None:
    """Why a run's folder stays; None = it may go. `others`: all runs of the list."""
    if run.trouble:
        return run.trouble
    if not run.how:
        return "it has not ended"
    if now - run.ended_t < max(older_s, LEAST_AGE_S):
        return "it ended too short a time ago"
    for other in others:
        if other.how or other.dir == run.dir:
            continue
        if other.resume and is_within(other.resume, run.dir):
            return f"the checkpoints of {other.name or other.dir}, which has not ended, lie in it"
        if run.dir in other.after:
            return f"{other.name or other.dir}, which has not ended, waits for it"
    if run.resume and any(is_within(run.resume, f"{run.dir}/{name}") for name in FOLDERS):
        return "its checkpoints lie among safelaunch's own files"
    if with_checkpoints and any(other.resume == run.resume and not other.how and other.dir != run.dir
                                for other in others if run.resume):
        return "a run that has not ended has the same resume.dir"
    return None


def may_go_with_checkpoints(run: OldRun) -> bool:
    """Whether its checkpoints are a folder right in its own: one elsewhere may hold more than this run's."""
    parent, _, name = run.resume.rpartition("/")
    return parent == run.dir and not is_own_name(name)


def is_within(path: str, folder: str) -> bool:
    """Whether a path is that folder, or in it; both are real paths."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
