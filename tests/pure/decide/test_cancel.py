"""A cancel by a person: which witness counts before which, and that nobody's silence is taken for one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.base.endings import JobEnd
from safelaunch.base.model import Event
from safelaunch.decide.jobs.cancel import (
    MIN_JOB_AGE_S,
    Canceller,
    CancelWitness,
    Fate,
    NextJobFacts,
    SlurmQuestion,
    Witnesses,
    is_explained_handover,
    judge,
    judge_next,
    next_question,
    next_witness,
)
from safelaunch.slurm import jobstates
from tests.tables import each


@each(("seen", "expected"), [
    (Witnesses(noted=True, announced=True), Canceller.PERSON),
    (Witnesses(announced=True, ending=JobEnd.CANCELLED, state="CANCELLED"), Canceller.NOBODY),
    (Witnesses(ending=JobEnd.CANCELLED, handed_over=True), Canceller.PERSON),
    (Witnesses(ending=JobEnd.PREEMPTED, state="CANCELLED"), Canceller.NOBODY),
    (Witnesses(is_local=True), Canceller.NOBODY),
    (Witnesses(handed_over=True, state="CANCELLED"), Canceller.PERSON),
    (Witnesses(handed_over=True, announced=True, state="CANCELLED"), Canceller.NOBODY),
    (Witnesses(handed_over=True, state="COMPLETING"), Canceller.NOBODY),
    (Witnesses(handed_over=True, ending=JobEnd.UNKNOWN), Canceller.NOBODY),
    (Witnesses(), Canceller.ASK),
    (Witnesses(state="RUNNING"), Canceller.NOBODY),
    (Witnesses(step_end=JobEnd.CANCELLED, state="RUNNING"), Canceller.ASK),
    (Witnesses(state="COMPLETING"), Canceller.ASK),
    (Witnesses(state="COMPLETING", is_late=True), Canceller.NOBODY),
    (Witnesses(step_end=JobEnd.CANCELLED, state="COMPLETING", is_late=True), Canceller.UNSAID),
    (Witnesses(ending=JobEnd.UNKNOWN, is_late=True), Canceller.UNTOLD),
    (Witnesses(step_end=JobEnd.UNKNOWN, is_late=True), Canceller.UNTOLD),
    (Witnesses(ending=JobEnd.UNKNOWN, state=""), Canceller.UNTOLD),
    (Witnesses(state=""), Canceller.NOBODY),
    (Witnesses(state="CANCELLED"), Canceller.PERSON),
    (Witnesses(ending=JobEnd.UNKNOWN, state="CANCELLED"), Canceller.PERSON),
    (Witnesses(step_end=JobEnd.CANCELLED, state="PREEMPTED"), Canceller.NOBODY),
    (Witnesses(state="NODE_FAIL"), Canceller.NOBODY),
], ids=[
    "a guard's word came after the watch's", "a supervisor announced it", "slurmstepd wrote of a scancel",
    "slurmstepd wrote of a preemption", "a local run", "its supervisor passed the run on, and it was cancelled then",
    "... and ended the job by a cancel of its own", "... and Slurm has not ended it yet: nobody waits for that",
    "... and nobody could read the line", "nothing is known", "it still runs",
    "... and a step of it was ended by a scancel before", "Slurm waits for a dead node", "... for ever",
    "... and a step of it was ended by a scancel", "a line of a later release, and Slurm is away",
    "... of a step", "... and Slurm has forgotten the job", "Slurm has forgotten the job", "squeue says so",
    "... where the line cannot be read", "a step was ended by a preemption with grace", "its node failed",
])
def test_who_cancelled_a_job(seen: Witnesses, expected: Canceller) -> None:
    assert judge(seen) is expected


WORDS = st.none() | st.sampled_from(JobEnd)
SEEN = st.builds(Witnesses, st.booleans(), st.booleans(), WORDS, st.booleans(), st.booleans(), WORDS,
                 st.none() | st.sampled_from(["", "CANCELLED", "FAILED", "TIMEOUT", *sorted(jobstates.ON_NODES)]),
                 st.booleans())


@given(SEEN)
def test_a_person_is_named_only_where_a_witness_says_so(seen: Witnesses) -> None:
    said = (seen.noted, seen.ending == JobEnd.CANCELLED, seen.state == "CANCELLED")
    assert judge(seen) is not Canceller.PERSON or any(said)


@given(SEEN)
def test_where_time_is_up_nobody_is_asked(seen: Witnesses) -> None:
    assert not seen.is_late or judge(seen) is not Canceller.ASK


@each(("job", "expected"), [
    (NextJobFacts("CANCELLED"), Fate.CANCELLED),
    (NextJobFacts("CANCELLED", announced=True), Fate.LOST),
    (NextJobFacts("NODE_FAIL"), Fate.LOST),
    (NextJobFacts("PENDING"), Fate.WAITS),
    (NextJobFacts("RUNNING"), Fate.STARTED),
    (NextJobFacts(), Fate.UNKNOWN),
    (NextJobFacts(""), Fate.UNKNOWN),
    (NextJobFacts("", is_queued=True), Fate.WAITS),
    (NextJobFacts("", is_queued=False, account="CANCELLED"), Fate.CANCELLED),
    (NextJobFacts("", is_queued=False, account="CANCELLED", announced=True), Fate.LOST),
    (NextJobFacts("", is_queued=False, account="FAILED"), Fate.LOST),
    (NextJobFacts("", is_queued=False, age_s=MIN_JOB_AGE_S - 1), Fate.LOST),
    (NextJobFacts("", is_queued=False, age_s=MIN_JOB_AGE_S), Fate.CANCELLED),
    (NextJobFacts("", is_queued=False), Fate.CANCELLED),
], ids=[
    "squeue shows a scancel", "... that a supervisor announced", "its node failed", "it waits", "it leads the run",
    "slurmctld is away", "it is not known, and the queue was not shown", "one answer without it proves nothing",
    "sacct says so", "... of a cancel that was announced", "Slurm ended it",
    "slurmctld died before it had saved it", "an old job that nobody knows", "... of unknown age",
])
def test_what_has_become_of_the_next_job(job: NextJobFacts, expected: Fate) -> None:
    assert judge_next(job) is expected


OUTPUT, BOTH = (CancelWitness.JOB_OUTPUT,), (CancelWitness.JOB_OUTPUT, CancelWitness.STEP_OUTPUT)


@each(("seen", "asked", "expected"), [
    (Witnesses(noted=True), (), None),
    (Witnesses(announced=True), (), None),
    (Witnesses(), (), CancelWitness.JOB_OUTPUT),
    (Witnesses(handed_over=True), (), CancelWitness.JOB_OUTPUT),
    (Witnesses(handed_over=True), OUTPUT, CancelWitness.SLURM),
    (Witnesses(handed_over=True), (*OUTPUT, CancelWitness.SLURM), None),
    (Witnesses(handed_over=True, is_local=True), OUTPUT, None),
    (Witnesses(ending=JobEnd.PREEMPTED), OUTPUT, None),
    (Witnesses(is_local=True), OUTPUT, None),
    (Witnesses(), OUTPUT, CancelWitness.STEP_OUTPUT),
    (Witnesses(ending=JobEnd.UNKNOWN), OUTPUT, CancelWitness.STEP_OUTPUT),
    (Witnesses(step_end=JobEnd.CANCELLED), BOTH, CancelWitness.SLURM),
], ids=["a watch's note is enough", "a supervisor's announcement is enough", "the job's own line comes first",
        "... also before its handover, behind which a person may have cancelled it", "... then Slurm", "... once",
        "... which a local run has not", "the line tells", "a local run has no Slurm",
        "no line: the standbys' steps", "an unreadable line: the same", "at last Slurm"])
def test_the_witnesses_of_a_cancel_are_asked_in_turn(
        seen: Witnesses, asked: tuple[CancelWitness, ...], expected: CancelWitness | None) -> None:
    assert next_witness(seen, asked) is expected


@each(("job", "last", "expected"), [
    (NextJobFacts(), None, SlurmQuestion.JOB),
    (NextJobFacts("PENDING"), SlurmQuestion.JOB, None),
    (NextJobFacts(None), SlurmQuestion.JOB, None),
    (NextJobFacts(""), SlurmQuestion.JOB, SlurmQuestion.QUEUE),
    (NextJobFacts("", is_queued=True), SlurmQuestion.QUEUE, None),
    (NextJobFacts("", is_queued=None), SlurmQuestion.QUEUE, None),
    (NextJobFacts("", is_queued=False), SlurmQuestion.QUEUE, SlurmQuestion.ACCOUNT),
    (NextJobFacts("", is_queued=False), SlurmQuestion.ACCOUNT, None),
], ids=["nobody was asked", "it waits", "no clear answer: later", "not known: the whole queue", "it is there",
        "no clear answer about the queue", "it is not there: sacct", "nothing else can be asked"])
def test_slurm_is_asked_about_the_next_job_until_its_answers_tell(
        job: NextJobFacts, last: SlurmQuestion | None, expected: SlurmQuestion | None) -> None:
    assert next_question(job, last) is expected


@given(st.builds(NextJobFacts, st.just(""), st.none() | st.booleans(),
                 st.none() | st.sampled_from(["CANCELLED", "FAILED"]),
                 st.booleans(), st.none() | st.floats(0, 1e6)))
def test_a_job_counts_as_gone_only_after_two_clear_answers(job: NextJobFacts) -> None:
    assert judge_next(job) not in (Fate.CANCELLED, Fate.LOST) or job.is_queued is False


@each(("events", "expected"), [
    ([("outcome", {"act": "hand_over", "job": "7", "ok": True, "ending": None})], True),
    ([("outcome", {"act": "hand_over", "job": "7", "ok": True, "ending": "time_limit"})], True),
    ([("outcome", {"act": "hand_over", "job": "7", "ok": True, "ending": "unknown"})], False),
    ([("outcome", {"act": "hand_over", "job": "7", "ok": False})], False),
    ([("outcome", {"act": "hand_over", "job": "6", "ok": True})], False),
    ([("outcome", {"act": "hand_over", "job": "7", "ok": True}), ("job_started", {"job": "7"})], False),
    ([], False),
], ids=["it knew why", "the time limit", "nothing told it why", "a person took the run back", "another job's",
        "the job came back from a requeue", "nothing was handed over"])
def test_a_handover_explains_its_jobs_end_only_where_the_reason_was_known(
        events: list[tuple[str, dict[str, Any]]], expected: bool) -> None:
    history = [Event(float(seq), 1, seq, "n0", event, data) for seq, (event, data) in enumerate(events)]
    assert is_explained_handover(history, "7") is expected
