"""What the nodes of a small job say, and what that is judged to mean for a run."""

from __future__ import annotations

from typing import Any

from safelaunch.nodehealth.checks.judge import JudgedNode, JudgedNodes, NodeState
from safelaunch.nodehealth.checks.results import CheckReport, CheckResult
from safelaunch.site.noderows import (
    MEANINGS,
    NO_PYTHON,
    NodeAnswers,
    TeamAccess,
    judge_checks,
    judge_nodes,
    judge_team,
)
from safelaunch.site.sitefolder import CAUTION, NOT_SAFE, OK, UNKNOWN
from tests.tables import each


def report(node: str, **outcomes: tuple[str, str]) -> CheckReport:
    told = dict.fromkeys(MEANINGS, ("ok", "works")) | outcomes
    return CheckReport(node, "", tuple(CheckResult(name, "", *one, {}) for name, one in told.items()))


def met(outcome: str) -> tuple[CheckReport, ...]:
    return (CheckReport("n1", "", (CheckResult("peer", "n0", outcome, "n0 did not answer", {}),)),)


def rows(**changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"reports": (report("n0"), report("n1")), "silent": {}, "met": met("ok"), **changes}
    return {row.check: row for row in judge_nodes(NodeAnswers(**given))}


def test_nodes_that_let_a_run_do_all_have_a_row_for_each_look_and_all_are_ok() -> None:
    found = rows()
    assert list(found) == [*(f"nodes: {name}" for name in MEANINGS), "nodes: ports"]
    assert {row.verdict for row in found.values()} == {OK}
    assert found["nodes: sbatch"].measured == "n[0-1]: works"


@each("name", MEANINGS)
def test_what_one_node_forbids_is_told_with_its_name_and_what_remains(name: str) -> None:
    row = rows(reports=(report("n0"), report("n1", **{name: ("failed", "no such program")})))[f"nodes: {name}"]
    assert row.verdict in (CAUTION, NOT_SAFE) and row.measured == "n1: no such program"
    assert row.setting or "remains" in row.means
    assert rows(reports=(report("n0", **{name: ("unknown", "EIO")}),))[f"nodes: {name}"].verdict == UNKNOWN


def test_nodes_that_do_not_answer_have_no_python_or_fail_are_told() -> None:
    assert rows(silent={"n2": "did not answer in time"})["nodes: answer"].measured == "n2: did not answer in time"
    old = CheckReport("n2", "", (), (NO_PYTHON,))
    assert rows(reports=(old,))["nodes: interpreter"].verdict == NOT_SAFE
    assert rows(reports=(CheckReport("n2", "", (), ("the look failed",)),))["nodes: answer"].verdict == UNKNOWN


def test_nodes_that_cannot_connect_are_not_safe() -> None:
    assert rows(met=met("failed"))["nodes: ports"].verdict == NOT_SAFE


def test_where_nobody_met_or_answered_nothing_is_called_ok() -> None:
    assert judge_nodes(NodeAnswers((), {})) == ()


@each(("team", "verdict"), [
    (TeamAccess("ml", True), OK), (TeamAccess("ml", False), CAUTION), (TeamAccess("ml", trouble="no group"), UNKNOWN),
    (TeamAccess("ml", True, ("/home/me",)), CAUTION)])
def test_a_teams_way_to_the_folder_is_judged(team: TeamAccess, verdict: str) -> None:
    assert judge_team(team).verdict == verdict


def test_nodes_that_fail_their_checks_are_told_and_nodes_that_pass_have_one_row() -> None:
    good, bad = JudgedNode("n0", NodeState.GOOD, ()), JudgedNode("n1", NodeState.FAILED, ("shm: full",))
    assert [row.verdict for row in judge_checks(JudgedNodes((good,), ()))] == [OK]
    (row,) = judge_checks(JudgedNodes((good, bad), ()))
    assert row.verdict == CAUTION and row.measured == "n1: failed: shm: full"
    tie = "clocks: n1 is at least 90.0 s ahead of n0: which is right is unknown"
    assert [(row.verdict, row.measured) for row in judge_checks(JudgedNodes((good,), (tie,)))] == [(CAUTION, tie)]
