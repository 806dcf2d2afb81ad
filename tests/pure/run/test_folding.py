"""The fold: a run's state is what its journal says, whole or cut off anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.base.model import Event
from safelaunch.run import journal
from safelaunch.run.fold.folding import _STEPS, fold
from safelaunch.run.fold.state import NAMING, Ended, State
from tests.tables import each


class Pen:
    """Writes events one after another, as one supervisor after the other does."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.gen = 0

    def write(self, event: str, **data: Any) -> Pen:
        t = 1000.0 + len(self.events)
        self.events.append(Event(t, self.gen, len(self.events) + 1, f"host{self.gen}", event, data))
        return self

    def next_gen(self) -> Pen:
        self.gen += 1
        return self

    @property
    def state(self) -> State:
        return fold(self.events)


def started(nodes: Sequence[str] = ("n0", "n1")) -> Pen:
    """A run whose first job and first attempt have started."""
    return (
        Pen().write("submitted", job="11").next_gen()
        .write("job_started", job="11", nodes=list(nodes), batch_host="n0")
        .write("submitted", job="12", successor_of="11", exclude=[])
        .write("attempt_started", attempt=1, job="11", nodes=list(nodes), port=20000)
    )


def end_attempt(pen: Pen, number: int, how: str, checkpoint: int | None = None) -> Pen:
    pen.write("attempt_ended", attempt=number, how=how, exit_code=1).write("fenced", attempt=number)
    if checkpoint is not None:
        pen.write("checkpoint", attempt=number, step=checkpoint)
    return pen


@st.composite
def lives(draw: st.DrawFn) -> list[Event]:
    """Journals of runs as leaders write them: jobs, attempts, successors, claims, suspects, an end or none."""
    pen = Pen().write("submitted", job="1")
    number = claim = 0
    for job in range(1, draw(st.integers(1, 3)) + 1):
        pen.next_gen().write("job_started", job=str(job), nodes=["n0", "n1", "n2"], batch_host="n0")
        pen.write("submitted", job=str(job + 1), successor_of=str(job), exclude=draw(st.sampled_from([[], ["n1"]])))
        for _ in range(draw(st.integers(0, 3))):
            number, claim = number + 1, claim + 1
            pen.write("intent", claim=claim, act="launch", attempt=number)
            pen.write("attempt_started", attempt=number, job=str(job), nodes=["n0", "n1"], port=1)
            if draw(st.booleans()):
                pen.write("outcome", claim=claim, act="launch", ok=True)
            if draw(st.booleans()):
                pen.write("progress", attempt=number, step=draw(st.integers(0, 99)))
            how = draw(st.sampled_from(["failed", "lost", "interrupted", "stopped"]))
            pen.write("verdict", attempt=number, category="unknown", summary="x")
            end_attempt(pen, number, how, draw(st.none() | st.integers(0, 99)))
            if how == "lost":
                node = draw(st.sampled_from(["n0", "n1"]))
                pen.write("node_suspected", node=node, why="silent").write("node_excluded", node=node, why="silent")
        if draw(st.booleans()):
            pen.next_gen().write("took_over", job=str(job))
        if draw(st.booleans()):
            pen.write("preserved", until=2000.0)
            if draw(st.booleans()):
                pen.write("released")
        for word in draw(st.permutations(["handed_over", "successor_lost", "successor_relaxed", "successor_freed"])):
            pen.write(word, job=str(job + 1), exclude=["n1"])
    if draw(st.booleans()):
        pen.write(draw(st.sampled_from(["completed", "gave_up", "stopped"])), exit_code=0, why="because")
    return pen.events


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=4) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2), max_leaves=4,
)
KEYS = ("job", "attempt", "step", "nodes", "exclude", "successor_of", "how", "claim", "act", "node", "until", "who",
        "exit_code", "why", "category", "summary", "batch_host", "port")
WILD = st.builds(
    Event, st.floats(0, 1e10), st.integers(0, 5), st.integers(0, 50), st.text(max_size=4),
    st.sampled_from([*sorted(_STEPS), "teleported"]), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8),
)


