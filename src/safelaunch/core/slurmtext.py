"""Slurm's words as values: what its commands print, and what slurmstepd writes into a job's own output.

Each format string stands beside its parser. Text of an unknown form is a ParseError, never a guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from safelaunch.errors import ParseError

# squeue --noheader --format: id, state, name, user, reason, nodelist. "|" cannot stand in ids, states or user names;
# the name is ours, and the reason comes last but one, the nodelist last.
SQUEUE_FORMAT = "%i|%T|%u|%j|%r|%N"

# slurm_errno.c and the clients' own words for "no answer": whether the act happened is unknown.
_UNREACHABLE = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Connection refused|Connection reset|Connection timed out"
    r"|Zero Bytes were transmitted|Transport endpoint is not connected|communication connection failure"
    r"|Slurm backup controller in standby mode|Slurm controller not responding|Slurmctld is not responding"
    r"|Resource temporarily unavailable",
    re.IGNORECASE,
)
_ENDING = re.compile(
    r"^(?:slurmstepd|srun)(?:-\S+)?: error: \*\*\* JOB (?P<id>[0-9]+) ON (?P<host>\S+) CANCELLED AT "
    r"(?P<at>\S+)(?P<due> DUE TO .*?)? \*\*\*",
    re.MULTILINE | re.IGNORECASE,
)
_DUE = {
    "TIME LIMIT": "time_limit", "PREEMPTION": "preempted", "JOB REQUEUE": "requeued", "NODE FAILURE": "node_failure",
}


@dataclass(frozen=True)
class QueuedJob:
    """One line of squeue."""

    id: str
    state: str
    user: str
    name: str
    reason: str
    nodelist: str


def parse_squeue(text: str) -> tuple[QueuedJob, ...]:
    """Jobs of `squeue --noheader --format=SQUEUE_FORMAT`; raises ParseError on a line of another form."""
    jobs = []
    for line in filter(None, map(str.strip, text.splitlines())):
        parts = line.split("|")
        if len(parts) < 6 or not re.match(r"\d", parts[0]):
            raise ParseError(f"squeue printed {line!r}, not {SQUEUE_FORMAT!r}")
        jobs.append(QueuedJob(parts[0], parts[1], parts[2], "|".join(parts[3:-2]), parts[-2], parts[-1]))
    return tuple(jobs)


def parse_submitted(text: str) -> str:
    """Job id of `sbatch --parsable` ("123" or "123;cluster"), whatever banners a site prints around it."""
    for line in reversed(text.strip().splitlines()):
        match = re.fullmatch(r"(\d+)(?:;\S+)?", line.strip())
        if match:
            return match.group(1)
    raise ParseError(f"sbatch printed {text.strip()[:200]!r}, not a job id")


def is_unreachable(stderr: str) -> bool:
    """Whether a Slurm command failed because it got no answer, so that nobody knows what happened."""
    return _UNREACHABLE.search(stderr) is not None


def parse_ending(output: str, job: str) -> str | None:
    """Why Slurm ended the job, from slurmstepd's last line about it in the job's own output.

    Only a line about the JOB counts: `scancel J.0`, and any signal to a step, leave the same words about the STEP.
    cancelled (by a person's scancel) | time_limit | preempted | requeued | node_failure; None = no such line.
    """
    for match in reversed(list(_ENDING.finditer(output))):
        if match["id"] != job:
            continue
        due = (match["due"] or "").upper().removeprefix(" DUE TO ").strip()
        if not due:
            return "cancelled"
        # "NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS" in full
        return next((word for words, word in _DUE.items() if due.startswith(words)), "unknown")
    return None


def parse_addresses(text: str) -> dict[str, str]:
    """node → NodeAddr of `scontrol --oneliner show node`; nodes without one are left out."""
    pairs = (re.search(r"(?:^|\s)NodeName=(\S+)\s.*?\sNodeAddr=(\S+)", line) for line in text.splitlines())
    return {match[1]: match[2] for match in pairs if match}
