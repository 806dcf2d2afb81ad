"""A supervisor's process, and the World that the project's code in it is given."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.base.io.probe import ChildAnswer
from safelaunch.decide.facts.phase import Phase, may_follow
from safelaunch.guard.io.control import STANDBY_TASK, ControlServer
from safelaunch.guard.io.job import Allocation as JobFacts
from safelaunch.guard.io.job import StandbyStart, standby
from safelaunch.guard.io.names import WITHIN_S
from safelaunch.node.guard.link import Link
from safelaunch.run.io.shared import SharedFolder
from safelaunch.slurm import nodefold
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import DEADLINE_S, Command, Pace, Result
from safelaunch.stacks.io.collect import Collected
from safelaunch.supervisor import loop
from safelaunch.supervisor.io.attempt import AttemptProcess
from safelaunch.supervisor.io.world import ASKING, NAME_S, World
from safelaunch.supervisor.leader import DEMOTED, Leader
from safelaunch.supervisor.state.ports import TookOver
from safelaunch.verbs.jobs.watch import GAP_S, TICK_S
from safelaunch.watch.io.memory import Memory
from safelaunch.watch.io.reading import RunReader
from safelaunch.watch.io.watcher import Watcher
from safelaunch.why.judge.engine import judge_log
from safelaunch.why.show import verdictjson
from tests.pure.why.judged import read_text
from tests.simulation.bench import SimBench
from tests.simulation.checks import SimChecks, SimPairs, SimPort
from tests.simulation.clock import Process
from tests.simulation.command import SimCommand
from tests.simulation.delivery import SimDelivery
from tests.simulation.folder import SimFolder, nap
from tests.simulation.hosts import Host
from tests.simulation.link import SimLink
from tests.simulation.net import Listener, Selector, Signals, Socket
from tests.simulation.training import Attempt, SimProcess

if TYPE_CHECKING:
    from tests.simulation.batch import Shell
    from tests.simulation.sim import Sim

EPOCH_T = 1_700_000_000.0


class Actor:
    """A process that runs the project's own code in a World."""

    def __init__(self, sim: Sim, host: Host, name: str) -> None:
        self.sim, self.host = sim, host
        self.pid, self.born_t = host.next_pid(), sim.clock.t
        self.signals = Signals()
        self.folders: list[SimFolder] = []
        self.sockets: list[Socket | Listener] = []
        self.asking: list[SimCommand] = []   # of slurmctld, so far
        self.process = Process(sim.clock, name, self.main, self.ended)
        self.process.is_held = not host.is_running

    def main(self) -> int:
        """What it runs."""
        raise NotImplementedError

    def ended(self, code: int | None, error: str) -> None:
        """It has returned, or died of an exception."""

    def signal(self, number: int) -> None:
        """A signal that it handles."""
        if not self.process.dead:
            self.signals.numbers.append(number)
            if self.signals.selector is not None:
                self.signals.selector.mark(self.signals)

    def end_commands(self) -> None:
        """TERM for all of its job: what it asks of slurmctld now is heard, and no answer comes."""
        asking, self.asking = self.asking, []
        for command in asking:
            command.end(-signal.SIGTERM, "", "")

    def child_ended(self) -> None:
        """SIGCHLD."""
        self.signal(signal.SIGCHLD)
        self.process.wake()

    def sleep(self, length_s: float) -> None:
        """time.sleep."""
        until_t = self.sim.clock.t + length_s
        while self.sim.clock.t < until_t:
            self.process.sleep(until_t - self.sim.clock.t)

    def kill(self) -> None:
        """SIGKILL: its connections end, its courier goes on."""
        if not self.process.dead:
            self.process.kill()
            self.close()

    def kill_courier(self) -> None:
        """End what it left behind."""
        for folder in self.folders:
            folder.kill_courier()

    def close(self) -> None:
        """The kernel closes what a dead process had open."""
        for sock in self.sockets:
            sock.close()


