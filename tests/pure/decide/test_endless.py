"""Bounds on jobs that cost no budget: which end a run, which hold it, and which let the next one wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from safelaunch.base.model import BUDGET_SPENT, FAILED_FOR_GOOD, Event
from safelaunch.decide.budget import endless
from safelaunch.decide.ends import passing
from safelaunch.decide.ends.advice import what_follows
from safelaunch.decide.ends.passing import Secure
from safelaunch.decide.facts.actions import Finish, HandOver, Hold, Launch
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import Ended, State
from safelaunch.run.plan import Plan
from tests.pure.decide import situations
from tests.pure.decide.situations import PLAN, seen
from tests.pure.decide.test_advance import NO_FOLDER
from tests.tables import each

LIMIT: dict[str, Any] = {"how": "interrupted", "category": "time_limit", "summary": "the job's time limit has come"}
PREEMPTED: dict[str, Any] = {"how": "interrupted", "category": "preempted", "summary": "a more important job came"}
ENDS: dict[str, Any] = {"ending": "time_limit"}


def run_of(*jobs: dict[str, Any]) -> State:
    """The state at the end of the last of these jobs; each: its attempt's end, `lived_s`, `first`, `step`, `saved`."""
    said: list[tuple[float, str, dict[str, Any]]] = []
    t = 0.0
    for number, facts in enumerate(jobs, start=1):
        job = str(10 + number)
        said.append((t, "job_started", {"job": job, "nodes": ["n0", "n1"]}))
        if "how" in facts:
            said.append((t + 1, "attempt_started", {"attempt": number, "job": job, "nodes": ["n0"]}))
            t += facts.get("lived_s", 60.0)
            if "step" in facts:
                said.append((t, "progress", {"attempt": number, "step": facts["step"], "first": facts.get("first", 1),
                                             "counter": "step #"}))
            said.append((t + 1, "verdict", {"attempt": number, "confidence": 1.0, "suspects": [],
                                            "category": facts["category"], "summary": facts.get("summary", "")}))
            said.append((t + 1, "attempt_ended", {"attempt": number, "how": facts["how"]}))
            if facts.get("saved"):
                said.append((t + 1, "checkpoint", {"attempt": number, "step": facts["saved"], "path": "/c"}))
            if facts.get("advanced"):
                said.append((t + 1, "advanced", {"attempt": number, "why": "a step"}))
        if number < len(jobs):
            said.append((t + 1, "handed_over", {"job": str(11 + number)}))
        t += 100.0
    return fold(Event(at, 1, seq, "n0", event, data) for seq, (at, event, data) in enumerate(said))


def at_end(state: State, plan: Plan = NO_FOLDER) -> Any:
    return situations.action(state, seen(**ENDS), plan)


STEPS = {**LIMIT, "step": 100}


@each(("jobs", "plan", "kind"), [
    ([LIMIT], NO_FOLDER, HandOver),
    ([LIMIT, LIMIT], NO_FOLDER, Hold),
    ([LIMIT, LIMIT], PLAN, Hold),
    ([{**STEPS, "advanced": True}, STEPS], NO_FOLDER, HandOver),
    ([{**STEPS, "advanced": True}, STEPS, STEPS], NO_FOLDER, Finish),
    ([STEPS, STEPS], PLAN, Finish),
    ([{**STEPS, "saved": 90}, STEPS, STEPS], PLAN, Finish),
    ([{**STEPS, "saved": 90}, STEPS, {**STEPS, "saved": 190}, STEPS], PLAN, HandOver),
    ([STEPS, PREEMPTED, STEPS], PLAN, Finish),
    ([STEPS, {**PREEMPTED, "lived_s": 7200.0, "step": 90}], PLAN, Hold),
    ([STEPS, {**PREEMPTED, "lived_s": 60.0}], PLAN, HandOver),
    ([PREEMPTED] * 3, NO_FOLDER, HandOver),
    ([PREEMPTED] * 10, NO_FOLDER, Hold),
    ([{}] * 9, NO_FOLDER, HandOver),
    ([{}] * 10, NO_FOLDER, Hold),
    ([LIMIT, {"how": "failed", "category": "unknown"}, LIMIT], NO_FOLDER, Hold),
], ids=["one limit", "two limits, nothing was ever seen", "nor in a known folder", "one limit after progress",
        "two limits after progress", "steps, and nothing saved in a known folder", "no checkpoint since the first job",
        "a checkpoint in each second job", "a preemption between", "preempted after hours", "preempted at once",
        "preempted at once, thrice", "preempted at once, ten times", "jobs that launch nothing", "ten of these",
        "a crash between"])
def test_what_follows_jobs_that_end_at_no_cost(jobs: list[dict[str, Any]], plan: Plan, kind: type[Any]) -> None:
    found = at_end(run_of(*jobs), plan)
    assert isinstance(found, kind), found
    if isinstance(found, Finish):
        assert (found.how, found.exit_code) == ("gave_up", FAILED_FOR_GOOD) and "without progress" in found.why


def test_the_next_supervisor_decides_as_well_and_a_living_job_is_not_counted() -> None:
    state = run_of(STEPS, STEPS)
    begun = fold([Event(999.0, 2, 1, "n0", "job_started", {"job": "99", "nodes": ["n0", "n1", "n2"]})], state)
    assert isinstance(situations.action(begun, seen(), PLAN), Finish)
    one = fold([Event(999.0, 2, 1, "n0", "job_started", {"job": "99", "nodes": ["n0", "n1", "n2"]})], run_of(STEPS))
    assert isinstance(situations.action(one, seen(), PLAN), Launch)


