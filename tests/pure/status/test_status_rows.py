"""What people are told of a run, row by row."""

from __future__ import annotations

from typing import Any

from safelaunch.base.model import Request
from safelaunch.run.fold.state import EarlyEnd, Ended, ToldFigure
from safelaunch.slurm.queuereasons import in_words
from safelaunch.status.costs import RestartCost
from safelaunch.status.overview import (
    ListedJob,
    LostProgress,
    NewestCheckpoint,
    Overview,
    Resizing,
    RestartLosses,
    RunAttempt,
    RunJob,
    SkippedCheckpoint,
    SlowerSteps,
    SlurmWord,
    Throughput,
    ToldDecision,
    next_lines,
)
from safelaunch.status.rows import LEAST_WANTED, rows, without
from safelaunch.status.silence import SeenHeartbeat
from safelaunch.status.speech import Speech, duration
from tests.tables import each

SPEECH = Speech(lambda t: f"<{t:.0f}>", lambda seconds: f"{seconds:.0f} s", lambda names: "+".join(names))
ATTEMPT = RunAttempt(1, "n[0-3]", ("n0", "n1", "n2", "n3"), 60.0, None, None, None, None, None, None, 4, None, None)
JOB = RunJob("12", ("n0",), "n0", "n0", 50.0, None)
FOUND = NewestCheckpoint("/ckpt", "/ckpt/step_80", 80, age_s=30.0, steps_at_risk=12)
RESTART = RestartCost(2, 70.0, "failed", 600, 540, 60, 110.0, 0.0, True)
LOST = RestartLosses(60, 110.0, 60.0, 0.11, 0.89, (RESTART,))
PULSE = SeenHeartbeat(3.0, False, "n0", 1, 4, None, 1, None, None, None)
NAN_SEEN = ToldFigure(1, "nan", 60, "nan", None, 90.0)
ENDED = Ended("completed", 0, "", 99.0)
RUN = Overview("bloom", "1a2b3c4d", "/r", "slurm", None, "running", "it runs", since_t=60.0, now_t=100.0, job=JOB,
               attempt=ATTEMPT, attempts=1, checkpoint=FOUND, max_restarts=30, max_without_progress=3, node_hours=1.0,
               pulse=PULSE, slurm=SlurmWord((), "", None, None, None))


def seen(**changes: Any) -> Overview:
    """A running run of which nothing much is known."""
    return RUN._replace(**changes)


def row(label: str, **changes: Any) -> str:
    """The texts of the rows of that label, joined."""
    return " | ".join(text for name, text, _ in rows(seen(**changes), SPEECH) if name == label)


def test_a_screen_that_is_too_small_goes_without_a_row_and_all_that_goes_on_below_it() -> None:
    shown = [("run", "bloom", ""), ("lost", "9 s", ""), ("", "4 s by attempt 1", ""), ("decided", "a", ""),
             ("decided", "b", ""), ("next", "logs -f", "")]
    assert [text for _, text, _ in without(shown, "lost")] == ["bloom", "a", "b", "logs -f"]
    assert [text for _, text, _ in without(without(shown, "lost"), "decided")] == ["bloom", "b", "logs -f"]
    assert without(shown, "slurm") == shown
    assert not {"run", "state", "step", "checkpoint", "next"} & set(LEAST_WANTED)


@each(("changes", "said"), [
    ({"step": 92}, "92"), ({"step": 92, "step_total": 400}, "92 of 400 (23 %)"),
    ({"step": 92, "step_time_s": 0.5, "typical_step_time_s": 0.5}, "92, 500 ms a step"),
    ({"step": 92, "step_time_s": 0.5, "typical_step_time_s": 0.45}, "92, 500 ms a step (median 450 ms)"),
    ({"step": 92, "pace_s": 130.0}, "92, 130 s a step by the clock"),
    ({"step": 92, "loss": "nan", "throughput": Throughput(7282.0, "tokens/s")}, "92, loss nan, 7282 tokens/s"),
], ids=["alone", "of a total", "milliseconds", "with a median", "by the clock", "figures"])
def test_the_step_comes_with_what_is_known_of_it(changes: dict[str, Any], said: str) -> None:
    assert row("step", **changes) == said


