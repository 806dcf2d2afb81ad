"""The state of a run in one word and one sentence, from the journal, Slurm and what people have asked for."""

from __future__ import annotations

from safelaunch.base.model import Event, Request
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import Ended, State
from safelaunch.slurm.slurmtext import QueuedJob
from safelaunch.status.speech import SchedulerAnswer, Speech
from safelaunch.status.states import describe_end, judge
from tests.tables import each

SPEECH = Speech(lambda t: f"<{t:.0f}>", lambda seconds: f"{seconds:.0f} s", lambda names: "+".join(names))
Row = tuple[str, dict[str, object]]
Events = list[Row]


def job(id: str = "12", state: str = "RUNNING", reason: str = "None") -> QueuedJob:
    return QueuedJob(id, state, "alice", "bloom.1a2b3c4d", reason, "n[0-3]")


def state_of(*events: tuple[str, dict[str, object]]) -> State:
    return fold(Event(float(number), 1, number, "n0", kind, data) for number, (kind, data) in enumerate(events))


SUBMITTED: Row = ("submitted", {"job": "12"})
STARTED: Row = ("job_started", {"job": "12", "nodes": ["n0", "n1"], "batch_host": "n0"})
ATTEMPT: Row = ("attempt_started", {"attempt": 1, "job": "12", "nodes": ["n0", "n1"]})
FAILED: Row = ("attempt_ended", {"attempt": 1, "how": "failed", "exit_code": 1})
WELL: Row = ("attempt_ended", {"attempt": 1, "how": "completed", "exit_code": 0})
PREEMPTED: Row = ("attempt_ended", {"attempt": 1, "how": "interrupted", "ending": "preempted"})
PAUSE: Row = ("decision", {"row": "back_off", "why": "waiting until noon: 2 failures in a row without progress"})
CHECKING = ("decision", {"row": "check_nodes", "why": "checking n[0-1] before the attempt, 60 s at most"})
CHECKED = ("checks_passed", {"job": "12", "nodes": ["n0", "n1"], "unknown": []})
SUCCESSOR = ("submitted", {"job": "13", "successor_of": "12"})
DONE = ("completed", {"exit_code": 0, "why": "done"})
LOST = "Slurm no longer knows job 12, and the journal has no end: no job goes on with the run"
RUNS: Events = [SUBMITTED, STARTED, ATTEMPT]
UNTOLD = ("held", {"job": "12", "why": "nobody can tell"})
HOLD, KILL, KILL_NOW = Request("hold", "bob", 5.0), Request("kill", "bob", 5.0), Request("kill-now", "bob", 5.0)

CHECKPOINT = Request("checkpoint", "bob", 5.0)
WAITS = ("decision", {"attempt": 1, "row": "ask_to_end", "why": "nobody hears", "heard": 0, "until": 40.0,
                      "waits_for": "its next complete checkpoint"})


def asked(row: str) -> tuple[str, dict[str, object]]:
    return ("decision", {"attempt": 1, "row": row, "action": "end", "why": "because"})


@each(("events", "word", "name", "sentence"), [
    ([SUBMITTED], SchedulerAnswer((job(state="PENDING", reason="Resources"),)), "queued",
     "job 12 is waiting to be scheduled (Resources: the nodes that it needs are not free)"),
    ([SUBMITTED], SchedulerAnswer((job(),)), "queued", "job 12 has started; its supervisor has not reported yet"),
    ([SUBMITTED], SchedulerAnswer(()), "unknown", LOST),
    ([SUBMITTED], SchedulerAnswer(None, "down"), "queued", "job 12 is submitted and has not reported yet"),
    ([], SchedulerAnswer(()), "unknown",
     "a submission was begun and has no outcome, and Slurm knows no job of this run"),
    ([], SchedulerAnswer((job(state="PENDING", reason="Priority"),)), "queued",
     "job 12 is in (is waiting to be scheduled (Priority: jobs of higher priority come first)), "
     "though its submission was cut off"),
    ([SUBMITTED, STARTED], SchedulerAnswer((job(),)), "starting",
     "job 12 has started, the first attempt is being prepared"),
    (RUNS, SchedulerAnswer((job(),)), "running", "attempt 1 is running on n0+n1 (job 12)"),
    (RUNS, SchedulerAnswer(None, "down"), "running", "attempt 1 is running on n0+n1 (job 12)"),
    (RUNS, SchedulerAnswer(()), "unknown", LOST),
    (RUNS, SchedulerAnswer((job(state="COMPLETING"),)), "ending",
     "attempt 1 is running on n0+n1 (job 12); job 12 is COMPLETING for Slurm"),
    ([SUBMITTED, STARTED, CHECKING], SchedulerAnswer((job(),)), "starting",
     "job 12 has started, checking n[0-1] before the attempt, 60 s at most"),
    ([SUBMITTED, STARTED, CHECKING, CHECKED], SchedulerAnswer((job(),)), "starting",
     "job 12 has started, the first attempt is being prepared"),
    ([*RUNS, FAILED], SchedulerAnswer((job(),)), "restarting",
     "attempt 1 is over (failed), the next one is being prepared (job 12)"),
    ([*RUNS, FAILED, PAUSE], SchedulerAnswer((job(),)), "restarting",
     "attempt 1 is over (failed); waiting until noon: 2 failures in a row without progress (job 12)"),
    ([*RUNS, FAILED, SUCCESSOR], SchedulerAnswer((job("13", "PENDING", "Priority"),)), "waiting",
     "job 12 is over; the run goes on in job 13, which "
     "is waiting to be scheduled (Priority: jobs of higher priority come first)"),
    ([*RUNS, FAILED], SchedulerAnswer((job(state="PENDING", reason="BeginTime"),)), "waiting",
     "job 12 is waiting to be scheduled (BeginTime: the time before which it must not start has not come)"),
    ([*RUNS, WELL], SchedulerAnswer((job(),)), "restarting",
     "attempt 1 is over (completed), the run's end is being written (job 12)"),
    ([*RUNS, DONE], SchedulerAnswer(()), "completed", "the run has completed: done (exit code 0)"),
    ([*RUNS, PREEMPTED, ("need_successor", {"exclude": []}), ("handed_over", {"job": None})], SchedulerAnswer(()),
     "unknown", LOST),
], ids=["pending", "just started", "lost in the queue", "slurm silent", "cut off, not in", "cut off, in", "starting",
        "running", "running, slurm silent", "lost while running", "completing", "checking", "checked",
        "between attempts", "pause", "handed over", "requeued",
        "it has just completed", "ended", "handed over to a watch that is none"])
