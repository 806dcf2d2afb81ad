"""Which nodes of a living attempt are lost: their guards are silent, have gone without a word, or never came."""

from __future__ import annotations

from safelaunch.base.model import Exit
from safelaunch.decide.ends import silence
from safelaunch.decide.ends.silence import Heard, Silence
from safelaunch.decide.facts.seen import Live
from safelaunch.guard.io.callers import Guard
from safelaunch.slurm import slurmtext
from safelaunch.supervisor.common import overlap
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.endpoint import GuardEndpoint
from safelaunch.supervisor.state.nodes import Nodes
from safelaunch.supervisor.state.parts import Here
from safelaunch.supervisor.state.reach import Reach
from safelaunch.supervisor.state.tasks import Step, Work

MISSING_AGAIN_S = 300.0
ASKS_S = 60.0           # srun gives up a node that is dead after 11 s, a silent one after 20 s (drill, Slurm 22.05)


def find_lost(lead: Leader) -> None:
    """Nodes whose guards are silent; tasks whose guard has gone without a message."""
    assert lead.live is not None
    reported = {(exit.node, exit.task) for exit in lead.live.exits}
    for guard in tuple(lead.server.guards.values()):   # others may connect while a loss is journalled
        if guard.gone or (guard.node, guard.task) in reported or guard.node in lead.reach.lost:
            continue
        heard = _heard(lead.clock, lead.guard_endpoint, lead.nodes, lead.running, lead.live, guard)
        match silence.judge(heard):
            case Silence.TASK_GONE:
                if guard.is_of_step:   # what that means for its step, its srun says: unless the node is gone with it
                    lead.tasks.begin(Work.PROBE_MISSING,
                                     probe_closed(lead.here, lead.guard_endpoint, lead.nodes, lead.reach, guard.node),
                                     guard.node)
                else:
                    add_exit(lead.clock, lead.running, Exit(guard.node, guard.task, 255))
            case Silence.LOST:
                lead.reach.lose(guard.node,
                                f"its node guard has not answered for {heard.silent_s:.0f} s, and the log stands "
                                "still")
            case Silence.PROBE:
                lead.tasks.begin(Work.PROBE,
                                 probe(lead.here, lead.clock, lead.guard_endpoint, lead.nodes, lead.reach, guard),
                                 guard.node)


def _heard(
    clock: Clock, guards: GuardEndpoint, nodes: Nodes, running: RunningAttempt, live: Live, guard: Guard
) -> Heard:
    return Heard(
        clock.now_s - guard.heard_s, guards.server.closed_for_s(guard, clock.now_s),
        is_awaited=guard.connection is not None and guard.code is None, log_grew_s=running.grew_s - guard.heard_s,
        ping_every_s=guards.ping_every_s, is_killed=live.killed_t is not None,
        can_probe=nodes.no_overlap is None)


def probe(here: Here, clock: Clock, guards: GuardEndpoint, nodes: Nodes, reach: Reach, guard: Guard) -> Step:
    """Test a node whose guard is silent by a helper step."""
    result = yield here.world.command(guards.fencer.helper(guard.node, ["true"]), here.job.env, 15.0)
    overlap.note_result(here.job, nodes, result)
    silent_s = clock.now_s - guard.heard_s
    is_ok = None if result is None or nodes.no_overlap is not None else result.is_ok
    if silence.is_lost_by_probe(silent_s, is_ok):
        reach.lose(guard.node, f"it has not answered for {silent_s:.0f} s, and Slurm could start nothing there")


def probe_closed(here: Here, guards: GuardEndpoint, nodes: Nodes, reach: Reach, node: str) -> Step:
    """Test a node on which a guard of a script's own srun has gone without a word. Its srun may wait for minutes."""
    result = yield here.world.command(guards.fencer.helper(node, ["true"]), here.job.env, ASKS_S)
    overlap.note_result(here.job, nodes, result)
    if result is not None and not result.is_ok and nodes.no_overlap is None:
        reach.lose(node, "it stopped answering, and Slurm could start nothing there")
        return
    yield MISSING_AGAIN_S


def find_missing(lead: Leader, live: Live) -> None:
    """Test nodes of which no guard has connected. In a script of the user's own nobody knows which nodes a step has."""
    guards = lead.server.guards.values()
    if not silence.is_missed(
            lead.now_s - lead.running.launched_s, lead.now_s - lead.running.grew_s,
            is_killed=live.killed_t is not None, can_probe=lead.nodes.no_overlap is None and not lead.job.is_local,
    ) or not guards or any(guard.is_of_step for guard in guards):
        return
    there = {guard.node for guard in guards} | lead.reach.lost.keys() | {lead.job.host}
    for node in live.nodes:
        if node not in there:
            lead.tasks.begin(Work.PROBE_MISSING,
                             probe_missing(lead.here, lead.clock, lead.guard_endpoint, lead.nodes, lead.running,
                                           lead.reach, node, live.number), node)


def probe_missing(
    here: Here, clock: Clock, guards: GuardEndpoint, nodes: Nodes, running: RunningAttempt, reach: Reach, node: str,
    number: int
) -> Step:
    """Test such a node by a helper step. One that runs steps may go without a guard for good: it is seldom asked."""
    result = yield here.world.command(guards.fencer.helper(node, ["true"]), here.job.env, ASKS_S)
    overlap.note_result(here.job, nodes, result)
    if silence.is_missing_by_probe(
            is_same_attempt=running.live is not None and running.live.number == number,
            has_guard=bool(guards.server.of(node)),
            has_given_up=result is not None and slurmtext.has_given_up_node(result.stderr)):
        since_s = clock.now_s - running.launched_s
        reach.lose(node, f"it has not answered in {since_s:.0f} s since the start, and Slurm could start nothing there")
        return
    yield MISSING_AGAIN_S


def add_exit(clock: Clock, running: RunningAttempt, exit: Exit) -> None:
    """Note a task's end; the first report counts."""
    running.note_task_end(exit, clock.now, clock.now_s)