@each(("ends_t", "successor", "said"), [
    (None, None, "done in 900 s, at <1000>, if it goes on like this"),
    (2000.0, None, "done in 900 s, at <1000>, if it goes on like this"),
    (500.0, None, "done in 900 s, at <1000>, if it goes on like this, after the end of this job"),
    (500.0, "13", "done in 900 s, at <1000>, if it goes on like this, after the end of this job: the next one goes on"),
], ids=["no limit", "in time", "too late", "in the next job"])
def test_when_it_is_done(ends_t: float | None, successor: str | None, said: str) -> None:
    assert row("ETA", eta_t=1000.0, job=JOB._replace(ends_t=ends_t), successor=successor) == said


@each(("found", "more", "said"), [
    ({}, {}, "step 80 is the newest complete one, 30 s old; an end now would lose 12 steps"),
    ({}, {"pace_s": 0.5}, "step 80 is the newest complete one, 30 s old; an end now would lose 12 steps (6 s)"),
    ({"steps_at_risk": 0}, {}, "step 80 is the newest complete one, 30 s old; an end now would lose no step"),
    ({"steps_at_risk": 1}, {}, "step 80 is the newest complete one, 30 s old; an end now would lose 1 step"),
    ({"step": None, "steps_at_risk": None}, {}, "/ckpt/step_80 is the newest complete one, 30 s old"),
    ({"path": None, "step": None, "age_s": None, "steps_at_risk": 92}, {},
     "no complete one yet in /ckpt; an end now would lose 92 steps"),
    ({"path": None, "step": None, "trouble": "/ckpt cannot be read: it is frozen"}, {"checkpoint_step": 40},
     "not known: /ckpt cannot be read: it is frozen; the last one that the journal names is of step 40"),
    ({}, {"attempt": ATTEMPT._replace(ended="failed")}, "step 80 is the newest complete one, 30 s old"),
], ids=["steps", "and their time", "nothing is lost", "one step", "a name without a step", "none", "unreadable",
        "no attempt runs"])
def test_the_checkpoint_of_now_tells_what_an_end_would_cost(
    found: dict[str, Any], more: dict[str, Any], said: str
) -> None:
    assert row("checkpoint", checkpoint=FOUND._replace(**found), **more) == said


def test_a_newer_checkpoint_that_is_not_complete_is_named_with_its_reason() -> None:
    skipped = (SkippedCheckpoint("/ckpt/step_90", "half"), SkippedCheckpoint("/ckpt/step_85", "empty"))
    assert row("skipped", checkpoint=FOUND._replace(skipped=skipped)) == "/ckpt/step_90: half (2 in all are left out)"


def test_a_run_that_looks_for_no_checkpoint_says_what_follows() -> None:
    assert "a restart begins from the start" in row("checkpoint", checkpoint=None)
    assert row("checkpoint", checkpoint=None, ended=ENDED) == ""


@each(("restarts", "most", "number", "said"), [
    (2, 30, 9, "2 of 30 used; "), (31, 30, 40, "30 of 30 used; "), (1, 0, 2, "none allowed (restart.max_restarts); ")])
def test_more_restarts_than_allowed_or_made_are_never_told(restarts: int, most: int, number: int, said: str) -> None:
    told = row("restarts", restarts=restarts, max_restarts=most, attempt=ATTEMPT._replace(number=number))
    assert told.startswith(said)


def test_restarts_are_told_with_what_each_of_the_last_three_has_cost() -> None:
    told = [text for _, text, _ in rows(seen(lost=LOST._replace(restarts=tuple(
        RESTART._replace(attempt=number) for number in (2, 3, 4, 5)))), SPEECH)]
    assert "110 s and 60 steps by starting again 4 times; restart overhead 11 %" in told
    assert sum("until step 600 was reached again" in text for text in told) == 3
    assert "<70> attempt 4 failed: 60 steps, 110 s until step 600 was reached again" in told


