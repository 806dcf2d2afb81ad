"""What an all-reduce with two partners says of a node, as one of its checks."""

from __future__ import annotations

from safelaunch.decide.nodes.checks import weigh
from safelaunch.nodehealth.checks.allreduce import add_links
from safelaunch.nodehealth.checks.judge import NodeState, judge
from safelaunch.nodehealth.checks.results import OK, CheckReport, CheckResult
from safelaunch.nodehealth.checks.show import log_lines
from safelaunch.nodehealth.pairs import PairRate, first_pairs, judge_pairs, second_pairs

NODES = ("a", "b", "c", "d")
FULL = CheckResult("space", "/scratch", OK, "", {})


def told(bad: str, gb_s: float | None) -> tuple[CheckReport, ...]:
    rates = [[PairRate(pair, gb_s if bad in pair else 10.0, "no answer in time") for pair in pairs]
             for pairs in (first_pairs(NODES), ())]
    second = [PairRate(pair, gb_s if bad in pair else 10.0, "no answer in time")
              for pair in second_pairs(rates[0], NODES, 0.015)]
    links = judge_pairs(rates[0], second, 0.015)
    return add_links([CheckReport(node, "light", (FULL,)) for node in NODES], NODES, links)


def test_a_node_that_fails_with_two_partners_has_failed_and_one_that_is_slower_is_used() -> None:
    found = weigh(told("c", None), {})
    assert [(one.node, one.checks) for one in found.failed] == [("c", ("allreduce",))]
    assert "no answer in time" in found.failed[0].why and set(found.passed) == {"a", "b", "d"}
    slower = told("c", 5.0)
    assert set(weigh(slower, {}).passed) == set(NODES)
    assert judge(slower).nodes[0][:2] == ("c", NodeState.ODD)


def test_where_nobody_could_take_part_nothing_is_said_of_any_node() -> None:
    reports = add_links([CheckReport("a", "light", (FULL,))], (), {}, "no time was left for it")
    assert weigh(reports, {}).passed == ("a",) and reports[0].results[-1].outcome == "skipped"


def test_the_log_has_the_words_of_an_all_reduce_and_its_bandwidth() -> None:
    good, bad = (log_lines(report, "-") for report in told("c", 5.0)[1:3])
    assert "- AllReduce Check: Succeed" in good and "- AllReduce BusBW: 10.0 GB/s" in good
    assert any(line.startswith("- AllReduce Check: failed: bus with d: 5 GB/s, others") for line in bad), bad
