"""The checks of a job's nodes before its first attempt: whom to ask, what the answers mean, and when no job can start.

Laws:
- Nobody is asked twice in one job: a restart in place never waits for a check.
- A node that did not answer, or could not be asked, is unknown, and is used.
- What fails on more than half of several nodes says nothing about one of them: they are used, as sbatch would do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from safelaunch.core import nodefold
from safelaunch.core.checks.judge import SLOWING
from safelaunch.core.checks.results import FAILED, CheckReport, CheckResult
from safelaunch.core.decide.nodes import begins_nothing, good_nodes
from safelaunch.core.decide.seen import Observation
from safelaunch.core.plan import Plan
from safelaunch.core.state import State

MOST_WHY = 300   # characters of one node's reasons


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


def unchecked(state: State, seen: Observation, plan: Plan) -> tuple[str, ...]:
    """The nodes to check before the next attempt; () = none, or the run wants no checks."""
    last = state.attempt
    has_started = last is not None and state.job is not None and last.job == state.job.id
    if not plan.checks.boot or (has_started and not state.checked):
        return ()   # an attempt of this job ran on them, under a supervisor that could not tell
    return tuple(node for node in good_nodes(state, seen) if node not in state.checked)


def weigh(reports: Sequence[CheckReport], silent: Mapping[str, str]) -> BootResult:
    """Who has passed, failed, or is unknown; `silent`: node → why it gave no answer."""
    bad = {report.node: [result for result in report.results if _is_bad(result)] for report in reports}
    counts = Counter(title for results in bad.values() for title in {result.title for result in results})
    shared = {title for title, count in counts.items() if len(reports) > 1 and 2 * count > len(reports)}
    own = {node: [result for result in results if result.title not in shared] for node, results in bad.items()}
    blind = tuple(report.node for report in reports if not report.results)   # no Python there, or no time
    return BootResult(
        tuple(node for node, results in own.items() if not results and node not in blind),
        tuple(FailedNode(node, tuple(result.title for result in results),
                         "; ".join(f"{result.title}: {result.why}" for result in results)[:MOST_WHY])
              for node, results in own.items() if results),
        (*blind, *silent), tuple(sorted(shared)))


def _is_bad(result: CheckResult) -> bool:
    return result.outcome == FAILED and result.name not in SLOWING


def why_no_full_set(state: State, seen: Observation, plan: Plan) -> str | None:
    """Why no job of the run can have enough nodes that pass their checks; None = one can, or nobody knows yet."""
    unfit = dict(state.unfit)
    if not unfit or len(good_nodes(state, seen)) >= plan.nodes:
        return None
    kept_out = {*unfit, *state.excluded}
    has_no_others = plan.cluster == "local" or (
        seen.partition is not None and len(set(seen.partition) - kept_out) < plan.allocated_nodes)
    if not has_no_others and not begins_nothing(state):
        return None
    of_each: dict[str, list[str]] = {}
    for node, why in unfit.items():
        of_each.setdefault(why, []).append(node)
    told = "; ".join(f"{nodefold.fold(nodes)} ({why})" for why, nodes in of_each.items())
    return f"the node checks leave fewer than the {plan.nodes} nodes needed: failed on {told}"
