"""What all files of the supervisor use: sleep, run folder, claims, journal, messages."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from safelaunch.base.io import sharedfile
from safelaunch.base.io.probe import ALONE_S
from safelaunch.base.timing import LEASE_S, PATIENT_S, STALL_S
from safelaunch.decide.ends import silence
from safelaunch.guard.io.job import Allocation
from safelaunch.node import fresh
from safelaunch.run.io import journal, ownership, runfolder
from safelaunch.run.io.outbox import PUT
from safelaunch.script.io import laterjobs
from safelaunch.slurm.io.slurm import Result
from safelaunch.supervisor.io.world import World
from safelaunch.supervisor.state.clock import Timer
from safelaunch.supervisor.state.diagnosing import AttemptDiagnosis, Beside, WholeLog
from safelaunch.supervisor.state.endpoint import had_eligible
from safelaunch.supervisor.state.folder import FolderState
from safelaunch.supervisor.state.helpers import Helpers
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.listening import LiveLog
from safelaunch.supervisor.state.nextjob import NextJob, NextSlot, Queueing
from safelaunch.supervisor.state.nodes import Nodes
from safelaunch.supervisor.state.parts import LeaderParts
from safelaunch.supervisor.state.ports import FolderPort, Say, TookOver
from safelaunch.supervisor.state.reach import Reach
from safelaunch.supervisor.state.suspicion import Suspicions

TICK_S = 1.0
BUSY_TICK_S = 0.02      # while something is under way that no socket announces
LISTEN_S = 0.02        # between two looks at a shared folder that takes its time
NO_TIME_S = 0.001       # a rest of a sleep shorter than this is not slept
COMMAND_TICK_S = 0.1    # a command's end is announced by SIGCHLD; its deadline is not
STEP_S = 1.0            # of the wall clock; NTP slews by less (adjtimex(2): 0.5 ms a second)
BUSY_FOR_S = 2.0        # what lasts longer needs no such hurry: a lease, a rank that ignores TERM
SIGNALS = (signal.SIGTERM, signal.SIGUSR2, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
DEMOTED = 76              # another supervisor leads this job: this one becomes its standby
HANDED_OVER = 75        # the job's exit code when the run goes on in another job (EX_TEMPFAIL)


class Superseded(Exception):
    """Another supervisor acts for this run (`by`: its host), or the run folder is another run's now."""

    def __init__(self, text: str, by: str | None = None) -> None:
        super().__init__(text)
        self.by = by