@given(lives(), st.integers(0, 200))
def test_a_prefix_and_then_the_rest_give_the_same_state_as_all_at_once(events: list[Event], at: int) -> None:
    cut = at % (len(events) + 1)
    assert fold(events[cut:], fold(events[:cut])) == fold(events)


@given(lives())
def test_folding_the_journal_a_second_time_changes_nothing(events: list[Event]) -> None:
    state = fold(events)
    assert fold(events, state) == state


@given(lives(), st.data())
def test_redelivered_lines_change_nothing(events: list[Event], data: st.DataObject) -> None:
    again = data.draw(st.lists(st.sampled_from(events), max_size=5))
    files = {"a": b"".join(map(journal.render, events)), "b": b"".join(map(journal.render, again))}
    assert fold(journal.merge(files).events) == fold(events)


@given(st.lists(WILD, max_size=12), st.integers(0, 12))
def test_no_journal_whatever_it_says_stops_the_fold(events: list[Event], at: int) -> None:
    cut = min(at, len(events))
    state = fold(events[cut:], fold(events[:cut]))
    assert state == fold(events) or state != state   # equal, but for a NaN in it
    assert state.name
    assert state.job is None or state.job in state.jobs


@given(lives() | st.lists(WILD, max_size=12))
def test_only_the_events_that_are_said_to_change_a_states_name_do(events: list[Event]) -> None:
    state = State()
    for event in events:
        later = fold([event], state)
        assert later.name == state.name or event.event in NAMING
        state = later


@each(
    ("pen", "name"),
    [
        (Pen(), "submitting"),
        (Pen().write("submitted", job="1"), "queued"),
        (Pen().write("submitted", job="1").write("job_started", job="1", nodes=["n0"]), "starting"),
        (started(), "running"),
        (end_attempt(started(), 1, "failed"), "restarting"),
        (end_attempt(started(), 1, "failed").write("preserved", until=5000.0), "preserving"),
        (end_attempt(started(), 1, "failed").write("preserved", until=5000.0).write("released"), "restarting"),
        (end_attempt(started(), 1, "completed").write("completed", why="done"), "completed"),
        (end_attempt(started(), 1, "failed").write("gave_up", exit_code=11, why="spent"), "gave_up"),
        (Pen().write("submitted", job="1").write("stopped", why="alice touched kill"), "stopped"),
    ],
    ids=["nothing yet", "in the queue", "job started", "attempt started", "attempt failed", "site preserved",
         "released", "completed", "gave up", "stopped in the queue"],
)
def test_a_run_has_one_word_for_what_it_is_doing(pen: Pen, name: str) -> None:
    assert pen.state.name == name


def test_only_failed_and_lost_attempts_cost_a_restart() -> None:
    pen = started()
    for number, how in enumerate(["failed", "lost", "interrupted", "stopped", "completed"], start=1):
        pen.write("attempt_started", attempt=number, job="11", nodes=["n0"])
        end_attempt(pen, number, how)
    assert (pen.state.restarts, pen.state.failures_without_progress) == (2, 2)


def test_a_checkpoint_that_advances_refills_the_budget_without_progress() -> None:
    pen = end_attempt(started(), 1, "failed", checkpoint=100)
    assert (pen.state.best_step, pen.state.failures_without_progress, pen.state.restarts) == (100, 0, 1)


@each("step", [100, 99, 0], ids=["the same again", "an older one", "the first"])
def test_a_checkpoint_that_does_not_advance_refills_nothing(step: int) -> None:
    pen = end_attempt(started(), 1, "failed", checkpoint=100)
    pen.write("attempt_started", attempt=2, job="11", nodes=["n0"])
    state = end_attempt(pen, 2, "failed", checkpoint=step).state
    assert (state.best_step, state.failures_without_progress) == (100, 1)


