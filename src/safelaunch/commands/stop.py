"""safelaunch stop: end a run for good, by its kill switch; a job that still waits in the queue is cancelled."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import click

from safelaunch.adapters import journal, runfolder, slurm
from safelaunch.adapters.runfolder import Run
from safelaunch.commands import controls, runs, talk
from safelaunch.core.model import STOPPED, UNREACHABLE
from safelaunch.core.state import State
from safelaunch.errors import RunFolderError, UsageError

GONE_WITHIN_S = 5.0   # slurmctld takes a pending job out of the queue before scancel returns; a busy one needs a moment


@click.command()
@runs.run_argument
@click.option("--now", is_flag=True, help="Kill at once, without the grace in which the training may save.")
@click.option("--checkpoint", is_flag=True, help="Not built yet: a checkpoint first, then the end.")
def command(which: str | None, now: bool, checkpoint: bool) -> int:
    """End a run for good: no restart follows, and its queued jobs go. Any member of kill_switch.group may do it."""
    if checkpoint:
        raise UsageError("--checkpoint is not built yet", hint="a training that watches $SAFELAUNCH_KILL_FILE saves by "
                         "itself when it is stopped without --now")
    folder = runs.find_folder(which)
    try:
        run = runfolder.load(folder)
        state = run.state()
    except (RunFolderError, PermissionError) as error:
        if isinstance(error, PermissionError) or isinstance(error.__cause__, PermissionError):
            return _stop_unread(folder, now)
        raise
    if state.ended is not None:
        talk.say(talk.clean(f"nothing to stop: {runs.describe_end(state.ended)}"))
        return 0
    touched = controls.touch(folder / "control" / "kill-now" if now else Path(run.plan.kill_file))
    talk.say(_announce(run, state, touched, now))
    if any(job.started_t is not None for job in state.jobs) or run.plan.cluster == "local":
        return 0
    return _cancel_queued(run)


def _stop_unread(folder: Path, now: bool) -> int:
    """Stop a run whose files we may not read: the control folder is open to the kill switch's group, the rest need not
    be. An absolute kill_switch.file elsewhere is not needed: the leader looks at control/kill in any case.
    """
    name = "kill-now" if now else "kill"
    touched = controls.touch(folder / "control" / name)
    how = "is touched" if touched.is_new else f"was touched before, by {touched.who} at {talk.clock(touched.t)}"
    talk.say(f"{folder / 'control' / name} {how}: the run ends, and is not restarted. How it is doing only "
             f"{runs.owner_of(folder)} can see")
    return 0


def _announce(run: Run, state: State, touched: controls.Touched, now: bool) -> str:
    """What will happen now."""
    first = "" if touched.is_new else f"{touched.who} has asked for that already, at {talk.clock(touched.t)}; "
    if state.attempt is None or state.attempt.ended is not None:
        return f"{first}{run.plan.name} ends; nothing more is started"
    if now:
        return f"{first}{run.plan.name} is killed within seconds and not restarted"
    grace_s = run.plan.kill_switch.grace_s
    return (f"{first}{run.plan.name} is asked to end within seconds ({run.plan.kill_switch.signal} to those who handle "
            f"it, and the file $SAFELAUNCH_KILL_FILE) and has {talk.span(grace_s)} to save; what still runs then is "
            f"killed. Nothing is restarted. At once: safelaunch stop --now {run.dir}")


def _cancel_queued(run: Run) -> int:
    """Take a run out of the queue that no supervisor has ever seen; the exit code. The kill switch is touched already,
    so a job that starts in this very moment ends by itself.
    """
    me, word = runfolder.name_of(os.getuid()), runs.ask_scheduler(run)
    if me != runs.owner_of(run.dir):
        talk.say(f"its job ends as soon as it starts; only {runs.owner_of(run.dir)} can take it out of the queue")
        return 0
    if word.jobs is None:
        talk.say(f"Slurm does not answer ({word.trouble}): a job in the queue ends as soon as it starts. To take it "
                 f"out of the queue, repeat this")
        return UNREACHABLE
    if len(word.pending) < len(word.jobs) or any(job.user != me for job in word.jobs):
        talk.say("its job is starting: it ends by itself")
        return 0
    return _cancel(run, tuple(job.id for job in word.jobs), me)


def _cancel(run: Run, jobs: tuple[str, ...], me: str) -> int:
    writer, claim = _claim(run)
    writer.write(writer.event("intent", claim=claim, act="cancel_queued", jobs=list(jobs)))
    if jobs:
        # --state: a job that has started meanwhile has a leader, which writes a better end.
        slurm.run(("scancel", "--state=PENDING", f"--user={me}", f"--name={run.plan.job_name}", *jobs),
                  slurm.outside_job(os.environ))
    left = _left_after(run)
    writer.write(writer.event("outcome", claim=claim, act="cancel_queued", ok=None if left is None else not left))
    if left is None or left:
        talk.say("the job is still known to Slurm: it ends as soon as it starts" if left else
                 "Slurm does not say whether the job is out of the queue; it would end as soon as it starts")
        return 0 if left else UNREACHABLE
    if any(job.started_t is not None for job in run.state().jobs):
        return 0   # it started after all; its leader has seen the kill switch, and records the end
    how = f"job {', '.join(jobs)} taken out of the queue" if jobs else "Slurm knows no job of it"
    writer.write(writer.event("kill_switch", name="kill", who=me, touched_t=round(time.time(), 3)),
                 writer.event("stopped", exit_code=STOPPED, why=f"{me} stopped it before it started; {how}"))
    talk.say(f"{run.plan.name} is stopped: {how}")
    return 0


def _left_after(run: Run) -> bool | None:
    """Whether Slurm still knows a job of the run; None = no clear answer."""
    end_s = time.monotonic() + GONE_WITHIN_S
    while True:
        jobs = runs.ask_scheduler(run).jobs
        if jobs is None or not jobs or time.monotonic() > end_s:
            return None if jobs is None else bool(jobs)
        time.sleep(0.2)


def _claim(run: Run) -> tuple[journal.Writer, int]:
    """A writer of generation 0, as the submitter is, and the number of a claim that is ours.

    Not of the claim's generation: a leader that is born now must not step down for it. Lines are told apart by their
    number, so ours go on behind the submitter's.
    """
    folder, host = journal.Direct(run.dir), socket.gethostname().split(".")[0]
    number = journal.last_claim(run.dir) + 1
    while not folder.publish(f"claims/{number}", journal.render_claim(0, host, "cancel the queued job", time.time())):
        number += 1
    writer = journal.Writer(folder, 0, host)
    writer.seq = max((event.seq for event in run.journal().events if event.gen == 0), default=0)
    return writer, number