class Leader(LeaderParts):
    """The run's supervisor on the batch host; the files beside this one work on it."""

    def __init__(self, run_dir: Path, local: Path, job: Allocation, world: World,
                 took_over: TookOver | None = None) -> None:
        super().__init__(run_dir, local, job, world, took_over)
        self.journal = LeaderJournal(self.now_s, self._catch_up, self.claim)
        self.reach = Reach(self._tell_lost)
        self.nodes = Nodes(self._do_without_helpers)
        self.next = NextJob(self.check_folder)
        folder = FolderState()
        self.say = Say(job, self.clock, folder, self.journal,
                       lambda path, lines: world.leave_line(path, lines, self.listen))
        self.files = FolderPort(run_dir, self.clock, folder, self._ping, self._pause, self.say)
        self.log = LiveLog(self.here, self.clock, self.journal, self.running, self.say)
        world.on_signals(SIGNALS, self._take_signal)

    @property
    def helpers(self) -> Helpers:
        return Helpers(self.here, self.guard_endpoint, self.nodes)

    @property
    def suspects(self) -> Suspicions:
        return Suspicions(self.here, self.clock, self.journal, self.files, self.nodes)

    @property
    def diagnosis(self) -> AttemptDiagnosis:
        return AttemptDiagnosis(WholeLog(self.here, self.files, self.guard_endpoint, self.running, self.listen),
                         Beside(self.here, self.clock, self.journal, self.hangs, self.nodes, self.reach))

    @property
    def queueing(self) -> Queueing:
        return Queueing(NextSlot(self.here, self.journal, self.next, self.say), self.clock, self.files, self.course,
                        self.tasks)

    def wait(self, timeout_s: float) -> None:
        """Sleep until something happens; serve sockets; read the clocks, once a tick.

        Answers to pings alone end no sleep, unless a standby may suspect this leader: each would cost a round of the
        loop.
        """
        timeout_s = 0.0 if self.clock.has_news else timeout_s   # it came while a folder was waited for
        until_s = self.here.world.now_s() + timeout_s
        self._receive(timeout_s)
        while not self.clock.has_news and not self.standbys.is_contested and self.now_s < until_s:
            self._receive(max(NO_TIME_S, until_s - self.now_s))
        self.clock.forget_news()
        self.server.tick(self.now_s, self.guard_endpoint.ping_every_s)
        if self.journal.unwritten:
            self.journal.record()

    def listen(self) -> None:
        """A moment of listening while somebody waits for a shared folder; its news ends the next sleep."""
        self._receive(LISTEN_S)
        self.server.tick(self.now_s, self.guard_endpoint.ping_every_s)

    def _catch_up(self) -> None:
        """Take in what has come, where the last time is long ago: short waits for the folder in a row add up."""
        if self.here.world.now_s() - self.now_s > ALONE_S:
            self._receive(0.0)
            self.server.tick(self.now_s, self.guard_endpoint.ping_every_s)

    def _receive(self, timeout_s: float) -> None:
        """Sleep until a socket or a signal has something; serve the sockets, and read the clocks."""
        before_s = self.now_s
        ready = self.clock.sleep(timeout_s)
        if self.now_s - before_s > timeout_s + STALL_S:
            # This process was stopped or starved: nobody else was silent.
            self.server.forgive(self.now_s)
            self.running.note_standstill(self.now_s, is_long=self.now_s - before_s > LEASE_S)
            self.standbys.doubt(self.standbys.is_contested or self.standbys.node is not None)
            self.clock.hurry(Timer.CLAIMS)
            self.clock.take_news()
        if abs(self.clock.stepped_s) > STEP_S:
            self.running.note_clock_step(self.clock.stepped_s)
            self.journal.note_clock_step(self.clock.stepped_s)
        for key, _ in ready:
            key.data(self.now_s)

    def _ping(self) -> None:
        """Before a wait for the folder: a standby suspects a leader that is silent for two seconds."""
        self._catch_up()
        self.server.ping_standbys(self.here.world.now_s())

    def rest(self, length_s: float) -> None:
        """Let so much time pass while the guards are heard; `wait` ends with each of their messages."""
        until_s = self.now_s + length_s
        while self.now_s < until_s:
            self.wait(until_s - self.now_s)

    def doubt_itself(self) -> None:
        """A leader that cannot start keeps up the guards' leases; it ends their ranks where another may lead."""
        heard_s = max((one.heard_s for one in self.server.standbys.values()), default=self.clock.born_s)
        if not self.server.order and silence.must_end_ranks(
                leads=self.journal.gen != 0, had_eligible=had_eligible(self.here, self.guard_endpoint),
                standby_silent_s=self.now_s - heard_s):
            self.server.tell_all({"do": "end", "grace_s": 0.0}, self.now_s)

    def timeout_s(self) -> float:
        """How long the loop may sleep if nothing happens."""
        waits_s = self.tasks.waits_s(COMMAND_TICK_S)
        live = self.running.live
        if live is not None and (live.exits or live.killed_t is not None):
            since_s = self.now_s - max(self.running.exit_s, self.running.grew_s, self.running.killed_s)
            waits_s.append(BUSY_TICK_S if since_s < BUSY_FOR_S else COMMAND_TICK_S)
        return max(BUSY_TICK_S, min([TICK_S, *waits_s]))

    def check_folder(self) -> bool:
        """Whether the run folder answers, right before its script is submitted or started. Raises Superseded where the
        folder has been replaced, or is another user's.
        """
        script = self.here.local / "job.sbatch"   # the copy of this job's shell

        def look() -> tuple[list[int], str | None, bool, dict[str, str]]:
            is_closed = ownership.close_run(self.here.run_dir)
            is_same = not is_closed or sharedfile.read(self.here.run_dir / script.name) == script.read_bytes()
            reason = ownership.why_not_own_run(self.here.run_dir)
            return (runfolder.folder_id(self.here.run_dir),
                    reason if is_same else f"{self.here.run_dir / script.name} has been changed", is_closed,
                    laterjobs.read(self.here.run_dir))

        # Asked even if another answer was late in this tick (simulated: test_found "a leader that wakes in a job which
        # others have ended as orphaned takes that for no person's cancel").
        answer = self.files.ask_anyway(look, 1.0)
        if not answer.is_ok or answer.value is None:
            return False
        folder, reason, is_closed, later = answer.value
        if reason is not None or self.folder.is_another(folder):
            raise Superseded(reason or "the run folder has been replaced by another")
        self.next.note_later(later)
        if is_closed:
            self.say("others could write the run folder, which holds what is executed: it is closed to them again")
        return True

    def _pause(self) -> None:
        """A second in which the run folder does not answer."""
        self.rest(1.0)
        self.doubt_itself()

    def claim(self, action: str, own_gen: bool = False) -> int:
        """The number of a claim that is now ours; 0 = the folder does not answer. Raises Superseded."""
        while True:
            number = self.journal.claim_number + 1
            gen = number if own_gen else self.journal.gen
            claimed_s = self.here.world.now_s()
            content = journal.render_claim(gen, self.job.host, action, self.clock.now, self.here.world.pid)
            won = self.files.publish(f"claims/{number}", content, PATIENT_S)
            if won is None:
                if not own_gen:
                    self.folder.freeze()
                    return 0
                self._pause()
                # raises OSError where it is gone
                self.files.ask_patiently(lambda: runfolder.folder_id(self.here.run_dir))
                continue
            self.journal.note_claim(number, claimed_s)
            self.standbys.confirm(self.now_s)
            if won:
                return number
            other = self.read_claim(number)
            if (other.get("pid"), other.get("host"), other.get("gen")) == (self.here.world.pid, self.job.host, gen):
                return number   # won after all: the publish was late
            if not own_gen and int(other.get("gen", 0)) > self.journal.gen:
                raise Superseded(f"claim {number} belongs to generation {other.get('gen')} on {other.get('host')}",
                                 str(other.get("host")))

    def read_claim(self, number: int) -> dict[str, Any]:
        """A claim that somebody published; {} when it is torn."""
        def read() -> dict[str, Any] | None:
            fresh.see(f"{self.here.run_dir}/claims")
            return journal.read_claim(self.here.run_dir, number)
        return self.files.ask_patiently(read) or {}

    def ask_slurm(self, argv: Sequence[str], deadline_s: float, *, is_last: bool = False) -> Result | None:
        """Slurm's answer, with the guards served; None: told to end first. `is_last`: it waits even so."""
        command = self.here.world.command(argv, self.job.env, deadline_s)
        while (result := command.poll()) is None and (is_last or not self.course.was_told):
            self.wait(0.05)
        return result

    def find_other(self, claims: list[dict[str, Any]]) -> None:
        """Take in the claims after this leader's last one; raises Superseded where another one leads."""
        self.standbys.confirm(self.now_s)
        other = next((claim for claim in claims if int(claim.get("gen", 0)) > self.journal.gen), None)
        if other is not None:
            raise Superseded(f"generation {other.get('gen')} on {other.get('host')} leads this run",
                             str(other.get("host")))

    def record_of(self, number: int, state: str) -> tuple[str, bytes]:
        """Name and content of the attempt's record, which a guard reads when it hears nobody."""
        data = json.dumps({"v": 1, "attempt": number, "state": state, "endpoint": self.endpoint()})
        return f"{runfolder.attempt_folder(number)}/record.json", data.encode() + b"\n"

    def endpoint(self) -> tuple[str, int]:
        """Address and port of the endpoint. The batch host's guards know its address from srun."""
        return ("" if self.here.took_over is None else self.own_address(), self.server.port)

    def own_address(self) -> str:
        """The addresses at which other nodes reach this one, by name or network, to be tried in turn.

        A name can resolve to a network that is closed between nodes, while Slurm uses another one.
        """
        found = (self.address_of(self.job.host) or "", *(() if self.job.is_local else self.here.world.own_addresses()))
        return ",".join(dict.fromkeys(filter(None, found)))

    def address_of(self, node: str) -> str | None:
        """Slurm's address where the name does not resolve; else what its name server said, which is asked once."""
        if node not in self.nodes.addresses and node not in self.nodes.names:
            self._catch_up()
            answer = self.here.world.address_of(node, self.listen)
            self.nodes.note_names_of({node: answer.value})
            if answer.late:
                self.say(f"no name server answers for {node}: its address is Slurm's, or srun's, in this job")
        return self.nodes.addresses.get(node) or self.nodes.names[node]

    def move_record(self, number: int) -> None:
        """Mark the attempt's record as ended, without waiting: a silent node's lease counts from there."""
        name, data = self.record_of(number, "ended")
        self.running.note_moved(number, self.folder.shared.enqueue(PUT, name, data))

    def _tell_lost(self, node: str, why: str) -> None:
        self.say(f"{node} is lost: {why}")
        self.journal.record(self.journal.event("node_lost", node=node, why=why))

    def _do_without_helpers(self, why: str) -> None:
        self.guard_endpoint.fencer.do_without_helpers(why)
        self.say(f"no step can run beside the training on this cluster ({why}): there is no standby and no hang check, "
                 "and a restart waits for a lease")
        if self.standbys.process is not None:
            self.standbys.process.terminate()

    def ensure_record_moved(self) -> bool:
        """Whether the live attempt's record says, on the shared folder, that it has ended."""
        if self.running.moved[0] != self.running.now.number:
            self.move_record(self.running.now.number)
        return self.folder.shared.is_durable(self.running.moved[1])

    def _take_signal(self, number: int, now_s: float) -> None:
        self.clock.take_news()   # also SIGCHLD: a command has ended
        if number == signal.SIGTERM:
            self.course.note_term(now_s)
        elif number == signal.SIGUSR2:
            self.course.note_limit_near()


def hold_token(local: Path, token: str, port: int = 0, watched: Iterable[str] = ()) -> None:
    """Keep on this host's own disk what a supervisor that starts here next needs. That is the run's token, this host's
    port, and the hosts of eligible standbys, one of which may have taken over.
    """
    temporary = local / "control.tmp"
    temporary.touch(0o600)
    temporary.write_text(json.dumps({"token": token, "port": port, "watched": sorted(watched)}))
    temporary.replace(local / "control.json")
