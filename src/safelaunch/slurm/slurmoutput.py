"""Why Slurm ends a job or a step: what slurmstepd and srun write into the job's own output, and what scontrol shows.
The words are in slurmwords, by release; unknown text gives no answer, never a guess.
"""

from __future__ import annotations

import re

from safelaunch.base.endings import JobEnd
from safelaunch.base.model import Exit
from safelaunch.slurm import jobstates, slurmwords
from safelaunch.slurm.nodeset import expand_own

# The first words of templates/slurm.
_STARTED = r"^safelaunch \S+ \S+: run \S+, job (?P<id>[0-9]+) on "

# srun's words for a signal (strsignal(3)) that it does not send itself; of a lack of memory the kernel's.
_SIGNALS = {"Killed": 9, "Out Of Memory": 9, "Segmentation fault": 11, "Aborted": 6, "Bus error": 7,
            "Illegal instruction": 4, "Floating point exception": 8}
_TASK_END = re.compile(
    r"^srun: error: (?P<nodes>[\w.,\[\]-]{1,400}): tasks? (?P<task>\d{1,7})[\d,-]{0,400}: "
    rf"(?:Exited with exit code (?P<code>\d{{1,3}})|(?P<signal>{'|'.join(_SIGNALS)}))", re.MULTILINE)


def parse_task_ends(output: str) -> tuple[Exit, ...]:
    """The bad ends of tasks that srun tells, in its order: on each node the first task of a line. Without those by
    SIGTERM, by which srun itself ends the others.
    """
    found = []
    for match in _TASK_END.finditer(output):
        signal = _SIGNALS.get(match["signal"] or "")
        code = int(match["code"]) if signal is None else 128 + signal
        found += [Exit(node, int(match["task"]), code, signal) for node in expand_own(match["nodes"])]
    return tuple(found)


def parse_ending(output: str, job: str) -> str | None:
    """Why Slurm ended the job, from slurmstepd's last line about it in the job's own output.

    Only a line about the JOB counts: `scancel J.0`, and any signal to a step, leave the same words about the STEP. A
    dead batch host writes none: then a step's line about a time limit or a preemption counts. A requeued job writes to
    the same file: only lines after its last start count. A word of slurmwords.REASONS, "unknown" for a reason of
    another release; None = no such line.
    """
    ending = find_ending(output, job)
    return ending.word if ending else None


def find_ending(output: str, job: str) -> slurmwords.EndLine | None:
    """The line that parse_ending reads. A cancel that a failed Prolog caused is a node's failure, and no person's: of
    the batch host's there is no other line, and Slurm calls the job CANCELLED.
    """
    begin = _last_start(output, job)
    found = slurmwords.job_ends(output, job, begin)
    first = slurmwords.find_batch_prolog(output, begin)
    if found and found[-1].word == JobEnd.CANCELLED and (
            slurmwords.failed_prologs(output, begin, found[-1].start) or (first and first.start < found[-1].start)):
        return found[-1]._replace(word=JobEnd.NODE_FAILURE)
    if found or first:
        return found[-1] if found else first
    steps = slurmwords.step_ends(output[begin:], job)
    return steps[-1] if steps and steps[-1].word in (JobEnd.TIME_LIMIT, JobEnd.PREEMPTED) else None


def parse_failed_prologs(output: str, job: str) -> tuple[str, ...]:
    """The nodes whose Prolog failed since the job's last start, as its own output tells."""
    return slurmwords.failed_prologs(output, _last_start(output, job))


def is_ended_by_prolog(output: str, job: str) -> bool:
    """Whether Slurm cancelled the job because a node's Prolog failed: the batch host's, or another one's."""
    is_caused = parse_failed_prologs(output, job) or slurmwords.find_batch_prolog(output, _last_start(output, job))
    return bool(is_caused) and parse_ending(output, job) == JobEnd.NODE_FAILURE


def _last_start(output: str, job: str) -> int:
    starts = re.finditer(_STARTED, output, re.MULTILINE)
    return max((match.start() for match in starts if match["id"] == job), default=0)


def parse_step_ending(output: str, job: str) -> str | None:
    """Why Slurm ended the job, from the reason in slurmstepd's last line about one of its steps; None = it gives none.

    Slurm signals the steps before the batch script: a step's output tells of a preemption before the job's own does.
    """
    found = slurmwords.step_ends(output, job)
    return found[-1].word if found and found[-1].has_reason else None


def parse_step_end(output: str, job: str) -> str | None:
    """The word of the last line about the end of a step of the job, "cancelled" without a reason; None = no such line.
    """
    found = slurmwords.step_ends(output, job)
    return found[-1].word if found else None


def is_step_cancelled_first(output: str, job: str) -> bool:
    """Whether a step of the job was cancelled, with no reason beside it, before srun saw a task of it end. That is a
    scancel of the step, or a preemption with grace: its SIGTERM comes at once (22.05, 24.11 and 26.05, measured).
    """
    saw = slurmwords.srun_saw(output)
    return any(not end.has_reason for end in slurmwords.step_ends(output, job, saw))


def find_unknown_step_end(output: str, job: str) -> slurmwords.EndLine | None:
    """The end of a step for a reason that no known release has, before srun saw a task of it end; None = there is none.

    After srun's message it is an echo, as of 26.05's "TASK FAILURE".
    """
    saw = slurmwords.srun_saw(output)
    return next((end for end in slurmwords.step_ends(output, job, saw) if end.word == slurmwords.UNKNOWN), None)


def is_preempted(text: str) -> bool:
    """Whether `scontrol --oneliner show job` says that the job is being preempted.

    It is RUNNING until its grace is over; it has a PreemptTime from the SIGTERM on (22.05, measured). A PreemptTime
    before its start is from before a requeue.
    """
    found = {match[1]: match[2] for match in re.finditer(r"\b(PreemptTime|StartTime)=(\d{4}-\S+)", text)}
    return "PreemptTime" in found and found["PreemptTime"] >= found.get("StartTime", "")


def is_over(text: str) -> bool:
    """Whether the job has ended or is about to, as `scontrol --oneliner show job` says; no clear answer is no."""
    found = re.search(r"\bJobState=([A-Z_]+)", text)
    return found is not None and found[1] in jobstates.ENDING


def parse_why_it_ends(text: str) -> str | None:
    """Why Slurm ends the job, as `scontrol --oneliner show job` tells it beside the state: Reason and PreemptTime.

    While the job completes, a cancel is not shown there (24.11 and 26.05, recorded): None = it does not say.
    """
    if is_preempted(text):
        return JobEnd.PREEMPTED
    found = {match[1]: match[2] for match in re.finditer(r"\b(JobState|Reason)=(\S+)", text)}
    if found.get("JobState") == jobstates.CANCELLED:
        return JobEnd.CANCELLED
    return {"TimeLimit": JobEnd.TIME_LIMIT, "NodeDown": JobEnd.NODE_FAILURE}.get(found.get("Reason", ""))
