"""Sites on which no job step runs beside the training: what a supervisor does instead.

Helper steps (standby, hang checks, sweeps) and relaunches use --overlap. A site can refuse that (cli_filter), or drop
the option (a script around srun). Then a helper step waits for the training's end, takes its place, and the next
attempt waits without end (both seen in a drill). So once srun says that, there is no standby and no hang check. A fence
waits for the lease, and attempts start as steps of their own.
"""

from __future__ import annotations

from typing import TypeGuard

from safelaunch.decide.facts.seen import Live
from safelaunch.guard.io.job import Allocation
from safelaunch.slurm import slurmtext
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Result
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.endpoint import GuardEndpoint
from safelaunch.supervisor.state.nextjob import NextJob
from safelaunch.supervisor.state.nodes import Nodes
from safelaunch.supervisor.state.standbys import Standbys
from safelaunch.supervisor.state.tasks import Step, Work

WAITS_S = 3.0    # srun asks again after a second; Slurm knows by then that an earlier step has ended
SILENT_S = 10.0  # from 24.11 on srun waits without a message (measured on 24.11.5)
ASK_EVERY_S = 10.0


def note_result(job: Allocation, nodes: Nodes, result: Result | None) -> None:
    """Take in what srun said of a helper step."""
    if result is not None and not result.is_ok:
        note_words(job, nodes, result.stderr)


def note_words(job: Allocation, nodes: Nodes, said: str) -> None:
    """Take in the messages of a helper step's srun: after a refusal nothing uses --overlap."""
    why = slurmtext.why_no_overlap(said)
    if why is not None and not job.is_local:
        nodes.refuse_helpers(why)


def detect_blocked_attempt(lead: Leader) -> None:
    """See whether the attempt itself waits for what a helper step holds. No guard is connected then, and its srun says
    so, or Slurm lists the standby's step and none of the attempt.
    """
    live, process = lead.live, lead.process
    if process is None or lead.nodes.no_overlap is not None or not _is_missing(live, lead.guard_endpoint):
        return
    since_s = lead.now_s - lead.running.launched_s
    if since_s >= WAITS_S:
        note_words(lead.job, lead.nodes, process.tail().decode(errors="replace"))
    if since_s >= SILENT_S and lead.nodes.no_overlap is None and lead.standbys.node is not None:
        lead.tasks.begin(Work.COUNT_STEPS,
                         _count_steps(lead.job, lead.guard_endpoint, lead.running, lead.nodes, lead.standbys, lead.next,
                                      live))


def _is_missing(live: Live | None, guards: GuardEndpoint) -> TypeGuard[Live]:
    """Whether an attempt after the first has shown no sign of life so far."""
    return live is not None and live.number > 1 and not live.exits and not guards.server.guards


def _count_steps(
    job: Allocation, guards: GuardEndpoint, running: RunningAttempt, nodes: Nodes, standbys: Standbys,
    next_job: NextJob, asked: Live
) -> Step:
    """Ask Slurm for the steps of the job: one is the standby's, which answers."""
    result = yield next_job.successor.run(slurm.squeue_steps(job.id))
    live = running.live
    if _is_missing(live, guards) and live.number == asked.number and standbys.node is not None \
            and result is not None and result.is_ok and len(slurmtext.parse_steps(result.stdout)) == 1:
        nodes.refuse_helpers("the attempt has no step as long as the standby has one")
    yield ASK_EVERY_S
