"""Watches for a job step that never starts (hangs.stepstart): told after three minutes, ended after five."""

from __future__ import annotations

from typing import TypeGuard

from safelaunch.decide.facts.seen import Live
from safelaunch.guard.io.job import Allocation
from safelaunch.hangs import stepstart
from safelaunch.hangs.stepstart import Then, Waiter
from safelaunch.run.fold.state import Attempt
from safelaunch.slurm import slurmtext
from safelaunch.slurm.io import slurm
from safelaunch.supervisor.state.attempt import RunningAttempt, StepStart
from safelaunch.supervisor.state.clock import Clock, Timer
from safelaunch.supervisor.state.endpoint import GuardEndpoint
from safelaunch.supervisor.state.helpers import Helpers
from safelaunch.supervisor.state.nextjob import NextJob
from safelaunch.supervisor.state.ports import Here, Say
from safelaunch.supervisor.state.standbys import Standbys
from safelaunch.supervisor.state.tasks import BackgroundTasks, Step, Work

LOOK_S, ASK_EVERY_S = 10.0, 30.0
TAIL_BYTES = 16 << 10
WAITS_S = 3.0    # srun asks again after a second; Slurm knows by then that an earlier step has ended
SILENT_S = 10.0  # from 24.11 on srun waits without a message (measured on 24.11.5)
COUNT_EVERY_S = 10.0


def find_waiting(
    here: Here, clock: Clock, running: RunningAttempt, guards: GuardEndpoint, attempt: Attempt | None
) -> StepStart | None:
    """By the log's end, until the training's first step: the step that has waited for so long that Slurm is asked."""
    live, known, process = running.now, running.step_start, running.process
    if process is None or here.job.is_local or live.is_hook or live.killed_t is not None:
        return None
    if not clock.take_turn(Timer.STEP_START, LOOK_S):
        return None
    has_begun = attempt is not None and attempt.step is not None
    wait = None if has_begun else stepstart.read(process.tail(TAIL_BYTES).decode(errors="replace"))
    there = [guard for guard in guards.server.guards.values() if not guard.gone]
    place = stepstart.place_of(
        wait, is_script=here.plan.is_script, guards=sum(not guard.is_of_step for guard in there),
        step_guards=sum(guard.is_of_step for guard in there), tasks=live.tasks)
    if wait is None or place is None:
        running.note_step_start(None)
        return None
    if known is None or known.place is not place or known.why != wait.why:
        known = StepStart(place, wait.why, clock.now_s)
        running.note_step_start(known)
    return known if clock.now_s - known.since_s >= stepstart.TELL_S else None


def ask(job: Allocation, clock: Clock, running: RunningAttempt, next_job: NextJob, say: Say, known: StepStart) -> Step:
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


def detect_blocked_attempt(
    helpers: Helpers, clock: Clock, running: RunningAttempt, standbys: Standbys, next_job: NextJob,
    tasks: BackgroundTasks
) -> None:
    """See whether the attempt itself waits for what a helper step holds. No guard is connected then, and its srun says
    so, or Slurm lists the standby's step and none of the attempt.
    """
    live, process = running.live, running.process
    if process is None or not helpers.can_run or not _is_missing(live, helpers.guards):
        return
    since_s = clock.now_s - running.launched_s
    if since_s >= WAITS_S:
        helpers.note_words(process.tail().decode(errors="replace"))
    if since_s >= SILENT_S and helpers.can_run and standbys.node is not None:
        tasks.begin(Work.COUNT_STEPS, _count_steps(helpers, running, standbys, next_job, live))


def _is_missing(live: Live | None, guards: GuardEndpoint) -> TypeGuard[Live]:
    """Whether an attempt after the first has shown no sign of life so far."""
    return live is not None and live.number > 1 and not live.exits and not guards.server.guards


def _count_steps(helpers: Helpers, running: RunningAttempt, standbys: Standbys, next_job: NextJob, asked: Live) -> Step:
    """Ask Slurm for the steps of the job: one is the standby's, which answers."""
    result = yield next_job.successor.run(slurm.squeue_steps(helpers.here.job.id))
    live = running.live
    if _is_missing(live, helpers.guards) and live.number == asked.number and standbys.node is not None \
            and result is not None and result.is_ok and len(slurmtext.parse_steps(result.stdout)) == 1:
        helpers.nodes.refuse_helpers("the attempt has no step as long as the standby has one")
    yield COUNT_EVERY_S