def test_the_state_needs_both_witnesses(events: Events, word: SchedulerAnswer, name: str, sentence: str) -> None:
    judged = judge(state_of(*events), word, SPEECH, 10.0)
    assert (judged.name, judged.sentence) == (name, sentence)


@each(("events", "requests", "name", "said"), [
    (RUNS, [KILL], "stopping",
     "bob touched kill: waiting for it to save and end by itself, until <65> at most (55 s left); then attempt 1 is "),
    ([*RUNS, asked("kill")], [KILL], "stopping", "until <63> at most (53 s left); then attempt 1 is killed, and "),
    ([*RUNS, asked("kill"), WAITS], [KILL], "stopping", "waiting for its next complete checkpoint, until <40> at most"),
    (RUNS, [CHECKPOINT], "stopping", "bob wants it to stop at its next checkpoint: waiting for its next checkpoint, "),
    ([*RUNS, asked("checkpoint"), WAITS], [CHECKPOINT._replace(t=3600.0)], "stopping", "until <3660> at most (3650 s"),
    ([*RUNS, asked("checkpoint"), WAITS, asked("kill")], [CHECKPOINT, KILL], "stopping",
     "bob touched kill: waiting for it to save and end by itself"),
    (RUNS, [KILL, KILL_NOW], "stopping", "bob touched kill-now: attempt 1 is being killed"),
    ([*RUNS, asked("task_failed")], [], "ending", "attempt 1 is being ended: a task of it has failed"),
    ([*RUNS, asked("hung")], [], "ending", "attempt 1 is being ended: it hangs"),
    ([*RUNS, asked("limit_near")], [], "ending", "attempt 1 is being ended: the job's time limit is near"),
    ([*RUNS, asked("lost_progress")], [], "ending", "attempt 1 is being ended: it starts below its checkpoint"),
    ([*RUNS, asked("of_a_later_version")], [], "ending", "attempt 1 is being ended: of a later version"),
    (RUNS, [HOLD], "running", "attempt 1 is running"),
    ([*RUNS, FAILED], [HOLD], "on_hold", "bob put the run on hold: nothing new is started until it is resumed"),
    ([*RUNS, FAILED, UNTOLD], [HOLD], "on_hold", "safelaunch put the run on hold (nobody can tell): nothing new is"),
    ([*RUNS, asked("kill"), FAILED], [KILL], "restarting", "attempt 1 is over"),
], ids=["kill, not seen yet", "kill, seen", "kill, deaf", "checkpoint", "with a longer wait", "overruled",
        "kill-now", "a rank died", "hang", "time limit", "lost progress",
        "unknown row", "hold beside an attempt", "hold between attempts", "hold by itself", "over after a kill"])
def test_what_was_asked_of_a_run_is_its_state_while_it_is_being_done(
    events: Events, requests: list[Request], name: str, said: str
) -> None:
    judged = judge(state_of(*events), SchedulerAnswer((job(),)), SPEECH, 10.0, requests, 60.0)
    assert (judged.name, said in judged.sentence) == (name, True), judged.sentence


@each(("why", "said"), [
    ("attempt 1 ended with exit code 3", "the run has given up: attempt 1 ended with exit code 3"),
    ("budget spent", "the run has given up: budget spent (exit code 3)"),
    ("attempt 1 ended with exit code 34", "the run has given up: attempt 1 ended with exit code 34 (exit code 3)"),
])
def test_an_exit_code_is_told_once(why: str, said: str) -> None:
    assert describe_end(Ended("gave_up", 3, why, 0.0)) == said


def test_no_wait_is_promised_behind_the_jobs_own_end() -> None:
    judged = judge(state_of(*RUNS), SchedulerAnswer((job()._replace(left_s=20.0),)), SPEECH, 10.0, [KILL], 60.0)
    assert "until <30> at most (20 s left)" in judged.sentence


@each(("until", "said"), [(60.0, "waiting until noon"), (9.0, "the next one is being prepared")])
def test_a_pause_that_is_over_is_told_no_more(until: float, said: str) -> None:
    pause = (PAUSE[0], {**PAUSE[1], "until": until})
    assert said in judge(state_of(*RUNS, FAILED, pause), SchedulerAnswer((job(),)), SPEECH, 10.0).sentence
