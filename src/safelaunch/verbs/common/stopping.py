"""Ending a run for good by its kill switch; a job in the queue is cancelled."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from safelaunch.base.io import owners
from safelaunch.base.io.probe import run_in_child
from safelaunch.base.model import STOPPED, TIMED_OUT, UNREACHABLE
from safelaunch.decide.facts.patience import DEAF_S
from safelaunch.errors import RunFolderError, UsageError
from safelaunch.run import acts
from safelaunch.run.acts import ActOutcome
from safelaunch.run.fold.state import State
from safelaunch.run.io import ownership, runfolder
from safelaunch.run.io.runfolder import Run
from safelaunch.slurm import jobstates
from safelaunch.slurm.io import slurm
from safelaunch.verbs.common import confirmation, controls, runs, talk
from safelaunch.verbs.common.talk import Say

QUICK_S = 2.0           # a journal of 100,000 lines is read within it
LEAST_WITHIN_S = 10.0   # the supervisor looks at the control files each 3 s
GONE_WITHIN_S = 5.0   # slurmctld takes a pending job out of the queue before scancel returns; a busy one needs a moment


def stop_name(now: bool, checkpoint: bool) -> str:
    """The request of base.model.STOPS for these; raises UsageError for both at once."""
    if now and checkpoint:
        raise UsageError("--now and --checkpoint exclude each other: --now waits for nothing")
    return "kill-now" if now else "checkpoint" if checkpoint else "kill"


def stop(folder: Path, name: str, within_s: float | None, say: Say) -> int:
    """The exit code of `stop` for the run in a folder: 0 = it is confirmed, or there is nothing to stop. `name` is one
    of base.model.STOPS; `within_s` needs checkpoint. Raises UsageError and RunFolderError.
    """
    code, run = ask(folder, name, within_s, say)
    return code if run is None else confirmation.await_word(run, name, say)


def ask(folder: Path, name: str, within_s: float | None, say: Say) -> tuple[int, Run | None]:
    """The first half of `stop`: the request is made, and a run that waits is taken out of the queue. An exit code, or
    the run whose word on it is to be waited for.
    """
    _check_within(name, within_s)
    try:
        run = runfolder.load(folder)
        has_ended = _has_ended(run)
    except (RunFolderError, PermissionError) as error:
        if isinstance(error, PermissionError) or isinstance(error.__cause__, PermissionError):
            if within_s is not None:   # its time counts from a grace that we may not read
                raise UsageError(f"--within needs to read {folder / 'run.json'}, and you may not") from error
            return _stop_unread(folder, name, say), None
        raise
    touched = None if has_ended else _touch(run, name, within_s)
    state = run.state()
    if touched is None or state.ended is not None:
        say(f"nothing to stop: {runs.describe_end(state.ended)}" if state.ended else "nothing to stop")
        return 0, None
    say(_announce(run, state, touched, name))
    code = 0 if run.plan.cluster == "local" else _cancel_queued(run, state, name, say)
    return code, None if code else run


def _has_ended(run: Run) -> bool:
    """Whether the run is over, if its journal says so soon: reading a huge one must not delay the kill switch."""
    answer = run_in_child(lambda: run.state().ended is not None, QUICK_S)
    if answer.errno in (errno.EACCES, errno.EPERM):
        raise PermissionError(answer.errno, answer.error)
    return answer.value is True


def _touch(run: Run, name: str, within_s: float | None) -> controls.Touched:
    """Make the request. The time of control/checkpoint and kill_switch.grace give its deadline (decide.facts.patience).
    If others can have written the run, its run.json is not used: it may name any file of ours. The supervisor reads
    control/kill in any case.
    """
    is_own = runs.ask(lambda: ownership.why_not_own_run(run.dir) or "", str(run.dir)) == ""
    path, kill_file = run.dir / "control" / name, Path(run.plan.kill_file)
    is_elsewhere = name == "kill" and is_own and kill_file != Path(run.plan.run_dir) / "control" / "kill"
    kill_switch = run.plan.kill_switch
    if name == "checkpoint" and run.plan.resume.dir is None:
        raise UsageError("its checkpoints are unknown: it has no resume.dir",
                         hint=f"safelaunch stop {run.dir} sends {kill_switch.signal} to a training that handles it, "
                              f"and gives it {talk.span(kill_switch.grace_s)} to save")
    if within_s is None:
        return controls.touch(kill_file, is_elsewhere=True) if is_elsewhere else controls.touch(path)
    return controls.renew(path, time.time() + within_s - kill_switch.grace_s)


def _check_within(name: str, within_s: float | None) -> None:
    """Raise UsageError for what makes no sense together."""
    if within_s is None:
        return
    if name != "checkpoint":
        raise UsageError("--within needs --checkpoint", hint="kill_switch.grace is how long the others have")
    if within_s < LEAST_WITHIN_S:
        raise UsageError(f"--within {within_s:g}s: at least {LEAST_WITHIN_S:.0f} s; --now kills at once")


def _stop_unread(folder: Path, name: str, say: Say) -> int:
    """Stop a run whose files we may not read: only the control folder is open to the kill switch's group. An absolute
    kill_switch.file elsewhere is not needed: the leader reads control/kill in any case.
    """
    touched = controls.touch(folder / "control" / name)
    how = "is touched" if touched.is_new else f"was touched before, by {touched.who} at {talk.moment(touched.t)}"
    say(f"{folder / 'control' / name} {how}. The run ends, and is not restarted, once its supervisor has seen it; "
        f"whether it has only {runs.owner_of(folder)} can see")
    return TIMED_OUT


def _announce(run: Run, state: State, touched: controls.Touched, name: str) -> str:
    """What will happen now."""
    first = "" if touched.is_new else f"{touched.who} has asked for that already, at {talk.moment(touched.t)}; "
    if state.attempt is None or state.attempt.ended is not None:
        return f"{first}{run.plan.name} ends; nothing more is started"
    if name == "kill-now":
        return f"{first}{run.plan.name} is killed within seconds and not restarted"
    grace_s = run.plan.kill_switch.grace_s
    if name == "checkpoint":
        return (f"{first}{run.plan.name} ends as soon as its next checkpoint is complete, at the latest at "
                f"{talk.moment(touched.t + grace_s)} ({run.plan.kill_switch.signal} asks for one, where handled). "
                f"Nothing is restarted. To wait longer: safelaunch stop --checkpoint --within 2h {run.dir}; to end it "
                f"sooner: safelaunch stop {run.dir}")
    if run.plan.resume.dir is not None:
        deaf = f"it is ended right after its next checkpoint, at the latest {talk.moment(touched.t + grace_s)}"
    else:
        deaf = f"it is ended after {talk.span(min(grace_s, DEAF_S))}"
    return (f"{first}{run.plan.name} is asked to save and end, and has {talk.span(grace_s)} for that. If it has no "
            f"handler for {run.plan.kill_switch.signal}, {deaf}. Nothing is restarted. At once: safelaunch stop --now "
            f"{run.dir}")


def _cancel_queued(run: Run, state: State, name: str, say: Say) -> int:
    """Take a run without a supervisor out of the queue; returns the exit code. The run has not started yet, or its last
    job has ended and the next one waits, perhaps held. The kill switch is touched already, so a job that starts right
    now ends by itself.
    """
    me, word = owners.name_of(os.getuid()), runs.ask_scheduler(run)
    lives = state.attempt is not None and state.attempt.ended is None   # for the journal: its supervisor does the rest
    if lives and (word.jobs is None or len(word.pending) < len(word.jobs)):
        return 0
    if me != runs.owner_of(run.dir):
        say(f"its job ends as soon as it starts; only {runs.owner_of(run.dir)} can take it out of the queue")
        return 0
    if word.jobs is None:
        say(f"Slurm does not answer ({word.trouble}): a job in the queue ends as soon as it starts. To take it "
            f"out of the queue, repeat this")
        return 0 if any(_starts(state)) else UNREACHABLE   # a supervisor that lives sees the kill switch
    if any(job.state not in (jobstates.PENDING, jobstates.COMPLETING) or job.user != me for job in word.jobs):
        say("its job is starting: it ends by itself" if state.job is None or state.job.started_t is None else
            "its job runs: its supervisor ends it")
        return 0
    return _cancel(run, state, tuple(job.id for job in word.pending), me, name, say)


def _cancel(run: Run, state: State, jobs: tuple[str, ...], me: str, name: str, say: Say) -> int:
    def do() -> ActOutcome[bool | None]:
        if jobs:
            # Only those that wait: a job that has started meanwhile has a leader, which writes a better end.
            slurm.run(slurm.scancel_waiting(me, run.plan.job_name, jobs), slurm.outside_job(os.environ))
        left = _left_after(run)
        return ActOutcome(None if left is None else not left, left)

    actor = controls.login_actor(run)
    writer = actor.writer
    left = acts.perform_now(actor, "cancel_queued", actor.claim("cancel the queued job"), do, jobs=list(jobs))
    if left is None or left:
        say("the job is still known to Slurm: it ends as soon as it starts" if left else
            "Slurm does not say whether the job is out of the queue; it would end as soon as it starts")
        return 0 if left else UNREACHABLE
    if _starts(run.state()) != _starts(state):
        return 0   # it started after all; its leader has seen the kill switch, and records the end
    how = f"job {', '.join(jobs)} taken out of the queue" if jobs else "Slurm knows no job of it"
    when = "before it started" if not any(_starts(state)) else "while none of its jobs ran"
    writer.write(writer.event("kill_switch", name=name, who=me, touched_t=round(time.time(), 3)),
                 writer.event("stopped", exit_code=STOPPED, why=f"{me} stopped it {when}; {how}"))
    say(f"{run.plan.name} is stopped: {how}")
    return 0


def _starts(state: State) -> tuple[tuple[float | None, int], ...]:
    """When which of its jobs has started, and how often."""
    return tuple((job.started_t, job.restart_count) for job in state.jobs if job.started_t is not None)


def _left_after(run: Run) -> bool | None:
    """Whether Slurm still knows a job of the run; None = no clear answer."""
    end_s = time.monotonic() + GONE_WITHIN_S
    while True:
        word = runs.ask_scheduler(run)
        left = [job for job in word.jobs or () if job.state != jobstates.COMPLETING]   # of a job before it, which hangs
        if word.jobs is None or not left or time.monotonic() > end_s:
            return None if word.jobs is None else bool(left)
        time.sleep(0.2)
