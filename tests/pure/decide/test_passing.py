"""Passing a run to its next job: where it ends instead, the way it goes, and that a person's cancel stays final."""

from __future__ import annotations

from dataclasses import replace

from safelaunch.base.endings import JobEnd, RunEnd
from safelaunch.base.model import FAILED_FOR_GOOD, STOPPED
from safelaunch.decide.ends import passing
from safelaunch.decide.ends.passing import CANCEL_REFUSALS, MOST_REFUSALS, Behind, Change, Refused, Requeue, Secure
from safelaunch.decide.facts.actions import Finish, HandOver
from safelaunch.launch.settings import AfterRun
from safelaunch.run.fold.state import Ended, State
from safelaunch.run.plan import Plan
from safelaunch.slurm import jobstates
from safelaunch.slurm import via as ways
from tests.pure.decide.situations import PLAN, history
from tests.tables import each

ACTION = HandOver(("n1",), "too few nodes are left")


ENDED = Ended(RunEnd.STOPPED, STOPPED, "alice touched kill", 9.0)
PLANS = {via: PLAN._replace(restart=PLAN.restart._replace(via=via)) for via in ("auto", *ways.WAYS)}


@each(("plan", "state", "cluster", "expected"), [
    (PLANS["auto"], State(), "slurm", Secure.QUEUE),
    (PLANS[ways.SUCCESSOR], State(), "slurm", Secure.QUEUE),
    (PLANS["auto"], State(successor="13"), "slurm", Secure.FOLLOW),
    (PLANS[ways.RESUBMIT], State(), "slurm", Secure.NOTE_WAY),
    (PLANS[ways.WATCH], State(successor="13"), "slurm", Secure.NOTE_WAY),
    (PLANS["auto"], State(), "local", Secure.NOTHING),
    (PLANS[ways.WATCH], State(), ways.HERE, Secure.NOTHING),
    (PLANS["auto"], State(ended=ENDED), "slurm", Secure.NOTHING),
    (PLANS[ways.REQUEUE], State(next_cancelled="13"), "slurm", Secure.NOTHING),
], ids=["none is queued", "the user wants a successor", "one is queued", "the user wants none behind this job",
        "... though one is queued", "no Slurm", "the job is a shell's", "the run has ended",
        "a person cancelled the next job"])
def test_a_leader_that_starts_secures_the_next_job_once(
        plan: Plan, state: State, cluster: str, expected: Secure) -> None:
    assert passing.secure(plan._replace(cluster=cluster), state) is expected


def test_a_run_looks_at_the_runs_before_it_until_its_first_attempt() -> None:
    after = PLAN._replace(after=(AfterRun("a", "/runs/a", "a.r1"),))
    assert passing.waits_for_others(after, State()) and not passing.waits_for_others(PLAN, State())
    assert not passing.waits_for_others(after, history("failed"))
    assert not passing.waits_for_others(after, State(ended=ENDED))


@each(("has_claim", "is_contested", "expected"), [
    (True, True, True), (True, False, True), (False, False, True), (False, True, False)])
def test_only_a_leader_that_may_be_superseded_needs_a_claim_for_the_end(
        has_claim: bool, is_contested: bool, expected: bool) -> None:
    assert passing.may_write_end(has_claim=has_claim, is_contested=is_contested) is expected


@each(("refusals", "is_leaving", "pause_s"), [
    (1, False, 60.0), (2, False, 120.0), (7, False, 3600.0), (2, True, 120.0), (7, True, 600.0),
    (5000, False, 3600.0)])
def test_pauses_after_refusals_double_up_to_a_most(refusals: int, is_leaving: bool, pause_s: float) -> None:
    assert passing.pause_after_refusal(refusals, is_leaving=is_leaving) == pause_s


@each(("unclear", "pause_s"), [(0, 5.0), (1, 10.0), (3, 30.0), (5000, 30.0)])
def test_a_slurmctld_that_is_away_for_days_is_asked_each_half_minute(unclear: int, pause_s: float) -> None:
    assert passing.pause_without_answer(unclear) == pause_s


@each(("via", "is_leaving", "expected"), [
    ("auto", False, True), (ways.SUCCESSOR, False, False), (ways.SUCCESSOR, True, True)])
def test_a_chosen_way_is_left_only_where_the_run_would_be_lost(via: str, is_leaving: bool, expected: bool) -> None:
    assert passing.may_take_other_way(via, is_leaving=is_leaving) is expected


