"""The checks of a job's nodes: whom to ask, what the answers mean, and when no job can start. They are made before its
first attempt, and after a failed one.

Laws:
- A restart in place never waits for a check, unless the user wants that (checks.after_failure: before). The boot's
  checks ask nobody twice in one job; those after a failure run in a pause that is made anyway, or beside the restart.
- A node that did not answer, or could not be asked, is unknown, and is used.
- What fails on more than half of several nodes says nothing about one of them: they are used, as sbatch would do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from safelaunch.decide.facts.seen import Observation
from safelaunch.decide.nodes.nodes import begins_nothing, good_nodes
from safelaunch.decide.nodes.resize import next_size
from safelaunch.nodehealth.checks.judge import SLOWING
from safelaunch.nodehealth.checks.results import FAILED, SKIPPED, CheckReport
from safelaunch.run.fold.state import Attempt, State
from safelaunch.run.plan import Plan
from safelaunch.slurm import nodefold, via

MOST_WHY = 300   # characters of one node's reasons
# Checks by which the node itself says that a GPU is broken. Not gpu_xid: the kernel's log goes back to the node's boot.
GPU_FAULTS = frozenset(("gpu_count", "gpu_ecc", "gpu_nvlink", "dcgm"))
MEETING = "port"   # of the first node, which does not try it itself: where all others fail, it may be that node's fault
BESIDE, BEFORE = "beside", "before"   # checks.after_failure
LIGHT_S = 5.0    # all of a light check after a failure
# In a pause they begin so long before its end. By then memory of dead ranks' GPUs has had time to become free, and they
# end in time for the launch.
BEGIN_S, END_S = 8.0, 0.5
MOST_ELSEWHERE, FRESH_S = 4, 6 * 3600.0   # jobs for suspects of the job before, and how old its failure may be
LEAST_S = 2.0    # in less no node answers: two looks at one thing are a second apart


class FailedNode(NamedTuple):
    """A node that has failed checks of its own: which (name and item) and why."""

    node: str
    checks: tuple[str, ...]
    why: str


class BootResult(NamedTuple):
    """What the answers mean. `shared`: what has failed on most nodes, which blames none."""

    passed: tuple[str, ...]
    failed: tuple[FailedNode, ...]
    unknown: tuple[str, ...]
    shared: tuple[str, ...] = ()


def unchecked(state: State, facts: Observation, plan: Plan) -> tuple[str, ...]:
    """The nodes to check before the next attempt; () = none, or the run wants no checks."""
    last = state.attempt
    has_started = last is not None and state.job is not None and last.job == state.job.id
    if not plan.checks.boot or (has_started and not state.checked):
        return ()   # an attempt of this job ran on them, under a supervisor that could not tell
    return tuple(node for node in good_nodes(state, facts) if node not in state.checked)


def unchecked_again(state: State, facts: Observation, plan: Plan, pause_s: float) -> tuple[tuple[str, ...], float]:
    """The nodes to check lightly after a failed attempt, and within how many seconds; () = none now. `pause_s`: what is
    left of the pause before the next attempt, 0 = it can start at once.
    """
    last = state.attempt
    if last is None or not last.has_failed or state.job is None or last.job != state.job.id:
        return (), 0.0
    limit_s = _light_limit_s(plan.checks.after_failure, pause_s)
    if limit_s is None or state.checked_after == last.number:
        return (), 0.0
    return good_nodes(state, facts), limit_s


def _light_limit_s(mode: str, pause_s: float) -> float | None:
    """How long light checks may take now; None = not now."""
    if mode not in (BESIDE, BEFORE) or pause_s > BEGIN_S:
        return None
    if pause_s >= LEAST_S + END_S:
        return min(LIGHT_S, pause_s - END_S)
    return LIGHT_S if mode == BEFORE else None


def suspects_elsewhere(failed: Attempt, job: str, blamed: Sequence[str], job_nodes: Collection[str],
                       now: float) -> tuple[str, ...]:
    """The nodes to check fully, by short jobs of their own. They are blamed for the failure that made the run go on in
    this job, which has got other nodes. () when it waited for long, since a node is another's by then.
    """
    is_fresh = failed.ended_t is not None and abs(now - failed.ended_t) < FRESH_S
    if failed.job == job or not is_fresh:
        return ()
    return tuple(node for node in dict.fromkeys(blamed) if node not in job_nodes)[:MOST_ELSEWHERE]


def suspects_beside(blamed: Sequence[str], job_nodes: Collection[str], used: Collection[str],
                    unreachable: Collection[str]) -> tuple[str, ...]:
    """Nodes to check fully beside an attempt: blamed for the failure before it, in this job, and unused."""
    return tuple(node for node in dict.fromkeys(blamed)
                 if node in job_nodes and node not in used and node not in unreachable)


def weigh(reports: Sequence[CheckReport], silent: Mapping[str, str], usual: Collection[str] = ()) -> BootResult:
    """Who has passed, failed, or is unknown; `silent`: node → why it gave no answer; `usual`: what has failed on most
    nodes of this job before.
    """
    bad = {report.node: [result for result in report.results
                         if result.outcome == FAILED and result.name not in SLOWING] for report in reports}
    counts = Counter(title for results in bad.values() for title in {result.title for result in results})
    met = sum(result.title == MEETING and result.outcome != SKIPPED for report in reports for result in report.results)
    shared = {title for title, count in counts.items() if title in usual or (
        len(reports) > 1 and 2 * count > (met if title == MEETING else len(reports)))}
    own = {node: [result for result in results if result.title not in shared] for node, results in bad.items()}
    blind = tuple(report.node for report in reports if not report.results)   # no Python there, or no time
    return BootResult(
        tuple(node for node, results in own.items() if not results and node not in blind),
        tuple(FailedNode(node, tuple(result.title for result in results),
                         "; ".join(f"{result.title}: {result.why}" for result in results)[:MOST_WHY])
              for node, results in own.items() if results),
        (*blind, *silent), tuple(sorted(shared)))


def kind_of(failed: FailedNode, *, is_suspect: bool) -> str:
    """The kind of evidence (nodehealth.ledger) of a failed check. Where a training has just failed as well, a GPU that
    the node itself calls broken is a fact, and no chance. Two looks of different kinds agree.
    """
    is_gpu = any(title in GPU_FAULTS for title in failed.checks)
    return "gpu" if is_suspect and is_gpu else "checks_failed"


def why_no_full_set(state: State, facts: Observation, plan: Plan) -> str | None:
    """Why no job of the run can have enough nodes that pass their checks; None = one can, or nobody knows yet. A node
    that has failed may be in a job as its unused spare.
    """
    unfit = dict(state.unfit)
    if not unfit or next_size(state, facts, plan):
        return None
    kept_out = {*unfit, *state.excluded}
    has_no_others = not via.has_next_job(plan.cluster) or (
        facts.partition is not None and len(set(facts.partition) - kept_out) < plan.nodes)
    if not has_no_others and not begins_nothing(state):
        return None
    of_each: dict[str, list[str]] = {}
    for node, why in unfit.items():
        of_each.setdefault(why, []).append(node)
    told = "; ".join(f"{nodefold.fold(nodes)} ({why})" for why, nodes in of_each.items())
    return f"the node checks leave fewer than the {plan.nodes} nodes needed: failed on {told}"
