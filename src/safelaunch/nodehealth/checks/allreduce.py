"""What all-reduces of pairs of nodes say (nodehealth.pairs), as a check of each node.

A node that fails with two partners has failed. One that is only slower with both is slow: it is used, and told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from safelaunch.nodehealth.checks.results import FAILED, OK, SKIPPED, UNKNOWN, CheckReport, CheckResult
from safelaunch.nodehealth.pairs import BusVerdict, NodeLink

NAME, SLOW_NAME = "allreduce", "bandwidth"   # the second one slows a training down (nodehealth.checks.judge)


def add_links(reports: Sequence[CheckReport], asked: Sequence[str], links: Mapping[str, NodeLink],
              why_not: str = "") -> tuple[CheckReport, ...]:
    """The reports with this check. `asked`: the nodes that took part; `why_not`: why none could."""
    return tuple(report._replace(results=(*report.results, _result(report.node, asked, links, why_not)))
                 for report in reports)


def _result(node: str, asked: Sequence[str], links: Mapping[str, NodeLink], why_not: str) -> CheckResult:
    link = links.get(node)
    if link is None:
        left_over = "no node was left to try it with, or no time"
        why = why_not or (left_over if node in asked else "another check has failed on it")
        return CheckResult(NAME, "", SKIPPED, why, {})
    facts = {} if link.gb_s is None else {"gb_s": link.gb_s}
    if link.link == BusVerdict.BAD:
        return CheckResult(NAME if link.gb_s is None else SLOW_NAME, "", FAILED, link.why, facts)
    if link.link == BusVerdict.GOOD:
        return CheckResult(NAME, "", OK, link.why, facts)
    return CheckResult(NAME, "", UNKNOWN if link.is_suspected else SKIPPED, link.why, facts)
