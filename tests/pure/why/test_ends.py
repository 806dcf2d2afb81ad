"""Every way an attempt can end, and what is said of it: by `events`, by `status` and by `why`, side by side.

The journal is made as the leader makes it (decide, how_it_ended, end_of, know), and read as the verbs read it; only
processes, files and Slurm are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from safelaunch.base.model import Event, Exit, Request
from safelaunch.decide.ends import ended
from safelaunch.decide.ends.advice import what_follows
from safelaunch.decide.ends.closing import advice
from safelaunch.decide.facts.actions import AskToEnd, Finish, Kill
from safelaunch.decide.facts.seen import Live, Observation, mark_asked, mark_killed
from safelaunch.decide.turn import rows as decide
from safelaunch.run import story
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.run.plan import Plan
from safelaunch.status.speech import SchedulerAnswer
from safelaunch.status.states import judge
from safelaunch.supervisor.state.diagnosing import end_of
from safelaunch.verbs.common.eventwords import describe
from safelaunch.verbs.common.speech import SPEECH
from safelaunch.verbs.why.whyevidence import by_journal
from safelaunch.why.evidence import Stacks, know
from safelaunch.why.findings import EndFacts, Log, OutsideEvidence, TaskExit
from safelaunch.why.judge.ends import judge_end
from safelaunch.why.judge.engine import judge_log
from safelaunch.why.show import verdicttext
from tests.pure.decide.situations import PLAN
from tests.pure.why.judged import read_text
from tests.tables import each

NODES = ("n0", "n1")
NOW = 1000.0
STEPS = "".join(f"[n0:0]:step {number} loss 2.{number}\n" for number in range(100, 120))
KILLED = Exit("n1", 1, 137, 9)
BAD = Exit("n1", 1, 1)
ENDED = Exit("n0", 0, 143, 15)       # by the supervisor, behind the first one
GOOD = (Exit("n0", 0, 0), Exit("n1", 1, 0))
TERM = "[n0:0]:torch.distributed.elastic.multiprocessing.api.SignalException: Process 12 got signal: 15\n"
LIGHTNING = "[n0:0]:[rank: 0] Received SIGTERM: 15\n"
RECEIVED = "[n0:0]:W1122 signal_handler Received 15 death signal, shutting down workers\n"
TRACE = ('[n1:1]:Traceback (most recent call last):\n[n1:1]:  File "/home/u/train.py", line 7, in main\n'
         '[n1:1]:    go(batch)\n[n1:1]:KeyError: \'labels\'\n')


@dataclass(frozen=True)
class Case:
    """How an attempt ended, and what has to be said of it."""

    verdict: str                      # category, and how sure
    said: str                         # the cause: in events, in status, and in why
    follows: str                      # what safelaunch makes of it, and what is left to do: in events and in why
    ended: str = "failed"
    exits: tuple[Exit, ...] = ()
    log: str = STEPS
    echo: str = ""                    # what the log says once the attempt is being ended
    seen: Mapping[str, Any] = field(default_factory=dict)
    hung: str | None = None
    resume_step: int | None = None
    step: int | None = 119
    is_refused: bool = False


BOB_KILL = Request("kill", "bob", NOW)
BOB_NOW = Request("kill-now", "bob", NOW)
HELD = Request("hold", "carol", NOW - 60)
CASES = {
    "a rank is killed by 9": Case(
        "unknown 45%", "task 1 on n1 was killed by signal 9; nothing in the log says by whom",
        "restarts by itself; if it comes back: look for the kernel's memory killer on that node (dmesg -T), and at "
        "sacct's MaxRSS",
        exits=(KILLED, ENDED)),
    "a rank is killed by 9, and torchrun says who died": Case(
        "unknown 45%", "rank 1 on n1 was killed by signal 9; nothing in the log says by whom",
        "restarts by itself; if it comes back: look for the kernel's memory killer on that node (dmesg -T), and at "
        "sacct's MaxRSS",
        exits=(BAD, ENDED), log=STEPS + "[n1:1]:  traceback : Signal 9 (SIGKILL) received by PID 4242\n"),
    "a launcher is killed by 9, and the others say that they were ended": Case(
        "unknown 45%", "task 1 on n1 was killed by signal 9; nothing in the log says by whom",
        "restarts by itself; if it comes back: look for the kernel's memory killer on that node (dmesg -T), and at "
        "sacct's MaxRSS",
        exits=(KILLED, ENDED), echo=RECEIVED + TERM),
    "a rank is killed by 9, and sockets of the program's own are reset in the others": Case(
        "unknown 45%", "task 1 on n1 was killed by signal 9; nothing in the log says by whom",
        "restarts by itself; if it comes back: look for the kernel's memory killer on that node (dmesg -T), and at "
        "sacct's MaxRSS",
        exits=(KILLED, ENDED), log=STEPS + TRACE.replace("n1:1", "n0:0").replace(
            "KeyError: 'labels'", "ConnectionResetError: [Errno 104] Connection reset by peer")),
    "a rank of Lightning is killed by 9": Case(
        "unknown 45%", "task 1 on n1 was killed by signal 9; nothing in the log says by whom",
        "restarts by itself; if it comes back: look for the kernel's memory killer on that node (dmesg -T), and at "
        "sacct's MaxRSS",
        exits=(KILLED, ENDED), echo=LIGHTNING),
    "a rank is killed by 9, and the kernel says why": Case(
        "host_oom 97%", "Slurm's cgroup ended a process: host memory was exhausted",
        "restarts by itself; if it comes back: ask for more memory (slurm.mem), or use fewer loader workers",
        exits=(KILLED, ENDED), log=STEPS + "slurmstepd-n1: error: Detected 1 oom_kill event in StepId=8.0.\n"),
    "an exit code that nothing explains": Case(
        "unknown 20%", "task 1 on n1 ended with exit code 1, and the log does not say why",
        "restarts by itself; if it comes back: look at the log of the rank that ended first (safelaunch logs --rank R)",
        exits=(BAD, ENDED), echo=RECEIVED),
    "an exit code that nothing explains, and srun names those first that were ended": Case(
        "unknown 30%", "task 1 on n1 ended with exit code 1, and the log does not say why",
        "restarts by itself; if it comes back: look at the log of the rank that ended first (safelaunch logs --rank R)",
        exits=(BAD, ENDED), log=STEPS + "srun: error: n0: task 0: Exited with exit code 143\n"
        "srun: launch/slurm: _step_signal: Terminating StepId=8.0\nsrun: error: n1: task 1: Exited with exit code 1\n"),
    "an exception before the first step": Case(
        "user_code 85%", "KeyError: 'labels'",
        "not restarted; to do: fix the program",
        exits=(BAD, ENDED), log="loading\n" + TRACE, echo=TERM, step=None),
    "an exception at step 119": Case(
        "user_code 85%", "KeyError: 'labels'", "restarts by itself; if it comes back: fix the program",
        exits=(BAD, ENDED), log=STEPS + TRACE, echo=TERM),
    "a node is lost": Case(
        "node_failure 90%", "n1: its guard has been silent for 10 s",
        "restarts by itself; if it comes back: have the node looked at (safelaunch why --ticket)", ended="lost",
        exits=(ENDED,), seen={"lost": (("n1", "its guard has been silent for 10 s"),)}, echo=RECEIVED),
    "the kill switch": Case(
        "cancelled 100%", "bob touched kill", "not restarted: a person's request is final", ended="stopped", exits=GOOD,
        seen={"requests": (BOB_KILL,)}, echo=TERM),
    "kill-now": Case(
        "cancelled 100%", "bob touched kill-now", "not restarted: a person's request is final", ended="stopped",
        exits=(ENDED, Exit("n1", 1, 143, 15)), seen={"requests": (BOB_NOW,)}, echo=RECEIVED + TERM),
    "stop at the next checkpoint": Case(
        "cancelled 100%", "bob wanted it to stop at its next checkpoint", "not restarted: a person's request is final",
        ended="stopped", exits=GOOD, seen={"requests": (Request("checkpoint", "bob", NOW),)}, echo=TERM),
    "scancel": Case(
        "cancelled 100%", "the job was cancelled by a person (scancel)",
        "not restarted: a person's request is final", ended="interrupted", exits=(ENDED,),
        seen={"ending": "cancelled"}, echo=RECEIVED),
    "the time limit is near": Case(
        "time_limit 100%", "the job's time limit is near", "goes on by itself",
        ended="interrupted", exits=GOOD, seen={"limit_near": True}),
    "the time limit": Case(
        "time_limit 100%", "the job's time limit has come", "goes on by itself", ended="interrupted", exits=(ENDED,),
        seen={"ending": "time_limit"}, echo=RECEIVED),
    "preempted": Case(
        "preempted 100%", "a more important job took the nodes", "goes on by itself", ended="interrupted",
        exits=(ENDED,), seen={"ending": "preempted"}, echo=LIGHTNING),
    "a node fails, and Slurm ends the job": Case(
        "node_failure 90%", "a node failed, and Slurm ended the job", "goes on by itself", ended="interrupted",
        exits=(ENDED,), seen={"ending": "node_failure"}),
    "requeued": Case(
        "preempted 80%", "the job was put back into the queue", "goes on by itself", ended="interrupted",
        exits=(ENDED,), seen={"ending": "requeued"}),
    "cancelled by a node guard": Case(
        "unknown 30%", "nobody led the job any more, and a node guard cancelled it", "goes on by itself",
        ended="interrupted", exits=(ENDED,), seen={"ending": "orphaned"}),
    "ended by Slurm, nothing tells why": Case(
        "unknown 30%", "Slurm ended the job, for an unknown reason", "goes on by itself", ended="interrupted",
        exits=(ENDED,), seen={"ending": "unknown"}, echo=TERM),
    "nobody knows whether another supervisor leads": Case(
        "unknown 30%", "its supervisor could not know whether another one leads", "goes on by itself",
        ended="interrupted", exits=(ENDED,), seen={"unconfirmed": True}, echo=TERM),
    "suspended": Case(
        "unknown 30%", "the whole job stood still, and the node guards ended the ranks: nobody could tell them from "
        "ranks whose node had vanished", "goes on by itself", ended="interrupted", exits=(KILLED,),
        seen={"suspended": True}),
    "a hang": Case(
        "hang 90%", "rank 1 on n1 is stopped",
        "restarts by itself; if it comes back: look at the ranks that the others waited for (safelaunch why)",
        exits=(ENDED, Exit("n1", 1, 143, 15)), hung="rank 1 on n1 is stopped", echo=RECEIVED),
    "setup fails": Case(
        "environment 60%", "module: command not found",
        "restarts by itself; if it comes back: install or rebuild what is missing",
        exits=(Exit("n1", 1, 127), ENDED), log="[n1:1]:bash: line 1: module: command not found\n", step=None),
    "the launcher is missing": Case(
        "environment 60%", "torchrun: command not found",
        "restarts by itself; if it comes back: install or rebuild what is missing",
        exits=(Exit("n1", 1, 127), ENDED), log="[n1:1]:bash: line 1: torchrun: command not found\n", step=None),
    "the launcher is missing on every node": Case(
        "environment 85%", "torchrun: command not found",
        "not restarted; to do: install or rebuild what is missing",
        exits=(Exit("n1", 1, 127), Exit("n0", 0, 127)), step=None,
        log="".join(f"[{node}:0]:bash: line 1: torchrun: command not found\n" for node in NODES)),
    "Slurm cannot start it": Case(
        "unknown 30%", "Slurm could not start it, or ended it in words that are not known: no word against the "
        "training", "goes on by itself", ended="interrupted", is_refused=True, log="srun: error: busy\n", step=None,
        seen={"srun_code": 1}),
    "a failure of a run that is on hold": Case(
        "user_code 85%", "KeyError: 'labels'",
        "restarts when its hold ends: carol put the run on hold (safelaunch resume); if it comes back: fix the program",
        exits=(BAD, ENDED), log=STEPS + TRACE, seen={"requests": (HELD,)}),
    "completed": Case("none 95%", "every task ended with exit code 0", "nothing to do", ended="completed", exits=GOOD,
                      log=STEPS + "[n0:0]:saved\n"),
}


@dataclass(frozen=True)
class Told:
    """A journal, and what was known beside it."""

    events: tuple[Event, ...]
    log: Log
    evidence: OutsideEvidence
    state: State
    requests: tuple[Request, ...]


def live_through(case: Case, plan: Plan) -> Told:
    """The attempt of a case, as a leader sees it end and a reader finds it."""
    journal: list[Event] = []

    def record(event: str, **data: Any) -> Event:
        made = Event(NOW, 1, len(journal) + 1, "n0", event, data)
        journal.append(made)
        return made

    record("submitted", job="12")
    record("job_started", job="12", nodes=list(NODES), batch_host="n0")
    record("attempt_started", attempt=1, job="12", nodes=list(NODES), resume_step=case.resume_step)
    if case.step is not None:
        record("progress", attempt=1, step=case.step)
    facts = dict(case.seen)
    live = Live(1, NODES, exits=case.exits[:1], tasks=2, srun_code=facts.pop("srun_code", None), hung=case.hung)
    if case.ended in ("stopped", "interrupted", "completed", "lost") or case.hung:
        live = replace(live, exits=())
    seen = Observation(NOW, NODES, live, **facts)
    for request in set(seen.requests) - {HELD}:
        record("kill_switch", name=request.name, who=request.who, touched_t=request.t)
    before = fold(journal)
    decision = decide.decide(before, seen, plan)
    if isinstance(decision.action, (Kill, AskToEnd)):
        record("decision", row=decision.row, why=decision.action.why, action="end", attempt=1,
               log_bytes=len(case.log.encode()))
        mark = mark_killed if isinstance(decision.action, Kill) else mark_asked
        live = mark(live, decision.row, NOW)
    live = replace(live, exits=case.exits)
    seen = replace(seen, live=live)
    how = "interrupted" if case.is_refused else ended.how_it_ended(live, seen)
    log = read_text(case.log + case.echo)
    tasks = tuple(TaskExit(exit.node, exit.task, exit.code, exit.signal) for exit in live.exits)
    start = fold(journal).attempts[0].asked_bytes

    stacks = None if case.hung is None else Stacks((("n1", case.hung),), case.hung, 0.9, 1, ("n1",))
    closing: list[Event] = []
    if how != "completed":
        end = end_of(live, seen, how, case.is_refused)
        known = know(EndFacts(how, live.end_row), tasks, live.srun_code, lost=seen.lost, stacks=stacks,
                     is_hang=case.hung is not None, asked_bytes=start)
        verdict = judge_end(end) or judge_log(log if how == "failed" else Log(), known)
        closing.append(Event(NOW, 1, 50, "n0", "verdict", {
            "attempt": 1, "category": verdict.category, "summary": verdict.summary, "action": verdict.action,
            "confidence": verdict.confidence, "suspects": list(verdict.suspects), "node": verdict.host,
            "fingerprint": verdict.fingerprint}))
    for node, why in seen.lost:
        closing.append(Event(NOW, 1, 51, "n0", "node_suspected", {"node": node, "why": why}))
    closing.append(Event(NOW, 1, 52, "n0", "attempt_ended", {
        "attempt": 1, "how": how, "exit_code": 1, "asked": live.end_row, "ending": seen.ending,
        "not_before": NOW + 5 if case.is_refused else None}))
    follows = advice(fold(closing, fold(journal)), plan, seen.requests, seen.partition)
    journal += [replace(event, data={**event.data, **follows}) if event.event == "verdict" else event
                for event in closing]
    state = fold(journal)
    after = decide.decide(state, replace(seen, live=None), plan)
    if isinstance(after.action, Finish):
        record(after.action.how, exit_code=after.action.exit_code, why=after.action.why)
    state = fold(journal)
    known = by_journal(state.attempts[0], journal, tasks, live.srun_code, stacks=stacks)
    return Told(tuple(journal), log, known, state, seen.requests)


@each("case", CASES.values(), ids=CASES)
def test_events_status_and_why_say_the_same_of_an_end(case: Case) -> None:
    told = live_through(case, PLAN)
    attempt = told.state.attempts[0]
    assert attempt.ended == case.ended

    verdict = judge_log(told.log, told.evidence)
    rows = list(verdicttext.tell(verdict, told.log, follows=what_follows(told.state, attempt, PLAN, told.requests)))
    why = {row.label: row.text for row in rows if row.label}
    category, _, sure = case.verdict.partition(" ")
    assert why["verdict"].startswith(f"{category}: ") and why["verdict"].endswith(f"({sure} sure)"), rows
    assert case.said in rows[1].text, rows
    assert why["action"].startswith(case.follows), rows

    spoken = [describe(event) for event in story.select(told.events)]
    if case.ended != "completed":
        lines = [text for text in spoken if text.startswith("verdict on attempt 1: ")]
        assert len(lines) == 1 and lines[0].startswith(f"verdict on attempt 1: {category} ({sure} sure)"), spoken
        assert any(case.said in text for text in spoken), spoken
        assert lines[0].endswith(f"; {case.follows}"), lines
        assert attempt.summary is not None and case.said in attempt.summary
    seen = judge(told.state, SchedulerAnswer(None), SPEECH, NOW)
    if told.state.ended is not None and told.state.ended.how in ("stopped", "gave_up"):
        assert case.said in seen.sentence, seen
    assert not any("somebody ended it" in text for text in spoken)
