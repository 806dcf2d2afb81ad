"""What to do next: every row of the two tables, their order, the budgets, and the word for an attempt's end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.core import journal
from safelaunch.core.checkpoints.model import Checkpoint
from safelaunch.core.decide import alive, between, ended, rows
from safelaunch.core.decide.actions import (
    FAILED_GRACE_S,
    Action,
    AskToEnd,
    Decision,
    Fence,
    Finish,
    HandOver,
    Kill,
    Launch,
    Preserve,
    Wait,
)
from safelaunch.core.decide.seen import Live, Seen, mark_asked, mark_killed
from safelaunch.core.endings import JobEnd, tell_ending
from safelaunch.core.model import Event, Exit, Request
from safelaunch.core.plan import KillSwitch, Plan, Restart, Resume, Srun
from safelaunch.core.plan import Launch as LaunchPlan
from safelaunch.core.plan import Preserve as PreservePlan
from safelaunch.core.state import Exclusion, State, fold

NOW = 10_000.0
NODES = ("n0", "n1", "n2")
Said = list[tuple[str, dict[str, Any]]]
PLAN = Plan(
    run_id="r1", name="run", run_dir="/run", cluster="slurm", command="train", setup="", env=(), sbatch=(), nodes=2,
    gpus_per_node=None, cpus_per_task=None, ntasks_per_node=1, launch=LaunchPlan("srun", None, 3), srun=Srun(60, 1, ()),
    resume=Resume("ckpt", "auto", "--load {path}", None), step_pattern="auto", restart=Restart(30, 3, 60.0),
    kill_switch=KillSwitch("control/kill", 900.0, None, "SIGUSR2"),
    preserve=PreservePlan(0.0, ("unknown", "hang"), "all"),
)
PRESERVING = replace(PLAN, preserve=PreservePlan(3600.0, ("unknown", "hang"), "all"))
ALIVE = Live(1, ("n0", "n1"), tasks=2)
BAD, GOOD = Exit("n1", 1, 1), Exit("n0", 0, 0)
LOST = (("n1", "its guard has been silent for 10 s"),)
KILL = Request("kill", "bob", NOW - 1)
KILL_NOW = Request("kill-now", "bob", NOW - 1)
CHECKPOINT = Request("checkpoint", "bob", NOW - 1)
RELEASE = Request("release", "bob", NOW - 1)


def history(
    *ends: str, checkpoint_after: Sequence[int] = (), last_ended: bool = True, category: str = "unknown"
) -> State:
    """The state after attempts that ended so; after each attempt of `checkpoint_after` its checkpoint has advanced."""
    said: Said = [("submitted", {"job": "11"}), ("job_started", {"job": "11", "nodes": NODES})]
    for number, how in enumerate(ends, start=1):
        said.append(("attempt_started", {"attempt": number, "job": "11", "nodes": ["n0", "n1"]}))
        if number < len(ends) or last_ended:
            said.append(("verdict", {"attempt": number, "category": category, "summary": "task 1 on n1: exit code 1"}))
            said.append(("attempt_ended", {"attempt": number, "how": how}))
        if number in checkpoint_after:
            said.append(("checkpoint", {"attempt": number, "step": number * 100}))
    return fold(Event(NOW - 60 + seq, 1, seq, "n0", event, data) for seq, (event, data) in enumerate(said))


def seen(live: Live | None = None, **more: Any) -> Seen:
    return Seen(now=NOW, nodes=NODES, live=live, **more)


def row(state: State, what: Seen, plan: Plan = PLAN) -> str:
    return rows.decide(state, what, plan).row


def action(state: State, what: Seen, plan: Plan = PLAN) -> Action | None:
    return rows.decide(state, what, plan).action


RUNNING = history("running", last_ended=False)
FAILED_ONCE = history("failed")


@pytest.mark.parametrize("row_of_end", ended.LEADERLESS)
def test_attempt_that_nobody_led_any_more_is_no_failure_of_the_training(row_of_end: str) -> None:
    over = replace(ALIVE, exits=(Exit("n1", 2, 143, 15),), killed_t=NOW - 1, end_row=row_of_end)
    assert ended.how_it_ended(over, seen(over)) == "interrupted"
    assert ended.how_it_ended(over, seen(over, lost=((over.nodes[0], "silent"),))) == "lost"


def test_leader_that_nothing_confirms_ends_its_ranks_at_once_even_before_srun_has_ended() -> None:
    """Whoever has taken over starts its own attempt a lease and five seconds after it last heard this one."""
    assert action(RUNNING, seen(ALIVE, unconfirmed=True)) == Kill(0.0, (
        "for 10 s neither run folder nor standby has answered: it may lead by now"))
    assert row(RUNNING, seen(replace(ALIVE, srun_code=143), unconfirmed=True)) == "unconfirmed"
    assert row(RUNNING, seen(replace(ALIVE, killed_t=NOW - 1), unconfirmed=True)) == "watch"


# --- while an attempt lives: one incident a row ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (seen(ALIVE), "watch"),
        (seen(replace(ALIVE, exits=(GOOD, replace(GOOD, node="n1", task=1)))), "over"),
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
        "one rank is done before the others", "a member of the group touched kill", "somebody asked for a checkpoint",
        "it was asked for that", "and then somebody touched kill",
        "scancel by a person", "Slurm's time limit", "Slurm's warning before the time limit",
        "the folder is frozen: the training goes on",
    ],
)
def test_while_an_attempt_lives(what: Seen, expected: str) -> None:
    assert row(RUNNING, what) == expected


@pytest.mark.parametrize(
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
def test_an_act_on_a_living_attempt_says_why(what: Seen, expected: Action) -> None:
    assert action(RUNNING, what) == expected


def test_kill_now_comes_before_every_other_reason_to_act() -> None:
    live = replace(ALIVE, exits=(BAD,), end_asked_t=NOW - 5000, end_row="kill", srun_code=1)
    what = seen(live, requests=(KILL, KILL_NOW), lost=LOST, ending="time_limit", limit_near=True)
    assert action(RUNNING, what) == Kill(0.0, "bob touched kill-now")


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
    plan = replace(PLAN, srun=Srun(0, 0, ()))
    assert row(RUNNING, seen(replace(ALIVE, exits=(BAD,))), plan) == "watch"


@pytest.mark.parametrize("srun_code", [0, 143], ids=["srun ended well", "srun ended badly"])
def test_an_attempt_that_was_killed_is_over_with_its_srun(srun_code: int) -> None:
    live = replace(ALIVE, killed_t=NOW - 1, srun_code=srun_code)
    assert row(RUNNING, seen(live)) == "over"


KILLED = replace(ALIVE, killed_t=NOW - 5, end_row="node_lost")
SILENT = (("n1", "silent"),)


@pytest.mark.parametrize(
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


def test_the_first_reason_to_end_stays_the_reason() -> None:
    live = mark_killed(mark_asked(ALIVE, "kill", NOW - 950), "grace_over", NOW)
    assert (live.end_row, live.end_asked_t, live.killed_t) == ("kill", NOW - 950, NOW)


# --- between attempts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "what", "expected"),
    [
        (State(), seen(), "launch"),
        (FAILED_ONCE, seen(), "launch"),
        (history("lost"), seen(), "launch"),
        (history("completed"), seen(), "completed"),
        (FAILED_ONCE, seen(requests=(KILL,)), "killed_by_person"),
        (FAILED_ONCE, seen(requests=(KILL_NOW,)), "killed_by_person"),
        (State(), seen(requests=(KILL,)), "killed_by_person"),
        (FAILED_ONCE, seen(ending="cancelled"), "cancelled"),
        (history("interrupted"), seen(ending="time_limit"), "job_ends"),
        (history("interrupted"), seen(ending="preempted"), "job_ends"),
        (history("interrupted"), seen(ending="requeued"), "job_ends"),
        (history("interrupted"), seen(ending="node_failure"), "job_ends"),
        (history("interrupted"), seen(ending="unknown"), "job_ends"),
        (history("interrupted"), seen(limit_near=True), "job_ends"),
        (history("failed", "failed", "failed"), seen(), "give_up"),
        (history("lost"), seen(lost=(("n0", "dead"), ("n1", "dead"))), "too_few_nodes"),
        (FAILED_ONCE, seen(frozen=True), "frozen"),
        (RUNNING, seen(), "unfenced"),
        (history("failed", "failed"), seen(), "back_off"),
        (history("failed", "failed", checkpoint_after=[2]), seen(), "launch"),
    ],
    ids=[
        "nothing has run yet", "a rank died", "a node was lost, a spare is left", "the command ended with 0",
        "a member of the group touched kill", "... or kill-now", "... while the job was queued", "scancel by a person",
        "the time limit", "preemption", "requeue", "a node failure that ends the job", "an end that nobody explains",
        "the time limit is near", "three in a row without progress", "two of three nodes are dead",
        "the filesystem is frozen", "an attempt whose end nobody wrote down", "two in a row without progress",
        "two in a row, and progress in the last",
    ],
)
def test_between_attempts(state: State, what: Seen, expected: str) -> None:
    assert row(state, what) == expected


SAVED_JUST_NOW = {"saved": "ckpt/step_5", "saved_t": NOW - 1}
BLIND = replace(PLAN, resume=replace(PLAN.resume, dir=None))


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(("ahead_s", "ago_s", "is_over"), [
    (-1.0, 898.0, False), (-1.0, 900.0, True), (3600.0, 4000.0, False), (3600.0, 4500.0, True), (-600.0, 301.0, True),
    (-90_000.0, 301.0, False), (-90_000.0, 900.0, True),
], ids=["as touched", "over", "set ahead", "set ahead, over", "set back", "a clock of yesterday", "... over"])
def test_the_time_of_the_request_for_a_checkpoint_says_until_when(ahead_s: float, ago_s: float, is_over: bool) -> None:
    asked = replace(ALIVE, end_asked_t=NOW - ago_s, end_row="checkpoint", heard=0)
    request = replace(CHECKPOINT, t=NOW - ago_s + ahead_s)
    assert (action(RUNNING, seen(asked, requests=(request,))) is not None) is is_over


def test_a_kill_after_a_request_for_a_checkpoint_begins_its_own_grace() -> None:
    asked = mark_asked(replace(ALIVE, end_asked_t=NOW - 800, end_row="checkpoint", heard=0), "kill", NOW)
    assert (asked.end_asked_t, asked.end_row, asked.heard) == (NOW, "kill", None)
    assert action(RUNNING, seen(asked, requests=(KILL, CHECKPOINT))) is None


@pytest.mark.parametrize(("live", "requests", "expected"), [
    ({"heard": 0}, (CHECKPOINT,), "completed"),
    ({"heard": 1}, (CHECKPOINT,), "stopped"),
    ({"heard": None}, (CHECKPOINT,), "stopped"),
    ({"heard": 0}, (KILL, CHECKPOINT), "stopped"),
    ({"heard": 0, "killed_t": NOW - 1}, (CHECKPOINT,), "stopped"),
    ({"heard": 0, "exits": (BAD,)}, (CHECKPOINT,), "stopped"),
], ids=["never knew", "knew", "perhaps", "a kill, too", "killed", "failed"])
def test_a_training_that_is_done_before_its_next_checkpoint_and_never_knew_is_complete(
    live: dict[str, Any], requests: tuple[Request, ...], expected: str
) -> None:
    over = replace(ALIVE, end_asked_t=NOW - 9, end_row="checkpoint", exits=(GOOD, replace(GOOD, node="n1", task=1)))
    assert ended.how_it_ended(replace(over, **live), seen(requests=requests)) == expected


def test_a_run_that_was_stopped_at_a_checkpoint_says_at_which() -> None:
    what = seen(requests=(CHECKPOINT,), resume=Checkpoint("ckpt/step_5", 5, "torch"))
    assert action(history("stopped"), what) == Finish(
        "stopped", 12, "bob wanted it to stop at its next checkpoint; its newest complete checkpoint is of step 5")


def test_an_end_that_is_written_down_is_final() -> None:
    state = fold([Event(NOW, 1, 99, "n0", "gave_up", {"exit_code": 11, "why": "spent"})], history("completed"))
    what = seen(requests=(KILL,), ending="cancelled")
    assert rows.decide(state, what, PLAN) == Decision("ended", Finish("gave_up", 11, "spent"))


@pytest.mark.parametrize(
    ("state", "more", "expected"),
    [
        (history("completed"), {"requests": (KILL,), "ending": "cancelled"}, Finish(
            "completed", 0, "attempt 1 ended with exit code 0")),
        (history("failed", "failed", "failed"), {"requests": (KILL,), "ending": "time_limit"}, Finish(
            "stopped", 12, "bob touched kill")),
        (FAILED_ONCE, {"requests": (KILL_NOW,), "frozen": True, "limit_near": True}, Finish(
            "stopped", 12, "bob touched kill-now")),
        (history("failed", "failed", "failed"), {"ending": "cancelled"}, Finish(
            "stopped", 12, "the job was cancelled by a person (scancel)")),
        (history("failed", "failed", "failed"), {"ending": "time_limit"}, Finish(
            "gave_up", 10, "3 attempts in a row failed without a new checkpoint; last: task 1 on n1: exit code 1")),
    ],
    ids=["what is complete stays complete", "a person's word before the budget", "... and before a frozen folder",
         "scancel before the budget", "the budget before the successor"],
)
def test_what_is_final_comes_before_what_goes_on(state: State, more: dict[str, Any], expected: Finish) -> None:
    assert action(state, seen(**more)) == expected


@given(st.sampled_from(["failed", "lost", "interrupted", "stopped"]), st.booleans(), st.booleans(),
       st.sampled_from([None, "cancelled", "time_limit", "unknown"]), st.sampled_from([KILL, KILL_NOW]))
def test_after_a_persons_kill_nothing_is_ever_launched(
    how: str, frozen: bool, limit_near: bool, ending: str | None, request: Request,
) -> None:
    what = seen(requests=(RELEASE, request), frozen=frozen, limit_near=limit_near, ending=ending)
    assert action(history(how), what) == Finish("stopped", 12, f"bob touched {request.name}")


# --- the budgets --------------------------------------------------------------------------------------------------


def test_an_attempt_whose_end_nobody_wrote_down_is_never_launched_beside() -> None:
    assert action(RUNNING, seen()) == Wait(NOW + 2.0, "nobody knows that attempt 1 has ended")


@pytest.mark.parametrize(
    ("ends", "checkpoint_after", "restart", "expected"),
    [
        (["failed"] * 3, [], Restart(30, 3, 0.0), 10),
        (["failed"] * 3, [1], Restart(30, 3, 0.0), None),
        (["failed"] * 4, [1], Restart(30, 3, 0.0), 10),
        (["failed", "lost", "failed"], [], Restart(30, 3, 0.0), 10),
        (["failed", "interrupted", "interrupted", "failed"], [], Restart(30, 3, 0.0), None),
        (["failed", "interrupted", "failed", "interrupted", "failed"], [], Restart(30, 3, 0.0), 10),
        (["interrupted"] * 20, [], Restart(2, 3, 0.0), None),
        (["failed"] * 2, [1, 2], Restart(2, 3, 0.0), None),
        (["failed"] * 3, [1, 2, 3], Restart(2, 3, 0.0), 11),
        (["failed"], [], Restart(0, 1, 0.0), 10),
        (["failed"], [1], Restart(0, 1, 0.0), 11),
        (["failed"], [], Restart(30, 1, 0.0), 10),
    ],
    ids=["three failures in a row", "... after progress in the first", "... and one more", "lost nodes count as well",
         "time limits cost nothing", "... and refill nothing", "twenty time limits",
         "two restarts of two, with progress", "three restarts of two, with progress", "no restart is allowed",
         "... with progress either", "one failure is enough"],
)
def test_the_budgets(ends: list[str], checkpoint_after: list[int], restart: Restart, expected: int | None) -> None:
    state = history(*ends, checkpoint_after=checkpoint_after)
    got = action(state, seen(), replace(PLAN, restart=restart))
    assert (got.exit_code if isinstance(got, Finish) else None) == expected
    assert isinstance(got, Finish | Launch)


def test_the_first_restart_waits_for_nothing() -> None:
    assert isinstance(action(FAILED_ONCE, seen()), Launch)


@pytest.mark.parametrize(("failures", "pause_s"), [(2, 60), (3, 120), (4, 240), (5, 480), (6, 960), (9, 960)])
def test_the_pause_doubles_with_each_failure_without_progress_up_to_16_times(failures: int, pause_s: float) -> None:
    state, plan = history(*["failed"] * failures), replace(PLAN, restart=Restart(30, 99, 60.0))
    assert state.attempt is not None
    assert state.attempt.ended_t is not None
    assert action(state, seen(), plan) == Wait(
        state.attempt.ended_t + pause_s, f"{failures} failures in a row without progress")
    assert isinstance(action(state, replace(seen(), now=state.attempt.ended_t + pause_s), plan), Launch)


def test_a_clock_that_was_set_back_makes_no_pause_longer_than_it_is() -> None:
    state = history("failed", "failed")
    assert state.attempt is not None and state.attempt.ended_t is not None
    before = replace(seen(), now=state.attempt.ended_t - 30.0)   # another host's clock
    assert isinstance(action(state, before, PLAN), Wait)
    assert isinstance(action(state, replace(seen(), now=state.attempt.ended_t - 7200.0), PLAN), Launch)


def test_a_site_is_preserved_before_giving_up_and_given_back_on_time_or_on_request() -> None:
    spent = history("failed", "failed", "failed")
    first = action(spent, seen(), PRESERVING)
    assert isinstance(first, Preserve)
    assert first.until == NOW + 3600
    preserved = replace(spent, preserving_until=first.until)
    assert isinstance(action(preserved, seen(), PRESERVING), Wait)
    for what in (replace(seen(), now=first.until), seen(requests=(RELEASE,)), seen(ending="time_limit")):
        assert isinstance(action(preserved, what, PRESERVING), Finish)


@pytest.mark.parametrize(
    ("state", "plan"),
    [(history("failed", "failed", "failed"), PLAN), (history(*["failed"] * 3, category="user_code"), PRESERVING)],
    ids=["not asked for", "a cause that needs no look"],
)
def test_no_site_is_preserved_when_nobody_wants_to_look(state: State, plan: Plan) -> None:
    assert isinstance(action(state, seen(), plan), Finish)


# --- nodes --------------------------------------------------------------------------------------------------------


def suspecting(*nodes: str) -> State:
    return replace(history("lost"), exclusions=tuple(Exclusion(node, "silent") for node in nodes))


@pytest.mark.parametrize(
    ("state", "lost", "expected"),
    [
        (history("failed"), (), ("n0", "n1")),
        (suspecting("n0"), (), ("n1", "n2")),
        (history("lost"), LOST, ("n0", "n2")),
        (replace(history("lost"), left_out=(("n0", "silent; the run needs it"),)), (), ("n1", "n2")),
        (replace(history("lost"), left_out=(("n0", "silent; the run needs it"),)), LOST, ("n0", "n2")),
    ],
    ids=["the same nodes when none is suspect", "a spare for a suspect", "a spare for a lost node",
         "a spare for a suspect that jobs need", "a suspect where no other is left"],
)
def test_the_next_attempt_runs_on_good_nodes_in_slurms_order(
    state: State, lost: tuple[tuple[str, str], ...], expected: tuple[str, ...],
) -> None:
    got = action(state, seen(lost=lost))
    assert isinstance(got, Launch)
    assert got.nodes == expected


def test_with_too_few_good_nodes_the_successor_goes_on_without_the_bad_ones() -> None:
    assert action(suspecting("n2", "n0"), seen(lost=(("n0", "dead"),))) == HandOver(
        ("n0", "n2"), "of the 2 nodes needed only 1 can be used (without n0, n2)")


HOLD = Request("hold", "bob", NOW - 1)


def test_a_run_on_hold_leaves_its_nodes_and_its_next_job_is_held() -> None:
    assert action(FAILED_ONCE, seen(requests=(HOLD,))) == HandOver((), "bob put the run on hold", held=True)


def test_a_local_run_on_hold_waits_where_it_is_until_its_job_ends() -> None:
    local = replace(PLAN, cluster="local")
    assert action(FAILED_ONCE, seen(requests=(HOLD,)), local) == Wait(NOW + 2.0, "bob put the run on hold")
    assert row(FAILED_ONCE, seen(requests=(HOLD,), ending="unknown"), local) == "job_ends"


def test_an_attempt_that_surely_lost_its_progress_is_killed_at_once_unless_only_a_warning_is_wanted() -> None:
    """Upon a TERM many trainings save: over a newer checkpoint, here."""
    live = replace(ALIVE, lost="it counts 1 … 3")
    assert rows.decide(RUNNING, seen(live), PLAN) == Decision("lost_progress", Kill(0.0, "it counts 1 … 3"))
    warned = replace(PLAN, restart=replace(PLAN.restart, on_lost_progress="warn"))
    assert row(RUNNING, seen(live), warned) == "watch"
    assert row(RUNNING, seen(replace(live, killed_t=NOW - 1))) == "watch"
    assert ended.how_it_ended(replace(live, killed_t=NOW, end_row="lost_progress"), seen(live)) == "failed"


def test_a_launch_from_nothing_says_how_many_checkpoints_were_passed_over() -> None:
    skipped = replace(FAILED_ONCE, skipped=(("/ckpt/step_20", "read by no format"), ("/ckpt/step_40", "empty folder")))
    got = action(skipped, seen())
    assert isinstance(got, Launch) and got.why.endswith("going on from the start: no complete checkpoint, 2 skipped")


@pytest.mark.parametrize(("found", "said"), [
    (Checkpoint("/ckpt/step100.pt", 100, "torch"), "checkpoint at step 100"),
    (Checkpoint("/ckpt/last.pt", None, "torch"), "checkpoint /ckpt/last.pt"),
], ids=["a step", "a name without one"])
def test_a_launch_says_what_it_goes_on_from(found: Checkpoint, said: str) -> None:
    got = action(FAILED_ONCE, seen(resume=found))
    assert isinstance(got, Launch)
    assert got.why == f"attempt 1 failed (task 1 on n1: exit code 1); going on from {said}"


# --- the word for an end ------------------------------------------------------------------------------------------

ALL_GOOD = (GOOD, Exit("n1", 1, 0))
TOLD = {"end_asked_t": NOW - 5, "end_row": "kill"}


@pytest.mark.parametrize(
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


# --- any prefix, anything seen -------------------------------------------------------------------------------------

EXITS = st.builds(
    Exit, st.sampled_from(NODES), st.integers(0, 2), st.sampled_from([0, 1, 137, 255]), st.none() | st.just(9)
)
LIVES = st.none() | st.builds(
    Live, st.integers(1, 3), st.sampled_from([("n0", "n1"), ("n2",)]), st.lists(EXITS, max_size=3).map(tuple),
    st.integers(1, 3), st.none() | st.sampled_from([0, 1, 255]), st.booleans(), st.none() | st.floats(0, 2 * NOW),
    st.none() | st.sampled_from(["kill", "limit_near", "ending", "task_failed"]), st.none() | st.floats(0, 2 * NOW),
)
SEEN = st.builds(
    Seen, now=st.floats(0, 2 * NOW), nodes=st.lists(st.sampled_from(NODES), unique=True).map(tuple), live=LIVES,
    requests=st.lists(st.sampled_from([KILL, KILL_NOW, RELEASE]), max_size=2).map(tuple),
    ending=st.none() | st.sampled_from(["cancelled", "time_limit", "preempted", "requeued", "node_failure", "unknown"]),
    limit_near=st.booleans(), lost=st.sampled_from([(), LOST]), frozen=st.booleans(), suspended=st.booleans(),
    resume=st.none() | st.just(Checkpoint("/c", 5, "torch")), jitter=st.floats(0, 1),
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


@given(st.integers(0, len(WHOLE)), SEEN, st.sampled_from([PLAN, PRESERVING, replace(PLAN, nodes=9)]))
def test_any_prefix_of_a_journal_and_anything_seen_give_a_decision(length: int, what: Seen, plan: Plan) -> None:
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


def test_an_attempt_that_slurm_could_not_start_waits_and_a_clock_that_jumped_holds_up_nobody() -> None:
    last = replace(history("interrupted").attempts[0], not_before=NOW + 5)
    refused = replace(history("interrupted"), attempts=(last,))
    assert action(refused, seen()) == Wait(NOW + 5, "Slurm could not start attempt 1, or ended it")
    assert isinstance(action(refused, replace(seen(), now=NOW + 6)), Launch)
    assert isinstance(action(refused, replace(seen(), now=NOW - 1e6)), Launch)


@pytest.mark.parametrize("ending", [*JobEnd, None])
def test_why_a_job_ends_is_told_in_words(ending: str | None) -> None:
    """Seen on screen: "this job ends: unknown"."""
    assert " " in tell_ending(ending) and "_" not in tell_ending(ending)