class Watching(Actor):
    """`safelaunch watch` on a login node, as verbs.jobs.watch drives it."""

    def main(self) -> int:
        """Tick for ever."""
        world = SimWorld(self)
        folder = world.share(self.sim.run_dir, self.host.disk)
        named = ((str(self.sim.run_dir), self.sim.plan.job_name),)
        watcher = Watcher(world, {}, self.host.name, self._tell, Memory(), named, RunReader(folder.ask))
        while True:
            result: Result | None = None
            asking = watcher.tick()
            while True:
                try:
                    command = next(asking) if result is None else asking.send(result)
                except StopIteration:
                    break
                result = command.wait()
                self.sleep(GAP_S)
            for pause_s in watcher.tell_people():
                self.sleep(pause_s)
            self.sleep(TICK_S)

    def ended(self, code: int | None, error: str) -> None:
        """It never ends by itself."""
        self.sim.crashed("watch", error)

    def _tell(self, kind: str, dir: str, text: str) -> None:
        self.sim.trace(self.host.name, f"{kind.upper()}: {text}")


class Supervisor(Actor):
    """A process that runs the project's own loop, as loop.main does."""

    def __init__(self, sim: Sim, shell: Shell) -> None:
        self.shell = shell
        self.lead_object: Leader | None = None
        self.led_t = 0.0
        super().__init__(sim, shell.host, f"{shell.role} {shell.job.id}")

    @property
    def last_t(self) -> float:
        """When code of it ran last."""
        return self.process.last_t

    def start(self) -> None:
        """Be there for whatever happens to the host."""
        self.host.processes.append(self.process)
        self.sim.supervisors.append(self)

    @property
    def is_leading(self) -> bool:
        """It leads, or believes so."""
        return self.lead_object is not None

    def main(self) -> int:
        """loop.main, with this world; its files tell the shell, and the next supervisor here, how it ended."""
        local, world = self.shell.local, SimWorld(self)
        role = loop._read(local / "role") or self.shell.role
        start = self._start_facts()
        job = start.job if start else self._job()
        took_over = None
        if role == "standby":
            took_over = loop.stand_by(self.sim.run_dir, local, job, world, start)
            if took_over is None:
                loop._write(local / "final", str(loop.code_of_standby(start)))
                return 0
            self.sim.trace(self.host.name, f"the standby takes over from {took_over.host}")
            self.sim.took_over(self)
            loop._write(local / "role", "leader")
        elif start is not None:
            took_over = TookOver(job.host, world.now_s())
        lead = self.lead_object = Leader(self.sim.run_dir, local, job, world, took_over)
        lead.course.on_enter = self._enter
        self.led_t = self.sim.clock.t
        lead.nodes.note_addresses(start.addresses if start else {})
        code = loop.run(lead)
        self.sim.trace(self.host.name, f"the leader ends with {code}")
        if code == DEMOTED:
            loop._write(local / "role", "standby")
        else:
            loop._write(local / "final", str(code))
        return code

    def _enter(self, before: Phase, after: Phase) -> None:
        if not may_follow(before, after):
            self.sim.violate(f"a supervisor goes from phase {before.value!r} to {after.value!r}")

    def _job(self) -> JobFacts:
        job = self.shell.job
        env = {"SLURM_JOB_ID": job.id, "SLURM_JOB_NODELIST": nodefold.fold(job.first_nodes),
               "SLURMD_NODENAME": self.host.name, "SLURM_JOB_PARTITION": "main",
               "XDG_STATE_HOME": str(self.sim.folder / "state"),
               **({"SLURM_RESTART_COUNT": str(self.shell.restarts)} if self.shell.restarts else {})}
        return JobFacts(job.id, tuple(job.first_nodes), self.host.name, str(self.sim.work_dir), False, env)

    def _start_facts(self) -> StandbyStart | None:
        command = getattr(self.shell, "command", None)
        return None if command is None else standby({**command.env, "SLURMD_NODENAME": self.host.name})

    def ended(self, code: int | None, error: str) -> None:
        """The shell sees to it."""
        self.close()
        self.shell.supervisor_ended(error)


