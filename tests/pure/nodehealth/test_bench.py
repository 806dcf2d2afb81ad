"""What many nodes measured, compared and shown."""

from __future__ import annotations

import json

from safelaunch.nodehealth.checks.results import CheckReport, parse_report
from safelaunch.nodehealth.pairs import BusVerdict, NodeLink
from safelaunch.nodehealth.slow.bench import Speed, add_links, judge_speed, measure_again, next_commands, speed_table

NODES = ("n0", "n1", "n2", "n3")


def report(node: str, value: float, outcome: str = "ok", device: str = "cpu", name: str = "matmul") -> CheckReport:
    row = {"name": name, "item": "", "outcome": outcome, "why": "why", "took_s": 1,
           "facts": {"value": value, "unit": "GFLOP/s", "device": device} if outcome == "ok" else {}}
    return parse_report(json.dumps({"v": 1, "node": node, "checks": [row]}))


def told(reports: list[CheckReport], silent: dict[str, str] | None = None) -> dict[str, Speed]:
    return {one.node: one.speed for one in judge_speed([reports] * 3, silent or {}, 0.015)}


def test_the_slow_node_is_named_with_the_command_that_keeps_it_out() -> None:
    judged = judge_speed([[report(node, 9.0 if node == "n2" else 10.0) for node in NODES]] * 3, {}, 0.015)
    assert (judged[0].node, judged[0].speed) == ("n2", Speed.SLOW)
    assert all(one.speed == Speed.GOOD for one in judged[1:])
    assert next_commands(judged) == ['safelaunch nodes suspect n2 --why "slow in nodes bench: matmul"']
    assert speed_table(judged)[1].split()[:3] == ["n2", "9", "GFLOP/s"] and "10 % slower" in speed_table(judged)[1]


def test_a_node_of_another_device_is_not_compared_and_not_called_good() -> None:
    reports = [report(node, 1.0 if node == "n2" else 10.0, device="plain" if node == "n2" else "GPU") for node in NODES]
    assert told(reports) == {"n0": Speed.GOOD, "n1": Speed.GOOD, "n2": Speed.UNKNOWN, "n3": Speed.GOOD}


def test_a_node_without_any_measurement_is_unknown_and_never_good() -> None:
    reports = [report(node, 1.0, "skipped" if node == "n0" else "unknown" if node == "n1" else "ok") for node in NODES]
    assert (told(reports)["n0"], told(reports)["n1"]) == (Speed.UNKNOWN, Speed.UNKNOWN)


def test_a_failed_measurement_and_no_answer_are_told_as_such() -> None:
    reports = [report(node, 1.0, "failed" if node == "n0" else "ok") for node in NODES[:3]]
    found = told(reports, {"n3": "did not answer"})
    assert (found["n0"], found["n3"]) == (Speed.FAILED, Speed.NO_ANSWER)


def test_a_slow_shared_disk_makes_no_node_slow() -> None:
    reports = [report(node, 0.1 if node == "n2" else 1.0, name="disk_write") for node in NODES]
    assert Speed.SLOW not in told(reports).values() and measure_again([reports], 0.015) == ((), ())


def test_rates_that_are_no_positive_number_are_left_out() -> None:
    reports = [report(node, value) for node, value in zip(NODES, (0.0, -1.0, float("nan"), 1.0), strict=True)]
    assert set(told(reports).values()) == {Speed.UNKNOWN}


def test_a_badly_connected_node_is_slow_and_an_undecided_pair_makes_none_slow() -> None:
    judged = judge_speed([[report(node, 10.0) for node in NODES]] * 3, {}, 0.015)
    links = {"n0": NodeLink(BusVerdict.GOOD, 5.0), "n1": NodeLink(BusVerdict.BAD, None, "bus with n0: hangs"),
             "n2": NodeLink(BusVerdict.UNKNOWN, None, "bus with n3: hangs", is_suspected=True),
             "n3": NodeLink(BusVerdict.UNKNOWN, None, "bus: was not measured")}
    found = add_links(judged, links)
    assert [(one.node, one.speed) for one in found] == [
        ("n1", Speed.SLOW), ("n2", Speed.UNKNOWN), ("n0", Speed.GOOD), ("n3", Speed.GOOD)]
    assert next_commands(found) == ['safelaunch nodes suspect n1 --why "slow in nodes bench: bus"']
    assert speed_table(found)[0].split() == ["node", "matmul", "bus", "z", "verdict", "why"]
