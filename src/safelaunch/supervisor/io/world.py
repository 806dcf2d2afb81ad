"""The world as one supervisor touches it: clocks, chance, signals, sockets, the run folder, Slurm, its attempts.

A supervisor reaches the outside only through the World that it was given, so that tests/simulation can replace it.
Besides that it touches this node's own disk, below `local`.
"""

from __future__ import annotations

import gzip  # noqa: F401 - for what is imported later: Python's own files may lie in a folder that freezes
import os
import random
import secrets
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safelaunch.base.io.probe import ChildAnswer, run_in_child
from safelaunch.guard.io import joboutput
from safelaunch.guard.io.control import STANDBY_TASK, ControlServer
from safelaunch.guard.io.job import address_of, own_addresses
from safelaunch.guard.io.names import Names
from safelaunch.node.guard.link import Link
from safelaunch.node.porttrial import PortTrial
from safelaunch.nodehealth.io.nodebench import NodeBench, PairBench
from safelaunch.nodehealth.io.nodechecks import CheckQuestion, NodeChecks
from safelaunch.notify.io.notify import Delivery
from safelaunch.notify.message import Message
from safelaunch.notify.targets import NotifyTarget
from safelaunch.run.io.runfolder import attempt_folder
from safelaunch.run.io.shared import SharedFolder
from safelaunch.slurm.io.noderound import Target
from safelaunch.slurm.io.slurm import DEADLINE_S, Command, Pace
from safelaunch.stacks.io.collect import Collection, Depth, start
from safelaunch.supervisor.io.attempt import AttemptProcess
from safelaunch.supervisor.io.held import HeldStep
from safelaunch.why.findings import OutsideEvidence, Rule
from safelaunch.why.read.globalranks import Layout

if TYPE_CHECKING:
    from safelaunch.nodehealth.io.nodebench import BenchQuestion, NodeBench, PairBench
    from safelaunch.why.io.diagnosis import Ready

NAME_S = 1.0   # for one name; a resolver of its own waits for 10 s and more where its server is gone
# Commands that ask slurmctld; everybody uses it, so a supervisor sends it two a second at most, and of a
# script's restart, which waits for it, one more.
ASKING = frozenset(("sbatch", "squeue", "scontrol", "scancel", "sacct", "sinfo"))