class SimServer(ControlServer):
    """guard.io.control.ControlServer on the simulated network."""

    def __init__(self, supervisor: Actor, selector: Selector, token: str, port: int) -> None:
        self._supervisor = supervisor
        super().__init__(selector, token, port)

    def _listen(self, port: int) -> Any:
        net, host = self._supervisor.sim.net, self._supervisor.host
        free = port if port and (host.name, port) not in net.listeners else host.next_port()
        listener = Listener(net, host, free)
        self._supervisor.sockets.append(listener)
        return listener

    def _accept(self, now_s: float) -> None:
        """As the real one; noting the sockets, which the kernel closes when the process dies."""
        known = set(self._connections)
        super()._accept(now_s)
        fresh: list[Any] = [connection.sock for connection in self._connections - known]
        self._supervisor.sockets += fresh


class _NobodyLooks:
    """A look that is over and has seen nothing."""

    def poll(self) -> Collected:
        """At once."""
        return Collected((), ())


class _NamesResolve(NamedTuple):
    """Names that a name server will have told."""

    poll: Callable[[], Mapping[str, tuple[str, ...]] | None]


class SimWorld(World):
    """supervisor.io.world.World of one process of the simulation."""

    def __init__(self, supervisor: Actor) -> None:   # no super(): it would open a real selector
        self._me, self._sim, self._host = supervisor, supervisor.sim, supervisor.host
        self.pid = supervisor.pid
        self.selector = Selector(lambda: supervisor.process)
        self._pace = Pace()

    def now(self) -> float:
        """This host's idea of the time of day."""
        return EPOCH_T + self._sim.clock.t + self._host.wall_offset_s

    def now_s(self) -> float:
        """This host's monotonic clock."""
        return self._sim.clock.t + self._host.mono_offset_s

    def chance(self) -> float:
        """From the scenario's seed."""
        return self._sim.rng.random()

    def secret(self) -> str:
        """Nobody guesses here."""
        return f"{self._sim.rng.getrandbits(128):032x}"

    def on_signals(self, numbers: Iterable[int], take: Callable[[int, float], None]) -> None:
        """Signals are queued."""
        signals = self._me.signals

        def on_readable(now_s: float) -> None:
            waiting, signals.numbers = signals.numbers, []
            for number in waiting:
                take(number, now_s)
        self._selector.register(signals, 1, on_readable)

    def share(self, run_dir: Path, spool_dir: Path, beside: Callable[[], None] | None = None) -> SharedFolder:
        """This host's view of the run folder."""
        folder = SimFolder(self._me.process, self._host.mount, run_dir, beside)
        folder.on_outside = partial(self._sim.outside, self._me)
        self._me.folders.append(folder)
        if self._sim.is_verbose:
            folder.on_append = lambda data: self._sim.trace(self._host.name, f"  {data.decode().strip()[:400]}")
        return folder

    def leave_line(self, path: str, line: str, beside: Callable[[], None] | None = None) -> bool:
        """What stands in the job's output in the folder of the submission."""
        self._sim.left.append((self._sim.clock.t, line))
        return True

    def serve(self, token: str, port: int, host: str) -> ControlServer:
        """A door on the simulated network."""
        return SimServer(self._me, self._selector, token, port)

    @property
    def _selector(self) -> Selector:
        assert isinstance(self.selector, Selector)
        return self.selector

    def call(self, address: tuple[str, int], token: str, node: str) -> Link:
        """A standby's line to its leader's door."""
        return SimLink(self.knock, self.now_s, f"{address[0]}:{address[1]}", None, token,
                       {"node": node, "task": STANDBY_TASK, "attempt": 0, "role": "standby"})

    def hang_up(self, line: Link) -> None:
        """Close a line."""
        line.close()

    def knock(self, address: tuple[str, int]) -> Socket:
        """A knock at a door."""
        sock = Socket(self._sim.net, self._host)
        self._me.sockets.append(sock)
        sock.connect(lambda: (self._sim.host_at(address[0]), address[1]))
        return sock

    def command(self, argv: Sequence[str], env: Mapping[str, str], deadline_s: float = DEADLINE_S,
                cwd: str = "/") -> Command:
        """To the fake Slurm, or the pump."""
        command = SimCommand(self._sim.clock, self._me, argv, env, deadline_s)
        if tuple(argv) == slurm.version():   # asks no daemon; where all is as ever, the journal has no line more
            version = {"22.05": "", "26.05": "slurm 26.05.5\n"}.get(self._sim.scenario.words, "slurm 31.11.0\n")
            command.end(0, version, "")
            return command
        self._sim.outside(self._me, " ".join(argv[:2]) if argv[0] != "srun" else f"srun {argv[-1]}")
        self._sim.conversions.removed(argv[4:] if argv[0] == "rm" else ())
        if "--once" in argv or argv[0] == "rm":   # the log's rest: there as soon as the folder is
            self._host.mount.when_thawed(lambda: self._sim.clock.after(0.05, lambda: command.end(0, "", "")))
        else:
            self._sim.clock.after(0.0, partial(self._start_in_turn, command))
        return command

    def _start_in_turn(self, command: SimCommand) -> None:
        now_s = self.now_s()
        if command.argv[0] not in ASKING or self._pace.take(now_s):
            self._sim.slurm.start(command, self._host)
        else:
            wait_s = self._pace.wait_s(now_s) + 0.001   # a moment more than float rounding may leave
            self._sim.clock.after(wait_s, partial(self._start_in_turn, command))

    def launch(self, local: Path, number: int, arguments: Sequence[str], env: Mapping[str, str],
               facts: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> AttemptProcess:
        """An attempt of the simulated training."""
        self._sim.outside(self._me, f"launch {number}")
        attempt = Attempt(self._sim, self._host, local.name, number, env, facts)
        assert isinstance(self._me, Supervisor)
        self._sim.launched(attempt, self._me)
        return SimProcess(attempt, local, is_child=True)

    def adopt(self, local: Path, number: int) -> AttemptProcess | None:
        """What this job's supervisors have launched on this host."""
        found = next((attempt for attempt in self._sim.attempts if attempt.host is self._host
                      and attempt.number == number and attempt.local == local.name), None)
        return None if found is None else SimProcess(found, local, is_child=False)

    def diagnose(self, process: Any, evidence: Any, layout: Any, more: Any, beside: Any = None) -> dict[str, Any]:
        """What the real judge says of the log's end."""
        return verdictjson.to_public(judge_log(read_text(process.tail().decode(errors="replace")), evidence))

    def make_ready(self) -> Any:
        """There are no rules to make ready."""

    def look(self, target: Any, env: Any, depth: Any) -> Any:
        """Nobody looks: no helper steps are simulated."""
        return _NobodyLooks()

    def listen(self, port: int) -> Any:
        """Every port is free."""
        return SimPort()

    def check(self, target: Any, env: Any, question: Any) -> Any:
        """As the scenario wants it (tests/simulation/checks.py)."""
        level, = set(question.levels.values())
        return SimChecks(self._sim, target.nodes, self._host, level, question.limit_s)

    def bench(self, target: Any, env: Any, question: Any, tolerance: float) -> Any:
        """As the scenario's nodes are (tests/simulation/bench.py)."""
        return SimBench(self._sim, target.nodes, self._host)

    def pairs(self, target: Any, env: Any, question: Any, tolerance: float, addresses: Any) -> Any:
        """As the scenario's nodes are."""
        return SimPairs(self._sim, target.nodes, self._me, question.deadline_s)

    def deliver(self, targets: Any, message: Any, smtp: Any, env: Any) -> SimDelivery:
        """A message to people."""
        return SimDelivery(self._sim, targets, message)

    def own_addresses(self) -> tuple[str, ...]:
        """The kernel's own, for which no name server is asked."""
        return (self._host.name,)

    def address_of(self, node: str, beside: Callable[[], None]) -> ChildAnswer[str | None]:
        """Names resolve, as soon as their server answers."""
        takes_s = self._sim.scenario.name_s
        nap(self._me.process, self._sim.clock, min(takes_s, NAME_S), beside)
        return ChildAnswer(late=True) if takes_s > NAME_S else ChildAnswer(node)

    def resolve(self, nodes: Iterable[str]) -> Any:
        """To themselves."""
        clock, takes_s = self._sim.clock, self._sim.scenario.name_s
        found = {} if takes_s > WITHIN_S else {node: (node,) for node in nodes}
        due_t = clock.t + min(takes_s, WITHIN_S)
        return _NamesResolve(lambda: found if clock.t >= due_t else None)
