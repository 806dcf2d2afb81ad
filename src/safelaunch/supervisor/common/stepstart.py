"""Watches for a job step that never starts (hangs.stepstart): told after three minutes, ended after five."""

from __future__ import annotations

from safelaunch.guard.io.job import Allocation
from safelaunch.hangs import stepstart
from safelaunch.hangs.stepstart import Then, Waiter
from safelaunch.slurm import slurmtext
from safelaunch.slurm.io import slurm
from safelaunch.supervisor.io.attempt import AttemptProcess
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.state.attempt import RunningAttempt, StepStart
from safelaunch.supervisor.state.clock import Clock, Timer
from safelaunch.supervisor.state.nextjob import NextJob
from safelaunch.supervisor.state.ports import Say
from safelaunch.supervisor.state.tasks import Step, Work

LOOK_S, ASK_EVERY_S = 10.0, 30.0
TAIL_BYTES = 16 << 10


def follow(lead: Leader, process: AttemptProcess) -> None:
    """Look at the end of the log, until the first step of the training."""
    live, known = lead.attempt, lead.running.step_start
    if lead.job.is_local or live.is_hook or live.killed_t is not None:
        return
    if not lead.clock.take_turn(Timer.STEP_START, LOOK_S):
        return
    has_begun = lead.state.attempt is not None and lead.state.attempt.step is not None
    wait = None if has_begun else stepstart.read(process.tail(TAIL_BYTES).decode(errors="replace"))
    guards = [guard for guard in lead.server.guards.values() if not guard.gone]
    place = stepstart.place_of(
        wait, is_script=lead.plan.is_script, guards=sum(not guard.is_of_step for guard in guards),
        step_guards=sum(guard.is_of_step for guard in guards), tasks=live.tasks)
    if wait is None or place is None:
        lead.running.note_step_start(None)
        return
    if known is None or known.place is not place or known.why != wait.why:
        known = StepStart(place, wait.why, lead.now_s)
        lead.running.note_step_start(known)
    if lead.now_s - known.since_s >= stepstart.TELL_S:
        lead.tasks.begin(Work.ASK_STEPS, _ask(lead.job, lead.clock, lead.running, lead.next, lead.say, known),
                         live.number)


def _ask(job: Allocation, clock: Clock, running: RunningAttempt, next_job: NextJob, say: Say, known: StepStart) -> Step:
    """Ask Slurm which steps of the job run, tell, and end the attempt if none does for long enough."""
    told = False
    while running.step_start == known and running.live is not None:
        result = yield next_job.successor.run(slurm.squeue_steps(job.id))
        steps = slurmtext.parse_steps(result.stdout) if result is not None and result.is_ok else None
        others = None if steps is None else {number: name for number, name in steps.items() if name != slurm.OWN_STEP}
        then = stepstart.judge(known.place, known.why, clock.now_s - known.since_s,
                               None if others is None else len(others))
        if running.step_start != known or running.live is None or running.live.killed_t is not None:
            return
        listed = "" if known.place is Waiter.INSIDE else ", ".join(
            f"{job.id}.{number} ({name})" for number, name in (others or {}).items())
        text = stepstart.tell(known.place, known.why, listed)
        if then is not Then.WATCH and not told:
            told = True
            say.decision("step_start", text, attempt=running.live.number)
        if then is Then.END:
            running.mark_stuck(text)
            return
        yield ASK_EVERY_S
