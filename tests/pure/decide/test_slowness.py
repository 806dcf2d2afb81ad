"""What follows when steps take longer for good: when nodes are measured, when the run stops for that, and its price."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from safelaunch.base.endings import JobEnd
from safelaunch.base.model import Event, Exit, Request
from safelaunch.decide.ends import ended
from safelaunch.decide.facts.actions import AskToEnd, BenchNodes
from safelaunch.decide.facts.patience import of as patience_of
from safelaunch.decide.facts.seen import Live, Observation, mark_asked
from safelaunch.decide.nodes.slowness import MOST_PLANNED, span, what_follows
from safelaunch.decide.turn import alive
from safelaunch.launch.settings import SlowPlan
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.run.plan import Plan
from tests.pure.decide.situations import ALIVE, HOLD, KILL, LOST, NOW, PLAN, Said, action, row, seen


def events_of(said: Said) -> list[Event]:
    return [Event(1001.0 + seq, 1, seq, "n0", event, data) for seq, (event, data) in enumerate(said)]


DROP = {"attempt": 1, "step": 60, "level_s": 111.0, "noise": 0.003, "source": "log", "normal_s": 105.0,
        "since_step": 50, "from_s": 105.0, "confidence": 0.9999, "total": 100_000}
DROP_T = 1006.0   # of the sixth line below


def told(*more: tuple[str, dict[str, Any]], drop: dict[str, Any] | None = DROP, nodes: int = 4) -> State:
    names = [f"n{number}" for number in range(nodes)]
    said: Said = [("submitted", {"job": "11"}), ("job_started", {"job": "11", "nodes": names}),
                  ("attempt_started", {"attempt": 1, "job": "11", "nodes": names[:2]}),
                  ("progress", {"attempt": 1, "step": 160}), ("checkpoint", {"attempt": 1, "step": 50})]
    said += [("slower", drop)] if drop is not None else [("slurm", {"version": "23"})]
    return fold(events_of([*said, *more]))


def ended_after(*more: tuple[str, dict[str, Any]], drop: dict[str, Any] | None = DROP) -> State:
    return told(("attempt_ended", {"attempt": 1, "how": "interrupted"}), *more, drop=drop)


def with_then(then: str, **more: Any) -> Plan:
    return PLAN._replace(slow=SlowPlan(then=then), **more)


def at(live: Live | None = None, nodes: int = 4, **more: Any) -> Observation:
    return replace(seen(live, **more), nodes=tuple(f"n{number}" for number in range(nodes)))


RESTART, NEXT = with_then("restart"), with_then("exclude_next")
BENCHED = ("nodes_benched", {"job": "11", "attempt": 1, "drop_t": DROP_T, "nodes": ["n0", "n1", "n2"], "slow": {}})
BEGUN = ("decision", {"row": "bench_nodes", "why": "…"})
ASKED = ("decision", {"row": "slow_restart", "action": "end", "attempt": 1, "why": "…"})


def test_when_the_run_stops_for_an_experiment_and_when_it_does_not() -> None:
    slow = told()
    thrice = replace(slow, search=slow.search._replace(planned=(1, 2, 3)))
    table: dict[str, tuple[State, Observation, Plan, str]] = {
        "a drop that lasts": (slow, at(ALIVE), RESTART, "slow_restart"),
        "no drop": (told(drop=None), at(ALIVE), RESTART, "watch"),
        "only reported": (slow, at(ALIVE), PLAN, "watch"),
        "only at a restart that comes anyway": (slow, at(ALIVE), NEXT, "watch"),
        "measured for this drop already": (told(BENCHED), at(ALIVE), RESTART, "watch"),
        "a new drop since": (told(BENCHED, ("slower", {**DROP, "since_step": 58})), at(ALIVE), RESTART, "slow_restart"),
        "three were made": (thrice, at(ALIVE), RESTART, "watch"),
        "two nodes, with nothing to compare": (slow, at(ALIVE, nodes=2), RESTART, "watch"),
        "no checkpoints to go on from": (slow, at(ALIVE), RESTART._replace(resume=PLAN.resume._replace(dir=None)),
                                      "watch"),
        "on hold: no attempt would follow": (slow, at(ALIVE, requests=(HOLD,)), RESTART, "watch"),
        "the folder does not answer": (slow, at(ALIVE, frozen=True), RESTART, "watch"),
        "it is being ended already": (slow, at(mark_asked(ALIVE, "checkpoint", NOW)), RESTART, "watch"),
        "the job's end is near": (slow, at(ALIVE, limit_near=True), RESTART, "limit_near"),
        "a person wants it to end": (slow, at(ALIVE, requests=(KILL,)), RESTART, "kill"),
        "a node is lost": (slow, at(ALIVE, lost=LOST), RESTART, "node_lost"),
        "only for some steps so far": (told(("progress", {"attempt": 1, "step": 113})), at(ALIVE), RESTART, "watch"),
        "only for a minute so far": (slow, replace(at(ALIVE), now=DROP_T + 60), RESTART, "watch"),
        "over a restart": (told(("attempt_started", {"attempt": 2, "job": "11", "nodes": ["n0", "n1"]})),
                           at(replace(ALIVE, number=2)), RESTART, "slow_restart"),
        "40 steps are left, of 6 s each": (told(drop={**DROP, "total": 200}), at(ALIVE), RESTART, "watch"),
        "nobody knows how many are left": (told(drop={**DROP, "total": None}), at(ALIVE), RESTART, "slow_restart"),
    }
    assert MOST_PLANNED == 3
    assert {name: row(*case[:3]) for name, case in table.items()} == {name: case[3] for name, case in table.items()}


def test_the_price_is_told_before_anything_is_ended() -> None:
    asked = action(told(), at(ALIVE), RESTART._replace(spare_nodes=1))
    assert isinstance(asked, AskToEnd) and asked.signal == "SIGUSR2"
    assert asked.why == (
        "steps take 5.7 % longer since step 50; experiment 1 of 3 at most: it costs about 5 min (steps behind its "
        "checkpoint: 35 s at most, measurements: 4 min at most, until the first step: 1 s); it would win: about 166 h")
    alone = action(told(), at(ALIVE), RESTART)
    assert isinstance(alone, AskToEnd) and "without a spare the time in the queue for a job without" in alone.why
    wide, narrow = RESTART._replace(nodes=4), NEXT._replace(nodes=4)
    assert what_follows(told(), wide).startswith(
        "if they do for 64 steps and 5 min, an experiment is made at the next checkpoint: it costs")
    assert what_follows(told(drop={**DROP, "total": 200}), wide).startswith("no experiment is made: it costs")
    assert what_follows(told(), narrow) == "all nodes are measured before the next attempt"
    assert what_follows(told(), PLAN) == "nothing is ended"
    assert what_follows(told(), NEXT) == "nothing is ended: fewer than 3 nodes, with nothing to compare"
    assert what_follows(told(BENCHED), RESTART) == "the nodes have been measured for it; nothing more is ended"
    assert [span(seconds) for seconds in (5.2, 119, 120, 7100, 7200, 90_000)] == [
        "5 s", "119 s", "2 min", "118 min", "2 h", "25 h"]


def test_a_planned_stop_waits_for_a_fresh_checkpoint_however_long_it_takes() -> None:
    for heard in (None, 0, 2):
        asked = replace(mark_asked(ALIVE, "slow_restart", NOW - 20 * 86400), heard=heard)
        assert row(told(), at(asked), RESTART) == "watch"
        assert patience_of(asked, at(asked), RESTART).is_checkpoint
        saved = replace(asked, saved="/c/60", saved_t=NOW - 31)
        assert row(told(), at(saved), RESTART) == "grace_over"
        assert row(told(("slower_over", DROP)), at(saved), RESTART) == "watch", "the drop has passed meanwhile"
        assert row(told(), at(saved, requests=(HOLD,)), RESTART) == "watch", "a run on hold would not go on"
        assert row(told(), at(replace(saved, saved_t=NOW - 300)), RESTART) == "watch", "it has made steps since"


def test_who_may_overrule_a_planned_stop() -> None:
    asked = mark_asked(ALIVE, "slow_restart", NOW - 100)
    checkpoint = Request("checkpoint", "bob", NOW - 1)
    assert row(told(), at(asked, requests=(KILL,)), RESTART) == "kill"
    assert row(told(), at(asked, requests=(checkpoint,)), RESTART) == "checkpoint"
    assert row(told(), at(asked, limit_near=True), RESTART) == "limit_near"
    assert row(told(), at(replace(asked, hung="all ranks wait")), RESTART) == "hung"
    assert "slow_restart" in alive.ASKING   # a supervisor that starts anew goes on asking


def test_how_an_attempt_ended_that_stopped_for_an_experiment() -> None:
    asked = mark_asked(ALIVE, "slow_restart", NOW - 100)
    codes = {code: tuple(Exit(node, number, code) for number, node in enumerate(ALIVE.nodes)) for code in (0, 1)}
    saved: dict[str, Any] = {"saved": "/c/60", "saved_t": NOW - 5, "killed_t": NOW - 3}
    table = {
        "killed at its checkpoint": (replace(asked, heard=0, exits=codes[1], **saved), "interrupted"),
        "it saved by itself and ended": (replace(asked, heard=2, exits=codes[0]), "interrupted"),
        "it crashed while it was awaited": (replace(asked, heard=0, exits=codes[1]), "failed"),
        "it came to its own end": (replace(asked, heard=0, exits=codes[0]), "completed"),
        "it hung": (replace(asked, heard=2, exits=codes[1], killed_t=NOW - 3, hung="all wait"), "failed"),
    }
    assert {name: ended.how_it_ended(live, at(live)) for name, (live, _) in table.items()} == {
        name: how for name, (_, how) in table.items()}


def test_nodes_are_measured_once_for_a_drop_whatever_the_restart_is_for() -> None:
    unfit = [("checks_failed", {"job": "11", "nodes": [node], "why": "it is missing", "unused": True})
             for node in ("n1", "n2")]
    table: dict[str, tuple[State, Observation, Plan, str]] = {
        "exclude_next": (ended_after(), at(), NEXT, "bench_nodes"),
        "restart": (ended_after(), at(), RESTART, "bench_nodes"),
        "report": (ended_after(), at(), PLAN, "launch"),
        "on this machine alone": (ended_after(), at(), NEXT._replace(cluster="local"), "launch"),
        "done": (ended_after(BENCHED), at(), NEXT, "launch"),
        "once broken off": (ended_after(BEGUN), at(), NEXT, "bench_nodes"),
        "twice broken off, as jobs end": (ended_after(BEGUN, BEGUN), at(), NEXT, "launch"),
        "the second round is under way": (ended_after(BEGUN, BEGUN), at(measuring=True), NEXT, "bench_nodes"),
        "twice for an earlier drop": (ended_after(BEGUN, BEGUN, ("slower", {**DROP, "since_step": 58})), at(), NEXT,
                                      "bench_nodes"),
        "the drop is over": (ended_after(("slower_over", DROP)), at(), NEXT, "launch"),
        "in the next job": (ended_after(("submitted", {"job": "12"}), ("job_started", {"job": "12", "nodes": ["n5"]})),
                            at(), NEXT, "bench_nodes"),
        "two good nodes are left": (ended_after(*unfit), at(), NEXT, "launch"),
        "the job ends": (ended_after(), at(ending=JobEnd.TIME_LIMIT), NEXT, "job_ends"),
        "a person ends the run": (ended_after(), at(requests=(KILL,)), NEXT, "killed_by_person"),
        "the folder is frozen": (ended_after(), at(frozen=True), NEXT, "frozen"),
    }
    assert {name: row(*case[:3]) for name, case in table.items()} == {name: case[3] for name, case in table.items()}
    assert action(ended_after(), at(), NEXT) == BenchNodes(
        ("n0", "n1", "n2", "n3"), "measuring n[0-3], because steps take longer")


def test_an_attempt_that_is_asked_to_stop_counts_as_an_experiment_once() -> None:
    state = told(ASKED, ASKED)
    assert state.search.planned == (1,) and state.attempt is not None and state.attempt.asked_row == "slow_restart"
    over = told(ASKED, ("decision", {"row": "limit_near", "action": "end", "attempt": 1, "why": "…"}))
    assert over.attempt is not None and over.attempt.asked_row == "limit_near"
