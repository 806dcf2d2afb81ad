"""The leader: the supervisor in the batch step. One tick is observe → decide → act → record.

It owns the clock, the sleep and the signals; `core.decide` alone chooses. Nothing here blocks on the shared folder or on
Slurm: the folder is touched by disposable children (adapters.shared), Slurm's commands run beside the loop, and longer
acts are generators that yield what they wait for. It can die at any line: the batch shell starts it again, and what it
needs to go on stands in the journal and on this node's own disk.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import selectors
import signal
import sys
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

from safelaunch.adapters import checkpoints, journal, runfolder
from safelaunch.adapters.attempt import AttemptProcess
from safelaunch.adapters.control import ControlServer, Guard
from safelaunch.adapters.fence import Fencer
from safelaunch.adapters.job import Job, address_of, current
from safelaunch.adapters.outbox import APPEND, PUT
from safelaunch.adapters.shared import SharedFolder
from safelaunch.adapters.slurm import Command, Result
from safelaunch.adapters.successor import Successor
from safelaunch.core import causes, decide, nodeset, slurmtext
from safelaunch.core import plan as plans
from safelaunch.core.checkpoints.model import Checkpoint
from safelaunch.core.checkpoints.resume import resume_args
from safelaunch.core.model import Event, Exit, Request
from safelaunch.core.script import quote_bash
from safelaunch.core.state import State, fold
from safelaunch.core.steps import latest_step

GUARD = Path(__file__).parent / "node" / "guard.py"

TICK_S = 0.5
PING_S = 1.0            # tenth of the lease; 2 s above 32 guards keeps 64 of them within 0.3 % of a core
REQUESTS_S = 2.0        # how long a touched kill switch may go unseen
PROGRESS_S = 2.0
JOURNAL_PROGRESS_S = 60.0
PULSE_S = 15.0
SILENT_S = 10.0         # a guard that misses ten pings in a row, while the log stands still, is lost
SILENT_BUSY_S = 60.0    # ... while the log still grows: ask the node by a helper step first
GUARD_LOST_S = 2.0      # a guard reconnects within 1 s; later than this its task has gone with it
EVIDENCE_S = 3.0        # slurmstepd writes its line about the end before it signals; a slow folder may show it late
LAST_WORDS_S = 0.05     # a rank's last lines reach srun within milliseconds of its end
SRUN_PATIENCE_S = 30.0  # srun ends within 1 s of its last task, but never while a silent node holds its step
DRAIN_S = 900.0         # how long a finished job waits for a frozen folder to take the last log lines
HANDED_OVER = 75        # the job's exit code when the run goes on in another job (EX_TEMPFAIL)

Step = Generator[Command | float, Result | None, None]


class Superseded(Exception):
    """Another supervisor of a later generation acts for this run."""


class Leader:
    """The run's supervisor on the batch host."""

    def __init__(self, run_dir: Path, local: Path, job: Job) -> None:
        self.run_dir, self.local, self.job = run_dir, local, job
        self.selector = selectors.DefaultSelector()
        self.final: int | None = None
        self.now = time.time()
        self.now_s = time.monotonic()
        self.signals: set[int] = set()
        self.state = State()
        self.live: decide.Live | None = None
        self.process: AttemptProcess | None = None
        self.requests: tuple[Request, ...] = ()
        self.ending: str | None = None
        self.term_s: float | None = None
        self.limit_near = False
        self.lost: dict[str, str] = {}
        self.probing: set[str] = set()
        self.resume: Checkpoint | None = None
        self.resume_deadline_s = 3.0
        self.frozen = False
        self.tasks: dict[str, tuple[Step, Command | float]] = {}
        self.grew_s = self.exit_s = self.now_s
        self.size = 0
        self.due: dict[str, float] = {}
        self.pulse_count = 0
        self.last_row = ""
        self.moved = (0, 0)     # attempt, and the ticket of the write that moved its record on
        self._catch_signals()

    # --- birth ----------------------------------------------------------------------------------------------------

    def boot(self) -> None:
        """Open the guards' door first (their lease runs), then learn all from the journal."""
        self._open_control()
        self.shared = SharedFolder(self.run_dir, self.local / "spool")
        meta = self._patiently(lambda: json.loads((self.run_dir / "run.json").read_text()))
        self.plan = plans.make(meta["config"], meta["run_id"])
        self.events = list(journal.merge_raw(self._patiently(lambda: journal.read_raw(self.run_dir))).events)
        self.state = fold(self.events)
        self.claim_number = int(self._patiently(lambda: journal.last_claim(self.run_dir)))
        self.gen = 0
        self.gen = self._claim("lead", own_gen=True)
        self.writer = journal.Writer(self.shared, self.gen, self.job.host)
        self.successor = Successor(self.plan, self.job, self.run_dir,
                                   self._patiently(lambda: runfolder.read_env(self.run_dir)))
        self.fencer = Fencer(self.plan, self.job, self.server, GUARD.read_text())
        self._read_requests()
        reborn = self.state.job is not None and self.state.job.id == self.job.id
        if reborn and self.state.job and self.state.job.started_t is not None:
            self.record(self.writer.event("took_over", job=self.job.id))
        else:
            self._meet_the_job_before()
            self.record(self.writer.event("job_started", job=self.job.id, nodes=list(self.job.nodes),
                                          batch_host=self.job.host))
        self._settle_intents()
        self._adopt()
        if self.state.ended is None and self.state.successor is None and not self.job.is_local:
            self._begin("successor", self._queue_successor())

    def _open_control(self) -> None:
        """The same port and token as the leader before, so that its guards find this one."""
        file = self.local / "control.json"
        try:
            old = json.loads(file.read_text())
        except (OSError, ValueError):
            old = {"token": secrets.token_hex(32), "port": 0}
        self.token: str = old["token"]
        self.server = ControlServer(self.selector, self.token, old["port"])
        self.server.on_report = self._on_report
        temporary = file.with_suffix(".tmp")
        temporary.touch(0o600)
        temporary.write_text(json.dumps({"token": self.token, "port": self.server.port}))
        temporary.replace(file)

    def _patiently(self, ask: Any) -> Any:
        """The answer of the run folder, however long it is frozen; the guards are heard meanwhile."""
        while True:
            answer = self.shared.ask(ask, 2.0)
            if answer.is_ok:
                return answer.value
            self.wait(1.0)
            if answer.error and not answer.late:
                raise OSError(f"the run folder: {answer.error}")

    def _meet_the_job_before(self) -> None:
        """What the last job of the run left: a person's scancel is final, an attempt without an end gets one."""
        before = self.state.job
        if before is None or before.id == self.job.id or before.started_t is None:
            return
        if self._ending_of(before.id) == "cancelled":
            self.ending = "cancelled"
        attempt = self.state.attempt
        if attempt is not None and attempt.ended is None:
            while not self.shared.put(*self._record_of(attempt.number, "ended")):
                self.wait(1.0)
            until = self.now_s + self.plan.lease_s + Fencer.MARGIN_S
            while self.now_s < until and not self.signals:   # its nodes may be silent: their leases have run out then
                self.wait(min(1.0, until - self.now_s))
            self.record(self.writer.event("attempt_ended", attempt=attempt.number, how="interrupted",
                                          why=f"job {before.id} ended under it"),
                        self.writer.event("fenced", attempt=attempt.number))
        self._find_resume()

    def _settle_intents(self) -> None:
        """Announced acts without an outcome: see whether they happened."""
        for intent in self.state.intents:
            happened = None
            if intent.act == "launch":
                number = int(intent.data["attempt"])
                happened = AttemptProcess.adopt(self.local, number) is not None
            self.record(self.writer.event("outcome", claim=intent.claim, act=intent.act, ok=happened,
                                          note="settled by the next supervisor"))

    def _adopt(self) -> None:
        """Take over a living attempt of this job, also one that was started and not yet written down."""
        last = self.state.attempt
        number = last.number if last else 0
        unwritten = AttemptProcess.adopt(self.local, number + 1)
        if unwritten is not None:
            facts = unwritten.facts
            self.record(self.writer.event("attempt_started", **{**facts, "note": "written down by the next supervisor"}))
            last, number = self.state.attempt, number + 1
        if last is None or last.ended is not None or last.job != self.job.id:
            if last is None or last.ended is not None:
                self._find_resume()
            return
        process = AttemptProcess.adopt(self.local, number)
        self.process = process
        self.live = decide.Live(number, last.nodes, tasks=self.plan.tasks,
                                srun_code=None if process is not None else 255)
        self.server.expect(number)

    # --- the loop -------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """The job's exit code."""
        self.boot()
        while self.final is None:
            self.wait(self._timeout_s())
            self.observe()
            for _ in range(8):   # end of an attempt, decision and next launch follow each other at once
                if not self.step():
                    break
        self.shared.close()
        self.server.close()
        return self.final

    def wait(self, timeout_s: float) -> None:
        """Sleep until something happens; serve sockets; read the clocks, once a tick."""
        ready = self.selector.select(timeout_s)
        self.now, self.now_s = time.time(), time.monotonic()
        for key, _ in ready:
            key.data(self.now_s)
        self.server.tick(self.now_s, PING_S if len(self.server.guards) <= 32 else 2 * PING_S)

    def _timeout_s(self) -> float:
        if self.tasks or (self.live is not None and (self.live.exits or self.live.killed_t is not None)):
            return 0.02
        return TICK_S

    def observe(self) -> None:
        """Look at everything that is due."""
        self.shared.poll(self.now_s)
        self.frozen = self.shared.is_frozen
        self._advance_tasks()
        if self._is_due("requests", REQUESTS_S):
            self._read_requests()
        if self.process is not None:
            self._observe_attempt(self.process)
        if self.term_s is not None and self.ending is None:
            self._look_for_ending()
        if self._is_due("pulse", PULSE_S):
            self._publish_pulse()

    def step(self) -> bool:
        """One decision and its act; True when another may follow at once."""
        if self.final is not None:
            return False
        if self.live is not None and self.live.fenced:
            if not self._has_last_words():
                return False
            self._close_attempt()
            return True
        decision = decide.decide(self.state, self._seen(), self.plan)
        if decision.action is None:
            return False
        try:
            return self.act(decision)
        except Superseded as other:
            self._say(f"steps down: {other}")
            self.final = HANDED_OVER
            return False

    def act(self, decision: decide.Decision) -> bool:
        """Carry a decision out; True when it changed something that the next decision depends on."""
        action = decision.action
        match action:
            case decide.Launch():
                return self._launch(decision.row, action)
            case decide.AskToEnd():
                assert self.live is not None
                self.live = decide.mark_asked(self.live, decision.row, self.now)
                self._begin("ask", self._ask_to_end(action))
                self._tell(decision.row, f"asking the training to end: {action.why}")
            case decide.Kill():
                assert self.live is not None
                self.live = decide.mark_killed(self.live, decision.row, self.now)
                self._tell(decision.row, f"ending the attempt: {action.why}")
                self._move_record(self.live.number)
                for node in [node for node, _ in self._lost_of_live()]:
                    self.server.hang_up(node, self.now_s)
                self.server.tell({"do": "end", "grace_s": action.grace_s}, self.now_s)
            case decide.Fence():
                return self._fence()
            case decide.HandOver():
                self._begin("hand_over", self._hand_over(decision.row, action))
            case decide.Finish():
                self._begin("finish", self._finish(decision.row, action))
            case decide.Preserve():
                self._preserve(decision.row, action)
            case decide.Wait():
                if decision.row != self.last_row:
                    self._tell(decision.row, f"waiting until {_clock(action.until)}: {action.why}")
                if self.frozen and decision.row == "frozen":
                    self._find_resume()
        self.last_row = decision.row
        return False

    def record(self, *events: Event) -> None:
        """Journal the events and fold them into the state."""
        self.writer.write(*events)
        self.state = fold(events, self.state)

    # --- observing ------------------------------------------------------------------------------------------------

    def _seen(self) -> decide.Seen:
        return decide.Seen(
            now=self.now, nodes=self.job.nodes, live=self.live, requests=self.requests, ending=self.ending,
            limit_near=self.limit_near, lost=tuple(self.lost.items()), frozen=self.frozen,
            can_hand_over=not self.job.is_local, resume=self.resume, jitter=random.random(),  # noqa: S311 - back-off
        )

    def _observe_attempt(self, process: AttemptProcess) -> None:
        assert self.live is not None
        code = process.poll()
        if code is not None and self.live.srun_code is None:
            self.live = replace(self.live, srun_code=code)
        process.keep_pump(self._main_log(process.number), self.now_s)
        size = process.size()
        if size != self.size:
            self.size, self.grew_s = size, self.now_s
        if self._is_due("progress", PROGRESS_S):
            self._read_progress(process)
        self._find_lost()

    def _read_progress(self, process: AttemptProcess) -> None:
        step = latest_step(process.tail(), self.plan.step_pattern)
        attempt = self.state.attempt
        if step is None or attempt is None or attempt.step == step:
            return
        event = self.writer.event("progress", attempt=process.number, step=step)
        if self._is_due("journal_progress", JOURNAL_PROGRESS_S):
            self.record(event)
        else:
            self.state = fold([event], self.state)

    def _find_lost(self) -> None:
        """Nodes whose guards say nothing any more; tasks whose guard has gone without a word."""
        assert self.live is not None
        reported = {(exit.node, exit.task) for exit in self.live.exits}
        for guard in self.server.guards.values():
            if guard.gone or (guard.node, guard.task) in reported or guard.node in self.lost:
                continue
            if guard.closed_s is not None and self.now_s - guard.closed_s > GUARD_LOST_S:
                self._add_exit(Exit(guard.node, guard.task, 255))
            elif guard.connection is not None and guard.code is None:
                self._judge_silence(guard)

    def _judge_silence(self, guard: Guard) -> None:
        silent_s = self.now_s - guard.heard_s
        if silent_s < SILENT_S:
            return
        if self.grew_s < guard.heard_s + PING_S + 1.0 or (self.live and self.live.killed_t is not None):
            self._lose(guard.node, f"its guard has been silent for {silent_s:.0f} s and the log stands still")
        elif silent_s >= SILENT_BUSY_S and guard.node not in self.probing:
            self.probing.add(guard.node)
            self._begin(f"probe {guard.node}", self._probe(guard))

    def _probe(self, guard: Guard) -> Step:
        result = yield Command(self.fencer.helper(guard.node, ["true"]), self.job.env, 15.0)
        if result is not None and not result.is_ok and self.now_s - guard.heard_s > SILENT_S:
            self._lose(guard.node, f"its guard has been silent for {self.now_s - guard.heard_s:.0f} s and it runs no step")
        self.probing.discard(guard.node)

    def _lose(self, node: str, why: str) -> None:
        if node not in self.lost:
            self.lost[node] = why
            self.record(self.writer.event("node_suspected", node=node, why=why, owner="leader"))

    def _lost_of_live(self) -> list[tuple[str, str]]:
        return [(node, why) for node, why in self.lost.items() if self.live and node in self.live.nodes]

    def _on_report(self, guard: Guard) -> None:
        if self.live is None or guard.attempt != self.live.number:
            return
        if guard.code is not None:
            self._add_exit(Exit(guard.node, guard.task, guard.code, guard.signal))

    def _add_exit(self, exit: Exit) -> None:
        assert self.live is not None
        if not any((known.node, known.task) == (exit.node, exit.task) for known in self.live.exits):
            self.live = replace(self.live, exits=(*self.live.exits, exit))
            self.exit_s = self.now_s

    def _read_requests(self) -> None:
        kill_file = self.plan.kill_file
        answer = self.shared.ask(lambda: runfolder.read_requests(self.run_dir, kill_file), 1.0)
        if not answer.is_ok or answer.value is None:
            return   # unknown: neither asked nor not asked
        before = {request.name for request in self.requests}
        self.requests = runfolder.requests_of(answer.value)
        for request in self.requests:
            if request.name not in before:
                event = "kill_switch" if request.name in ("kill", "kill-now") else "request"
                self.record(self.writer.event(event, name=request.name, who=request.who, touched_t=request.t))

    def _look_for_ending(self) -> None:
        assert self.term_s is not None
        self.ending = self._ending_of(self.job.id) if not self.job.is_local else "cancelled"
        if self.ending is None and self.now_s - self.term_s > EVIDENCE_S:
            self.ending = "unknown"
        if self.ending is not None:
            self._say(f"the job is being ended: {self.ending}")

    def _ending_of(self, job: str) -> str | None:
        path = self.run_dir / f"slurm-{job}.out"

        def tail() -> str:
            with path.open("rb") as output:
                size = output.seek(0, os.SEEK_END)
                output.seek(max(0, size - (256 << 10)))
                return output.read().decode("latin-1")

        answer = self.shared.ask(tail, 1.0)
        return slurmtext.parse_ending(answer.value, job) if answer.is_ok and answer.value else None

    # --- acting ---------------------------------------------------------------------------------------------------

    def _launch(self, row: str, action: decide.Launch) -> bool:
        number = (self.state.attempt.number if self.state.attempt else 0) + 1
        claim = self._claim(f"launch {number}")
        if claim == 0:
            return False
        port = 20000 + (int(self.job.id) * 31 + number * 7 + random.randrange(1000)) % 10000  # noqa: S311
        folder = runfolder.attempt_folder(number)
        facts: dict[str, Any] = {
            "attempt": number, "job": self.job.id, "nodes": list(action.nodes), "port": port,
            "resume_step": self.resume.step if self.resume else None,
            "resume_path": self.resume.path if self.resume else None,
        }
        self.record(self.writer.event("decision", row=row, action="launch", why=action.why, attempt=number),
                    self.writer.event("intent", claim=claim, act="launch", attempt=number))
        words = resume_args(self.plan.resume.args, self.resume)
        extra = self._attempt_env(number, port, action.nodes)
        self.live = decide.Live(number, action.nodes, tasks=self.plan.tasks)
        self.server.expect(number)
        self.process = AttemptProcess.launch(
            self.local, number, words, {**self.job.env, **extra, **self._secrets(number)}, facts)
        self.size, self.grew_s = 0, self.now_s
        self.record(self.writer.event("attempt_started", **facts, why=action.why),
                    self.writer.event("outcome", claim=claim, act="launch", ok=True))
        self.shared.enqueue(PUT, *self._record_of(number, "live"))
        self.shared.enqueue(PUT, f"{folder}/launch.sh", _launch_script(self.run_dir, extra, words).encode())
        self._say(f"attempt {number} on {nodeset.fold(action.nodes)}: {action.why}")
        self.last_row = row
        return False

    def _attempt_env(self, number: int, port: int, nodes: tuple[str, ...]) -> dict[str, str]:
        env = {"SAFELAUNCH_ATTEMPT": str(number), "SAFELAUNCH_NODELIST": nodeset.fold(nodes),
               "SAFELAUNCH_MASTER_PORT": str(port), "SAFELAUNCH_CWD": self.job.cwd}
        address = "127.0.0.1" if self.job.is_local else address_of(nodes[0])
        if address is not None:
            env["SAFELAUNCH_MASTER_ADDR"] = address
        if self.resume is not None:
            env["SAFELAUNCH_RESUME_PATH"] = self.resume.path
            env["SAFELAUNCH_RESUME_STEP"] = "" if self.resume.step is None else str(self.resume.step)
        return env

    def _secrets(self, number: int) -> dict[str, str]:
        """What only the guards may know: passed in the environment, never written down."""
        record = self.run_dir / runfolder.attempt_folder(number) / "record.json"
        return {"SAFELAUNCH_GUARD": GUARD.read_text(), "SAFELAUNCH_TOKEN": self.token,
                "SAFELAUNCH_CONTROL": f":{self.server.port}", "SAFELAUNCH_RECORD": str(record)}

    def _record_of(self, number: int, state: str) -> tuple[str, bytes]:
        """Name and content of the attempt's record, which a guard reads when it hears nobody."""
        data = json.dumps({"v": 1, "attempt": number, "state": state, "endpoint": ["", self.server.port]})
        return f"{runfolder.attempt_folder(number)}/record.json", data.encode() + b"\n"

    def _ask_to_end(self, action: decide.AskToEnd) -> Step:
        number = getattr(signal, action.signal)
        self.server.signalled.clear()
        self.server.signal_answers = 0
        told = self.server.tell({"do": "signal", "signal": int(number)}, self.now_s)
        patience_s = self.now_s + 2.0
        while self.server.signal_answers < told and self.now_s < patience_s:
            yield 0.02
        reached = list(self.server.signalled)
        text = f"{action.signal} reached {len(reached)} processes ({', '.join(reached[:4])})" if reached else (
            f"no process of the training handles {action.signal} (asked {told} guards): it can watch "
            f"$SAFELAUNCH_KILL_FILE instead")
        self._tell("ask_to_end", f"{text}; what still runs in {action.grace_s:.0f} s is killed")

    def _fence(self) -> bool:
        """See that nothing of the attempt is left; True once that is sure."""
        assert self.live is not None
        for command, done in self.fencer.advance(self.live, self.now_s, self.lost, self._is_record_moved):
            self._begin(f"sweep {done}", self._sweep(command, done))
        for node, why in self.fencer.found_lost():
            self._lose(node, why)
        if self.fencer.is_done(self.live):
            self.live = replace(self.live, fenced=True)
            return True
        return False

    def _move_record(self, number: int) -> None:
        """Say in the attempt's record that it has ended, without waiting: a silent node's lease counts from there."""
        name, data = self._record_of(number, "ended")
        self.moved = (number, self.shared.enqueue(PUT, name, data))

    def _is_record_moved(self) -> bool:
        assert self.live is not None
        if self.moved[0] != self.live.number:
            self._move_record(self.live.number)
        return self.shared.is_durable(self.moved[1])

    def _sweep(self, command: Command, node: str) -> Step:
        result = yield command
        if result is not None:
            self.fencer.swept(node, result)

    def _close_attempt(self) -> None:
        """The attempt is over and fenced: judge it, and look for what to resume from."""
        assert self.live is not None
        self._read_requests()   # a training that watches the kill switch can be faster than this loop
        live, seen = self.live, self._seen()
        how = decide.how_it_ended(live, seen)
        tail = self.process.tail() if self.process else b""
        step = latest_step(tail, self.plan.step_pattern)
        events = [self.writer.event("progress", attempt=live.number, step=step)] if step is not None else []
        code = next((exit.code for exit in live.exits if exit.code), live.srun_code or 0)
        if how != "completed":
            verdict = causes.judge(live.exits, tuple(self._lost_of_live()), self.ending, tail, live.srun_code)
            if how in ("failed", "lost"):
                events.append(self.writer.event(
                    "failure", attempt=live.number, exit_code=code, exits=[exit.text for exit in live.exits][:64]))
            events.append(self.writer.event(
                "verdict", attempt=live.number, category=verdict.category, summary=verdict.summary,
                confidence=verdict.confidence, action=verdict.action, node=verdict.node, task=verdict.task,
                evidence=list(verdict.evidence)))
        events.append(self.writer.event("attempt_ended", attempt=live.number, how=how, exit_code=code,
                                        asked=live.end_row))
        events.append(self.writer.event("fenced", attempt=live.number))
        if self.process is not None:
            self._begin(f"rest {live.number}", self._copy_rest(self.process))
            self.process.forget()
        self.live = self.process = None
        self._find_resume()
        if self.resume is not None and self.resume.step is not None and (
                self.state.best_step is None or self.resume.step > self.state.best_step):
            events.append(self.writer.event("checkpoint", attempt=live.number, step=self.resume.step,
                                            path=self.resume.path, format=self.resume.format))
        self.record(*events)
        self.shared.enqueue(PUT, f"{runfolder.attempt_folder(live.number)}/exit.json", json.dumps({
            "v": 1, "attempt": live.number, "how": how, "exit_code": code, "srun_code": live.srun_code,
            "tasks": [{"node": e.node, "task": e.task, "code": e.code, "signal": e.signal} for e in live.exits],
        }).encode() + b"\n")
        self._say(f"attempt {live.number} {how}" + (f": {self.state.attempt.summary}" if self.state.attempt
                                                    and self.state.attempt.summary else ""))

    def _find_resume(self) -> None:
        """The newest complete checkpoint; on a folder that does not answer in time, frozen until it does."""
        resume = self.plan.resume
        if resume.dir is None:
            return
        folder = os.path.join(self.job.cwd, resume.dir)   # noqa: PTH118 - text only

        def look() -> dict[str, Any]:
            return _plain(checkpoints.find(folder, resume.format, resume.pattern))

        answer = self.shared.ask(look, self.resume_deadline_s)
        if answer.late:
            self.frozen, self.resume_deadline_s = True, min(60.0, self.resume_deadline_s * 2)
            return
        self.resume_deadline_s = 3.0
        if answer.is_ok and answer.value is not None:
            best = answer.value["best"]
            self.resume = Checkpoint(**best) if best else None
            for skipped in answer.value["skipped"][:5]:
                self._say(f"checkpoint {skipped['path']} is skipped: {skipped['reason']}")
        else:
            self.frozen = True   # unknown is not "none": starting from step 0 would throw the run away
            if self._is_due("unreadable", 60.0):
                self._say(f"checkpoints in {folder} cannot be read: {answer.error}; trying again")

    def _preserve(self, row: str, action: decide.Preserve) -> None:
        self.record(self.writer.event("preserved", until=action.until, nodes=list(self.job.nodes)))
        self._tell(row, f"{action.why}. The site is preserved until {_clock(action.until)}: look with "
                        f"`safelaunch shell {self.run_dir} NODE`, give back with `safelaunch release {self.run_dir}`")

    def _queue_successor(self) -> Step:
        """Queue the next job of this run, so that no end of this one can lose it."""
        while self.state.ended is None and self.final is None:
            claim = self._claim("queue the successor")
            if claim == 0:
                yield 5.0
                continue
            self.record(self.writer.event("intent", claim=claim, act="queue_successor"))
            result = yield self.successor.submit(self.state.excluded)
            assert result is not None
            known = result
            if result.is_unknown:
                yield 5.0
                looked = yield self.successor.look()
                assert looked is not None
                known = looked
            job = self.successor.job_from(known)
            self.record(self.writer.event("outcome", claim=claim, act="queue_successor", ok=job is not None))
            if job is not None:
                self.record(self.writer.event("submitted", job=job, successor_of=self.job.id,
                                              exclude=list(self.state.excluded)))
                return
            self._say(f"the successor could not be queued: {(result.stderr or result.stdout).strip()[:300]}")
            if not result.is_unknown:
                yield 60.0
            yield 10.0

    def _hand_over(self, row: str, action: decide.HandOver) -> Step:
        """Leave the run to the successor; it must be able to start, and must not use the excluded nodes."""
        if self.job.is_local:
            self._begin("finish", self._finish(row, decide.Finish("gave_up", 10, action.why)))
            return
        self._tell(row, f"handing over to the next job: {action.why}")
        while "successor" in self.tasks:
            yield 0.1
        patience_s = self.now_s + 300.0
        while self.now_s < patience_s or self.ending is None:
            if self.state.successor is None:
                self._begin("successor", self._queue_successor())
                while "successor" in self.tasks:
                    yield 0.1
            for command in self.successor.prepare(self.state.successor, action.exclude, bool(self.lost)):
                result = yield command
                if result is None or not result.is_ok:
                    self._say(f"the successor could not be changed: {result.stderr.strip()[:200] if result else ''}")
                    break
            else:
                break
            yield 5.0
        self.record(self.writer.event("resubmitted", job=self.state.successor, exclude=list(action.exclude),
                                      why=action.why))
        yield from self._drain()
        self.final = HANDED_OVER

    def _finish(self, row: str, action: decide.Finish) -> Step:
        """End the run: the journal first, then the successor, then the log's last lines."""
        if self.state.ended is None:
            self.record(self.writer.event(action.how, exit_code=action.exit_code, why=action.why))
        self._tell(row, f"the run has ended: {action.how}: {action.why}")
        while "successor" in self.tasks and self.state.successor is None and self.now_s < (self.term_s or self.now_s) + 20:
            yield 0.1
        self.tasks.pop("successor", None)
        for _ in range(6):
            if self.state.successor is None:
                break
            looked = yield self.successor.look()
            assert looked is not None
            if looked.is_ok and not self.successor.is_ours(looked, self.state.successor):
                break
            if looked.is_ok:
                result = yield self.successor.cancel(self.state.successor)
                if result is not None and result.is_ok:
                    break
            yield 5.0
        yield from self._drain()
        self.final = action.exit_code

    def _copy_rest(self, process: AttemptProcess, patience_s: float = SRUN_PATIENCE_S) -> Step:
        """Wait for an ended attempt's srun, and copy the log's last lines; beside whatever comes next."""
        end_s = self.now_s + patience_s
        while process.poll() is None and self.now_s < end_s:
            yield 0.1
        process.kill()   # it waits for a silent node, for ever
        while True:
            process.finish_pump()
            result = yield Command(process.copy_rest(self._main_log(process.number)), self.job.env, DRAIN_S)
            if result is not None and result.is_ok:
                return
            yield 0.5

    def _drain(self) -> Step:
        """Wait for the last lines of the log; a frozen folder gets DRAIN_S."""
        end_s = self.now_s + (DRAIN_S if self.ending is None else 20.0)
        while self.now_s < end_s and (self.shared.is_frozen or any(name.startswith("rest ") for name in self.tasks)):
            yield 0.05
        if self.now_s >= end_s:
            (self.local / "keep").touch()

    def _has_last_words(self) -> bool:
        """srun has brought what the dying ranks said: it has ended, or nothing came for a moment."""
        assert self.live is not None
        return self.live.srun_code is not None or self.now_s - max(self.grew_s, self.exit_s) > LAST_WORDS_S

    def _main_log(self, number: int) -> str:
        return str(self.run_dir / runfolder.attempt_folder(number) / "main.log")

    def _publish_pulse(self) -> None:
        self.pulse_count += 1
        attempt = self.state.attempt
        self.shared.enqueue(PUT, "pulse.json", json.dumps({
            "v": 1, "count": self.pulse_count, "t": round(self.now, 3), "gen": self.gen, "host": self.job.host,
            "job": self.job.id, "state": self.state.name, "attempt": attempt.number if attempt else None,
            "step": attempt.step if attempt else None, "successor": self.state.successor,
            "guards": sum(guard.connection is not None for guard in self.server.guards.values()),
        }).encode() + b"\n")

    # --- claims, tasks, talk --------------------------------------------------------------------------------------

    def _claim(self, action: str, own_gen: bool = False) -> int:
        """The number of a claim that is now ours; 0 = the folder does not answer. Raises Superseded."""
        while True:
            number = self.claim_number + 1
            gen = number if own_gen else self.gen
            won = self.shared.publish(f"claims/{number}", journal.render_claim(gen, self.job.host, action, self.now))
            if won is None:
                if not own_gen:
                    self.frozen = True
                    return 0
                self.wait(1.0)
                continue
            self.claim_number = number
            if won:
                return number
            other = self._patiently(lambda n=number: journal.read_claim(self.run_dir, n)) or {}
            if other.get("pid") == os.getpid() and other.get("host") == self.job.host and other.get("gen") == gen:
                return number   # won after all, by a publish that was late
            if not own_gen and int(other.get("gen", 0)) > self.gen:
                raise Superseded(f"claim {number} belongs to generation {other.get('gen')} on {other.get('host')}")

    def _begin(self, name: str, step: Step) -> None:
        """Start an act that waits between its parts, unless it is under way."""
        if name not in self.tasks:
            self.tasks[name] = (step, 0.0)
            self._advance(name, None)

    def _advance_tasks(self) -> None:
        for name in list(self.tasks):
            waiting = self.tasks[name][1] if name in self.tasks else None
            if isinstance(waiting, Command):
                result = waiting.poll()
                if result is not None:
                    self._advance(name, result)
            elif waiting is not None and self.now_s >= waiting:
                self._advance(name, None)

    def _advance(self, name: str, result: Result | None) -> None:
        step = self.tasks[name][0]
        try:
            wanted = step.send(result)
        except StopIteration:
            self.tasks.pop(name, None)
            return
        except Superseded as other:
            self.tasks.pop(name, None)
            self._say(f"steps down: {other}")
            self.final = HANDED_OVER
            return
        if name in self.tasks:
            self.tasks[name] = (step, wanted if isinstance(wanted, Command) else self.now_s + wanted)

    def _is_due(self, what: str, every_s: float) -> bool:
        if self.now_s < self.due.get(what, 0.0):
            return False
        self.due[what] = self.now_s + every_s
        return True

    def _tell(self, row: str, text: str) -> None:
        """Journal a decision, and say it."""
        self.record(self.writer.event("decision", row=row, why=text))
        self._say(text)

    def _say(self, text: str) -> None:
        """A line in the job's output, which people read first."""
        line = f"safelaunch {_clock(self.now)} {self.job.host}: {text}\n"
        self.shared.enqueue(APPEND, f"slurm-{self.job.id}.out" if not self.job.is_local else "job.out", line.encode())

    def _catch_signals(self) -> None:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, lambda number, frame: None)
        self.selector.register(reader, selectors.EVENT_READ, lambda now_s: self._take_signals(reader, now_s))

    def _take_signals(self, reader: int, now_s: float) -> None:
        for number in os.read(reader, 4096):
            if number == signal.SIGTERM and self.term_s is None:
                self.term_s = now_s
                self.signals.add(number)
            elif number == signal.SIGUSR2:
                self.limit_near = True