def test_steps_without_a_checkpoint_refill_nothing() -> None:
    pen = started().write("progress", attempt=1, step=5000)
    assert end_attempt(pen, 1, "failed").state.failures_without_progress == 1


def test_an_attempt_ends_once_whatever_a_late_supervisor_adds() -> None:
    pen = end_attempt(started(), 1, "completed").next_gen()
    state = pen.write("attempt_ended", attempt=1, how="failed").state
    assert state.attempt is not None
    assert (state.attempt.ended, state.restarts) == ("completed", 0)


def test_a_hold_by_safelaunch_itself_is_over_once_an_attempt_starts() -> None:
    pen = end_attempt(started(), 1, "failed").write("held", job="11", why="nobody can tell")
    assert (pen.state.held, pen.state.holder("bob")) == ("nobody can tell", "safelaunch")
    pen.write("attempt_started", attempt=2, job="12", nodes=["n0"])
    assert (pen.state.held, pen.state.holder("bob")) == (None, "bob")


def test_the_first_end_of_a_run_is_final() -> None:
    state = started().write("stopped", why="alice touched kill").write("completed", why="all done").state
    assert state.ended == Ended("stopped", 12, "alice touched kill", 1004.0)


@each("odd", [10**18, 256, -1, None, "12", 1.5], ids=str)
def test_an_exit_code_that_no_process_can_have_is_not_taken_for_the_runs(odd: object) -> None:
    """The shell would see the last eight bits of it, which can be 0."""
    ended = started().write("stopped", exit_code=odd, why="x").state.ended
    assert ended is not None and ended.exit_code == 12


def test_an_ended_run_preserves_no_site() -> None:
    pen = started().write("preserved", until=9000.0).write("gave_up", why="spent").write("preserved", until=9999.0)
    assert pen.state.preserving_until is None


@each("until", [float("nan"), float("inf"), "soon", None, 10**400],
                         ids=["NaN", "Infinity", "text", "null", "400 digits"])
def test_a_time_that_is_none_preserves_no_site(until: object) -> None:
    assert started().write("preserved", until=until).state.preserving_until is None


def test_an_intent_without_outcome_stays_until_somebody_settles_it() -> None:
    pen = started().write("intent", claim=5, act="launch", attempt=2).write("intent", claim=6, act="queue_successor")
    assert [intent.claim for intent in pen.state.intents] == [5, 6]
    assert [intent.claim for intent in pen.write("outcome", claim=5, ok=None).state.intents] == [6]


def test_the_successor_is_forgotten_when_it_starts_and_the_job_before_is_over() -> None:
    pen = started()
    assert pen.state.successor == "12"
    state = pen.next_gen().write("job_started", job="12", nodes=["n2"], batch_host="n2").state
    assert state.successor is None
    assert state.job is not None
    assert (state.job.id, state.job.over, state.jobs[0].over) == ("12", False, True)


def test_a_requeued_job_is_not_over() -> None:
    pen = started().next_gen().write("job_started", job="12", nodes=["n2"])
    state = pen.next_gen().write("job_started", job="11", nodes=["n3"]).state
    assert [(job.id, job.over) for job in state.jobs] == [("11", False), ("12", True)]
    assert state.job == state.jobs[0]


def test_the_job_that_started_last_is_the_current_one_although_it_was_written_down_before_another() -> None:
    """A watch submits beside a living leader under generation 0, which stands before all others."""
    pen = Pen().write("submitted", job="11").write("submitted", job="13", successor_of="12").next_gen()
    pen.write("job_started", job="11", nodes=["n0"]).write("submitted", job="12", successor_of="11")
    pen.next_gen().write("job_started", job="12", nodes=["n0"]).next_gen().write("job_started", job="13", nodes=["n0"])
    assert [job.id for job in pen.state.jobs] == ["11", "13", "12"]
    assert pen.state.job is not None
    assert pen.state.job.id == "13"


def test_a_job_that_nobody_saw_submitted_is_known_once_it_starts() -> None:
    state = Pen().write("job_started", job="7", nodes=["n0"]).state
    assert state.job is not None
    assert (state.job.id, state.job.nodes) == ("7", ("n0",))


