"""Sites on which no job step runs beside the training: what a supervisor does instead.

Helper steps (standby, hang checks, sweeps) and relaunches use --overlap. A site can refuse that (cli_filter), or drop
the option (a script around srun). Then a helper step waits for the training's end, takes its place, and the next
attempt waits without end (both seen in a drill). So once srun says that, there is no standby and no hang check. A fence
waits for the lease, and attempts start as steps of their own.
"""

from __future__ import annotations

from typing import TypeGuard

from safelaunch.decide.facts.seen import Live
from safelaunch.slurm import slurmtext
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Result
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.state.endpoint import GuardEndpoint
from safelaunch.supervisor.state.nodes import Nodes
from safelaunch.supervisor.state.ports import Say
from safelaunch.supervisor.state.standbys import Standbys
from safelaunch.supervisor.state.tasks import Step, Work

WAITS_S = 3.0    # srun asks again after a second; Slurm knows by then that an earlier step has ended
SILENT_S = 10.0  # from 24.11 on srun waits without a message (measured on 24.11.5)
ASK_EVERY_S = 10.0


def note_result(lead: Leader, result: Result | None) -> None:
    """Take in what srun said of a helper step."""
    if result is not None and not result.is_ok:
        note_words(lead, result.stderr)


def note_words(lead: Leader, said: str) -> None:
    """Take in the messages of a helper step's srun: after a refusal nothing uses --overlap."""
    why = slurmtext.why_no_overlap(said)
    if why is not None and lead.nodes.no_overlap is None and not lead.job.is_local:
        _do_without(lead.guard_endpoint, lead.nodes, lead.standbys, lead.say, why)


def _do_without(guards: GuardEndpoint, nodes: Nodes, standbys: Standbys, say: Say, why: str) -> None:
    nodes.refuse_helpers(why)
    guards.fencer.do_without_helpers(why)
    say(f"no step can run beside the training on this cluster ({why}): there is no standby and no hang check, "
        f"and a restart waits for a lease")
    if standbys.process is not None:
        standbys.process.terminate()


def detect_blocked_attempt(lead: Leader) -> None:
    """See whether the attempt itself waits for what a helper step holds. No guard is connected then, and its srun says
    so, or Slurm lists the standby's step and none of the attempt.
    """
    live, process = lead.live, lead.process
    if process is None or lead.nodes.no_overlap is not None or not _is_missing(live, lead.guard_endpoint):
        return
    since_s = lead.now_s - lead.running.launched_s
    if since_s >= WAITS_S:
        note_words(lead, process.tail().decode(errors="replace"))
    if since_s >= SILENT_S and lead.nodes.no_overlap is None and lead.standbys.node is not None:
        lead.tasks.begin(Work.COUNT_STEPS, _count_steps(lead, live))


def _is_missing(live: Live | None, guards: GuardEndpoint) -> TypeGuard[Live]:
    """Whether an attempt after the first has shown no sign of life so far."""
    return live is not None and live.number > 1 and not live.exits and not guards.server.guards


def _count_steps(lead: Leader, asked: Live) -> Step:
    """Ask Slurm for the steps of the job: one is the standby's, which answers."""
    result = yield lead.successor.run(slurm.squeue_steps(lead.job.id))
    live = lead.live
    if _is_missing(live, lead.guard_endpoint) and live.number == asked.number and lead.standbys.node is not None \
            and result is not None and result.is_ok and len(slurmtext.parse_steps(result.stdout)) == 1:
        _do_without(lead.guard_endpoint, lead.nodes, lead.standbys, lead.say,
                    "the attempt has no step as long as the standby has one")
    yield ASK_EVERY_S
