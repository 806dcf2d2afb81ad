"""When an attempt is over, and the word for its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from safelaunch.base.model import Exit, Request
from safelaunch.decide.ends import ended
from safelaunch.decide.facts.seen import Live
from tests.pure.decide.situations import (
    ALIVE,
    BAD,
    CHECKPOINT,
    GOOD,
    KILL,
    KILL_NOW,
    LOST,
    NOW,
    seen,
)
from tests.tables import each


@each("row_of_end", ended.LEADERLESS)
def test_attempt_that_nobody_led_any_more_is_no_failure_of_the_training(row_of_end: str) -> None:
    over = replace(ALIVE, exits=(Exit("n1", 2, 143, 15),), killed_t=NOW - 1, end_row=row_of_end)
    assert ended.how_it_ended(over, seen(over)) == "interrupted"
    assert ended.how_it_ended(over, seen(over, lost=((over.nodes[0], "silent"),))) == "lost"


KILLED = replace(ALIVE, killed_t=NOW - 5, end_row="node_lost")
SILENT = (("n1", "silent"),)


@each(
    ("live", "more", "expected"),
    [
        (replace(ALIVE, exits=(GOOD,)), {}, False),
        (replace(ALIVE, exits=(GOOD,)), {"lost": SILENT}, False),
        (replace(KILLED, exits=(GOOD,)), {}, False),
        (replace(KILLED, exits=(GOOD,)), {"lost": SILENT}, True),
        (KILLED, {"lost": SILENT}, False),
        (KILLED, {"lost": (("n0", "silent"), *SILENT)}, True),
        (replace(KILLED, exits=(BAD,)), {"lost": SILENT}, False),
        (replace(KILLED, killed_t=NOW - ended.KILL_PATIENCE_S - 1), {}, True),
        (replace(ALIVE, srun_code=1), {}, False),
        (replace(KILLED, srun_code=1), {}, True),
    ],
    ids=[
        "one of two tasks has ended", "... and the other's node is silent, nothing killed yet",
        "killed, and one is left",
        "killed, and the one that is left is on the silent node", "killed, and the one that can speak has not",
        "killed, and nobody can speak", "killed, and only the silent node had spoken before",
        "killed, and all patience is spent", "srun has ended badly and nothing is killed yet",
        "killed, and srun has ended",
    ],
)
def test_an_attempt_is_over_when_everybody_who_can_speak_has_spoken(
    live: Live, more: dict[str, Any], expected: bool,
) -> None:
    assert ended.is_over(live, seen(live, **more)) == expected


@each(("live", "requests", "expected"), [
    ({"heard": 0}, (CHECKPOINT,), "completed"),
    ({"heard": 1}, (CHECKPOINT,), "stopped"),
    ({"heard": None}, (CHECKPOINT,), "stopped"),
    ({"heard": 0, "may_have_heard": True}, (CHECKPOINT,), "stopped"),
    ({"heard": 0}, (KILL, CHECKPOINT), "stopped"),
    ({"heard": 0, "killed_t": NOW - 1}, (CHECKPOINT,), "stopped"),
    ({"heard": 0, "exits": (BAD,)}, (CHECKPOINT,), "stopped"),
], ids=["never knew", "knew", "perhaps", "from a dead leader, perhaps", "a kill, too", "killed", "failed"])
def test_a_training_that_is_done_before_its_next_checkpoint_and_never_knew_is_complete(
    live: dict[str, Any], requests: tuple[Request, ...], expected: str
) -> None:
    over = replace(ALIVE, end_asked_t=NOW - 9, end_row="checkpoint", exits=(GOOD, GOOD._replace(node="n1", task=1)))
    assert ended.how_it_ended(replace(over, **live), seen(requests=requests)) == expected


ALL_GOOD = (GOOD, Exit("n1", 1, 0))
TOLD = {"end_asked_t": NOW - 5, "end_row": "kill"}


@each(
    ("live", "more", "expected"),
    [
        ({"exits": ALL_GOOD}, {}, "completed"),
        ({"srun_code": 0}, {}, "completed"),
        ({"exits": (GOOD,), "srun_code": 0}, {}, "completed"),
        ({"exits": ALL_GOOD, "srun_code": 1}, {}, "completed"),
        ({"exits": ALL_GOOD}, {"lost": LOST}, "completed"),
        ({"exits": ALL_GOOD, "srun_code": 0}, {"limit_near": True}, "completed"),
        ({"exits": (GOOD, BAD)}, {}, "failed"),
        ({"exits": (BAD,), "srun_code": 0}, {}, "failed"),
        ({"srun_code": 1}, {}, "failed"),
        ({"exits": ALL_GOOD, "srun_code": 255, "killed_t": NOW, "end_row": "srun_gone"}, {}, "failed"),
        ({"exits": (GOOD,), "srun_code": 0}, {"lost": LOST}, "lost"),
        ({"exits": (BAD,), "killed_t": NOW, "end_row": "node_lost"}, {"lost": LOST}, "lost"),
        ({"exits": (GOOD, BAD)}, {"lost": (("n2", "a spare"),)}, "failed"),
        ({"exits": ALL_GOOD, **TOLD}, {"requests": (KILL,)}, "stopped"),
        ({"exits": ALL_GOOD}, {"requests": (KILL,)}, "stopped"),
        ({"exits": (GOOD, BAD), "killed_t": NOW, "end_row": "kill_now"}, {"requests": (KILL_NOW,)}, "stopped"),
        ({"exits": ALL_GOOD, **TOLD}, {}, "stopped"),
        ({"exits": ALL_GOOD, "end_asked_t": NOW, "end_row": "limit_near"}, {"requests": (KILL,)}, "stopped"),
        ({"exits": ALL_GOOD, "end_asked_t": NOW, "end_row": "limit_near"}, {"limit_near": True}, "interrupted"),
        ({"exits": ALL_GOOD}, {"ending": "time_limit"}, "interrupted"),
        ({"exits": ALL_GOOD, "killed_t": NOW, "end_row": "ending"}, {"ending": "preempted"}, "interrupted"),
        ({"exits": (GOOD, BAD), "killed_t": NOW, "end_row": "ending"}, {"ending": "cancelled"}, "interrupted"),
        ({"srun_code": 143}, {"ending": "time_limit"}, "interrupted"),
        ({"exits": (Exit("n0", 0, 137, 9),)}, {"suspended": True}, "interrupted"),
        ({"exits": ALL_GOOD}, {"suspended": True}, "completed"),
    ],
    ids=[
        "every task says 0", "srun says 0 and no guard could", "srun says 0 for the task whose guard could not",
        "every task says 0 and srun was killed", "every task says 0 and a node dies afterwards",
        "done just before the time limit", "one task says 1", "srun says 0 and a task says 1", "srun says 1",
        "srun was killed and the ranks ended well on TERM", "a node is lost and srun says 0", "a node is lost",
        "a spare is lost", "kill switch and exit code 0", "a training that watches the kill switch itself",
        "kill-now", "asked by kill, whose file is gone", "kill while it saves for the time limit",
        "saved for the time limit with exit code 0", "ended with 0 on Slurm's own TERM", "preempted with exit code 0",
        "scancel with exit code 1", "the time limit took srun",
        "scontrol suspend outlasted the lease", "suspended, and completed afterwards",
    ],
)
def test_the_word_for_an_attempts_end(live: dict[str, Any], more: dict[str, Any], expected: str) -> None:
    assert ended.how_it_ended(replace(ALIVE, **live), seen(**more)) == expected
