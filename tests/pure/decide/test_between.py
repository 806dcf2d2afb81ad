"""Every row between two attempts, their order, and the budgets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.base.endings import JobEnd, tell_ending
from safelaunch.base.model import Event, Request
from safelaunch.checkpoints.model import Checkpoint
from safelaunch.decide.facts.actions import (
    Decision,
    Finish,
    HandOver,
    Launch,
    Preserve,
    Wait,
)
from safelaunch.decide.facts.seen import Observation
from safelaunch.decide.turn import rows
from safelaunch.launch.settings import RestartPlan
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.run.plan import Plan
from tests.pure.decide.situations import (
    CHECKPOINT,
    FAILED_ONCE,
    HOLD,
    KILL,
    KILL_NOW,
    NOW,
    PLAN,
    PRESERVING,
    RELEASE,
    RUNNING,
    action,
    history,
    row,
    seen,
)
from tests.tables import each


@each(
    ("state", "what", "expected"),
    [
        (State(), seen(), "launch"),
        (FAILED_ONCE, seen(), "launch"),
        (history("lost"), seen(), "launch"),
        (history("completed"), seen(), "completed"),
        (FAILED_ONCE, seen(requests=(KILL,)), "killed_by_person"),
        (FAILED_ONCE, seen(requests=(KILL_NOW,)), "killed_by_person"),
        (State(), seen(requests=(KILL,)), "killed_by_person"),
        (FAILED_ONCE, seen(ending="cancelled"), "cancelled"),
        (history("interrupted"), seen(ending="time_limit"), "job_ends"),
        (history("interrupted"), seen(ending="preempted"), "job_ends"),
        (history("interrupted"), seen(ending="requeued"), "job_ends"),
        (history("interrupted"), seen(ending="node_failure"), "job_ends"),
        (history("interrupted"), seen(ending="unknown"), "job_ends"),
        (history("interrupted"), seen(limit_near=True), "job_ends"),
        (history("failed", "failed", "failed"), seen(), "give_up"),
        (history("lost"), seen(lost=(("n0", "dead"), ("n1", "dead"))), "too_few_nodes"),
        (FAILED_ONCE, seen(frozen=True), "frozen"),
        (RUNNING, seen(), "unfenced"),
        (history("failed", "failed"), seen(), "back_off"),
        (history("failed", "failed", checkpoint_after=[2]), seen(), "launch"),
    ],
    ids=[
        "nothing has run yet", "a rank died", "a node was lost, a spare is left", "the command ended with 0",
        "a member of the group touched kill", "... or kill-now", "... while the job was queued", "scancel by a person",
        "the time limit", "preemption", "requeue", "a node failure that ends the job", "an end that nobody explains",
        "the time limit is near", "three in a row without progress", "two of three nodes are dead",
        "the filesystem is frozen", "an attempt whose end nobody wrote down", "two in a row without progress",
        "two in a row, and progress in the last",
    ],
)
def test_between_attempts(state: State, what: Observation, expected: str) -> None:
    assert row(state, what) == expected


def test_a_run_that_was_stopped_at_a_checkpoint_says_at_which() -> None:
    what = seen(requests=(CHECKPOINT,), resume=Checkpoint("ckpt/step_5", 5, "torch"))
    assert action(history("stopped"), what) == Finish(
        "stopped", 12, "bob wanted it to stop at its next checkpoint; its newest complete checkpoint is of step 5")


def test_an_end_that_is_written_down_is_final() -> None:
    state = fold([Event(NOW, 1, 99, "n0", "gave_up", {"exit_code": 11, "why": "spent"})], history("completed"))
    what = seen(requests=(KILL,), ending="cancelled")
    assert rows.decide(state, what, PLAN) == Decision("ended", Finish("gave_up", 11, "spent"))


def _with_code(code: int) -> State:
    state = history("failed")
    return replace(state, attempts=(replace(state.attempts[0], exit_code=code),))


@each(
    ("state", "more", "expected"),
    [
        (history("completed"), {"requests": (KILL,), "ending": "cancelled"}, Finish(
            "completed", 0, "attempt 1 ended with exit code 0")),
        (history("failed", "failed", "failed"), {"requests": (KILL,), "ending": "time_limit"}, Finish(
            "stopped", 12, "bob touched kill")),
        (FAILED_ONCE, {"requests": (KILL_NOW,), "frozen": True, "limit_near": True}, Finish(
            "stopped", 12, "bob touched kill-now")),
        (history("failed", "failed", "failed"), {"ending": "cancelled"}, Finish(
            "stopped", 12, "the job was cancelled by a person (scancel)")),
        (history("completed"), {"gone": "its run folder /r is gone"}, Finish(
            "completed", 0, "attempt 1 ended with exit code 0")),
        (_with_code(3), {"gone": "its run folder /r is gone", "limit_near": True, "frozen": True}, Finish(
            "gave_up", 3, "its run folder /r is gone, and without its journal no attempt can be started")),
        (history("interrupted"), {"gone": "its run folder /r is gone", "ending": "time_limit"}, Finish(
            "gave_up", 10, "its run folder /r is gone, and without its journal no attempt can be started")),
        (history("failed", "failed", "failed"), {"ending": "time_limit"}, Finish(
            "gave_up", 10, "3 attempts in a row failed without a new checkpoint; last: task 1 on n1: exit code 1")),
    ],
    ids=["what is complete stays complete", "a person's request before the budget", "... and before a frozen folder",
         "scancel before the budget", "a training that ended well, without its folder",
         "a failed one, without its folder: its own exit code", "an interrupted one, without its folder",
         "the budget before the successor"],
)
def test_what_is_final_comes_before_what_goes_on(state: State, more: dict[str, Any], expected: Finish) -> None:
    assert action(state, seen(**more)) == expected


@given(st.sampled_from(["failed", "lost", "interrupted", "stopped"]), st.booleans(), st.booleans(),
       st.sampled_from([None, "cancelled", "time_limit", "unknown"]), st.sampled_from([KILL, KILL_NOW]))
def test_after_a_persons_kill_nothing_is_ever_launched(
    how: str, frozen: bool, limit_near: bool, ending: str | None, request: Request,
) -> None:
    what = seen(requests=(RELEASE, request), frozen=frozen, limit_near=limit_near, ending=ending)
    assert action(history(how), what) == Finish("stopped", 12, f"bob touched {request.name}")


def test_an_attempt_whose_end_nobody_wrote_down_is_never_launched_beside() -> None:
    assert action(RUNNING, seen()) == Wait(NOW + 2.0, "nobody knows that attempt 1 has ended")


@each(
    ("ends", "checkpoint_after", "restart", "expected"),
    [
        (["failed"] * 3, [], RestartPlan(30, 3, 0.0), 10),
        (["failed"] * 3, [1], RestartPlan(30, 3, 0.0), None),
        (["failed"] * 4, [1], RestartPlan(30, 3, 0.0), 10),
        (["failed", "lost", "failed"], [], RestartPlan(30, 3, 0.0), 10),
        (["failed", "interrupted", "interrupted", "failed"], [], RestartPlan(30, 3, 0.0), None),
        (["failed", "interrupted", "failed", "interrupted", "failed"], [], RestartPlan(30, 3, 0.0), 10),
        (["interrupted"] * 20, [], RestartPlan(2, 3, 0.0), None),
        (["failed"] * 2, [1, 2], RestartPlan(2, 3, 0.0), None),
        (["failed"] * 3, [1, 2, 3], RestartPlan(2, 3, 0.0), 11),
        (["failed"], [], RestartPlan(0, 1, 0.0), 10),
        (["failed"], [1], RestartPlan(0, 1, 0.0), 11),
        (["failed"], [], RestartPlan(30, 1, 0.0), 10),
    ],
    ids=["three failures in a row", "... after progress in the first", "... and one more", "lost nodes count as well",
         "time limits cost nothing", "... and refill nothing", "twenty time limits",
         "two restarts of two, with progress", "three restarts of two, with progress", "no restart is allowed",
         "... with progress either", "one failure is enough"],
)
def test_the_budgets(ends: list[str], checkpoint_after: list[int], restart: RestartPlan, expected: int | None) -> None:
    state = history(*ends, checkpoint_after=checkpoint_after)
    got = action(state, seen(), PLAN._replace(restart=restart))
    assert (got.exit_code if isinstance(got, Finish) else None) == expected
    assert isinstance(got, Finish | Launch)


def test_the_first_restart_waits_for_nothing() -> None:
    assert isinstance(action(FAILED_ONCE, seen()), Launch)


@each(("failures", "pause_s"), [(2, 60), (3, 120), (4, 240), (5, 480), (6, 960), (9, 960)])
def test_the_pause_doubles_with_each_failure_without_progress_up_to_16_times(failures: int, pause_s: float) -> None:
    state, plan = history(*["failed"] * failures), PLAN._replace(restart=RestartPlan(30, 99, 60.0))
    assert state.attempt is not None
    assert state.attempt.ended_t is not None
    wait = action(state, seen(), plan)
    assert isinstance(wait, Wait)
    assert wait.why == f"a pause before the next attempt, after {failures} failures in a row without progress"
    assert pause_s <= wait.until - state.attempt.ended_t <= 1.1 * pause_s
    later = replace(seen(), now=wait.until - 0.1)
    assert action(state, later, plan) == wait   # the time that people were told
    assert isinstance(action(state, replace(seen(), now=wait.until), plan), Launch)


def test_runs_that_fail_together_do_not_start_together() -> None:
    state = history("failed", "failed")
    waits = [action(state, seen(), PLAN._replace(run_id=f"r{number}")) for number in range(20)]
    assert len({wait.until for wait in waits if isinstance(wait, Wait)}) == 20


def test_a_clock_that_was_set_back_makes_no_pause_longer_than_it_is() -> None:
    state = history("failed", "failed")
    assert state.attempt is not None and state.attempt.ended_t is not None
    before = replace(seen(), now=state.attempt.ended_t - 30.0)   # another host's clock
    assert isinstance(action(state, before, PLAN), Wait)
    assert isinstance(action(state, replace(seen(), now=state.attempt.ended_t - 7200.0), PLAN), Launch)


def test_a_site_is_preserved_before_giving_up_and_given_back_on_time_or_on_request() -> None:
    spent = history("failed", "failed", "failed")
    first = action(spent, seen(), PRESERVING)
    assert isinstance(first, Preserve)
    assert first.until == NOW + 3600
    preserved = replace(spent, preserving_until=first.until)
    assert isinstance(action(preserved, seen(), PRESERVING), Wait)
    for what in (replace(seen(), now=first.until), seen(requests=(RELEASE,)), seen(ending="time_limit")):
        assert isinstance(action(preserved, what, PRESERVING), Finish)


@each(
    ("state", "plan"),
    [(history("failed", "failed", "failed"), PLAN), (history(*["failed"] * 3, category="user_code"), PRESERVING)],
    ids=["not asked for", "a cause that needs no look"],
)
def test_no_site_is_preserved_when_nobody_wants_to_look(state: State, plan: Plan) -> None:
    assert isinstance(action(state, seen(), plan), Finish)


def test_a_run_on_hold_leaves_its_nodes_and_its_next_job_is_held() -> None:
    assert action(FAILED_ONCE, seen(requests=(HOLD,))) == HandOver((), "bob put the run on hold", held=True)


def test_a_local_run_on_hold_waits_where_it_is_until_its_job_ends() -> None:
    local = PLAN._replace(cluster="local")
    assert action(FAILED_ONCE, seen(requests=(HOLD,)), local) == Wait(NOW + 2.0, "bob put the run on hold")
    assert row(FAILED_ONCE, seen(requests=(HOLD,), ending="unknown"), local) == "job_ends"


def test_a_launch_from_nothing_says_how_many_checkpoints_were_passed_over() -> None:
    skipped = replace(FAILED_ONCE, skipped=(("/ckpt/step_20", "read by no format"), ("/ckpt/step_40", "empty folder")))
    got = action(skipped, seen())
    assert isinstance(got, Launch) and got.why.endswith("going on from the start: no complete checkpoint, 2 skipped")


@each(("found", "said"), [
    (Checkpoint("/ckpt/step100.pt", 100, "torch"), "checkpoint at step 100"),
    (Checkpoint("/ckpt/last.pt", None, "torch"), "checkpoint /ckpt/last.pt"),
], ids=["a step", "a name without one"])
def test_a_launch_says_what_it_goes_on_from(found: Checkpoint, said: str) -> None:
    got = action(FAILED_ONCE, seen(resume=found))
    assert isinstance(got, Launch)
    assert got.why == f"attempt 1 failed (task 1 on n1: exit code 1); going on from {said}"


def test_an_attempt_that_slurm_could_not_start_waits_and_a_clock_that_jumped_holds_up_nobody() -> None:
    last = replace(history("interrupted").attempts[0], not_before=NOW + 5)
    refused = replace(history("interrupted"), attempts=(last,))
    assert action(refused, seen()) == Wait(NOW + 5, "Slurm could not start attempt 1, or ended it")
    assert isinstance(action(refused, replace(seen(), now=NOW + 6)), Launch)
    assert isinstance(action(refused, replace(seen(), now=NOW - 1e6)), Launch)


@each("ending", [*JobEnd, None])
def test_why_a_job_ends_is_told_in_words(ending: str | None) -> None:
    """Seen on screen: "this job ends: unknown"."""
    assert " " in tell_ending(ending) and "_" not in tell_ending(ending)
