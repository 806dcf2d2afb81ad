"""Why Slurm ends this job, an earlier one, or a step: from slurmstepd's line first, then from Slurm's commands."""

from __future__ import annotations

from pathlib import Path

from safelaunch.base.endings import JobEnd, tell_ending
from safelaunch.base.io import sharedfile
from safelaunch.decide.ends import jobend
from safelaunch.decide.ends.jobend import Explain
from safelaunch.guard.io.job import Allocation
from safelaunch.run.io import runfolder
from safelaunch.run.plan import Plan
from safelaunch.slurm import jobstates, slurmoutput, slurmwords
from safelaunch.slurm.io import slurm
from safelaunch.slurm.slurmwords import UNKNOWN, EndLine
from safelaunch.slurm.via import HERE
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.course import Course
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.ports import FolderPort, Here, Say
from safelaunch.supervisor.state.tasks import BackgroundTasks, Step, Work

SQUEUE_S = 5.0          # KillWait leaves 30 s for everything
COMPLETING_LOOKS = 5
OUTPUT_TAIL_BYTES = 256 << 10
WHOLE_END_BYTES = 1 << 20   # of a log in which a thousand ranks may say why they end


def find_ending(
    here: Here, clock: Clock, journal: LeaderJournal, files: FolderPort, course: Course, tasks: BackgroundTasks,
    say: Say
) -> tuple[str, ...]:
    """TERM has come: find out why, first from slurmstepd's own line. The nodes whose Prolog failed, if it tells."""
    assert course.term_s is not None
    job = here.job
    line = JobEnd.CANCELLED if job.is_local else ending_of(here.run_dir, journal, files, say, job.id)
    step = jobend.explain(line, clock.now_s - course.term_s)
    if step is Explain.ASK_SCONTROL:
        tasks.begin(Work.EXPLAIN_TERM, ask_why_it_ends(here, course, say))
    elif step is Explain.ASK_SQUEUE:
        tasks.begin(Work.EXPLAIN_TERM, ask_whether_it_ends(here, course, say))
    elif step is Explain.LINE and line is not None:
        course.note_ending(line)
        say(f"the job is being ended: {tell_ending(line)}")
        return tuple(slurmoutput.parse_failed_prologs(_output_of(here.run_dir, files, job.id) or "", job.id))
    return ()


def find_early_ending(job: Allocation, running: RunningAttempt, course: Course, say: Say) -> None:
    """Slurm ends ranks before it signals this process: their log tells of the job's end first.

    Seen under load: a preempted attempt counted as failed, and the next one started in the ending job.
    """
    if course.ending is None and not job.is_local and running.process is not None:
        reason = slurmoutput.parse_step_ending(running.process.tail().decode("latin-1"), job.id)
        if reason in (JobEnd.PREEMPTED, JobEnd.TIME_LIMIT):
            course.note_ending(reason)
            say(f"the job is being ended: {tell_ending(reason)}")


def may_tell_who_ended_it(job: Allocation, running: RunningAttempt, course: Course) -> bool:
    """Whether the log of the ended attempt may tell who ended its step, and was not read for that yet."""
    return (course.ending is None and not job.is_local and running.process is not None
            and course.asked_who != running.now.number)


def find_who_ended_it(
    here: Here, clock: Clock, journal: LeaderJournal, running: RunningAttempt, course: Course, tasks: BackgroundTasks,
    say: Say
) -> None:
    """Ask Slurm who ended the attempt's step, if its log says that somebody did and safelaunch did not.

    A preemption with grace ends the steps, not the batch script: ranks that die of it look failed, ranks that save and
    exit look complete. Whatever the answer, the attempt counts as told to end. If the message is of an unknown Slurm,
    the attempt counts as no failure (decide.ends.refusal). A script that ended with 0 may have cancelled its own step:
    only an end of the job takes that back.
    """
    live, process = running.now, running.process
    course.note_asked_who(live.number)
    find_early_ending(here.job, running, course, say)
    if process is None or course.ending is not None:
        return
    said = process.tail(WHOLE_END_BYTES).decode("latin-1")
    unread = slurmoutput.find_unknown_step_end(said, here.job.id)
    if unread is not None:
        report_unknown(journal, say, here.job.id, unread)
        course.note_unread(live.number)
    if unread is not None or slurmoutput.is_step_cancelled_first(said, here.job.id):
        if not has_script_ended_well(here.plan, running):
            running.mark_asked("step_cancelled", clock.now)
        tasks.begin(Work.EXPLAIN_STEP, ask_who_ended_it(here, clock, running, course, say))
    elif here.plan.cluster == HERE and live.failed:   # nothing signals this process: it is none of the job's
        tasks.begin(Work.EXPLAIN_STEP, ask_who_ended_it(here, clock, running, course, say))


def has_script_ended_well(plan: Plan, running: RunningAttempt) -> bool:
    """Whether the attempt is a user's own script that has ended with 0."""
    live = running.now
    is_well = not any(exit.code for exit in live.exits) if live.exits else live.srun_code == 0
    return plan.is_script and is_well


