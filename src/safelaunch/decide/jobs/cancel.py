"""Whether a person cancelled a job of the run: the one answer for leader, next job and watch, from named witnesses.

A person's cancel is final, and no job comes back from it; a cancel by safelaunch, or an end by Slurm, is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum
from typing import NamedTuple

from safelaunch.base.endings import JobEnd
from safelaunch.base.model import Event
from safelaunch.slurm import jobstates

# slurm.conf(5), MinJobAge: for so long Slurm remembers a job that was cancelled. A younger one that it does not know
# was lost with what slurmctld had not saved when it died.
MIN_JOB_AGE_S = 300.0


class Canceller(Enum):
    """Who has cancelled a job that is over."""

    PERSON = "a person"
    NOBODY = "no person: it ended otherwise"
    UNTOLD = "Slurm ended it in words that this safelaunch does not know"
    UNSAID = "a step of it was ended as a scancel does it, and Slurm has not said yet how the job itself ended"
    ASK = "Slurm is to be asked"


class Witnesses(NamedTuple):
    """What is known of the end of a job, the strongest witness first. `state`: Slurm's answer on it now, None = no
    clear answer yet, "" = nobody knows the job any more.
    """

    noted: bool = False            # a watch saw a person's cancel in squeue, and journalled it
    announced: bool = False        # a supervisor, or a node guard that had none, cancelled it and said so before
    ending: str | None = None      # slurmstepd's line in the job's output (base.endings.JobEnd)
    is_local: bool = False         # no Slurm
    handed_over: bool = False      # its supervisor passed the run on, and knew why
    step_end: str | None = None    # slurmstepd's line on the step of a supervisor that had taken over
    state: str | None = None
    is_late: bool = False          # there is no more time to ask

    @property
    def has_unknown_line(self) -> bool:
        """slurmstepd wrote a line about the end that no release's table knows."""
        return JobEnd.UNKNOWN in (self.ending, self.step_end)

    @property
    def is_likely(self) -> bool:
        """The step's end looks like a scancel; a preemption with grace looks the same (measured)."""
        return self.step_end == JobEnd.CANCELLED


def judge(witnesses: Witnesses) -> Canceller:
    """Who cancelled the job. No trace of a person means nobody did; where time runs out with a trace, nobody can tell.
    """
    if witnesses.noted:
        return Canceller.PERSON
    if witnesses.announced:   # a watch's note came first: the guard cancelled a job that was already cancelled
        return Canceller.NOBODY
    if witnesses.ending not in (None, JobEnd.UNKNOWN) or witnesses.is_local:
        return Canceller.PERSON if witnesses.ending == JobEnd.CANCELLED else Canceller.NOBODY
    if witnesses.handed_over:   # its own cancel is announced: a person's came as the script ended, or did not reach it
        return Canceller.PERSON if witnesses.state == jobstates.CANCELLED else Canceller.NOBODY
    if witnesses.state == jobstates.RUNNING and not (witnesses.is_likely or witnesses.has_unknown_line):
        return Canceller.NOBODY   # nobody ends it: its supervisor died between the next job's sbatch and its own end
    if witnesses.state is None or witnesses.state in jobstates.ON_NODES:
        if not witnesses.is_late:
            return Canceller.ASK
        if witnesses.is_likely:
            return Canceller.UNSAID
        return Canceller.UNTOLD if witnesses.has_unknown_line else Canceller.NOBODY
    if witnesses.has_unknown_line and witnesses.state == "":
        return Canceller.UNTOLD
    return Canceller.PERSON if witnesses.state == jobstates.CANCELLED else Canceller.NOBODY


class CancelWitness(Enum):
    """What can be asked about the end of a job, in this order."""

    JOB_OUTPUT = "slurmstepd's line in its output"
    STEP_OUTPUT = "slurmstepd's line in the output of its standbys"
    SLURM = "squeue, then sacct, again and again"


def next_witness(witnesses: Witnesses, asked: Collection[CancelWitness]) -> CancelWitness | None:
    """Whom to ask next; None = what is known tells. The job's own line comes before its supervisor's handover: a
    person may have cancelled it behind that.
    """
    if witnesses.noted or witnesses.announced:
        return None
    if CancelWitness.JOB_OUTPUT not in asked:
        return CancelWitness.JOB_OUTPUT
    if witnesses.handed_over and witnesses.ending is None and not witnesses.is_local:
        return None if CancelWitness.SLURM in asked else CancelWitness.SLURM
    if judge(witnesses) is not Canceller.ASK:
        return None
    return CancelWitness.SLURM if CancelWitness.STEP_OUTPUT in asked else CancelWitness.STEP_OUTPUT


def is_explained_handover(history: Iterable[Event], job: str) -> bool:
    """Whether a supervisor of that job has handed the run over, and knew why the job ended: Slurm is asked once."""
    explained = False
    for event in history:
        if event.event == "job_started":
            explained = False
        elif event.event == "outcome" and event.data.get("act") == "hand_over" and event.data.get("job") == job:
            explained = event.data.get("ok") is True and event.data.get("ending") != JobEnd.UNKNOWN
    return explained


class Fate(Enum):
    """What has become of the job that waits behind this one."""

    WAITS = "waits"
    STARTED = "started"
    CANCELLED = "cancelled"    # by a person: nothing else takes a job that waits out of the queue
    LOST = "lost"              # by Slurm
    UNKNOWN = "unknown"


class NextJobFacts(NamedTuple):
    """What Slurm says of the next job, to three questions in turn; each is asked where the one before did not tell."""

    state: str | None = None             # None = no clear answer, "" = it is not known
    is_queued: bool | None = None        # in a look at the whole queue; None = no clear answer
    account: str | None = None           # what sacct says; None = it has none
    announced: bool = False              # a supervisor cancelled it, and said so before
    age_s: float | None = None           # since it was submitted; None = nobody knows


class SlurmQuestion(Enum):
    """What Slurm is asked about the next job, in this order."""

    JOB = "squeue, about the job"
    QUEUE = "squeue, about all jobs of the run"
    ACCOUNT = "sacct, about the job"


def next_question(job: NextJobFacts, last: SlurmQuestion | None) -> SlurmQuestion | None:
    """What to ask after the `last` question; None = what is known tells, or nothing will."""
    if last is None:
        return SlurmQuestion.JOB
    if last is SlurmQuestion.JOB and job.state == "":
        return SlurmQuestion.QUEUE
    return SlurmQuestion.ACCOUNT if last is SlurmQuestion.QUEUE and job.is_queued is False else None


def judge_next(job: NextJobFacts) -> Fate:
    """What has become of it. Two clear answers, to two questions, before one counts as gone."""
    if job.state == jobstates.CANCELLED:
        return Fate.LOST if job.announced else Fate.CANCELLED
    if job.state in jobstates.FINISHED:
        return Fate.LOST   # who leads the run by now would have been met at the last claim: it did nothing
    if job.state:
        return Fate.WAITS if job.state == jobstates.PENDING else Fate.STARTED
    if job.is_queued is not False:
        return Fate.UNKNOWN if job.is_queued is None else Fate.WAITS
    if job.announced or job.account is not None:
        return Fate.CANCELLED if job.account == jobstates.CANCELLED and not job.announced else Fate.LOST
    return Fate.LOST if job.age_s is not None and job.age_s < MIN_JOB_AGE_S else Fate.CANCELLED
