"""How a user's own script has ended, by what its guards, its log and the wrapper of its sruns say."""

from __future__ import annotations

from safelaunch.base.endings import AttemptEnd, JobEnd
from safelaunch.base.model import Exit
from safelaunch.config.shell.scriptcodes import looks_at_codes
from safelaunch.decide.ends import scriptends
from safelaunch.decide.ends.scriptends import ScriptWords, TaskEnd
from safelaunch.decide.facts.seen import Live
from safelaunch.decide.jobs import links
from safelaunch.node.guard.protocol import STEP_TASKS
from safelaunch.run.plan import Plan
from safelaunch.slurm import slurmoutput
from safelaunch.supervisor.common.slurmends import WHOLE_END_BYTES
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.course import Course
from safelaunch.supervisor.state.endpoint import GuardEndpoint
from safelaunch.supervisor.state.ports import Here

TERMED = (124, 130, 137, 143)   # by timeout(1), or of SIGINT, SIGKILL, SIGTERM


def exits_of_script(here: Here, guards: GuardEndpoint, running: RunningAttempt) -> tuple[Exit, ...]:
    """The ends of the ranks that made a script fail, or the script's own."""
    def hides() -> bool:
        return not (is_planned or is_cancelled() or looks_at_codes(here.plan.command))

    def is_cancelled() -> bool:   # `scancel $SLURM_JOB_ID.0` of a step that is not needed any more
        said = process.tail(WHOLE_END_BYTES).decode("latin-1") if process is not None else ""
        return slurmoutput.is_step_cancelled_first(said, here.job.id)

    process = running.process
    # `timeout 23h srun …; sbatch "$0"`: it has ended its ranks itself, and goes on.
    bad = [guard.code for guard in guards.server.guards.values() if guard.code]
    is_planned = process is not None and bool(process.links()) and set(bad) <= set(TERMED)
    words = ScriptWords(
        running.now.nodes, (process.sruns() if process is not None else None) or [],
        lambda: process.tail().decode("latin-1") if process is not None else "")
    return scriptends.exits_of(running.now.exits, _ends(guards), hides, words)


def let_pass(guards: GuardEndpoint, running: RunningAttempt) -> tuple[Exit, ...]:
    """Ranks that failed although the attempt has not: nobody needed them."""
    return scriptends.let_pass(running.now.exits, _ends(guards))


def _ends(guards: GuardEndpoint) -> list[TaskEnd]:
    return [TaskEnd(guard.step, guard.ended_s, Exit(guard.node, guard.task % STEP_TASKS, guard.code, guard.signal))
            for guard in guards.server.guards.values() if guard.code is not None]


def take_link(
    plan: Plan, running: RunningAttempt, course: Course, live: Live, how: AttemptEnd
) -> tuple[AttemptEnd, links.Link | None]:
    """How a script's attempt ended, and with what it goes on, where it has submitted itself."""
    if not plan.is_script or running.process is None or live.is_hook:
        return how, None
    is_limit = course.ending == JobEnd.TIME_LIMIT or live.end_row == "limit_near"
    return links.take(running.process.links(), how, is_limit)