class World:
    """The real one, of this process. `selector` is where a supervisor sleeps; it calls what is registered there."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.selector: selectors.BaseSelector = selectors.DefaultSelector()
        self._pace = Pace()
        self._take_signal: Callable[[int, float], None] | None = None
        self.rules: tuple[Rule, ...] = ()   # of the submitter's rule packs
        self._ready: Ready | None = None    # they and our own, compiled while a training runs
        self._ready_for: tuple[Rule, ...] = ()

    def now(self) -> float:
        """Wall clock, epoch seconds: for what people and journals read, never for how long something takes."""
        return time.time()

    def now_s(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def chance(self) -> float:
        """A random number, 0..1."""
        return random.random()  # noqa: S311 - back-off and ports

    def secret(self) -> str:
        """A token that nobody can guess."""
        return secrets.token_hex(32)

    def reads_by(self, rules: tuple[Rule, ...]) -> None:
        """Use the submitter's own rules, too."""
        self.rules = rules

    def on_signals(self, numbers: Iterable[int], take: Callable[[int, float], None]) -> None:
        """Call `take` with each of these signals that comes, and the time, from the selector; none ends the process.

        A later call takes over, also signals that have come and were not handled yet. Else a standby that becomes the
        leader would lose the job's TERM.
        """
        is_first, self._take_signal = self._take_signal is None, take
        if is_first:
            self._open_signals()
        for number in numbers:
            signal.signal(number, lambda number, frame: None)

    def _open_signals(self) -> None:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

        def on_readable(now_s: float) -> None:
            for number in os.read(reader, 4096):
                if self._take_signal is not None:
                    self._take_signal(number, now_s)

        self.selector.register(reader, selectors.EVENT_READ, on_readable)

    def share(self, run_dir: Path, spool_dir: Path, beside: Callable[[], None] | None = None) -> SharedFolder:
        """The run folder, with an outbox on this node's own disk; `beside` as SharedFolder has it."""
        return SharedFolder(run_dir, spool_dir, beside)

    def serve(self, token: str, port: int, host: str) -> ControlServer:
        """The guards' server, on `port` where that is free; `host` as ControlServer has it."""
        return ControlServer(self.selector, token, port, host)

    def call(self, address: tuple[str, int], token: str, node: str) -> Link:
        """The connection of a standby on `node` to its leader's endpoint: non-blocking, reconnecting for ever.

        Its `messages(now_s)` are the leader's pings ({"do": "ping", "count": …}), which `say` answers.
        """
        return Link(f"{address[0]}:{address[1]}", None, token,
                    {"node": node, "task": STANDBY_TASK, "attempt": 0, "role": "standby"})

    def hang_up(self, line: Link) -> None:
        """Close a connection."""
        line.close()

    def command(self, argv: Sequence[str], env: Mapping[str, str], deadline_s: float = DEADLINE_S,
                cwd: str = "/") -> Command:
        """A command, started; the third one within a second waits for its turn."""
        return Command(argv, env, deadline_s, cwd, self._pace if argv[0] in ASKING else None)

    def ask(self, argv: Sequence[str], env: Mapping[str, str], deadline_s: float = DEADLINE_S,
            cwd: str = "/") -> Command:
        """A command for which a restart waits, started; it waits for no turn, and later ones wait for it."""
        return Command(argv, env, deadline_s, cwd, self._pace, at_once=True)

    def launch(self, local: Path, number: int, arguments: Sequence[str], env: Mapping[str, str],
               facts: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> AttemptProcess:
        """An attempt's processes on this host, started."""
        return AttemptProcess.launch(local, number, arguments, env, facts, own)

    def hold(self, local: Path, number: int, tasks: int, mark: str, living: str, env: Mapping[str, str],
             is_careful: bool) -> HeldStep:
        """The step of a later attempt, started; it waits for its launch."""
        return HeldStep(local, number, tasks, mark, living, env, is_careful)

    def adopt(self, local: Path, number: int) -> AttemptProcess | None:
        """An attempt's processes as an earlier supervisor on this host left them."""
        return AttemptProcess.adopt(local, number)

    def diagnose(self, process: AttemptProcess, evidence: OutsideEvidence, layout: Layout | None,
                 more: Sequence[Path], beside: Callable[[], None] | None = None) -> dict[str, Any] | None:
        """What an ended attempt's log says of its cause (why.io.diagnosis); None = no time for it.

        `layout`: whose ranks are ranks of a node in it; `more` are logs beside it.
        """
        from safelaunch.why.io import diagnosis  # as in make_ready

        folder = attempt_folder(process.number)
        kept = {str(path): f"{folder}/system/{path.name}" for path in more} | {str(process.spool): f"{folder}/main.log"}
        return diagnosis.diagnose(process.spool, evidence, layout, more, self.make_ready(), kept, beside)

    def make_ready(self) -> Ready:
        """The rules, imported and compiled while a training runs: no start and no restart waits for them."""
        from safelaunch.why.io import diagnosis

        if self._ready is None or self._ready_for is not self.rules:
            self._ready, self._ready_for = diagnosis.make_ready(self.rules), self.rules
        return self._ready

    def look(self, target: Target, env: Mapping[str, str], depth: Depth) -> Collection:
        """A collection of what all ranks do, started (stacks.io.collect); poll it."""
        return start(target, env, depth, begin=self.command)

    def listen(self, port: int) -> PortTrial:
        """This port of this host, listened on; raises OSError where it is taken."""
        return PortTrial(port)

    def check(self, target: Target, env: Mapping[str, str], question: CheckQuestion) -> NodeChecks:
        """The checks of nodes, started (nodehealth.io.nodechecks); poll them."""
        return NodeChecks(target, env, question, begin=self.command)

    def bench(self, target: Target, env: Mapping[str, str], question: BenchQuestion, tolerance: float) -> NodeBench:
        """The measurements of nodes, started (nodehealth.io.nodebench); poll them."""
        return NodeBench(target, env, question, tolerance, begin=self.command)

    def pairs(self, target: Target, env: Mapping[str, str], question: BenchQuestion, tolerance: float,
              addresses: Mapping[str, tuple[str, ...]]) -> PairBench:
        """The all-reduces of pairs of nodes, started (nodehealth.io.nodebench); poll them."""
        return PairBench(target, env, question, tolerance, addresses, begin=self.command)

    def deliver(self, targets: Sequence[NotifyTarget], message: Message, smtp: str | None,
                env: Mapping[str, str]) -> Delivery:
        """A message to people on its way (notify.io.notify); poll it."""
        return Delivery(targets, message, smtp, env)

    def leave_line(self, path: str, line: str, beside: Callable[[], None] | None = None) -> bool:
        """Whether the line stands at the end of that file now."""
        return joboutput.leave_line(path, line, beside)

    def address_of(self, node: str, beside: Callable[[], None]) -> ChildAnswer[str | None]:
        """A name or address of a node that other nodes can connect to; None when this host cannot resolve it. `late`:
        no name server answers within NAME_S. `beside` as SharedFolder has it.
        """
        return run_in_child(lambda: address_of(node), NAME_S, beside)

    def resolve(self, nodes: Iterable[str]) -> Names:
        """The addresses of nodes' names, found out beside the loop; poll it."""
        return Names(nodes)

    def own_addresses(self) -> tuple[str, ...]:
        """This host's addresses on all of its networks."""
        return own_addresses()