def ask_who_ended_it(here: Here, clock: Clock, running: RunningAttempt, course: Course, say: Say) -> Step:
    """Ask Slurm whether this job is being preempted, or ended otherwise."""
    result = yield here.world.command(slurm.show_job(here.job.id), here.job.env, SQUEUE_S)
    for _ in range(COMPLETING_LOOKS if here.plan.cluster == HERE else 0):   # while it completes no cancel is shown
        if result is None or f"JobState={jobstates.COMPLETING}" not in result.stdout:
            break
        yield 1.0
        result = yield here.world.command(slurm.show_job(here.job.id), here.job.env, SQUEUE_S)
    is_answered = result is not None and result.is_ok
    ending = slurmoutput.parse_why_it_ends(result.stdout) if result is not None and is_answered else None
    if result is not None and ending is None and here.plan.cluster == HERE and slurmoutput.is_over(result.stdout):
        ending = JobEnd.UNKNOWN   # its shell has been left
    if not is_answered and running.live is not None and running.live.end_row is None:
        running.mark_asked("step_cancelled", clock.now)
    if ending is not None and course.ending is None:
        course.note_ending(ending)
        grace = ", with a time of grace" if ending == JobEnd.PREEMPTED else ""
        say(f"the job is being ended: {tell_ending(ending)}{grace}")


def ask_why_it_ends(here: Here, course: Course, say: Say) -> Step:
    """slurmstepd's message is of an unknown Slurm: ask by a command."""
    result = yield here.world.command(slurm.show_job(here.job.id), here.job.env, SQUEUE_S)
    reason = slurmoutput.parse_why_it_ends(result.stdout) if result is not None and result.is_ok else None
    if course.ending is None:
        ending = jobend.ending_by_scontrol(reason)
        course.note_ending(ending)
        say(f"the job is being ended: {tell_ending(ending)}")


def report_unknown(journal: LeaderJournal, say: Say, job: str, end: EndLine) -> None:
    """Journal, once, that Slurm ended a job or its step with a message that no known release has."""
    if journal.state.unknown_words != (job, end.said):
        journal.record(journal.event("unknown_words", job=job, said=end.said[:200]))
        say(f"Slurm ended something of job {job} with a message that this safelaunch does not know: {end.said!r}")


def ask_version(here: Here, journal: LeaderJournal, say: Say) -> Step:
    """Journal the version of Slurm here: messages depend on it. Every node must have srun."""
    result = yield here.world.command(slurm.version(), here.job.env, SQUEUE_S)
    version = slurmwords.parse_version(result.stdout) if result is not None and result.is_ok else None
    if version is None or version == journal.state.slurm:
        return
    journal.record(journal.event("slurm", version=version, known=slurmwords.is_known(version)))
    if not slurmwords.is_known(version):
        say(f"Slurm {version} is none of the releases that this safelaunch knows ({slurmwords.RELEASES[0]} to "
            f"{slurmwords.RELEASES[-1]}): ends whose words it cannot read are asked about, and not counted")


def ask_whether_it_ends(here: Here, course: Course, say: Say) -> Step:
    """No line tells why: ask squeue whether Slurm still runs the job."""
    result = yield here.world.command(slurm.squeue_job(here.job.id), here.job.env, SQUEUE_S)
    ending = jobend.ending_without_line(is_running=slurm.is_running(result, here.job.id))
    if ending is None:
        say("a TERM came, but Slurm goes on running this job: so does the supervisor")
        course.forget_term()
    elif course.ending is None:
        course.note_ending(ending)
        say("the job is being ended, for an unknown reason")


def learn_why_it_ends(course: Course) -> Step:
    """Wait until it is known why a TERM has come, if one has: it may be a person's cancel."""
    while course.term_s is not None and course.ending is None:
        yield 0.1


def ending_of(run_dir: Path, journal: LeaderJournal, files: FolderPort, say: Say, job: str) -> str | None:
    """Why Slurm ended a job of this run, from slurmstepd's line in its output; None = it does not say.

    A cancel that a guard or a standby announced, because nobody led the job, is no person's.
    """
    text = _output_of(run_dir, files, job)
    end = slurmoutput.find_ending(text, job) if text else None
    if end is None:
        return None
    if end.word not in slurmwords.JOB_ENDINGS:
        report_unknown(journal, say, job, end)
        return UNKNOWN
    if end.word != JobEnd.CANCELLED:
        return end.word
    orphaned = files.ask(lambda: runfolder.is_orphaned(run_dir, job), 1.0)
    return (JobEnd.ORPHANED if orphaned.value else end.word) if orphaned.is_ok else None


def _output_of(run_dir: Path, files: FolderPort, job: str) -> str | None:
    """The end of a job's output, and of its standbys' steps; None = the folder does not answer."""
    def tails() -> str:
        outputs = [run_dir / f"slurm-{job}.out", *sorted(run_dir.glob(f"slurm-{job}.standby-*.out"))]
        return "\n".join(map(_tail, outputs))

    answer = files.ask(tails, 1.0)
    return answer.value if answer.is_ok else None


def step_end_of(run_dir: Path, files: FolderPort, job: str) -> str | None:
    """slurmstepd's message on the end of a standby's step (slurmoutput.parse_step_end)."""
    def tails() -> str:
        return "\n".join(map(_tail, sorted(run_dir.glob(f"slurm-{job}.standby-*.out"))))

    answer = files.ask(tails, 1.0)
    return slurmoutput.parse_step_end(answer.value, job) if answer.is_ok and answer.value else None


def _tail(path: Path) -> str:
    """The end of a job's output file; "" where it was never written, or is no file."""
    try:
        return sharedfile.read_end(path, OUTPUT_TAIL_BYTES).decode("latin-1")
    except (FileNotFoundError, sharedfile.OddFile):
        return ""
