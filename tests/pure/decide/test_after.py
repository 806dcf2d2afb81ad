"""A run that waits for others: when it may start, which jobs it waits for, and what ends it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.decide.facts import after
from safelaunch.decide.facts.actions import Finish, HandOver, Wait
from safelaunch.decide.facts.after import ABSENT_S, WATCHED_S, May, RunBefore
from safelaunch.launch.settings import AfterRun
from safelaunch.run.fold.state import State
from tests.pure.decide.situations import FAILED_ONCE, KILL, PLAN, action, history, row, seen
from tests.tables import each

OK, ANY = RunBefore("a", is_any=False), RunBefore("a", is_any=True)
PATIENT = PLAN._replace(after=(AfterRun("a", "/runs/a", "a.1"),))
QUEUED = replace(history(), successor="12")


@each(("before", "expected"), [
    ((), May(True)),
    ((OK._replace(ended="completed"),), May(True)),
    ((ANY._replace(ended="gave_up", why="a bug"),), May(True)),
    ((ANY._replace(ended="stopped"),), May(True)),
    ((OK._replace(ended="gave_up", why="a bug"),),
     May(False, never="a, for whose good end it waits, has ended: gave_up (a bug)")),
    ((OK._replace(ended="stopped", why="bob stopped it"),),
     May(False, never="a, for whose good end it waits, has ended: stopped (bob stopped it)")),
    ((OK._replace(jobs=("7", "8")),), May(False, ("7", "8"), why="it waits for the end of a")),
    ((OK,), May(False, why="it waits for the end of a")),
    ((ANY._replace(jobs=(), absent_s=ABSENT_S - 1),), May(False, why="it waits for the end of a")),
    ((ANY._replace(jobs=(), absent_s=ABSENT_S),), May(True)),
    ((OK._replace(jobs=(), absent_s=ABSENT_S),),
     May(False, never="a, for whose good end it waits, has no job left, and nobody knows how it ended "
                      "(see: safelaunch status a)")),
    ((ANY._replace(jobs=(), absent_s=ABSENT_S, is_watched=True),), May(False, why="it waits for the end of a")),
    ((ANY._replace(jobs=(), absent_s=WATCHED_S, is_watched=True),), May(True)),
    ((ANY._replace(jobs=("7",), absent_s=None), OK._replace(name="b", ended="completed"),
      OK._replace(name="c", jobs=("9",))), May(False, ("7", "9"), why="it waits for the end of a and 1 more")),
    ((OK._replace(jobs=("7",)), OK._replace(name="b", ended="gave_up", why="x")),
     May(False, never="b, for whose good end it waits, has ended: gave_up (x)")),
], ids=["nobody", "ended well", "any end", "any stop", "failed", "stopped", "goes on in these jobs", "no answer",
        "not yet lost", "lost", "lost, and its good end was wanted", "a watch has time", "lost by the watch, too",
        "several", "one failure is enough"])
def test_a_run_starts_once_the_others_have_ended(before: tuple[RunBefore, ...], expected: May) -> None:
    assert after.judge(before) == expected


def test_a_first_attempt_waits_behind_the_jobs_of_the_other_run() -> None:
    goes_on = (OK._replace(jobs=("7", "8")),)
    assert row(QUEUED, seen(), PATIENT) == "follows"
    assert isinstance(action(QUEUED, seen(), PATIENT), Wait)
    handed = action(QUEUED, seen(before=goes_on), PATIENT)
    assert isinstance(handed, HandOver)
    assert handed.behind == ("7", "8")
    assert isinstance(action(history(), seen(before=goes_on), PATIENT), Wait), "no job of its own could wait yet"


def test_a_run_whose_condition_cannot_hold_any_more_ends_with_the_reason() -> None:
    ends = action(QUEUED, seen(before=(OK._replace(ended="gave_up", why="a bug"),)), PATIENT)
    assert isinstance(ends, Finish)
    assert (ends.how, ends.exit_code) == ("gave_up", 10)
    assert "a bug" in ends.why


def test_once_a_run_has_trained_it_waits_for_nobody_any_more() -> None:
    assert row(FAILED_ONCE, seen(before=(OK._replace(jobs=("7",)),)), PATIENT) == "launch"
    assert row(State(), seen(before=(OK._replace(ended="completed"),)), PATIENT) == "launch"
    assert row(State(), seen(requests=(KILL,)), PATIENT) == "killed_by_person"


@each(("text", "expected"), [
    ("afterany:7(unfulfilled),singleton(unfulfilled)", "afterany:7,singleton,afterany:9"),
    ("afterany:7", "afterany:7,afterany:9"),
    ("afterok:3(unfulfilled),afterany:5:7(unfulfilled)", "afterok:3,afterany:5:7,afterany:9"),
    ("afterany:77(unfulfilled)", None),
    ("afterok:7(unfulfilled)", None),
    ("afterany:7?afterany:8", None),
    ("singleton(unfulfilled)", None),
    ("", None),
])
def test_only_a_job_that_waits_for_any_end_of_this_one_waits_for_the_next_one_too(
    text: str, expected: str | None
) -> None:
    assert after.dependency_with(text, "7", "9") == expected


@each(("text", "expected"), [
    ("afterany:7(unfulfilled),singleton(unfulfilled)", "singleton"),
    ("afterany:7(unfulfilled),afterany:9(unfulfilled)", "afterany:9"),
    ("afterok:7,afterany:5:7:8", "afterok:7,afterany:5:8"),
    ("afterany:77(unfulfilled)", None),
])
def test_a_job_that_hangs_at_its_end_is_waited_for_no_longer(text: str, expected: str | None) -> None:
    assert after.dependency_with(text, "7", None) == expected


@given(st.text(max_size=60))
def test_no_text_of_squeue_is_too_odd(text: str) -> None:
    wanted = after.dependency_with(text, "7", "9")
    assert wanted is None or wanted.endswith(",afterany:9")