@each(("changes", "said"), [
    ({"is_over": False}, "60 steps, 110 s so far, until step 600 is reached again"),
    ({"queued_s": 90.0}, "until step 600 was reached again, 90 s of it in the queue"),
])
def test_a_restart_that_is_not_over_and_one_that_waited_say_so(changes: dict[str, Any], said: str) -> None:
    assert said in row("", lost=LOST._replace(restarts=(RESTART._replace(**changes),)))


@each(("sure", "said"), [(True, "lost: it began anew"), (False, "perhaps lost: it began anew")])
def test_lost_progress_is_told_as_sure_as_it_is(sure: bool, said: str) -> None:
    assert row("progress", lost_progress=LostProgress(1, sure, "it began anew")) == said


def test_a_drop_of_speed_that_lasts_is_told_with_both_levels_until_the_run_ends() -> None:
    slower = SlowerSteps(1, 42_784, 90.0, 105.2, 111.0, 0.9999, None, "it is reported")
    assert row("slower", slower=slower).startswith("111 s a step since step 42784, before 105.2 s (5.5 % longer), seen")
    assert row("slower") == ""
    assert row("slower", slower=slower, ended=ENDED) == ""


def test_without_a_restart_nothing_is_lost_and_no_row_says_so() -> None:
    assert row("lost") == ""


@each(("job", "state", "said"), [
    ({"ends_t": 400.0}, "running", "12 on n0, started <50>, its time limit ends it at <400> (300 s left)"),
    ({}, "running", "12 on n0, started <50>"), ({"ends_t": 400.0}, "waiting", "12 on n0, started <50>, over"),
], ids=["time limit", "no limit", "over"])
def test_the_job_says_when_it_ends(job: dict[str, Any], state: str, said: str) -> None:
    assert row("job", job=JOB._replace(**job), state=state) == said


@each(("state", "start_t", "said"), [
    ("PENDING", None, "job 13 is queued behind it (Priority: jobs of higher priority come first)"),
    ("PENDING", 900.0, "job 13 is queued behind it (Priority: jobs of higher priority come first); Slurm expects it to "
                       "start at <900>"),
    ("RUNNING", 90.0, "job 13 has started"),
])
def test_the_next_job_says_when_slurm_expects_it(state: str, start_t: float | None, said: str) -> None:
    slurm = RUN.slurm._replace(jobs=(ListedJob("13", state, "alice", "bloom", "Priority", "", None, start_t),))
    assert row("next job", slurm=slurm, successor="13") == said


@each("changes", [
    {"state": "ending"}, {"state": "stopping"}, {"state": "preserving"}, {"attempt": ATTEMPT._replace(ended="failed")},
    {"attempt": ATTEMPT._replace(number=2)}, {"ended": ENDED}, {"state": "waiting"},
], ids=["ending", "stopping", "preserving", "over", "of an earlier attempt", "the run has ended", "between jobs"])
def test_no_hang_check_is_told_of_an_attempt_that_makes_no_steps_any_more(changes: dict[str, Any]) -> None:
    pulse = PULSE._replace(hang_t=140.0)
    assert row("hang", pulse=pulse) == "hang check at <140> if no step is logged by then"
    assert row("hang", pulse=pulse, **changes) == ""


def test_no_hang_check_is_promised_after_the_jobs_time_limit() -> None:
    pulse = PULSE._replace(hang_t=140.0)
    assert row("hang", pulse=pulse, job=JOB._replace(ends_t=141.0)) == (
        "hang check at <140> if no step is logged by then")
    assert row("hang", pulse=pulse, job=JOB._replace(ends_t=140.0)) == (
        "none before this job's time limit: without a step, one is due at <140>")


