"""Full checks of suspects after a failure, beside the next attempt, which does not use them: no restart waits for this.
Those of the job before, which this one did not get, are checked by short jobs of their own.

A node that passes stays a suspect: many faults come and go, and a check of minutes is no training of hours.
"""

from __future__ import annotations

from safelaunch.decide.nodes.checks import BEFORE, BESIDE, suspects_beside, suspects_elsewhere
from safelaunch.node.checks.answer import DEADLINE_S, FULL
from safelaunch.nodehealth.io.nodechecks import QUEUE_S
from safelaunch.run.plan import Plan
from safelaunch.slurm import nodefold
from safelaunch.supervisor.common.inspection import SETTLED_S
from safelaunch.supervisor.nodes import bootchecks
from safelaunch.supervisor.nodes.bootchecks import STARTS_S, CheckRound
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.helpers import Helpers
from safelaunch.supervisor.state.ports import Say
from safelaunch.supervisor.state.reach import Reach
from safelaunch.supervisor.state.suspicion import Suspicions
from safelaunch.supervisor.state.tasks import BackgroundTasks, Step

POLL_S = 0.5
# Options of the run that say where its jobs run. In a federation `submit` sets clusters: a name is one machine there.
ALIKE = ("partition", "account", "qos", "reservation", "clusters", "gres", "gpus-per-node")


def check(
    suspects: Suspicions, helpers: Helpers, running: RunningAttempt, reach: Reach, tasks: BackgroundTasks, say: Say,
    number: int
) -> Step:
    """Check the nodes that the failure before attempt `number` blames and that nobody uses now, once it runs."""
    here, clock, journal = suspects.here, suspects.clock, suspects.journal
    failed = next((one for one in journal.state.attempts if one.number == number - 1), None)
    if here.plan.checks.after_failure not in (BESIDE, BEFORE) or failed is None or not failed.has_failed:
        return
    yield SETTLED_S
    live = running.live
    if live is None or live.number != number or tasks.is_leaving or (failed.job != here.job.id and here.job.is_local):
        return
    blamed = suspects.nodes.blamed_by(here.plan.run_id, failed.number)
    nodes = suspects_elsewhere(failed, here.job.id, blamed, here.job.nodes, clock.now)
    options = own_job(here.plan) if nodes else None
    nodes = nodes or suspects_beside(blamed, here.job.nodes, live.nodes, dict(reach.lost))
    if not nodes:
        return
    if journal.claim("check suspects") == 0:   # a leader that stood still may lead no more, and another one uses them
        return
    asking = CheckRound(FULL, DEADLINE_S[FULL], failed.number, failed.number, "checks-after.json")
    how = ", by short jobs of their own" if options is not None else ""
    say(f"checking {nodefold.fold(nodes)} fully beside attempt {number}, which does not use "
        f"{'it' if len(nodes) == 1 else 'them'}{how}")
    if options is None and helpers.nodes.no_overlap is not None:
        bootchecks.take_in(suspects, helpers, say, asking, bootchecks.nobody(nodes, helpers.nodes.no_overlap))
        return
    until_s = clock.now_s + asking.limit_s + 2 * STARTS_S + (QUEUE_S if options is not None else 0.0)
    asked = bootchecks.ask(here, nodes, FULL, asking.limit_s, own_job=options)
    while not (is_done := asked.poll()) and clock.now_s < until_s and _may_go_on(tasks, running, nodes):
        yield POLL_S
    asked.stop()
    if is_done or _may_go_on(tasks, running, nodes):   # else it was broken off, and says nothing
        bootchecks.take_in(suspects, helpers, say, asking, asked.checked())
    end_s = clock.now_s + STARTS_S
    while not asked.poll() and clock.now_s < end_s:   # helpers that were stopped are this one's children
        yield POLL_S


def own_job(plan: Plan) -> tuple[str, ...]:
    """srun's options for a job of its own: where the run's jobs run, with all GPUs that the checks are to see. It gives
    up where the node is not free at once.
    """
    own = dict(plan.sbatch)
    found = [f"--{key}={own[key]}" for key in ALIKE if own.get(key)]
    if plan.gpus_per_node and not {"gres", "gpus-per-node"} & own.keys():
        found.append(f"--gpus-per-node={plan.gpus_per_node}")
    return ("--exclusive", *found)


def _may_go_on(tasks: BackgroundTasks, running: RunningAttempt, nodes: tuple[str, ...]) -> bool:
    """Whether the job goes on, and no attempt wants one of the nodes."""
    return not tasks.is_leaving and (running.live is None or not set(nodes) & set(running.live.nodes))