def test_suspects_are_listed_once_with_their_first_reason() -> None:
    pen = started().write("node_suspected", node="n1", why="silent").write("node_suspected", node="n1", why="again")
    assert pen.state.suspects == (("n1", "silent"),)
    assert pen.state.excluded == ()


def test_a_node_is_kept_out_from_its_exclusion_until_somebody_clears_it() -> None:
    pen = started().write("node_excluded", node="n1", why="silent").write("node_excluded", node="n1", why="again")
    assert pen.state.excluded == ("n1",)
    assert pen.write("node_cleared", node="n1", owner="bob", why="new cable").state.excluded == ()


def test_a_node_that_is_kept_out_no_more_stays_a_suspect() -> None:
    pen = started().write("node_suspected", node="n1", why="silent").write("node_excluded", node="n1", why="silent")
    state = pen.write("node_readmitted", node="n1", why="others count more").state
    assert (state.excluded, state.suspects) == ((), (("n1", "silent"),))


def test_a_node_that_failed_its_checks_is_remembered_in_later_jobs_until_it_passes_or_the_run_advances() -> None:
    pen = started().write("checks_failed", job="11", nodes=["n1", "n2"], why="its disk is full", unused=True)
    assert (dict(pen.state.unfit), pen.state.unfit_before) == (
        {"n1": "its disk is full", "n2": "its disk is full"}, ())
    pen.next_gen().write("job_started", job="12", nodes=["n0", "n1"], batch_host="n0")
    assert (pen.state.unfit, pen.state.unfit_before) == ((), ("n1", "n2"))
    pen.write("checks_passed", job="12", nodes=["n0", "n1"])
    assert pen.state.unfit_before == ("n2",)
    assert pen.write("checkpoint", attempt=1, step=10).state.unfit_before == ()


def test_a_node_that_the_cluster_does_not_know_is_left_out_until_it_is_kept_out_again() -> None:
    pen = started().write("node_excluded", node="n1", why="silent").write("node_left_out", node="n1", why="gone")
    assert (pen.state.excluded, pen.state.left_out) == ((), (("n1", "gone"),))
    assert pen.write("node_excluded", node="n1", why="silent").state.left_out == ()


@each(
    ("event", "data"),
    [
        ("progress", {"attempt": 1}),
        ("progress", {"attempt": 1, "step": "many"}),
        ("progress", {"attempt": 1, "step": float("inf")}),
        ("checkpoint", {"step": None}),
        ("attempt_started", {"attempt": 9, "job": "11", "nodes": "n0"}),
        ("attempt_ended", {"attempt": "first", "how": "failed"}),
        ("attempt_ended", {"attempt": 77, "how": "failed"}),
        ("intent", {"claim": "x", "act": "launch"}),
        ("resubmitted", {"job": "12", "exclude": 7}),
        ("teleported", {"attempt": 1}),
    ],
    ids=["no step", "step is a text", "step is Infinity", "step is null", "nodes is a text", "attempt is a text",
         "no such attempt", "claim is a text", "exclude is a number", "an event of a later version"],
)
def test_an_event_that_says_nothing_sensible_changes_nothing(event: str, data: dict[str, Any]) -> None:
    before, after = started(), started().write(event, **data)
    assert after.state == replace(before.state, last_t=after.state.last_t)


# --- the next job -------------------------------------------------------------------------------------------------


def test_a_successor_that_a_person_cancelled_is_no_successor_and_not_forgotten() -> None:
    state = started().write("successor_cancelled", job="12", why="gone").state
    assert (state.successor, state.next_cancelled) == (None, "12")


def test_a_next_job_that_a_person_queues_afterwards_counts_again() -> None:
    pen = started().write("successor_cancelled", job="12", why="gone")
    state = pen.write("submitted", job="13", successor_of="11", exclude=[]).state
    assert (state.successor, state.next_cancelled) == ("13", None)


