"""Every row for a living attempt, and their order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from safelaunch.base.model import Event, Exit
from safelaunch.decide.ends import ended
from safelaunch.decide.facts.actions import (
    FAILED_GRACE_S,
    Action,
    AskToEnd,
    Decision,
    Fence,
    Kill,
)
from safelaunch.decide.facts.seen import Observation, mark_asked, mark_killed
from safelaunch.decide.turn import rows
from safelaunch.launch.settings import Srun
from safelaunch.run.fold.folding import fold
from safelaunch.run.plan import Plan
from tests.pure.decide.situations import (
    ALIVE,
    BAD,
    CHECKPOINT,
    GOOD,
    KILL,
    KILL_NOW,
    LOST,
    NOW,
    PLAN,
    RUNNING,
    action,
    row,
    seen,
)
from tests.tables import each


def test_leader_that_nothing_confirms_ends_its_ranks_at_once_even_before_srun_has_ended() -> None:
    """Whoever has taken over starts its own attempt a lease and five seconds after it last heard this one."""
    assert action(RUNNING, seen(ALIVE, unconfirmed=True)) == Kill(0.0, (
        "for 10 s neither run folder nor standby has answered: it may lead by now"))
    assert row(RUNNING, seen(replace(ALIVE, srun_code=143), unconfirmed=True)) == "unconfirmed"
    assert row(RUNNING, seen(replace(ALIVE, killed_t=NOW - 1), unconfirmed=True)) == "watch"


@each(
    ("what", "expected"),
    [
        (seen(ALIVE), "watch"),
        (seen(replace(ALIVE, exits=(GOOD, GOOD._replace(node="n1", task=1)))), "over"),
        (seen(replace(ALIVE, srun_code=0)), "over"),
        (seen(replace(ALIVE, srun_code=143)), "srun_gone"),
        (seen(ALIVE, requests=(KILL_NOW,)), "kill_now"),
        (seen(replace(ALIVE, end_asked_t=NOW - 900, end_row="kill")), "grace_over"),
        (seen(replace(ALIVE, end_asked_t=NOW - 899, end_row="kill"), requests=(KILL,)), "watch"),
        (seen(ALIVE, lost=LOST), "node_lost"),
        (seen(ALIVE, lost=(("n2", "a spare that died"),)), "watch"),
        (seen(replace(ALIVE, exits=(BAD,))), "task_failed"),
        (seen(replace(ALIVE, exits=(Exit("n1", 1, 137, 9),))), "task_failed"),
        (seen(replace(ALIVE, exits=(GOOD,))), "watch"),
        (seen(replace(ALIVE, stuck="the step cannot start: Requested nodes are busy")), "step_stuck"),
        (seen(replace(ALIVE, stuck="the step cannot start", killed_t=NOW)), "watch"),
        (seen(ALIVE, gone="its run folder is gone"), "watch"),
        (seen(ALIVE, requests=(KILL,)), "kill"),
        (seen(ALIVE, requests=(CHECKPOINT,)), "checkpoint"),
        (seen(replace(ALIVE, end_asked_t=NOW - 1, end_row="checkpoint"), requests=(CHECKPOINT,)), "watch"),
        (seen(replace(ALIVE, end_asked_t=NOW - 1, end_row="checkpoint"), requests=(KILL, CHECKPOINT)), "kill"),
        (seen(ALIVE, ending="cancelled"), "ending"),
        (seen(ALIVE, ending="time_limit"), "ending"),
        (seen(ALIVE, limit_near=True), "limit_near"),
        (seen(ALIVE, frozen=True), "watch"),
    ],
    ids=[
        "all is well", "every guard has told its task's end", "srun says that all is done",
        "srun was killed and the ranks live on", "a member of the group touched kill-now", "asked to end 15 min ago",
        "asked to end a second less ago", "a node was silent for 10 s (Slurm: 300 s)", "a spare node died",
        "one rank died and the others wait in a collective", "one rank was killed by the OOM killer",
        "one rank is done before the others", "srun has waited for five minutes", "it was ended for that",
        "the run folder is gone: the training goes on", "a member of the group touched kill",
        "somebody asked for a checkpoint",
        "it was asked for that", "and then somebody touched kill",
        "scancel by a person", "Slurm's time limit", "Slurm's warning before the time limit",
        "the folder is frozen: the training goes on",
    ],
)
def test_while_an_attempt_lives(what: Observation, expected: str) -> None:
    assert row(RUNNING, what) == expected


@each(
    ("what", "expected"),
    [
        (seen(ALIVE, requests=(KILL_NOW,)), Kill(0.0, "bob touched kill-now")),
        (seen(ALIVE, requests=(KILL,)), AskToEnd("SIGUSR2", "bob touched the kill switch")),
        (seen(ALIVE, lost=LOST), Kill(FAILED_GRACE_S, "n1 is lost: its guard has been silent for 10 s")),
        (seen(replace(ALIVE, exits=(GOOD, BAD)), requests=()), Fence("every task of the attempt has ended")),
        (seen(replace(ALIVE, exits=(BAD,))), Kill(FAILED_GRACE_S, "task 1 on n1: exit code 1")),
        (seen(ALIVE, ending="preempted"), Kill(FAILED_GRACE_S, "the job is being ended: it is preempted")),
        (seen(ALIVE, limit_near=True), AskToEnd("SIGUSR2", "the job's time limit is near")),
    ],
    ids=["kill-now", "kill", "node lost", "over", "task failed", "ending", "limit near"],
)
def test_an_act_on_a_living_attempt_says_why(what: Observation, expected: Action) -> None:
    assert action(RUNNING, what) == expected


def test_kill_now_comes_before_every_other_reason_to_act() -> None:
    live = replace(ALIVE, exits=(BAD,), end_asked_t=NOW - 5000, end_row="kill", srun_code=1)
    what = seen(live, requests=(KILL, KILL_NOW), lost=LOST, ending="time_limit", limit_near=True)
    assert action(RUNNING, what) == Kill(0.0, "bob touched kill-now")


@each(
    ("more", "expected"),
    [
        ({"lost": LOST, "exits": (BAD,), "requests": (KILL,), "ending": "time_limit", "limit_near": True}, "node_lost"),
        ({"exits": (BAD,), "requests": (KILL,), "ending": "time_limit", "limit_near": True}, "task_failed"),
        ({"requests": (KILL,), "ending": "time_limit", "limit_near": True}, "kill"),
        ({"ending": "time_limit", "limit_near": True}, "ending"),
    ],
    ids=["a lost node first", "then a failed task", "then the kill switch", "then the job's end"],
)
def test_reasons_that_come_together_are_taken_in_order(more: dict[str, Any], expected: str) -> None:
    live = replace(ALIVE, exits=more.pop("exits", ()))
    assert row(RUNNING, seen(live, **more)) == expected


@each(
    "more",
    [{"lost": LOST}, {"requests": (KILL_NOW,)}, {"requests": (KILL,)}, {"ending": "time_limit"}, {"limit_near": True}],
    ids=["node lost", "kill-now", "kill", "ending", "limit near"],
)
def test_an_attempt_that_is_being_killed_is_not_killed_again(more: dict[str, Any]) -> None:
    live = replace(ALIVE, killed_t=NOW - 1, end_row="task_failed", exits=(BAD,))
    assert row(RUNNING, seen(live, **more)) == "watch"


def test_an_attempt_is_asked_to_end_once() -> None:
    live = mark_asked(ALIVE, "limit_near", NOW - 1)
    assert row(RUNNING, seen(live, requests=(KILL,), limit_near=True)) == "watch"


def test_without_kill_on_bad_exit_the_other_tasks_go_on() -> None:
    plan = PLAN._replace(srun=Srun(0, 0, ()))
    assert row(RUNNING, seen(replace(ALIVE, exits=(BAD,))), plan) == "watch"


def test_the_wait_counts_from_the_first_failed_task_and_a_task_that_ends_well_ends_nobody() -> None:
    plan = PLAN._replace(srun=Srun(60, 0, ()))
    for exits, failed_t, wanted in (
            ((GOOD,), None, "watch"), ((BAD,), NOW - 59, "watch"), ((BAD,), NOW - 61, "task_failed")):
        assert row(RUNNING, seen(replace(ALIVE, exits=exits, failed_t=failed_t)), plan) == wanted, (exits, failed_t)
    assert row(RUNNING, seen(replace(ALIVE, exits=(GOOD,)))) == "watch", "with kill_on_bad_exit, too"


@each("srun_code", [0, 143], ids=["srun ended well", "srun ended badly"])
def test_an_attempt_that_was_killed_is_over_with_its_srun(srun_code: int) -> None:
    live = replace(ALIVE, killed_t=NOW - 1, srun_code=srun_code)
    assert row(RUNNING, seen(live)) == "over"


def test_the_first_reason_to_end_stays_the_reason() -> None:
    live = mark_killed(mark_asked(ALIVE, "kill", NOW - 950), "grace_over", NOW)
    assert (live.end_row, live.end_asked_t, live.killed_t) == ("kill", NOW - 950, NOW)


SAVED_JUST_NOW = {"saved": "ckpt/step_5", "saved_t": NOW - 1}
BLIND = PLAN._replace(resume=PLAN.resume._replace(dir=None))


@each(
    ("row_of_end", "ago_s", "live", "plan", "expected"),
    [
        ("kill", 100, {"heard": 4}, PLAN, None),
        ("kill", 100, {"heard": 4, **SAVED_JUST_NOW}, PLAN, None),
        ("kill", 100, {"heard": None, **SAVED_JUST_NOW}, PLAN, None),
        ("kill", 100, {"heard": 0}, PLAN, None),
        ("kill", 100, {"heard": 0, **SAVED_JUST_NOW}, PLAN, "its next checkpoint is complete: ckpt/step_5"),
        ("kill", 900, {"heard": 0}, PLAN, "still running 900 s after it was asked to end"),
        ("kill", 29, {"heard": 0}, BLIND, None),
        ("kill", 30, {"heard": 0}, BLIND, "still running 30 s after it was asked to end"),
        ("kill", 30, {"heard": None}, BLIND, None),
        ("limit_near", 100, {"heard": 0, **SAVED_JUST_NOW}, PLAN, None),
        ("limit_near", 100, {"heard": 0}, BLIND, None),
        ("checkpoint", 100, {"heard": 0, **SAVED_JUST_NOW}, PLAN, "its next checkpoint is complete: ckpt/step_5"),
        ("checkpoint", 100, {"heard": 4, **SAVED_JUST_NOW}, PLAN, None),
        ("checkpoint", 100, {"heard": 4, "saved": "c", "saved_t": NOW - 30}, PLAN,
         "its next checkpoint is complete: c"),
        ("checkpoint", 900, {"heard": None}, PLAN, "still running 900 s after it was asked to end"),
        ("checkpoint", 899, {"heard": None}, PLAN, None),
    ],
    ids=["heard", "heard and saved: it ends by itself", "perhaps heard", "deaf, not saved", "deaf and saved",
         "deaf, the grace is over", "deaf, no checkpoints", "deaf, no checkpoints, 30 s",
         "perhaps deaf, no checkpoints", "the time limit", "the time limit, no checkpoints",
         "checkpoint, deaf", "checkpoint, heard",
         "checkpoint, heard, and did not leave", "checkpoint, too late", "checkpoint, in time"],
)
def test_a_training_is_waited_for_as_long_as_it_can_still_save(
    row_of_end: str, ago_s: float, live: dict[str, Any], plan: Plan, expected: str | None
) -> None:
    """A kill switch let a training that could not hear it make 1,235 more steps, for nothing."""
    asked = replace(ALIVE, end_asked_t=NOW - ago_s, end_row=row_of_end, **live)
    wanted = None if expected is None else Kill(FAILED_GRACE_S, expected)
    assert action(RUNNING, seen(asked), plan) == wanted


@each(("ahead_s", "ago_s", "is_over"), [
    (-1.0, 898.0, False), (-1.0, 900.0, True), (3600.0, 4000.0, False), (3600.0, 4500.0, True), (-600.0, 301.0, True),
    (-90_000.0, 301.0, False), (-90_000.0, 900.0, True),
], ids=["as touched", "over", "set ahead", "set ahead, over", "set back", "a clock of yesterday", "... over"])
def test_the_time_of_the_request_for_a_checkpoint_says_until_when(ahead_s: float, ago_s: float, is_over: bool) -> None:
    asked = replace(ALIVE, end_asked_t=NOW - ago_s, end_row="checkpoint", heard=0)
    request = CHECKPOINT._replace(t=NOW - ago_s + ahead_s)
    assert (action(RUNNING, seen(asked, requests=(request,))) is not None) is is_over


def test_a_kill_after_a_request_for_a_checkpoint_begins_its_own_grace() -> None:
    asked = mark_asked(replace(ALIVE, end_asked_t=NOW - 800, end_row="checkpoint", heard=0), "kill", NOW)
    assert (asked.end_asked_t, asked.end_row, asked.heard) == (NOW, "kill", None)
    assert action(RUNNING, seen(asked, requests=(KILL, CHECKPOINT))) is None


def test_an_attempt_that_surely_lost_its_progress_is_killed_at_once_unless_only_a_warning_is_wanted() -> None:
    """Upon a TERM many trainings save: over a newer checkpoint, here."""
    live = replace(ALIVE, lost="it counts 1 … 3")
    assert rows.decide(RUNNING, seen(live), PLAN) == Decision("lost_progress", Kill(0.0, "it counts 1 … 3"))
    warned = PLAN._replace(restart=PLAN.restart._replace(on_lost_progress="warn"))
    assert row(RUNNING, seen(live), warned) == "watch"
    assert row(RUNNING, seen(replace(live, killed_t=NOW - 1))) == "watch"
    assert ended.how_it_ended(replace(live, killed_t=NOW, end_row="lost_progress"), seen(live)) == "failed"


def test_an_attempt_whose_loss_is_no_number_is_killed_at_once_where_on_nan_says_stop_and_only_there() -> None:
    nan = Event(NOW - 5, 1, 50, "n0", "odd_figure", {"attempt": 1, "kind": "nan", "step": 7, "value": "nan"})
    leap = replace(nan, data={**nan.data, "kind": "loss_spike"})
    stop = PLAN._replace(on_nan="stop")
    assert rows.decide(fold([nan], RUNNING), seen(ALIVE), stop) == Decision(
        "nan", Kill(0.0, "the loss is nan since step 7 (on_nan: stop)"))
    assert row(fold([nan], RUNNING), seen(ALIVE)) == "watch"
    assert row(fold([leap], RUNNING), seen(ALIVE), stop) == "watch"
    assert row(fold([nan], RUNNING), seen(replace(ALIVE, killed_t=NOW - 1)), stop) == "watch"
    assert row(fold([replace(nan, data={**nan.data, "attempt": 0})], RUNNING), seen(ALIVE), stop) == "watch"
    assert ended.how_it_ended(replace(ALIVE, killed_t=NOW, end_row="nan"), seen(ALIVE)) == "failed"