def test_nothing_is_decided_while_nobody_can_look_for_a_new_checkpoint() -> None:
    assert isinstance(situations.action(run_of(STEPS, STEPS), seen(frozen=True, **ENDS), PLAN), HandOver)


def test_a_run_that_a_person_lets_go_on_has_two_more_jobs() -> None:
    held = fold([Event(500.0, 1, 90, "n0", "held", {"job": "12", "why": "nobody knows", "lives": 2})],
                run_of(LIMIT, LIMIT))
    assert isinstance(at_end(held), HandOver)
    later: list[tuple[str, dict[str, Any]]] = [
        ("job_started", {"job": "13", "nodes": ["n0"]}), ("attempt_started", {"attempt": 3, "job": "13"}),
        ("verdict", {"attempt": 3, "category": "time_limit"}), ("attempt_ended", {"attempt": 3, "how": "interrupted"})]
    third = fold([Event(600.0, 2, seq, "n0", *one) for seq, one in enumerate(later)], held)
    assert isinstance(at_end(third), HandOver)
    assert fold([Event(700.0, 0, 1, "n0", "decision", {"row": "resume", "lives": 3})], third).idle_from == 3


def test_who_has_set_a_bound_is_not_asked_about_a_run_of_which_nothing_is_seen() -> None:
    bounded = NO_FOLDER._replace(restart=NO_FOLDER.restart._replace(max_jobs=5))
    assert isinstance(at_end(run_of(*[LIMIT] * 4), bounded), HandOver)
    last = at_end(run_of(*[LIMIT] * 5), bounded)
    assert isinstance(last, Finish) and last.exit_code == BUDGET_SPENT and "restart.max_jobs" in last.why


@each(("jobs", "pause_s"), [
    ([PREEMPTED], 0.0), ([PREEMPTED] * 2, 60.0), ([PREEMPTED] * 3, 120.0), ([PREEMPTED] * 9, 3600.0),
    ([LIMIT], 0.0), ([PREEMPTED, {**PREEMPTED, "lived_s": 7200.0}], 0.0)],
    ids=["once", "twice", "thrice", "nine times", "a time limit", "after hours"])
def test_a_run_that_is_preempted_at_its_start_waits_longer_each_time(jobs: list[Any], pause_s: float) -> None:
    found = at_end(run_of(*jobs))
    assert isinstance(found, HandOver) and found.pause_s == pause_s


def test_behind_the_last_job_that_the_run_may_have_none_is_queued() -> None:
    plan = PLAN._replace(restart=PLAN.restart._replace(max_jobs=2))
    assert passing.secure(plan, run_of(STEPS)) is Secure.QUEUE
    assert passing.secure(plan, run_of({**STEPS, "saved": 1}, STEPS)) is Secure.NOTHING
    held = situations.action(run_of(STEPS), seen(requests=(situations.HOLD,), **ENDS), plan._replace(
        restart=plan.restart._replace(max_jobs=1)))
    assert isinstance(held, HandOver) and held.held, "a person's hold is no end"


def test_the_time_of_all_jobs_is_counted_and_bounds_the_run() -> None:
    state = run_of({**LIMIT, "lived_s": 3600.0, "step": 9, "saved": 9}, {**LIMIT, "lived_s": 3600.0, "step": 19,
                                                                        "saved": 19})
    assert endless.used_s(state, state.life_t or 0.0) == 3601.0
    plan = PLAN._replace(restart=PLAN.restart._replace(max_time_s=7200.0))
    used = situations.action(state, seen(**ENDS), plan)   # long after both
    assert isinstance(used, Finish) and used.exit_code == BUDGET_SPENT and "restart.max_time: 02:00:00" in used.why


def test_a_job_that_died_without_a_word_is_counted_to_its_supervisors_last_event() -> None:
    events = [Event(0.0, 1, 0, "n0", "job_started", {"job": "11"}),
              Event(300.0, 1, 1, "n0", "progress", {"attempt": 1, "step": 5}),
              Event(9000.0, 2, 0, "n1", "attempt_ended", {"attempt": 1, "how": "interrupted"}),
              Event(9001.0, 2, 1, "n1", "job_started", {"job": "12"})]
    state = fold(events)
    assert (state.used_s, state.life_t) == (300.0, 9001.0)
    again = fold(events, state)
    assert (again.used_s, again.life_t, again.idle_from) == (state.used_s, state.life_t, state.idle_from)


@pytest.mark.parametrize("by_s", [7200.0, -7200.0, 3e8], ids=["two hours ahead", "two hours back", "ten years"])
def test_a_wall_clock_that_steps_uses_none_of_the_runs_time_and_adds_none(by_s: float) -> None:
    events = [Event(1000.0, 1, 0, "n0", "job_started", {"job": "11"}),
              Event(1600.0 + by_s, 1, 1, "n0", "clock_stepped",
                    {"by_s": by_s, "life_t": 1000.0 + by_s, "preserving_until": None})]
    assert endless.used_s(fold(events), 1700.0 + by_s) == 700.0
    for last, used_s in (("handed_over", 700.0), ("job_started", 600.0)):   # it ended in order; it died without a word
        state = fold([*events, Event(1700.0 + by_s, 2, 0, "n0", last, {"job": "12"})])
        assert (state.used_s, state.preserving_until) == (used_s, None)
        assert fold(events, state).used_s == used_s


def test_the_end_of_a_run_whose_time_limits_bring_nothing_says_what_would() -> None:
    state = replace(run_of(STEPS, STEPS), ended=Ended("gave_up", FAILED_FOR_GOOD, "two jobs without progress", 0.0))
    assert what_follows(state, state.attempts[-1], PLAN) == (
        "not restarted; to do: let it save before its job ends, and load what it saved; or ask for more time "
        "(slurm.time)")
