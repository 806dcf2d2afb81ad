"""The laws of both tables: any journal, anything seen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.base.model import Event, Exit
from safelaunch.checkpoints.model import Checkpoint
from safelaunch.decide.ends import ended
from safelaunch.decide.facts.actions import (
    Launch,
)
from safelaunch.decide.facts.seen import Live, Observation
from safelaunch.decide.turn import alive, between, rows
from safelaunch.run import journal
from safelaunch.run.fold.folding import fold
from safelaunch.run.plan import Plan
from tests.pure.decide.situations import (
    KILL,
    KILL_NOW,
    LOST,
    NODES,
    NOW,
    PLAN,
    PRESERVING,
    RELEASE,
    Said,
)

EXITS = st.builds(
    Exit, st.sampled_from(NODES), st.integers(0, 2), st.sampled_from([0, 1, 137, 255]), st.none() | st.just(9)
)
LIVES = st.none() | st.builds(
    Live, st.integers(1, 3), st.sampled_from([("n0", "n1"), ("n2",)]), st.lists(EXITS, max_size=3).map(tuple),
    st.integers(1, 3), st.none() | st.sampled_from([0, 1, 255]), st.booleans(), st.none() | st.floats(0, 2 * NOW),
    st.none() | st.sampled_from(["kill", "limit_near", "ending", "task_failed"]), st.none() | st.floats(0, 2 * NOW),
)
SEEN = st.builds(
    Observation, now=st.floats(0, 2 * NOW), nodes=st.lists(st.sampled_from(NODES), unique=True).map(tuple), live=LIVES,
    requests=st.lists(st.sampled_from([KILL, KILL_NOW, RELEASE]), max_size=2).map(tuple),
    ending=st.none() | st.sampled_from(["cancelled", "time_limit", "preempted", "requeued", "node_failure", "unknown"]),
    limit_near=st.booleans(), lost=st.sampled_from([(), LOST]), frozen=st.booleans(), suspended=st.booleans(),
    resume=st.none() | st.just(Checkpoint("/c", 5, "torch")),
)
SAID: Said = [
    ("submitted", {"job": "1"}), ("job_started", {"job": "1", "nodes": NODES}),
    ("submitted", {"job": "2", "successor_of": "1"}), ("intent", {"claim": 1, "act": "launch", "attempt": 1}),
    ("attempt_started", {"attempt": 1, "job": "1", "nodes": ["n0"]}),
    ("outcome", {"claim": 1}), ("progress", {"attempt": 1, "step": 7}), ("kill_switch", {"who": "bob"}),
    ("verdict", {"attempt": 1, "category": "unknown"}), ("attempt_ended", {"attempt": 1, "how": "failed"}),
    ("fenced", {"attempt": 1}), ("checkpoint", {"attempt": 1, "step": 7}), ("node_suspected", {"node": "n1"}),
    ("preserved", {"until": 9e9}), ("released", {}), ("job_started", {"job": "2", "nodes": NODES}),
    ("attempt_started", {"attempt": 2, "job": "2", "nodes": ["n0"]}),
    ("attempt_ended", {"attempt": 2, "how": "completed"}), ("completed", {"why": "done"}),
]
WHOLE = b"".join(journal.render(Event(NOW, 1, seq, "n0", event, data)) for seq, (event, data) in enumerate(SAID))


@given(st.integers(0, len(WHOLE)), SEEN, st.sampled_from([PLAN, PRESERVING, PLAN._replace(nodes=9)]))
def test_any_prefix_of_a_journal_and_anything_seen_give_a_decision(length: int, what: Observation, plan: Plan) -> None:
    state = fold(journal.merge({"1-n0-1.jsonl": WHOLE[:length]}).events)
    decision = rows.decide(state, what, plan)
    assert decision.row
    assert ended.how_it_ended(what.live, what) if what.live else True
    if isinstance(decision.action, Launch):
        assert what.live is None
        assert state.attempt is None or state.attempt.ended is not None
        assert state.ended is None
        assert not what.requests or what.requests[0] == RELEASE
        assert len(decision.action.nodes) == plan.nodes


def test_every_row_of_both_tables_tells_where_it_comes_from() -> None:
    for entry in (*alive.ALIVE, *between.BETWEEN):
        assert entry.__doc__
        assert len(entry.__doc__) > 10