@each(("clear_looks", "submissions", "expected"), [
    (0, 0, False), (1, 0, True), (1, 1, False), (2, 1, True), (1, 3, False)])
def test_after_a_submission_two_clear_looks_must_find_none(
        clear_looks: int, submissions: int, expected: bool) -> None:
    assert passing.may_submit_alone(clear_looks, submissions) is expected


@each(("refusals", "is_missing", "expected"), [
    (1, False, False), (2, False, True), (3, False, True), (0, True, True)])
def test_a_command_that_is_missing_or_refused_again_is_given_up(
        refusals: int, is_missing: bool, expected: bool) -> None:
    assert passing.is_hopeless(refusals, MOST_REFUSALS, is_missing=is_missing) is expected


@each(("state", "expected"), [
    (jobstates.COMPLETING, True), (jobstates.PENDING, True), (jobstates.RUNNING, False), ("", False), (None, False)])
def test_a_job_on_its_way_back_into_the_queue_was_requeued(state: str | None, expected: bool) -> None:
    assert passing.is_requeued(state) is expected


def test_a_run_without_slurm_gives_up_where_others_go_on_in_their_next_job() -> None:
    assert passing.begin(ACTION, PLAN) is ACTION
    local, here = (PLAN._replace(cluster=cluster) for cluster in ("local", ways.HERE))
    assert passing.begin(ACTION, local) == Finish(RunEnd.GAVE_UP, FAILED_FOR_GOOD, ACTION.why)
    assert passing.begin(ACTION, here) == Finish(
        RunEnd.GAVE_UP, FAILED_FOR_GOOD, f"{ACTION.why}; no job follows that of a shell (submit --here)")


@each(("is_passed", "ending", "expected"), [
    (True, None, False), (True, JobEnd.PREEMPTED, False), (True, JobEnd.UNKNOWN, False),
    (True, JobEnd.CANCELLED, True), (False, None, True), (False, JobEnd.CANCELLED, True),
])
def test_only_a_persons_cancel_takes_a_passed_run_back(is_passed: bool, ending: str | None, expected: bool) -> None:
    assert passing.is_taken_back(is_passed=is_passed, ending=ending) is expected


@each(("ending", "cancelled"), [
    (JobEnd.CANCELLED, "this job"), (None, "the run's next job"), (JobEnd.TIME_LIMIT, "the run's next job"),
])
def test_a_run_that_is_taken_back_is_stopped_and_says_which_job_was_cancelled(
        ending: str | None, cancelled: str) -> None:
    assert passing.end_of_taken_back(ending) == Finish(RunEnd.STOPPED, STOPPED, f"a person cancelled {cancelled}")


@each(("state", "expected"), [
    (State(), ways.SUCCESSOR),
    (replace(State(), via=ways.REQUEUE), ways.REQUEUE),
    (replace(State(), via=ways.WATCH, successor="12"), ways.SUCCESSOR),
    (replace(State(), via=ways.RESUBMIT, next_cancelled="12"), ways.SUCCESSOR),
], ids=["nothing is chosen", "a way was chosen", "a job is queued already", "a person cancelled the next job"])
def test_a_next_job_that_is_known_comes_before_the_chosen_way(state: State, expected: str) -> None:
    assert passing.way_of(state) == expected


@each(("ending", "expected"), [
    (None, Requeue.CHECK), (JobEnd.UNKNOWN, Requeue.TO_WATCH), (JobEnd.PREEMPTED, Requeue.ASK),
    (JobEnd.TIME_LIMIT, Requeue.ASK),
])
def test_a_job_that_ends_for_no_known_reason_is_never_requeued(ending: str | None, expected: Requeue) -> None:
    assert passing.before_requeue(ending) is expected


def test_nothing_is_requeued_while_a_term_is_unexplained_or_the_job_ends() -> None:
    assert passing.is_requeue_due(None, has_term=False)
    assert not passing.is_requeue_due(None, has_term=True)
    assert not any(passing.is_requeue_due(ending, has_term=has_term) for ending in JobEnd for has_term in (False, True))


