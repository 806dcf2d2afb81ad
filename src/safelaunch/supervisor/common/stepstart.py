"""Watches for a job step that never starts (hangs.stepstart): told after three minutes, ended after five."""

from __future__ import annotations

from safelaunch.hangs import stepstart
from safelaunch.hangs.stepstart import Then, Waiter
from safelaunch.slurm import slurmtext
from safelaunch.slurm.io import slurm
from safelaunch.supervisor.io.attempt import AttemptProcess
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.state.attempt import StepStart
from safelaunch.supervisor.state.clock import Timer
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
        lead.tasks.begin(Work.ASK_STEPS, _ask(lead, known), live.number)


def _ask(lead: Leader, known: StepStart) -> Step:
    """Ask Slurm which steps of the job run, tell, and end the attempt if none does for long enough."""
    told = False
    while lead.running.step_start == known and lead.live is not None:
        result = yield lead.successor.run(slurm.squeue_steps(lead.job.id))
        steps = slurmtext.parse_steps(result.stdout) if result is not None and result.is_ok else None
        others = None if steps is None else {
            number: name for number, name in steps.items() if name != slurm.OWN_STEP}
        then = stepstart.judge(known.place, known.why, lead.now_s - known.since_s,
                               None if others is None else len(others))
        if lead.running.step_start != known or lead.live is None or lead.live.killed_t is not None:
            return
        listed = "" if known.place is Waiter.INSIDE else ", ".join(
            f"{lead.job.id}.{number} ({name})" for number, name in (others or {}).items())
        text = stepstart.tell(known.place, known.why, listed)
        if then is not Then.WATCH and not told:
            told = True
            lead.say.decision("step_start", text, attempt=lead.live.number)
        if then is Then.END:
            lead.running.mark_stuck(text)
            return
        yield ASK_EVERY_S
