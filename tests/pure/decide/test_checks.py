"""The checks before an attempt: whom to ask, what the answers mean, and when no job of the run can start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.base.model import CHECK_FAILED, Event
from safelaunch.decide.facts.actions import CheckNodes, Finish, HandOver, Launch, Wait
from safelaunch.decide.nodes.checks import LIGHT_S, FailedNode, kind_of, suspects_beside, suspects_elsewhere, weigh
from safelaunch.launch.settings import ChecksPlan
from safelaunch.nodehealth.checks.results import CheckReport, CheckResult
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.run.plan import Plan
from tests.pure.decide.situations import HOLD, KILL, LOST, NODES, NOW, PLAN, action, row, seen
from tests.tables import each

CHECKING = PLAN._replace(checks=ChecksPlan(boot=True))
LOCAL = CHECKING._replace(cluster="local")
FOUR = ("n0", "n1", "n2", "n3")
PASSED = ("checks_passed", {"job": "11", "nodes": ["n0", "n2"]})
UNKNOWN = ("checks_passed", {"job": "11", "nodes": [], "unknown": list(NODES)})
FAILED = ("checks_failed", {"job": "11", "nodes": ["n1"], "why": "shm: it is missing", "unused": True})
FAILED_TOO = ("checks_failed", {"job": "11", "nodes": ["n2"], "why": "shm: it is missing", "unused": True})
REPORTED = ("checks_failed", {"job": "11", "nodes": ["n1"], "why": "shm: it is missing", "unused": False})
RAN = ("attempt_started", {"attempt": 1, "job": "11", "nodes": ["n0", "n1"]})
ENDED = ("attempt_ended", {"attempt": 1, "how": "failed"})
NEXT_JOB = ("job_started", {"job": "12", "nodes": list(NODES)})
Told = tuple[str, Mapping[str, Any]]


def state(*told: Told) -> State:
    begun: list[Told] = [("submitted", {"job": "11"}), ("job_started", {"job": "11", "nodes": list(NODES)})]
    return fold(Event(NOW - 60 + seq, 1, seq, "n0", event, data) for seq, (event, data) in enumerate([*begun, *told]))


@each(("told", "plan", "expected"), [
    ((), PLAN, None),
    ((), CHECKING, NODES),
    ((PASSED,), CHECKING, ("n1",)),
    ((PASSED, FAILED), CHECKING, None),
    ((UNKNOWN,), CHECKING, None),
    ((PASSED, FAILED, RAN, ENDED), CHECKING, None),
    ((RAN, ENDED), CHECKING, None),
    ((PASSED, FAILED, RAN, ENDED, NEXT_JOB), CHECKING, NODES),
], ids=["not-asked-for", "first-attempt", "a-node-is-new", "all-asked", "unknown-is-asked", "restart-in-place",
        "an-attempt-ran-without", "next-job"])
def test_each_node_is_checked_once_a_job(told: tuple[Told, ...], plan: Plan, expected: object) -> None:
    found = action(state(*told), seen(), plan)
    assert (found.nodes if isinstance(found, CheckNodes) else None) == expected


@each(("what", "expected"), [
    ({"requests": (KILL,)}, "killed_by_person"), ({"requests": (HOLD,)}, "held"), ({"limit_near": True}, "job_ends"),
    ({"frozen": True}, "frozen"), ({"alone": True}, "alone"),
], ids=["kill", "hold", "limit", "frozen", "alone"])
def test_what_keeps_an_attempt_from_its_start_comes_before_the_checks(what: dict[str, Any], expected: str) -> None:
    assert row(state(), seen(**what), CHECKING) == expected


def test_a_node_that_is_lost_is_not_checked() -> None:
    assert action(state(), seen(lost=LOST), CHECKING) == CheckNodes(
        ("n0", "n2"), "checking n[0,2] before the attempt", first="n0")


def test_a_spare_takes_the_place_of_a_node_that_failed() -> None:
    found = action(state(PASSED, FAILED), seen(), CHECKING)
    assert isinstance(found, Launch) and found.nodes == ("n0", "n2")


def test_a_node_whose_failure_is_only_reported_is_used() -> None:
    found = action(state(PASSED, REPORTED), seen(), CHECKING)
    assert isinstance(found, Launch) and found.nodes == ("n0", "n1")


@each(("partition", "plan", "expected"), [
    (FOUR, CHECKING, HandOver), (None, CHECKING, HandOver), (("n0", "n1", "n2"), CHECKING, Finish),
    (None, LOCAL, Finish), (FOUR, CHECKING._replace(spare_nodes=1), HandOver),
], ids=["others-are-there", "nobody-knows", "no-others", "local", "one that failed may be the next job's spare"])
def test_too_few_good_nodes_hand_over_or_end_the_run(
    partition: tuple[str, ...] | None, plan: Plan, expected: type[HandOver | Finish]
) -> None:
    found = action(state(FAILED, FAILED_TOO), seen(partition=partition), plan)
    assert isinstance(found, expected)
    if isinstance(found, HandOver):
        assert found.exclude == ("n1", "n2")
    else:
        assert isinstance(found, Finish) and found.exit_code == CHECK_FAILED
        assert found.why.endswith("needed: failed on n[1-2] (shm: it is missing)")


def test_three_jobs_in_a_row_whose_nodes_fail_end_the_run() -> None:
    jobs = [("job_started", {"job": str(number), "nodes": list(NODES)}) for number in (12, 13)]
    found = action(state(FAILED, FAILED_TOO, jobs[0], FAILED, FAILED_TOO, jobs[1], FAILED, FAILED_TOO),
                   seen(partition=FOUR), CHECKING)
    assert isinstance(found, Finish) and found.exit_code == CHECK_FAILED


def report(node: str, *failed: str) -> CheckReport:
    return CheckReport(node, "light", (CheckResult("limits", "", "ok", "", {}), *(
        CheckResult(name, "", "failed", "bad", {}) for name in failed)))


@each(("reports", "passed", "failed", "shared"), [
    ([report("n0"), report("n1", "shm"), report("n2")], ("n0", "n2"), ["n1"], ()),
    ([report("n0"), report("n1", "load", "clock")], ("n0", "n1"), [], ()),
    ([report("n0", "shm"), report("n1", "shm"), report("n2")], ("n0", "n1", "n2"), [], ("shm",)),
    ([report("n0", "shm"), report("n1")], ("n1",), ["n0"], ()),
    ([report("n0", "shm"), report("n1", "shm", "rw"), report("n2", "shm")], ("n0", "n2"), ["n1"], ("shm",)),
    ([report("n0", "shm")], (), ["n0"], ()),
], ids=["one-fails", "slow-ones-pass", "most-fail-alike", "half-is-not-most", "its-own-beside-a-shared-one", "alone"])
def test_a_node_fails_by_what_most_others_pass(
    reports: list[CheckReport], passed: tuple[str, ...], failed: list[str], shared: tuple[str, ...]
) -> None:
    found = weigh(reports, {})
    assert (found.passed, [one.node for one in found.failed], found.shared) == (passed, failed, shared)


@each(("others", "failed", "shared"), [
    (["failed"], [], ("port",)), (["failed", "failed"], [], ("port",)), (["failed", "ok"], ["n1"], ()),
    (["failed", "ok", "ok"], ["n1"], ()), (["ok"], [], ()), (["unknown", "failed"], ["n2"], ()),
], ids=["of-two", "all-others", "half-is-not-most", "one", "none", "one-does-not-know"])
def test_a_port_that_most_others_cannot_reach_blames_none_of_them(
    others: list[str], failed: list[str], shared: tuple[str, ...]
) -> None:
    reports = [CheckReport(f"n{number}", "light", (CheckResult("port", "", outcome, "", {}),))
               for number, outcome in enumerate(["skipped", *others])]
    found = weigh(reports, {})
    assert ([one.node for one in found.failed], found.shared) == (failed, shared)


def test_who_gives_no_answer_or_an_empty_one_is_unknown_and_not_failed() -> None:
    found = weigh([report("n0"), CheckReport("n1", "light", (), ("no Python 3.9 on this node",))], {"n2": "silent"})
    assert (found.passed, found.failed, found.unknown) == (("n0",), (), ("n1", "n2"))


@given(st.lists(st.lists(st.sampled_from(["shm", "rw", "load", "gpu_count"]), unique=True), min_size=1, max_size=6),
       st.integers(0, 3))
def test_every_node_gets_exactly_one_word(bad: list[list[str]], mute: int) -> None:
    reports = [report(f"n{number}", *names) for number, names in enumerate(bad)]
    silent = {f"m{number}": "silent" for number in range(mute)}
    found = weigh(reports, silent)
    assert sorted([*found.passed, *(one.node for one in found.failed), *found.unknown]) == sorted(
        [*(one.node for one in reports), *silent])
    assert not {check for one in found.failed for check in one.checks} & set(found.shared)


BESIDE = CHECKING._replace(checks=ChecksPlan(boot=True, after_failure="beside"))
BEFORE = PLAN._replace(checks=ChecksPlan(after_failure="before"))
ENDED_OFTEN: tuple[Told, ...] = (
    PASSED, RAN, ENDED, ("attempt_started", {"attempt": 2, "job": "11", "nodes": ["n0", "n1"]}),
    ("attempt_ended", {"attempt": 2, "how": "failed"}))
CHECKED_AGAIN = ("checks_passed", {"job": "11", "nodes": list(NODES), "after": 2, "level": "light"})
STOPPED = ("attempt_ended", {"attempt": 1, "how": "interrupted"})


def pausing(left_s: float, *more: Told) -> tuple[State, Any]:
    """Two failures in a row, and what is seen when so much is left of the pause that follows."""
    found = state(*ENDED_OFTEN, *more)
    pause = action(found, seen(), PLAN)
    assert isinstance(pause, Wait)
    return found, replace(seen(), now=pause.until - left_s)


@each(("left_s", "plan", "expected"), [
    (20.0, BESIDE, None), (7.0, BESIDE, LIGHT_S), (3.0, BESIDE, 2.5), (2.0, BESIDE, None), (7.0, PLAN, None),
    (20.0, BEFORE, None), (7.0, BEFORE, LIGHT_S), (2.0, BEFORE, LIGHT_S),
], ids=["not-yet", "in-its-last-seconds", "in-what-is-left", "no-time-left", "not-wanted", "before-not-yet",
        "before-in-time", "before-waits"])
def test_light_checks_in_a_pause_end_before_it_unless_the_run_wants_to_wait(
    left_s: float, plan: Plan, expected: float | None
) -> None:
    found, now_seen = pausing(left_s)
    assert plan is not PLAN or row(found, now_seen, plan) == "back_off"
    made = action(found, now_seen, plan)
    assert (round(made.limit_s or 0, 3) if isinstance(made, CheckNodes) else None) == expected
    assert not isinstance(made, CheckNodes) or (made.nodes, made.after) == (NODES, 2)


@each(("told", "plan", "expected"), [
    ((PASSED, RAN, ENDED), BEFORE, NODES), ((PASSED, RAN, ENDED), BESIDE, ("n1",)), ((RAN, STOPPED), BEFORE, None),
    ((RAN, ENDED, ("checks_passed", {"nodes": ["n0"], "after": 1})), BEFORE, None),
    ((RAN, ENDED, NEXT_JOB), BEFORE, None),
], ids=["asked-for", "beside-asks-only-whom-the-boot-has-not", "it-has-not-failed", "once-a-failure", "next-job"])
def test_a_restart_at_once_waits_for_light_checks_only_where_asked(
    told: tuple[Told, ...], plan: Plan, expected: tuple[str, ...] | None
) -> None:
    made = action(state(*told), seen(), plan)
    assert (made.nodes if isinstance(made, CheckNodes) else None) == expected


def test_nodes_are_checked_once_in_a_pause() -> None:
    found, now_seen = pausing(7.0, CHECKED_AGAIN)
    assert isinstance(action(found, now_seen, BESIDE), Wait)


@each(("blamed", "used", "lost", "expected"), [
    (["n1"], ["n0", "n2"], [], ("n1",)), (["n1"], ["n0", "n1"], [], ()), (["n1"], ["n0", "n2"], ["n1"], ()),
    (["n9"], ["n0"], [], ()), (["n1", "n1", "n2"], ["n0"], [], ("n1", "n2")), ([], ["n0"], [], ()),
], ids=["replaced", "still-used", "lost", "no-more-of-this-job", "several", "none"])
def test_suspects_that_nobody_uses_are_checked_fully(
    blamed: list[str], used: list[str], lost: list[str], expected: tuple[str, ...]
) -> None:
    assert suspects_beside(blamed, NODES, used, lost) == expected


@each(("job", "blamed", "late_s", "expected"), [
    ("12", ["n1", "n9", "n1"], 60.0, ("n9",)), ("11", ["n9"], 60.0, ()), ("12", ["n9"], 7 * 3600.0, ()),
    ("12", [f"m{n}" for n in range(9)], 60.0, ("m0", "m1", "m2", "m3")), ("12", [], 60.0, ()),
], ids=["one-that-the-next-job-did-not-get", "in-place", "it-waited-for-long", "many", "nobody"])
def test_suspects_of_the_job_before_get_a_short_job_each(
    job: str, blamed: list[str], late_s: float, expected: tuple[str, ...]
) -> None:
    failed = replace(state(RAN, ENDED).attempts[0], job="11", ended_t=NOW)
    assert suspects_elsewhere(failed, job, blamed, NODES, NOW + late_s) == expected


@each(("checks", "is_suspect", "expected"), [
    (("gpu_ecc",), True, "gpu"), (("rw /scratch", "gpu_count"), True, "gpu"), (("gpu_ecc",), False, "checks_failed"),
    (("shm",), True, "checks_failed"), (("gpu_xid",), True, "checks_failed"), (("gpu_memory",), True, "checks_failed"),
])
def test_only_a_suspect_whose_gpu_is_broken_by_its_own_word_is_blamed_for_that(
    checks: tuple[str, ...], is_suspect: bool, expected: str
) -> None:
    assert kind_of(FailedNode("n1", checks, "bad"), is_suspect=is_suspect) == expected


def test_what_failed_on_most_nodes_before_blames_no_suspect_later() -> None:
    begun = state(("checks_passed", {"job": "11", "nodes": list(NODES), "shared": ["shm"]}), RAN, ENDED)
    found = weigh([report("n1", "shm", "rw")], {}, begun.usual_failures)
    assert [one.checks for one in found.failed] == [("rw",)] and found.shared == ("shm",)
    assert weigh([report("n1", "shm")], {}, begun.usual_failures).passed == ("n1",)
    assert not fold_next_job(begun).usual_failures


def fold_next_job(before: State) -> State:
    return fold([Event(NOW, 1, 99, "n0", *NEXT_JOB)], before)