LAUNCH = ToldDecision(61.0, "launch", "first attempt")
HANG = ToldDecision(80.0, "hang", "attempt 1 hangs: rank 3 on n1 is stopped")
HUNG = ToldDecision(80.0, "hung", "ending the attempt: the attempt hangs: rank 3 on n1 is stopped")
PAUSE = ToldDecision(85.0, "back_off", "waiting until noon: a pause before the next attempt")
END = ToldDecision(90.0, "gave_up", "the run has ended: gave_up: it failed 3 times")


@each(("decisions", "changes", "said"), [
    ([LAUNCH, PAUSE], {}, "<61> launch: first attempt | <85> waiting until noon: a pause before the next attempt"),
    ([HANG], {}, "<80> attempt 1 hangs: rank 3 on n1 is stopped"),
    ([HANG, HUNG], {}, "<80> ending the attempt: the attempt hangs: rank 3 on n1 is stopped"),
    ([LAUNCH, END], {"state": "gave_up", "ended": ENDED}, "<61> launch: first attempt"),
], ids=["words, no row's name", "a hang", "a hang that ended it", "the end is the state"])
def test_decisions_are_told_once_and_in_words(
    decisions: list[ToldDecision], changes: dict[str, Any], said: str
) -> None:
    assert row("decided", decisions=decisions, **changes) == said


def test_a_supervisor_of_a_job_that_is_over_is_not_shown_as_alive() -> None:
    assert row("supervisor") == "on n0, heard 3 s ago"
    assert row("supervisor", state="waiting") == row("supervisor", state="unknown", cluster="slurm") == ""


def test_a_hold_beside_a_running_attempt_says_what_it_does() -> None:
    hold = (Request("hold", "bob", 90.0),)
    assert row("asked", requests=hold) == "bob touched hold at <90>: no new attempt starts after this one"
    assert row("asked", requests=hold, state="on_hold") == "bob touched hold at <90>"


def test_a_wish_for_a_checkpoint_has_no_time_of_its_own() -> None:
    """`stop --checkpoint --within` sets it ahead."""
    wish = (Request("checkpoint", "bob", 9999.0),)
    assert row("asked", requests=wish, state="stopping") == "bob wants it to stop at its next checkpoint"


@each(("state", "first"), [
    ("queued", "status --watch"), ("waiting", "status --watch"), ("running", "logs -f"), ("gave_up", "why"),
    ("completed", "events"), ("unknown", "watch --once"), ("on_hold", "resume"),
])
def test_each_state_says_what_to_type_next(state: str, first: str) -> None:
    assert next_lines(seen(state=state, cluster="slurm"))[0].startswith(f"safelaunch {first}")
    assert next_lines(seen(state="unknown", cluster="local"))[0].startswith("safelaunch events")


def test_where_a_supervisor_is_not_heard_a_look_from_outside_comes_first() -> None:
    silent = PULSE._replace(is_stale=True, age_s=300.0)
    assert next_lines(seen(state="running", pulse=silent, cluster="slurm"))[0] == "safelaunch watch --once"
    assert next_lines(seen(state="running", pulse=silent, cluster="local"))[0].startswith("safelaunch logs")


@each(("changes", "first"), [
    ({"state": "ending"}, "why"), ({"state": "restarting"}, "why"), ({"attempt": ATTEMPT._replace(number=2)}, "why"),
    ({"odd_figures": (NAN_SEEN,)}, "why"), ({"odd_figures": (NAN_SEEN._replace(attempt=7),)}, "logs"),
    ({"slower": SlowerSteps(1, 9, 50.0, 0.2, 0.5, 0.9, None, "")}, "stacks"),
    ({"state": "completed", "ended_nan": "nan"}, "why"), ({}, "logs"),
], ids=["ending", "restarting", "after a failure", "NaN", "an earlier NaN", "slower", "NaN at the end", "well"])
def test_where_something_is_wrong_the_first_command_says_what(changes: dict[str, Any], first: str) -> None:
    assert next_lines(seen(**{"cluster": "slurm", **changes}))[0].startswith(f"safelaunch {first} ")


