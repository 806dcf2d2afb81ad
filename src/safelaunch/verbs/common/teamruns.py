"""Other users' runs, by Slurm: the batch script of a job of safelaunch is in its run's folder. A user can submit any
path, so a folder counts only if it belongs to the job's user.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from safelaunch.base.io import owners
from safelaunch.base.io.probe import run_in_child
from safelaunch.run.io import clustername, registry
from safelaunch.slurm import jobstates
from safelaunch.slurm.io import slurm
from safelaunch.slurm.slurmtext import FINDING_FORMAT, FoundJob, QueuedJob, found_among, parse_ended, parse_finding

SQUEUE_DEADLINE_S = 4.0    # a person waits
FOLDERS_DEADLINE_S = 3.0
_JOB_NAME = re.compile(r"(?P<name>.+)\.(?P<run_id>[0-9a-f]{8})")


def find(which: str) -> list[Path]:
    """Folders of runs whose job has that id, or whose name or run id that is; remembered for when they have ended."""
    found = (_ask([f"--jobs={which}"]) or _ask_accounts(which)) if which.isdigit() else _ask([])
    meant = [one for one in found if which == one.job or which in _names(one)]
    folders = owned(meant)
    remember([one for one in meant if one.folder in folders and one.user != _me()])
    return [Path(folder) for folder in folders]


def remember(jobs: Sequence[FoundJob]) -> None:
    """Remember other users' runs for the time when Slurm has forgotten their jobs."""
    cluster = clustername.here() if jobs else ""
    for one in jobs:
        registry.remember(Path(one.folder), *_names(one), one.job, cluster)


def living(jobs: Iterable[QueuedJob]) -> list[FoundJob]:
    """All runs of others with an unfinished job among these, one entry a run, its running job first."""
    newest: dict[str, FoundJob] = {}
    for one in _of_safelaunch(found_among(jobs)):
        if one.user != _me() and (one.folder not in newest or one.state == jobstates.RUNNING):
            newest[one.folder] = one
    folders = owned(newest.values())
    return [one for folder, one in newest.items() if folder in folders]


def owned(jobs: Iterable[FoundJob]) -> list[str]:
    """The folders that belong to the job's user, each once. One that may not be read is kept: its reader reports why.
    """
    users = {one.folder: one.user for one in jobs}

    def look() -> list[str]:
        return [folder for folder, user in users.items() if _owner(folder) in (user, None)]

    answer = run_in_child(look, FOLDERS_DEADLINE_S) if users else None
    return answer.value or [] if answer is not None else []


def _owner(folder: str) -> str | None:
    """None = unknown; "" = there is no such folder."""
    try:
        return owners.name_of(Path(folder).stat().st_uid)
    except FileNotFoundError:
        return ""
    except OSError:
        return None


def _ask(words: list[str]) -> tuple[FoundJob, ...]:
    """Jobs of safelaunch; none where Slurm gives no answer, or hides those of others (PrivateData, slurm.conf(5))."""
    result = slurm.run(slurm.squeue(words, FINDING_FORMAT), slurm.outside_job(os.environ), SQUEUE_DEADLINE_S)
    return _of_safelaunch(parse_finding(result.stdout)) if result.is_ok else ()


def _ask_accounts(job: str) -> tuple[FoundJob, ...]:
    """A job that squeue has forgotten (MinJobAge); none where the site keeps or shows no accounts."""
    result = slurm.run(slurm.sacct_ended(job), slurm.outside_job(os.environ), SQUEUE_DEADLINE_S)
    return _of_safelaunch(parse_ended(result.stdout)) if result.is_ok else ()


def _of_safelaunch(jobs: Iterable[FoundJob]) -> tuple[FoundJob, ...]:
    return tuple(one for one in jobs if _JOB_NAME.fullmatch(one.name))


def _names(one: FoundJob) -> tuple[str, str]:
    match = _JOB_NAME.fullmatch(one.name)
    return (match["name"], match["run_id"]) if match else ("", "")


def _me() -> str:
    return owners.name_of(os.getuid())
