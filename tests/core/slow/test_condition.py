"""What the nodes show when steps become longer: named is only the one that differs clearly, and alone."""

from __future__ import annotations

import random

from safelaunch.core.checks.results import OK, SKIPPED, CheckReport, CheckResult
from safelaunch.core.slow.condition import FIGURES, SAME, compare
from tests.tables import each

USUAL = {"steal": 0.1, "foreign_cpu": 0.05, "cpu_clock": 3000.0, "temperature": 55.0, "nic_errors": 12.0,
         "gpu_clock": 1980.0, "gpu_temperature": 62.0, "gpu_slowed": 0.0, "cpu_throttled": 0.0, "ib_errors": 3.0}


def report(node: str, **odd: float) -> CheckReport:
    return CheckReport(node, "condition", tuple(
        CheckResult(name, "", OK, "", {"value": value, "unit": FIGURES[name].unit})
        for name, value in {**USUAL, **odd}.items()))


@each(("name", "odd", "verdict"), [
    ("stolen time", {"steal": 12.0}, "n2 differs: CPU time stolen 12 %, others 0.1 %"),
    ("another user", {"foreign_cpu": 3.0}, "n2 differs: CPU of other users 3 cores, others 0.05 cores"),
    ("a throttled GPU", {"gpu_clock": 1300.0, "gpu_slowed": 1.0},
     "n2 differs: GPU clock 1300 MHz, others 1980 MHz; GPUs slowed by heat or power 1, others 0"),
    ("a link with errors", {"ib_errors": 5000.0}, "n2 differs: InfiniBand errors 5000, others 3"),
    ("a little stolen", {"steal": 1.5}, SAME),
    ("a little warmer", {"temperature": 65.0}, SAME),
    ("cooler, faster", {"temperature": 30.0, "gpu_clock": 2400.0}, SAME),
    ("nothing", {}, SAME),
])
def test_one_node_that_is_worse_than_the_others_by_enough_is_named(
    name: str, odd: dict[str, float], verdict: str,
) -> None:
    assert compare([report("n0"), report("n1"), report("n2", **odd), report("n3")], {}).verdict == verdict


def test_what_spreads_over_the_nodes_names_none_of_them() -> None:
    dice = random.Random(7)
    spread = [report(f"n{number}", steal=dice.uniform(0, 30), temperature=dice.uniform(40, 80)) for number in range(48)]
    assert compare(spread, {}).verdict == SAME
    two = compare([report("n0", steal=20.0), report("n1", steal=20.0), *(report(f"n{n}") for n in range(2, 9))], {})
    assert two.verdict == "2 nodes differ (n0, n1): no single one is named" and set(two.odd) == {"n0", "n1"}


def test_what_cannot_be_compared_is_said() -> None:
    found = compare([report("n0"), report("n1", steal=90.0)], {"n2": "did not answer in time"})
    assert found.verdict == "2 nodes have answered: nothing to compare" and not found.odd
    assert found.lines["n2"] == "no answer: did not answer in time"
    assert "CPU time stolen 90 %" in found.lines["n1"]
    bare = CheckReport("n3", "condition", (CheckResult("steal", "", SKIPPED, "", {}), CheckResult("new", "", OK, "", {
        "value": 1.0})))
    assert compare([bare], {}).lines == {"n3": "nothing could be read"}