@each(("seconds", "said"), [(0.0123, "12.3 ms"), (0.5, "500 ms"), (12.53, "12.5 s"), (150, "150 s")])
def test_a_time_a_step_is_told_in_its_own_unit(seconds: float, said: str) -> None:
    assert duration(seconds, SPEECH.span) == said


@each(("trend", "said"), [
    (None, "92, 2 s a step by the clock"), (0.02, "92, 2 s a step by the clock, steady"),
    (0.12, "92, 2 s a step by the clock, lately 12 % slower"),
    (-0.5, "92, 2 s a step by the clock, lately 50 % faster"),
], ids=["not known", "steady", "slower", "faster"])
def test_the_pace_comes_with_its_trend_while_the_attempt_lives(trend: float | None, said: str) -> None:
    assert row("step", step=92, pace_s=2.0, pace_trend=trend) == said
    assert "steady" not in row("step", step=92, pace_s=2.0, pace_trend=0.0, attempt=ATTEMPT._replace(ended="failed"))


@each(("spent", "said"), [
    ({"useful": 50.0}, "100 % of 50 s useful"),
    ({"queue": 30.0, "useful": 60.0, "redone": 0.2, "down": 9.8},
     "60 % of 100 s useful; the rest: queue 30 s, down 10 s"),
    ({"useful": 0.0, "queue": 5.0, "boot": 4.0, "start": 3.0, "hang": 2.0, "down": 1.0, "redone": 1.0},
     "0 % of 16 s useful; the rest: queue 5 s, boot 4 s, start-up 3 s, hang 2 s, other causes 2 s"),
], ids=["all useful", "two causes", "many causes"])
def test_the_time_that_was_lost_is_told_by_cause_the_most_first(spent: dict[str, float], said: str) -> None:
    assert row("time", time=spent) == said


def test_before_a_second_has_passed_no_share_is_told() -> None:
    assert row("time", time={"useful": 0.0}) == row("time") == ""


@each(("relaunch_t", "said"), [(140.0, "the next attempt starts in 40 s"), (99.0, ""), (None, "")])
def test_a_pause_says_when_the_next_attempt_starts(relaunch_t: float | None, said: str) -> None:
    assert row("then", relaunch_t=relaunch_t) == said


@each(("reason", "said"), [
    ("Resources", "Resources: the nodes that it needs are not free"),
    ("QOSMaxJobsPerUserLimit", "QOSMaxJobsPerUserLimit: a limit of its QOS is reached"),
    ("AssocGrpGRES", "AssocGrpGRES: a limit of its account or user is reached"),
    ("ReqNodeNotAvail, UnavailableNodes:n[0-3]",
     "ReqNodeNotAvail, UnavailableNodes:n[0-3]: a node that it needs is down, drained or reserved"),
    ("SomethingNew", "SomethingNew"), ("", ""),
])
def test_reasons_of_the_queue_are_told_in_words(reason: str, said: str) -> None:
    assert in_words(reason) == said


@each(("more", "expected"), [
    ({}, "1 on n[0-3]"),
    ({"of_nodes": 8}, "1 on n[0-3] (4 of 8 nodes)"),
    ({"nodelist": "n0", "nodes": ["n0"], "resize": Resizing(4, 2)},
     "1 on n0 (before_resize, from 4 to 2 nodes)"),
])
def test_an_attempt_says_what_is_not_usual_about_its_nodes(more: dict[str, Any], expected: str) -> None:
    assert row("attempt", attempt=ATTEMPT._replace(**more)) == expected


@each(("early", "style"), [(None, ""), (EarlyEnd("step", 47, 400, ()), "yellow")], ids=["well", "early"])
def test_an_early_end_stands_out(early: EarlyEnd | None, style: str) -> None:
    assert [shown for _, text, shown in rows(seen(ended_early=early), SPEECH) if text == "it runs"] == [style]


def test_an_end_with_a_loss_that_is_no_number_stands_out() -> None:
    assert [shown for _, text, shown in rows(seen(ended_nan="the loss is nan"), SPEECH) if text == "it runs"] == [
        "yellow"]
