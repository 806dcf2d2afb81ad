"""What many nodes say of themselves: read, compared, judged and shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safelaunch.errors import ParseError
from safelaunch.node.checks.table import CHECKS
from safelaunch.nodehealth.checks import ranksoftware, show
from safelaunch.nodehealth.checks.compare import compare
from safelaunch.nodehealth.checks.judge import NodeState, judge
from safelaunch.nodehealth.checks.names import CHECK_NAMES
from safelaunch.nodehealth.checks.results import MOST_RESULTS, CheckReport, CheckResult, parse_report
from safelaunch.nodehealth.checks.show import check_table, log_lines, node_table
from tests.hostile import values
from tests.tables import each


def result(name: str, outcome: str = "ok", why: str = "", item: str = "", **facts: Any) -> CheckResult:
    return CheckResult(name, item, outcome, why, facts)


def node(name: str, *results: CheckResult) -> CheckReport:
    return CheckReport(name, "light", (result("shm"), *results))


def nodes(*drivers: str) -> list[CheckReport]:
    return [node(f"n{number}", result("gpu_driver", driver=driver)) for number, driver in enumerate(drivers)]


def states(*reports: CheckReport) -> dict[str, NodeState]:
    return {one.node: one.state for one in judge(reports).nodes}


def test_each_check_can_be_left_out_by_its_name() -> None:
    assert tuple(check.name for check in CHECKS) == CHECK_NAMES


def test_an_answer_is_read() -> None:
    line = json.dumps({"v": 1, "node": "n7", "t": 1.0, "took_s": 2.5, "level": "full", "notes": ["x"], "checks": [
        {"name": "rw", "item": "/a", "outcome": "ok", "why": "w", "facts": {"read_gb_s": 5.9}, "took_s": 1.5}]})
    report = parse_report(line)
    assert (report.node, report.level, report.notes, report.took_s) == ("n7", "full", ("x",), 2.5)
    assert report.results == (CheckResult("rw", "/a", "ok", "w", {"read_gb_s": 5.9}, 1.5),)
    assert parse_report(line, "n9").node == "n9"   # who was asked counts, not who it says it is


@each("line", ["", "{", "[]", "null", "7", '{"checks": 3}', '{"v": 1}', "\0\xff", "[" * 100_000, "x" * (5 << 20)])
def test_an_answer_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(ParseError, match="of node n1"):
        parse_report(line, "n1")


@each("row", [7, None, [], {}, {"name": 3}, {"outcome": "fine"}, {"outcome": ["ok"]}, {"facts": "many"},
              {"took_s": float("nan")}, {"took_s": True}, {"why": "w" * 10_000}])
def test_an_odd_row_is_unknown_and_never_ok(row: Any) -> None:
    report = parse_report(json.dumps({"checks": [row]}), "n1")
    assert all(one.outcome == "unknown" and len(one.why) <= 550 for one in report.results)
    assert states(report)["n1"] is NodeState.ODD


def test_an_answer_of_a_million_rows_is_cut() -> None:
    line = json.dumps({"checks": [{}] * (MOST_RESULTS + 9)})
    assert len(parse_report(line, "n1").results) == MOST_RESULTS


@each("value", [True, "7", None, [], float("nan"), float("inf"), 10 ** 400])
def test_a_fact_that_is_no_number_is_none(value: Any) -> None:
    assert result("rw", read_gb_s=value).number("read_gb_s") is None


_JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | values,
                     lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
                     max_leaves=6)
_ROW = st.fixed_dictionaries({
    "name": st.sampled_from(["rw", "python", "gpu_driver", "torch", "gpu_count"]) | values,
    "item": st.sampled_from(["", "/a"]) | values, "outcome": st.sampled_from(["ok", "failed", "skipped"]) | values,
    "why": values, "facts": st.dictionaries(st.sampled_from(["driver", "modules", "digest", "read_gb_s", "count"]),
                                            _JSON) | _JSON})


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.lists(_ROW, max_size=3), min_size=3, max_size=4))
def test_no_answer_of_a_node_breaks_or_writes_to_the_terminal(rows: list[list[dict[str, Any]]]) -> None:
    reports = [parse_report(json.dumps({"checks": one}), f"n{number}") for number, one in enumerate(rows)]
    shown = [*node_table(judge(reports)), *check_table(reports[0]), *log_lines(reports[0], "now")]
    assert all("\x1b" not in line and "\n" not in line and "\r" not in line for line in shown)


def test_the_odd_node_out_is_named_with_what_it_has_and_what_others_have() -> None:
    compared = compare(nodes("550", "535", "550", "550"))
    assert [(one.node, one.why) for one in compared.differences] == [("n1", "driver: 535, but 550 on 3 nodes")]
    assert compared.ties == ()


def test_a_tie_names_no_node_and_says_that_it_is_unknown() -> None:
    compared = compare(nodes("550", "535", "550", "535"))
    assert compared.differences == ()
    assert compared.ties == ("driver: 535 on n[1,3], 550 on n[0,2]: which is right is unknown",)


def test_two_nodes_that_differ_are_a_tie() -> None:
    assert compare(nodes("550", "535")).differences == ()


def test_equal_nodes_differ_in_nothing_and_one_alone_is_compared_with_nobody() -> None:
    assert compare(nodes("550", "550", "550")) == compare(nodes("550")) == ((), ())


def test_a_node_without_gpus_stands_apart_from_those_that_have_some() -> None:
    reports = [*nodes("550", "550"), node("n2", result("gpu_driver", "skipped", "no GPU"))]
    assert [one.why for one in compare(reports).differences] == ["driver: none, but 550 on 2 nodes"]


def test_what_a_node_could_not_tell_is_compared_with_nothing() -> None:
    reports = [*nodes("550", "550"), node("n2", result("gpu_driver", "unknown", "no answer"))]
    assert compare(reports) == ((), ())


def test_modules_that_differ_are_named() -> None:
    reports = [node(f"n{number}", result("python", digest=digest, modules={"torch": torch, **more}))
               for number, (digest, torch, more) in enumerate(
                   [("a", "2.5.1", {}), ("a", "2.5.1", {}), ("b", "2.4.0", {"extra": "1"})])]
    assert [one.why for one in compare(reports).differences] == [
        "modules: extra 1, but missing; torch 2.4.0, but 2.5.1 on 2 nodes"]


def test_a_node_that_reads_at_less_than_half_the_rate_of_the_middle_one_is_slow() -> None:
    reports = [node(f"n{number}", result("rw", item="/s", read_gb_s=rate, write_gb_s=0.7))
               for number, rate in enumerate((5.9, 5.3, 2.0, 4.5))]
    assert [(one.node, one.why) for one in compare(reports).differences] == [
        ("n2", "reads /s at 2.000 GB/s, the middle node at 4.900")]
    assert compare(reports[1:3]).differences == ()   # of two nobody knows which is slow


@each(("told", "said"), [
    ([("3.11.7", "2.5.1"), ("3.11.7", "2.5.1"), ("3.10.2", "2.5.1")], ["n2 Python: 3.10.2, but 3.11.7 on 2 nodes"]),
    ([("3.11.7", "2.5.1"), ("3.11.7", None), ("3.11.7", "2.5.1")], ["n1 PyTorch: none, but 2.5.1 on 2 nodes"]),
    ([("3.11.7", "2.5.1"), (None, None), ("3.11.7", "2.5.1")], []),
    ([("3.11.7", None)] * 3, []),
])
def test_what_ranks_run_in_is_compared(told: list[tuple[str | None, str | None]], said: list[str]) -> None:
    reports = [ranksoftware.read(f"n{number}", {"python": python, "torch": torch, "executable": 7})
               for number, (python, torch) in enumerate(told)]
    compared = compare([one for one in reports if one is not None])
    assert [f"{one.node} {one.why}" for one in compared.differences] == said


@each("told", [None, [], 7, "x", {}, {"python": 3}, {"python": None, "torch": "2"}])
def test_ranks_that_tell_nothing_of_their_software_are_compared_with_nobody(told: object) -> None:
    assert ranksoftware.read("n1", told) is None


def test_each_node_has_a_state_and_the_worst_come_first() -> None:
    reports = [node("n0"), node("n1", result("load", "failed", "load 99")),
               node("n2", result("gpu_ecc", "failed", "3 errors"), result("load", "failed", "load 99"))]
    judged = judge(reports, {"n3": "did not answer in time"})
    assert [(one.node, one.state.value) for one in judged.nodes] == [
        ("n3", "no answer"), ("n2", "failed"), ("n1", "slow or odd"), ("n0", "good")]
    assert judged.nodes[1].reasons == ("gpu_ecc: 3 errors", "load: load 99")


def test_a_node_is_odd_by_a_check_that_passes_and_says_so() -> None:
    odd = result("gpu_ecc", "ok", "a row remap waits for a reset", odd=True)
    assert judge([node("n1", odd)]).nodes == (("n1", NodeState.ODD, ("gpu_ecc: a row remap waits for a reset",)),)
    failed = result("gpu_ecc", "failed", "a row remap failed")
    assert judge([node("n1", odd, failed)]).nodes[0].state is NodeState.FAILED


def test_a_node_of_which_nothing_is_known_is_not_good() -> None:
    report = CheckReport("n1", "light", (result("memory", "unknown", "x"), result("gpu_count", "skipped", "no GPU")))
    assert judge([report]).nodes[0] == ("n1", NodeState.ODD, ("nothing could be checked",))


def test_what_is_unknown_or_skipped_makes_no_node_bad() -> None:
    assert states(node("n1", result("clock", "unknown"), result("gpu_count", "skipped")))["n1"] is NodeState.GOOD


def test_nodes_of_the_same_state_and_reasons_share_a_line() -> None:
    reports = [node(f"n{number}") for number in range(14)] + [node("n14", result("gpu_count", "failed", "7 GPUs"))]
    assert node_table(judge(reports)) == [
        "state   nodes    why", "failed  n14      gpu_count: 7 GPUs", "good    n[0-13]  -"]


def test_ties_stand_below_the_nodes() -> None:
    assert node_table(judge(nodes("550", "535")))[-1].startswith("unknown  -       driver: 535 on n1, 550 on n0")


def test_a_log_of_a_node_reads_as_people_know_it() -> None:
    report = node("n7", result("rw", "ok", "", "/scratch", read_gb_s=5.9, write_gb_s=0.663),
                  result("rw", "failed", "no answer within 30 s", "/home"), result("gpu_count", count=8),
                  result("gpu_model", model="NVIDIA H100"), result("gpu_driver", driver="550.54", cuda="12.4"),
                  result("torch", "skipped"), result("gpu_ecc", "failed", "3 uncorrectable errors"))
    assert log_lines(report, "2024-08-05 18:11:18") == [f"2024-08-05 18:11:18 {line}" for line in (
        "Start to check n7", "DiskTest /scratch: Succeed", "/scratch RW TEST: 5.9 GB/s 663 MB/s",
        "DiskTest /home: failed: no answer within 30 s", "GPU Number: 8", "GPU Type: NVIDIA H100",
        "Driver Version: 550.54", "CUDA Version: 12.4", "gpu_ecc: failed: 3 uncorrectable errors",
        "Check Finished, 5 ok, 2 failed, 1 skipped")]


def test_a_tool_that_fails_is_told_once_and_not_for_each_check_that_needs_it() -> None:
    hung = "nvidia-smi gave no answer in time"
    report = node("n7", result("gpu_count", "failed", hung), result("gpu_model", "unknown", hung),
                  result("gpu_ecc", "unknown", hung), result("clock", "unknown", "no time service"))
    assert log_lines(report, "now")[1:-1] == ["now gpu_count: failed: nvidia-smi gave no answer in time",
                                              "now clock: unknown: no time service"]


@each(("results", "said"), [
    ((("gpu_alone", "ok"), ("gpu_together", "ok")), "n1: the GPUs do known work right. Look at the program next"),
    ((("gpu_alone", "ok"), ("gpu_together", "skipped"), ("rw", "failed")), "do known work right"),
    ((("gpu_alone", "skipped"), ("gpu_together", "skipped")), "no GPU was tried"),
    ((("gpu_alone", "unknown"), ("gpu_together", "unknown")), "no GPU was tried"),
    ((("gpu_alone", "ok"), ("gpu_together", "unknown")), "no GPU was tried"),
    ((("gpu_alone", "failed"), ("gpu_together", "ok")), "n1: something is wrong there without your program"),
    ((("gpu_alone", "ok"), ("gpu_together", "ok"), ("gpu_ecc", "failed")), "something is wrong there"),
    ((), "no GPU was tried"),
], ids=str)
def test_isolation_blames_the_hardware_or_names_the_program_next_or_says_nothing(
    results: tuple[tuple[str, str], ...], said: str
) -> None:
    report = CheckReport("n1", "isolate", tuple(CheckResult(name, "", outcome, "", {}) for name, outcome in results))
    assert said in show.isolation([report])