@each(("word", "job", "successor", "excludes"), [
    ("handed_over", "12", "12", ("n1",)),
    ("handed_over", None, None, ("n1",)),
    ("successor_relaxed", "12", "12", ("n1",)),
    ("successor_freed", "12", "12", ("n1",)),
    ("successor_lost", "12", None, ()),
    ("resubmitted", "12", "12", ("n1",)),
    ("resubmitted", None, None, ("n1",)),
])
def test_each_word_on_the_next_job_says_which_it_is_and_what_it_is_kept_from(
    word: str, job: str | None, successor: str | None, excludes: tuple[str, ...]
) -> None:
    state = started().write("submitted", job="12", successor_of="11", exclude=["n0"]).write(
        word, job=job, exclude=["n1"], why="because").state
    assert (state.successor, state.successor_excludes) == (successor, excludes)


def test_a_requeued_job_is_the_same_one_started_again() -> None:
    pen = end_attempt(started(), 1, "interrupted").write("resubmitted", job="11", exclude=["n0"], why="n0 is lost")
    assert pen.state.successor == "11"
    state = pen.next_gen().write("job_started", job="11", nodes=["n1", "n2"], batch_host="n1", restart_count=1).state
    job = state.job
    assert job is not None and (job.id, job.nodes, job.restart_count, job.over) == ("11", ("n1", "n2"), 1, False)
    assert state.successor is None and len(state.jobs) == 2


def test_a_requeued_job_is_no_next_job_of_another_one_that_goes_on_in_its_place() -> None:
    pen = end_attempt(started(), 1, "interrupted").write("handed_over", job="11", exclude=["n0"], why="n0 is lost")
    state = pen.next_gen().write("job_started", job="13", nodes=["n1", "n2"], batch_host="n1", restart_count=0).state
    assert (state.job.id if state.job else None, state.successor) == ("13", None)


def shell_says(pen: Pen, code: int = 0, host: str = "host1", **data: Any) -> State:
    """The state once the batch script of job 11 has written down how the training ended."""
    line = Event(5000.0, pen.gen, 1_700_000_000, host, "ended_alone", {"job": "11", "exit_code": code, **data})
    return fold([*pen.events, line])


def test_batch_scripts_word_completes_a_run_that_nobody_supervises_any_more() -> None:
    why = "job 11 ended with exit code 0, without a supervisor"
    assert shell_says(started()).ended == Ended("completed", 0, why, 5000.0)
    queued = Pen().write("submitted", job="11")
    assert shell_says(queued).ended == Ended("completed", 0, why, 5000.0), "no supervisor was ever born"
    assert shell_says(started(), host="host9", restart_count=1).ended, "requeued: its first life's leader is no witness"


def test_batch_scripts_word_of_anything_else_is_no_end() -> None:
    assert shell_says(started(), 3).failed_alone == ("11", 3)
    assert shell_says(started(), 3).ended is None
    asked = started().write("decision", action="end", row="limit_near", attempt=1)
    assert (shell_says(asked).ended, shell_says(asked).failed_alone) == (None, ("11", 0)), "it saved and is to go on"
    elsewhere = started().next_gen().write("took_over", job="11", before="host1")
    assert shell_says(elsewhere).ended is None, "the standby on host2 leads"
    assert shell_says(elsewhere).failed_alone is None


@each(("until", "known"), [(1500.5, 1500.5), (None, None), ("soon", None), (True, None),
                                              (float("nan"), None)])
def test_a_pause_has_its_end_until_the_next_decision(until: object, known: float | None) -> None:
    pen = started().write("attempt_ended", attempt=1, how="failed", exit_code=1)
    pen.write("decision", row="back_off", why="waiting", until=until)
    assert (pen.state.pause, pen.state.pause_until) == ("waiting", known)
    pen.write("decision", row="launch", why="on", action="launch", attempt=2)
    assert (pen.state.pause, pen.state.pause_until) == (None, None)
