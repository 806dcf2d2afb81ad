"""Passing a run to its next job: where it ends instead, the way it goes, and that a person's cancel stays final."""

from __future__ import annotations

from dataclasses import replace

import pytest

from safelaunch.core import via as ways
from safelaunch.core.decide import passing
from safelaunch.core.decide.actions import Finish, HandOver
from safelaunch.core.decide.passing import Requeue
from safelaunch.core.endings import JobEnd, RunEnd
from safelaunch.core.model import FAILED_FOR_GOOD, STOPPED
from safelaunch.core.state import State

ACTION = HandOver(("n1",), "too few nodes are left")


def test_a_run_without_slurm_gives_up_where_others_go_on_in_their_next_job() -> None:
    assert passing.begin(ACTION, is_local=False) is ACTION
    assert passing.begin(ACTION, is_local=True) == Finish(RunEnd.GAVE_UP, FAILED_FOR_GOOD, ACTION.why)


@pytest.mark.parametrize(("is_passed", "ending", "expected"), [
    (True, None, False), (True, JobEnd.PREEMPTED, False), (True, JobEnd.UNKNOWN, False),
    (True, JobEnd.CANCELLED, True), (False, None, True), (False, JobEnd.CANCELLED, True),
])
def test_only_a_persons_cancel_takes_a_passed_run_back(is_passed: bool, ending: str | None, expected: bool) -> None:
    assert passing.is_taken_back(is_passed=is_passed, ending=ending) is expected


@pytest.mark.parametrize(("ending", "cancelled"), [
    (JobEnd.CANCELLED, "this job"), (None, "the run's next job"), (JobEnd.TIME_LIMIT, "the run's next job"),
])
def test_a_run_that_is_taken_back_is_stopped_and_says_which_job_was_cancelled(
        ending: str | None, cancelled: str) -> None:
    assert passing.end_of_taken_back(ending) == Finish(RunEnd.STOPPED, STOPPED, f"a person cancelled {cancelled}")


@pytest.mark.parametrize(("state", "expected"), [
    (State(), ways.SUCCESSOR),
    (replace(State(), via=ways.REQUEUE), ways.REQUEUE),
    (replace(State(), via=ways.WATCH, successor="12"), ways.SUCCESSOR),
    (replace(State(), via=ways.RESUBMIT, next_cancelled="12"), ways.SUCCESSOR),
], ids=["nothing is chosen", "a way was chosen", "a job is queued already", "a person cancelled the next job"])
def test_a_next_job_that_is_known_comes_before_the_chosen_way(state: State, expected: str) -> None:
    assert passing.way_of(state) == expected


@pytest.mark.parametrize(("ending", "expected"), [
    (None, Requeue.CHECK), (JobEnd.UNKNOWN, Requeue.TO_WATCH), (JobEnd.PREEMPTED, Requeue.ASK),
    (JobEnd.TIME_LIMIT, Requeue.ASK),
])
def test_a_job_that_ends_for_no_known_reason_is_never_requeued(ending: str | None, expected: Requeue) -> None:
    assert passing.before_requeue(ending) is expected


def test_nothing_is_requeued_while_a_term_is_unexplained_or_the_job_ends() -> None:
    assert passing.is_requeue_due(None, has_term=False)
    assert not passing.is_requeue_due(None, has_term=True)
    assert not any(passing.is_requeue_due(ending, has_term=has_term) for ending in JobEnd for has_term in (False, True))


@pytest.mark.parametrize(("ending", "refused", "expected"), [
    (None, None, Requeue.DONE), (JobEnd.REQUEUED, None, Requeue.DONE), (JobEnd.PREEMPTED, None, Requeue.DONE),
    (JobEnd.CANCELLED, None, Requeue.TAKE_BACK), (None, "Access denied", Requeue.TO_WATCH),
    (JobEnd.CANCELLED, "Access denied", Requeue.TO_WATCH),
])
def test_a_requeue_just_after_a_persons_cancel_is_taken_back(
        ending: str | None, refused: str | None, expected: Requeue) -> None:
    assert passing.after_requeue(ending, refused) is expected
