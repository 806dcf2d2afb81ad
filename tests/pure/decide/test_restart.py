"""`safelaunch restart`: each touch starts one attempt, at no cost, and ends a pause."""

from __future__ import annotations

from dataclasses import replace

from safelaunch.base.endings import AttemptEnd
from safelaunch.base.model import Event, Request
from safelaunch.decide.ends import ended
from safelaunch.decide.facts.actions import FAILED_GRACE_S, AskToEnd, Kill
from safelaunch.decide.facts.seen import Live
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from tests.pure.decide.situations import (
    ALIVE,
    BAD,
    CHECKPOINT,
    GOOD,
    KILL,
    NOW,
    PLAN,
    RUNNING,
    action,
    history,
    row,
    seen,
)
from tests.tables import each

WANTS = Request("restart", "ada", NOW - 1)
ASKED = replace(ALIVE, end_asked_t=NOW - 1, end_row="restart")
ALL_WELL = (GOOD, GOOD._replace(node="n1", task=1))


def touch(state: State, t: float, name: str = "restart") -> State:
    return fold([Event(NOW, 2, 1, "n0", "request", {"name": name, "who": "ada", "touched_t": t})], state)


@each(("live", "wanted"), [
    (ALIVE, AskToEnd(PLAN.kill_switch.signal, "ada wants the next attempt now")),
    (ASKED, None),
    (replace(ALIVE, end_asked_t=NOW - 1, end_row="slow_restart"),
     AskToEnd(PLAN.kill_switch.signal, "ada wants the next attempt now")),
    (replace(ALIVE, end_asked_t=NOW - 1, end_row="limit_near"), None),
    (replace(ASKED, heard=0, saved="c", saved_t=NOW - 1), Kill(FAILED_GRACE_S, "its next checkpoint is complete: c")),
    (replace(ASKED, heard=2, saved="c", saved_t=NOW - 1), None),
], ids=["it runs", "it is asked", "a planned stop gives way", "it ends anyway", "deaf, and saved", "it ends by itself"])
def test_a_living_attempt_is_asked_once_to_save_and_end(live: Live, wanted: object) -> None:
    assert action(replace(RUNNING, restart=WANTS), seen(live)) == wanted


def test_at_once_means_without_asking() -> None:
    state = replace(RUNNING, restart=WANTS._replace(name="restart-now"))
    assert action(state, seen(ALIVE)) == Kill(FAILED_GRACE_S, "ada wants the next attempt now")
    assert row(state, seen(replace(ALIVE, killed_t=NOW - 1, end_row="restart"))) == "watch"


@each("request", [KILL, CHECKPOINT], ids=["kill", "checkpoint"])
def test_a_stop_overrules_it(request: Request) -> None:
    assert row(replace(RUNNING, restart=WANTS), seen(ASKED, requests=(request,))) == request.name


@each(("live", "how"), [
    (replace(ASKED, heard=2, exits=ALL_WELL), AttemptEnd.INTERRUPTED),
    (replace(ASKED, heard=None, exits=ALL_WELL), AttemptEnd.INTERRUPTED),
    (replace(ASKED, heard=0, killed_t=NOW, exits=(BAD,)), AttemptEnd.INTERRUPTED),
    (replace(ASKED, heard=0, exits=ALL_WELL), AttemptEnd.COMPLETED),
    (replace(ASKED, heard=0, exits=(BAD,)), AttemptEnd.FAILED),
], ids=["it saved and ended", "nobody knows who heard", "deaf, and ended", "deaf, done by itself", "deaf, crashed"])
def test_its_end_costs_nothing_unless_it_failed_by_itself(live: Live, how: AttemptEnd) -> None:
    assert ended.how_it_ended(live, seen(live)) == how


def test_a_pause_ends_and_the_budget_counts_on() -> None:
    state = history("failed", "failed")
    assert row(state, seen()) == "back_off"
    now = touch(state, NOW - 5)
    assert row(now, seen()) == "launch"
    assert now.failures_without_progress == state.failures_without_progress == 2


def test_a_touch_counts_for_one_attempt_however_often_its_file_is_read() -> None:
    state = touch(touch(history("failed", last_ended=False), 100.0), 200.0, "restart-now")
    started = fold([Event(NOW, 2, 2, "n0", "attempt_started", {"attempt": 2, "job": "11", "nodes": ["n0"]})], state)

    assert (state.restart, started.restart) == (Request("restart-now", "ada", 200.0), None)
    assert touch(touch(started, 100.0), 200.0, "restart-now").restart is None
    assert touch(started, 50.0).restart == Request("restart", "ada", 50.0)   # of a host whose clock is behind
