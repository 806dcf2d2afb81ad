"""Attempts that the journal does not know: those may live whose supervisor died after it announced or claimed them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from safelaunch.base.model import Event
from safelaunch.decide.facts.actions import FAILED_GRACE_S, Kill
from safelaunch.decide.facts.seen import Live
from safelaunch.decide.turn.unwritten import (
    Adopt,
    AfterAdopting,
    ThisJob,
    adopt,
    after_adopting,
    announced,
    claimed,
    end_of_silent,
    is_host_lost,
    is_left_running,
)
from safelaunch.run.fold.state import Intent, Job, State
from tests.pure.decide.situations import ALIVE, RUNNING, history
from tests.tables import each

HERE = ThisJob("7", "n0", ("n0", "n1"), is_same=True)
TAKEN = HERE._replace(has_taken_over=True)
KNOWN = history("failed")
NEXT = (KNOWN.attempt.number if KNOWN.attempt else 0) + 1
LAUNCH = Intent(3, "launch", {"attempt": NEXT, "job": "7", "nodes": ["n0", "n1"]})
CLAIM: dict[str, Any] = {"claim": 3, "attempt": NEXT, "job": "7", "host": "n0"}


@each(("intent", "here", "is_missing"), [
    (LAUNCH, TAKEN, True),
    (LAUNCH, HERE._replace(is_same=False), True),
    (LAUNCH, HERE, False),
    (replace(LAUNCH, data={**LAUNCH.data, "job": "6"}), HERE, True),
    (replace(LAUNCH, data={**LAUNCH.data, "attempt": NEXT - 1}), TAKEN, False),
    (replace(LAUNCH, act="cancel"), TAKEN, False),
    (Intent(3, "launch", {"attempt": NEXT, "job": "7"}), TAKEN, False),
], ids=["another host's supervisor died", "a job that was requeued", "its files are on this host", "an earlier job",
        "the journal has it", "another act", "a journal from before nodes were announced"])
def test_an_announced_launch_counts_unless_its_files_are_here(intent: Intent, here: ThisJob, is_missing: bool) -> None:
    found = announced(KNOWN, intent, here)
    assert (found is not None) is is_missing
    if found is not None:
        assert (found["attempt"], found["nodes"]) == (NEXT, ["n0", "n1"])


def test_of_an_attempt_whose_number_is_known_nothing_is_missing() -> None:
    assert claimed(KNOWN, (), {**CLAIM, "attempt": NEXT - 1}, TAKEN) is None


@each(("claim", "here", "is_missing"), [
    (CLAIM, TAKEN, True),
    (CLAIM, HERE, False),
    (CLAIM, HERE._replace(is_same=False), False),
    (CLAIM, HERE._replace(is_same=False, restart_count=1), True),
    ({**CLAIM, "host": "n1"}, HERE, True),
    ({**CLAIM, "job": "6"}, HERE, True),
], ids=["after a takeover", "its files are here", "it was never launched", "Slurm has requeued the job",
        "another host's claim", "an earlier job's claim"])
def test_a_claim_without_an_intent_counts_where_its_host_may_have_died(
        claim: dict[str, Any], here: ThisJob, is_missing: bool) -> None:
    assert (claimed(KNOWN, (), claim, here) is not None) is is_missing


def test_a_claim_whose_intent_is_in_the_journal_counts_no_second_time() -> None:
    intent = Event(1.0, 1, 1, "n0", "intent", {"claim": 3})
    assert claimed(KNOWN, (intent,), CLAIM, TAKEN) is None


def test_the_nodes_of_an_earlier_jobs_claim_are_that_jobs() -> None:
    assert claimed(KNOWN, (), CLAIM, TAKEN) == {
        "attempt": NEXT, "job": "7", "nodes": ["n0", "n1"], "note": "claimed by a supervisor that died"}
    other = claimed(State(), (), {**CLAIM, "job": "6"}, TAKEN)
    assert other is not None and other["nodes"] == []


def test_the_attempt_of_a_silent_supervisor_is_ended_as_a_failed_one() -> None:
    assert end_of_silent("n0") == Kill(FAILED_GRACE_S, "its supervisor on n0 is silent")


@each(("live", "attempt", "host", "answers", "expected"), [
    (ALIVE, 1, "n1", False, True), (ALIVE, 1, "n1", True, False), (ALIVE, 2, "n1", False, False),
    (ALIVE, 1, "n2", False, False), (None, 1, "n1", False, False),
], ids=["silent", "its guard calls", "the next attempt is on its way", "not of the attempt", "no attempt lives"])
def test_the_old_supervisors_host_is_lost_where_its_guards_do_not_call(
        live: Live | None, attempt: int, host: str, answers: bool, expected: bool) -> None:
    assert is_host_lost(live, attempt, host, answers=answers) is expected


@each(("job", "started_t", "expected"), [("6", 1.0, True), ("6", None, False), ("7", 1.0, False)],
                         ids=["the job before", "it never started", "this very job"])
def test_only_a_job_that_the_run_has_gone_on_from_is_ended(job: str, started_t: float | None, expected: bool) -> None:
    known = State(jobs=(Job(job, 0.0, started_t), Job("8", 0.0)))
    assert is_left_running(known, job, HERE) is expected
    assert not is_left_running(known, "5", HERE)


@each(("state", "job", "expected"), [
    (State(), "11", Adopt.RESUME), (history("failed"), "11", Adopt.RESUME),
    (RUNNING, "11", Adopt.TAKE), (RUNNING, "12", Adopt.NOTHING),
], ids=["no attempt yet", "the last one has ended", "it may live", "it was another job's"])
def test_only_an_attempt_of_this_job_without_an_end_is_taken_over(state: State, job: str, expected: Adopt) -> None:
    assert adopt(state.attempt, job) is expected


MOVE, ASK_ON, FENCE = AfterAdopting.MOVE_RECORD, AfterAdopting.ASK_ON, AfterAdopting.FENCE


@each(("row", "has_process", "has_moved", "has_taken_over", "expected"), [
    (None, True, False, False, ()),
    (None, True, True, False, (MOVE,)),
    ("limit_near", True, True, False, (MOVE, ASK_ON)),
    ("limit_near", True, False, True, (ASK_ON,)),
    ("failed", True, False, False, ()),
    ("limit_near", False, True, True, (FENCE,)),
    ("limit_near", False, True, False, ()),
], ids=["its guards find this leader", "its port is another process's", "... and it was asked to end",
        "a leader that had taken over, and was restarted", "it was told to end, not asked",
        "its host is silent", "its srun has gone"])
def test_what_is_due_for_an_attempt_that_was_taken_over(
        row: str | None, has_process: bool, has_moved: bool, has_taken_over: bool,
        expected: tuple[AfterAdopting, ...]) -> None:
    assert after_adopting(row, has_process=has_process, has_moved=has_moved,
                          has_taken_over=has_taken_over) == expected
