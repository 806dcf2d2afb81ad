"""Which nodes of a living attempt are lost: their guards are silent, have gone without a word, or never came."""

from __future__ import annotations

from safelaunch.base.model import Exit
from safelaunch.decide.ends import silence
from safelaunch.decide.ends.silence import Heard, Silence
from safelaunch.guard.io.callers import Guard
from safelaunch.slurm import slurmtext
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.helpers import Helpers
from safelaunch.supervisor.state.reach import Reach
from safelaunch.supervisor.state.tasks import BackgroundTasks, Step, Work

MISSING_AGAIN_S = 300.0
ASKS_S = 60.0           # srun gives up a node that is dead after 11 s, a silent one after 20 s (drill, Slurm 22.05)


def find_lost(helpers: Helpers, clock: Clock, running: RunningAttempt, reach: Reach, tasks: BackgroundTasks) -> None:
    """Nodes whose guards are silent; tasks whose guard has gone without a message."""
    now_s = clock.now_s
    doubtful = [guard for guard in helpers.guards.server.guards.values()   # a list: others may connect meanwhile
                if silence.is_in_doubt(now_s - guard.heard_s, guard.closed_s is not None)]
    reported = {(exit.node, exit.task) for exit in running.now.exits} if doubtful else set()
    for guard in doubtful:
        if guard.gone or (guard.node, guard.task) in reported or guard.node in reach.lost:
            continue
        heard = _heard(helpers, clock, running, guard)
        match silence.judge(heard):
            case Silence.TASK_GONE:
                if guard.is_of_step:   # what that means for its step, its srun says: unless the node is gone with it
                    tasks.begin(Work.PROBE_MISSING, probe_closed(helpers, reach, guard.node), guard.node)
                else:
                    add_exit(clock, running, Exit(guard.node, guard.task, 255))
            case Silence.LOST:
                reach.lose(guard.node,
                           f"its node guard has not answered for {heard.silent_s:.0f} s, and the log stands still")
            case Silence.PROBE:
                tasks.begin(Work.PROBE, probe(helpers, clock, reach, guard), guard.node)


def _heard(helpers: Helpers, clock: Clock, running: RunningAttempt, guard: Guard) -> Heard:
    return Heard(
        clock.now_s - guard.heard_s, helpers.guards.server.closed_for_s(guard, clock.now_s),
        is_awaited=guard.connection is not None and guard.code is None, log_grew_s=running.grew_s - guard.heard_s,
        ping_every_s=helpers.guards.ping_every_s, is_killed=running.now.killed_t is not None,
        can_probe=helpers.can_run)


def probe(helpers: Helpers, clock: Clock, reach: Reach, guard: Guard) -> Step:
    """Test a node whose guard is silent by a helper step."""
    result = yield from helpers.run(guard.node, ["true"], 15.0)
    silent_s = clock.now_s - guard.heard_s
    is_ok = None if result is None or not helpers.can_run else result.is_ok
    if silence.is_lost_by_probe(silent_s, is_ok):
        reach.lose(guard.node, f"it has not answered for {silent_s:.0f} s, and Slurm could start nothing there")


def probe_closed(helpers: Helpers, reach: Reach, node: str) -> Step:
    """Test a node on which a guard of a script's own srun has gone without a word. Its srun may wait for minutes."""
    result = yield from helpers.run(node, ["true"], ASKS_S)
    if result is not None and not result.is_ok and helpers.can_run:
        reach.lose(node, "it stopped answering, and Slurm could start nothing there")
        return
    yield MISSING_AGAIN_S


def find_missing(helpers: Helpers, clock: Clock, running: RunningAttempt, reach: Reach, tasks: BackgroundTasks) -> None:
    """Test nodes of which no guard has connected. In a script of the user's own nobody knows which nodes a step has."""
    live, job, guards = running.now, helpers.here.job, helpers.guards.server.guards.values()
    if not silence.is_missed(
            clock.now_s - running.launched_s, clock.now_s - running.grew_s, is_killed=live.killed_t is not None,
            can_probe=helpers.can_run and not job.is_local,
    ) or not guards or any(guard.is_of_step for guard in guards):
        return
    there = {guard.node for guard in guards} | reach.lost.keys() | {job.host}
    for node in live.nodes:
        if node not in there:
            tasks.begin(Work.PROBE_MISSING, probe_missing(helpers, clock, running, reach, node, live.number), node)


def probe_missing(
    helpers: Helpers, clock: Clock, running: RunningAttempt, reach: Reach, node: str, number: int
) -> Step:
    """Test such a node by a helper step. One that runs steps may go without a guard for good: it is seldom asked."""
    result = yield from helpers.run(node, ["true"], ASKS_S)
    if silence.is_missing_by_probe(
            is_same_attempt=running.live is not None and running.live.number == number,
            has_guard=bool(helpers.guards.server.of(node)),
            has_given_up=result is not None and slurmtext.has_given_up_node(result.stderr)):
        since_s = clock.now_s - running.launched_s
        reach.lose(node, f"it has not answered in {since_s:.0f} s since the start, and Slurm could start nothing there")
        return
    yield MISSING_AGAIN_S


def add_exit(clock: Clock, running: RunningAttempt, exit: Exit) -> None:
    """Note a task's end; the first report counts."""
    running.note_task_end(exit, clock.now, clock.now_s)