@each(("ending", "refused", "expected"), [
    (None, None, Requeue.DONE), (JobEnd.REQUEUED, None, Requeue.DONE), (JobEnd.PREEMPTED, None, Requeue.DONE),
    (JobEnd.CANCELLED, None, Requeue.TAKE_BACK), (None, "Access denied", Requeue.TO_WATCH),
    (JobEnd.CANCELLED, "Access denied", Requeue.TO_WATCH),
])
def test_a_requeue_just_after_a_persons_cancel_is_taken_back(
        ending: str | None, refused: str | None, expected: Requeue) -> None:
    assert passing.after_requeue(ending, refused) is expected


# --- the job that waits, and the ways to make one -----------------------------------------------------------------


@each(("state", "ending", "found", "expected"), [
    (State(), None, True, True), (State(), None, False, False), (State(), None, None, False),
    (State(next_cancelled="13"), None, False, True), (State(), JobEnd.CANCELLED, False, True),
    (State(), JobEnd.CANCELLED, None, True), (State(), JobEnd.PREEMPTED, False, False),
    (State(), JobEnd.UNKNOWN, None, False),
])
def test_no_job_is_made_where_one_waits_or_a_person_wants_none(
        state: State, ending: str | None, found: bool | None, expected: bool) -> None:
    assert passing.is_settled(state, ending, is_queued=found) is expected


@each(("state", "expected"), [
    (State(), Behind.QUEUE), (State(successor="13"), Behind.ASK), (State(next_cancelled="13"), Behind.LOOK),
    (State(successor="14", next_cancelled="13"), Behind.LOOK),
])
def test_a_cancel_of_the_next_job_is_looked_into_before_another_one_is_queued(state: State, expected: Behind) -> None:
    assert passing.behind(state) is expected


@each(("is_stuck", "is_hopeless", "expected"), [
    (True, True, Change.REPLACE), (True, False, Change.REPLACE), (False, True, Change.DONE),
    (False, False, Change.AGAIN),
])
def test_a_job_that_obeys_no_change_is_replaced_and_any_other_goes_on_at_last(
        is_stuck: bool, is_hopeless: bool, expected: Change) -> None:
    assert passing.after_refused(is_stuck=is_stuck, is_hopeless=is_hopeless) is expected


@each(("said", "is_missing", "refusals", "expected"), [
    ("sbatch: command not found", True, 1, Refused.NO_SBATCH),
    ("Job dependency problem", False, 1, Refused.RESUBMIT),
    ("Job dependency problem", True, 9, Refused.NO_SBATCH),
    ("Access/permission denied", False, MOST_REFUSALS - 1, Refused.AGAIN),
    ("Access/permission denied", False, MOST_REFUSALS, Refused.TEST),
], ids=["no sbatch here", "no dependencies here", "what is missing says nothing", "once", "again"])
def test_one_refusal_of_sbatch_changes_no_way(said: str, is_missing: bool, refusals: int, expected: Refused) -> None:
    assert passing.after_refusal(said, is_missing=is_missing, refusals=refusals) is expected


@each(("works", "tested", "way"), [
    (True, Refused.RESUBMIT, ways.REQUEUE), (False, Refused.NO_SBATCH, ways.WATCH), (None, Refused.AGAIN, None)])
def test_no_way_is_chosen_without_a_clear_answer(works: bool | None, tested: Refused, way: str | None) -> None:
    assert (passing.after_test(works), passing.without_sbatch(works)) == (tested, way)


@each("works", [True, False, None])
def test_a_job_that_was_made_smaller_in_the_queue_is_never_requeued(works: bool | None) -> None:
    assert passing.without_sbatch(works, is_small=True) == ways.WATCH


@each(("is_empty", "refused", "is_ending", "late", "very_late"), [
    (None, 0, False, False, True), (False, 1, False, False, True), (False, CANCEL_REFUSALS, False, True, True),
    (None, CANCEL_REFUSALS, False, False, True), (None, 0, True, True, True), (False, 1, True, True, True),
], ids=["slurmctld is away", "one refusal", "it refuses always", "refusals, and then it is away",
        "this job is being ended", "... after a refusal"])
def test_a_run_that_ends_waits_long_for_slurm_and_short_for_its_refusal(
        is_empty: bool | None, refused: int, is_ending: bool, late: bool, very_late: bool) -> None:
    answers = [passing.may_leave_queued(is_empty, refused, is_ending=is_ending, is_late=is_late, is_very_late=is_very)
               for is_late, is_very in ((False, False), (True, False), (True, True))]
    assert answers == [False, late, very_late]
