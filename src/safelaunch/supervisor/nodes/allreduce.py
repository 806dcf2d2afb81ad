"""The all-reduces between the nodes of a job, before its first attempt (checks.allreduce): pairs in two rounds.

They take what the other checks leave of checks.timeout. Nothing of them runs beside the attempt.
"""

from __future__ import annotations

from collections.abc import Generator

from safelaunch.decide.nodes import checks
from safelaunch.nodehealth.checks import allreduce
from safelaunch.nodehealth.io.nodebench import BenchQuestion
from safelaunch.nodehealth.io.nodechecks import ANSWER_S, CheckedNodes
from safelaunch.nodehealth.slow.fleet import TOLERANCE
from safelaunch.slurm import nodefold
from safelaunch.slurm.io.noderound import Target
from safelaunch.slurm.io.slurm import Result
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.ports import Here, Say
from safelaunch.supervisor.state.tasks import BackgroundTasks

POLL_S = 0.2
ENDS_S = 3.0      # for helpers that were stopped to end
STARTS_S = 1.0    # of a round, for its helpers
LEAST_S = 5.0     # of a round: PyTorch's import alone takes seconds
REPEATS = 3


def measure(
    here: Here, clock: Clock, tasks: BackgroundTasks, say: Say, checked: CheckedNodes, until_s: float
) -> Generator[float, Result | None, CheckedNodes]:
    """The answers with this check of each node; over by `until_s` (monotonic), but for helpers that must end."""
    found = checks.weigh(checked.reports, {})
    bad = {one.node for one in found.failed}
    there = {report.node: report.addresses for report in checked.reports if report.addresses and report.node not in bad}
    each_s = (until_s - ENDS_S - clock.now_s) / 2 - ANSWER_S - STARTS_S   # of each round
    why_not = ""
    if len(there) < 2:
        why_not = "fewer than two nodes that can be asked"
    elif each_s < LEAST_S:
        why_not = "no time was left for it: see checks.timeout"
    if why_not:
        return checked._replace(reports=allreduce.add_links(checked.reports, (), {}, why_not))
    say(f"all-reduce between {nodefold.fold(there)}, in pairs")
    asked = here.world.pairs(Target(here.job.id, tuple(there), is_local=here.job.is_local), here.job.env,
                             BenchQuestion({"repeats": REPEATS}, each_s), TOLERANCE, there)
    while not asked.poll() and clock.now_s < until_s - ENDS_S and not tasks.is_leaving:
        yield POLL_S
    asked.stop()
    while not asked.poll() and clock.now_s < until_s:
        yield POLL_S
    return checked._replace(reports=allreduce.add_links(checked.reports, tuple(there), asked.links()))