def _launch_script(run_dir: Path, env: dict[str, str], words: tuple[str, ...]) -> str:
    """attempts/N/launch.sh: the attempt as it was launched, to repeat by hand inside the allocation."""
    exports = "".join(f"export {key}={quote_bash(value)}\n" for key, value in sorted(env.items()))
    arguments = "".join(" " + quote_bash(word) for word in words)
    return (f"#!/bin/bash\n# Attempt {env['SAFELAUNCH_ATTEMPT']} as it was launched; it can be repeated by hand inside "
            f"the allocation.\n{exports}cd {quote_bash(env['SAFELAUNCH_CWD'])} || exit\n"
            f"exec bash {quote_bash(str(run_dir / 'job.sbatch'))} attempt{arguments}\n")


def _plain(found: Any) -> dict[str, Any]:
    """A search's result as JSON can carry it."""
    best = found.best
    return {"best": {"path": best.path, "step": best.step, "format": best.format} if best else None,
            "skipped": [{"path": item.path, "reason": item.reason} for item in found.skipped]}


def _clock(t: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(t))


def main(argv: list[str]) -> None:
    """Lead the run in `argv` (run folder, node-local folder) until the job's end; its exit code goes to `final`."""
    run_dir, local = Path(argv[0]), Path(argv[1])
    job = current(os.environ)
    os.chdir("/")
    os.umask(0o027)
    (local / "leader.born").touch()
    leader = Leader(run_dir, local, job)
    code = leader.run()
    temporary = local / "final.tmp"
    temporary.write_text(f"{code}\n")
    temporary.replace(local / "final")
    sys.exit(code)
