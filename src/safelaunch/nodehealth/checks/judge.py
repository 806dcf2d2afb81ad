"""Which nodes a training can use: good, slow or odd, failed, or silent; each with its reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from safelaunch.nodehealth.checks.compare import compare
from safelaunch.nodehealth.checks.results import FAILED, OK, CheckReport


class NodeState(Enum):
    """What the checks say of a node, the worst first."""

    NO_ANSWER = "no answer"
    FAILED = "failed"
    ODD = "slow or odd"
    GOOD = "good"


# Failures of these slow a training down, and do not stop it; a site's word for a GPU may be any.
SLOWING = frozenset(("load", "memory", "stuck", "clock", "limits", "gpu_model", "gpu_clocks", "gpu_pcie", "bandwidth"))


class JudgedNode(NamedTuple):
    """A node, its state, and why."""

    node: str
    state: NodeState
    reasons: tuple[str, ...]


class JudgedNodes(NamedTuple):
    """All nodes, the worst first, and what differs without an odd one."""

    nodes: tuple[JudgedNode, ...]
    ties: tuple[str, ...] = ()


def judge(reports: Sequence[CheckReport], silent: Mapping[str, str] | None = None) -> JudgedNodes:
    """The state of each node; `silent`: node → why it gave no answer."""
    compared = compare(reports)
    apart: dict[str, list[str]] = {}
    for one in compared.differences:
        apart.setdefault(one.node, []).append(one.why)
    found = [JudgedNode(node, NodeState.NO_ANSWER, (why,)) for node, why in (silent or {}).items()]
    found += [_judge_one(report, apart.get(report.node, [])) for report in reports]
    order = list(NodeState)
    return JudgedNodes(tuple(sorted(found, key=lambda one: order.index(one.state))), compared.ties)


def _judge_one(report: CheckReport, apart: list[str]) -> JudgedNode:
    bad = [result for result in report.results if result.outcome == FAILED]
    odd = [result for result in report.results if result.outcome == OK and result.facts.get("odd") is True]
    reasons = (*(f"{result.title}: {result.why}" for result in bad + odd), *apart)
    if any(result.name not in SLOWING for result in bad):
        return JudgedNode(report.node, NodeState.FAILED, reasons)
    if reasons:
        return JudgedNode(report.node, NodeState.ODD, reasons)
    if not report.count(OK):   # nothing is wrong, and nothing is known to be right
        return JudgedNode(report.node, NodeState.ODD, report.notes or ("nothing could be checked",))
    return JudgedNode(report.node, NodeState.GOOD, ())
