"""A real Slurm of N nodes on this machine: slurmctld, N slurmd, munge and fake GPUs, apart from everything else here.

Every daemon has a machine of its own, a UTS namespace. So `hostname -s` on a node prints the node's name, and all
processes of a node can be told from all others. Ports, munge key, logs and state lie in the sandbox's folder. All
machines share the filesystem with /tmp, and the process table. Without `netns` they share the loopback device, too.
Then a node's address is 127.0.0.1, and node names resolve only where `names` asks for it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from safelaunch.errors import SandboxError
from safelaunch.sandbox import accounting as bookkeeping
from safelaunch.sandbox import cgroups, daemons, login, network, registry, sites, users
from safelaunch.sandbox import conf as slurm_conf
from safelaunch.sandbox.command import run_command
from safelaunch.sandbox.daemons import wait_for
from safelaunch.sandbox.namespaces import Namespace, command_name

UP_TIMEOUT_S = 60.0
HEAL_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Sandbox:
    """A sandbox that is up; `conf` is its slurm.conf."""

    name: str
    dir: Path
    nodes: tuple[str, ...]
    conf: Path

    @classmethod
    def up(
        cls, dir: Path, nodes: int = 4, *, name: str | None = None, cpus: int = 8, gpus: int = 8,
        memory_mb: int = 2000, conf: Mapping[str, str] | None = None, accounting: bool = False, netns: bool = False,
        preemption: bool = False, site: Sequence[str] = (), cgroup: bool = False, names: bool = False,
    ) -> Sandbox:
        """A new sandbox in `dir`, every node idle; its daemons outlive this process. `conf` overrides slurm.conf.

        With `accounting`, sacct knows the jobs (slurmdbd on MariaDB). With `netns`, every machine has an address of its
        own and a cable that `crash(node, cut=True)` cuts. With `preemption`, jobs in partition `high` take the nodes of
        those in `low` (cancelled) and `low-requeue`. `site`: words of sites.QUIRKS, ways in which its nodes differ.
        With `names`, nodes find each other by name on the loopback device, too (drills go without: such sites exist).
        With `cgroup`, the kernel holds each job to its memory and its devices, and keeps its processes together (cgroup
        v1). SandboxError when that cannot be, with the ends of the logs; nothing is left behind then.
        """
        folder = dir.resolve()   # a link could be aimed elsewhere before `down`
        slurm_conf.check_dir(folder)
        sites.check(folder, site, has_netns=netns)
        daemons.check_able(with_accounting=accounting, with_netns=netns, with_cgroup=cgroup)
        users.ensure_users()
        entry, held = registry.claim(registry.RegisteredSandbox(
            name or folder.name, str(folder), 0, nodes, cpus, gpus, memory_mb, accounting, netns, preemption, cgroup
        ))  # fmt: skip
        sandbox = cls._of(entry)
        try:
            with closing(held):
                daemons.lay_out(entry, conf or {}, site, names=names)
                daemons.start(folder, (daemons.MUNGE,), held)   # munged lives as long as the sandbox does
            sandbox._start_all(entry)
        except SandboxError as failed:
            words = daemons.last_words(folder)
            sandbox.down()
            raise SandboxError(f"{failed.message}\n{words}".strip(), hint=failed.hint) from failed
        except BaseException:
            sandbox.down()
            raise
        return sandbox

    def _start_all(self, entry: registry.RegisteredSandbox) -> None:
        daemons.wait_for_file(self.dir / "munge" / "socket", UP_TIMEOUT_S)
        users.close_to_others(self.dir / "munge")
        for pid in daemons.machine(self.dir, daemons.MUNGE).pids():
            cgroups.hold(self.dir, pid)
        if entry.accounting:
            # slurmctld ends at once when it has neither a state of its own nor a slurmdbd to ask (22.05: "no TRES").
            daemons.start_accounting(self.dir, entry)
            for argv in bookkeeping.enrol_argv(entry.name):
                self.slurm(argv)
        daemons.start(self.dir, (daemons.CONTROLLER,))
        # A slurmd or sinfo that finds no controller tries again only after a second.
        wait_for(lambda: self._has_controller(entry.port), UP_TIMEOUT_S, "slurmctld does not listen")
        daemons.start(self.dir, self.nodes)
        self.wait_idle(UP_TIMEOUT_S)

    @classmethod
    def load(cls, dir: Path) -> Sandbox:
        """The sandbox that is up in `dir`; SandboxError if there is none."""
        return cls._of(registry.find(str(dir)))

    @classmethod
    def find(cls, which: str | None = None) -> Sandbox:
        """The sandbox of this name or folder; None: the only one, or the one named default."""
        return cls._of(registry.find(which))

    @classmethod
    def _of(cls, entry: registry.RegisteredSandbox) -> Sandbox:
        folder = Path(entry.dir)
        return cls(entry.name, folder, slurm_conf.node_names(entry.nodes), folder / "slurm.conf")

    def down(self) -> None:
        """End every process of the sandbox, stopped ones and orphans of jobs included, and remove its folder."""
        daemons.check_root()
        with suppress(FileNotFoundError):
            entry = registry.read(self.dir / registry.MARKER)
            machines = [
                Namespace(path, freezer=cgroups.freezer_of(self.dir, path.name))
                for path in sorted((self.dir / "ns").glob("*"))
            ]
            for machine in machines:
                machine.kill()
            for machine in machines:
                machine.remove()
            cgroups.remove(self.dir)
            _remove_folder(self.dir)
            registry.forget(entry)

    def crash(self, node: str, *, silent: bool = False, cut: bool = False) -> None:
        """A node loses its power; `ctl` is slurmctld, `db` the accounting.

        Loud: all of its processes are stopped and then killed, and their sockets close. Silent: all are stopped until
        `heal` or a loud crash, without FIN and RST. Its kernel still accepts connections, as that of a hung machine
        does. Cut: all go on, but no packet reaches the node or leaves it (needs `netns`). A loud crash of slurmctld
        forgets what it had not saved yet, some seconds at most: jobs may vanish, or end a second time.
        """
        daemons.check_root()
        machine = self.machine(node)
        if cut:
            network.cut(self.dir, node)
        elif silent:
            machine.stop()
        else:
            machine.cut_power()

    def heal(self, node: str, timeout_s: float = HEAL_TIMEOUT_S) -> None:
        """Bring a crashed, silent, frozen or cut node back, and wait until Slurm would use it again."""
        daemons.check_root()
        machine = self.machine(node)
        if machine.net:
            network.mend(self.dir, node)
        machine.wake()
        if node == daemons.DATABASE:
            self._heal_accounting(machine)
            return
        if not daemons_on(machine):
            daemons.start(self.dir, (node,))
        if node == daemons.CONTROLLER:
            wait_for(lambda: self._states() is not None, timeout_s, "slurmctld does not answer")
            return
        state = self._state(node)
        if _is_usable(state):
            return
        if state.endswith("*"):
            # slurmctld pings a silent node every 100 s only (SlurmdTimeout / 3). A restarted slurmd registers at once,
            # and the steps on the node do not notice.
            self.restart_slurmd(node)
        wait_for(lambda: self._comes_back(node), timeout_s, f"{node} did not come back", self._describe_states)

    def restart_slurmd(self, node: str) -> None:
        """Kill a node's slurmd and start it anew; the steps on the node do not notice."""
        machine = self.machine(node)

        def is_gone() -> bool:
            """It may have begun a child since the last look."""
            pids = daemons_on(machine)
            for pid in pids:
                with suppress(ProcessLookupError):   # a child of slurmd's that was about to be another program
                    os.kill(pid, signal.SIGKILL)
            return not pids

        wait_for(is_gone, UP_TIMEOUT_S, f"slurmd on {node} does not end")
        daemons.start(self.dir, (node,))
        port = registry.find(str(self.dir)).port + 1 + self.nodes.index(node)
        wait_for(lambda: machine.is_listening(port), UP_TIMEOUT_S, f"slurmd on {node} does not listen")

    def _heal_accounting(self, machine: Namespace) -> None:
        if not {"mariadbd", "slurmdbd"} <= set(map(command_name, machine.pids())):
            machine.kill()
            daemons.start_accounting(self.dir, registry.find(str(self.dir)))

    def _has_controller(self, port: int) -> bool:
        # It goes into the background before it has read its state, and may die there. A look at all processes can miss
        # one that forks meanwhile, so one look is no proof.
        machine = self.machine(daemons.CONTROLLER)
        if machine.is_listening(port):
            return True
        if any(daemons_on(machine) for _ in range(5)):
            return False
        raise SandboxError("slurmctld ended right after its start")

    def _comes_back(self, node: str) -> bool:
        state = self._state(node)
        if state.startswith(("down", "drain", "fail")):
            with suppress(SandboxError):
                self.slurm(["scontrol", "update", f"NodeName={node}", "State=RESUME"])
        return _is_usable(state)

    def machine(self, node: str) -> Namespace:
        """The machine of a node, of `ctl`, or of `db` where there is one; SandboxError for another name."""
        if node not in self.machines:
            raise SandboxError(f"no node {node!r} in sandbox '{self.name}': {', '.join(self.machines)}")
        return daemons.machine(self.dir, node)

    @property
    def machines(self) -> tuple[str, ...]:
        """What can be crashed and healed: the nodes, `ctl`, and with accounting `db`."""
        has_db = (self.dir / "ns" / daemons.DATABASE).exists()
        return (*self.nodes, daemons.CONTROLLER, *((daemons.DATABASE,) if has_db else ()))

    def env(self) -> dict[str, str]:
        """What a shell needs to talk to this Slurm."""
        return {"SLURM_CONF": str(self.conf)}

    def start(
        self, argv: Sequence[str], *, user: str = "sl-alice", env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.Popen[str]:
        """`argv` begun as this user on the sandbox's login machine, in its own session, with a clean environment and
        pipes for stdout and stderr. What is left of it ends with the sandbox.
        """
        return login.start(self.dir, argv, user, env or {}, cwd)

    def run(
        self, argv: Sequence[str], *, user: str = "sl-alice", env: Mapping[str, str] | None = None,
        cwd: Path | None = None, timeout_s: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """What `argv` said and its exit code, as `start` runs it; TimeoutExpired after killing its whole session."""
        return login.finish(self.start(argv, user=user, env=env, cwd=cwd), argv, timeout_s)

    def slurm(self, argv: Sequence[str], timeout_s: float = 60.0) -> str:
        """What a Slurm command prints when root types it; SandboxError, with all it said, when it fails."""
        done = self.run(argv, user="root", cwd=self.dir, timeout_s=timeout_s)
        if done.returncode:
            said = (done.stderr or done.stdout).strip()
            raise SandboxError(f"{' '.join(argv)} ended with exit code {done.returncode}: {said}")
        return done.stdout

    def wait_idle(self, timeout_s: float = UP_TIMEOUT_S) -> None:
        """Return when every node is idle; SandboxError with the nodes' states when that takes too long."""

        def all_idle() -> bool:
            states = self._states() or {}
            return all(states.get(node) == "idle" for node in self.nodes)

        wait_for(all_idle, timeout_s, "not all nodes became idle", self._describe_states)

    def _states(self) -> dict[str, str] | None:
        try:
            lines = self.slurm(["sinfo", "-h", "-N", "-o", "%N %T"], timeout_s=15).splitlines()
        except (SandboxError, subprocess.TimeoutExpired):
            return None  # unknown: slurmctld is not up yet, or not any more
        return dict(line.split(maxsplit=1) for line in lines)

    def _state(self, node: str) -> str:
        return (self._states() or {}).get(node, "unknown")

    def _describe_states(self) -> str:
        states = self._states()
        return "slurmctld does not answer" if states is None else ", ".join(f"{k} {v}" for k, v in states.items())


def _is_usable(state: str) -> bool:
    """Idle, mixed, allocated, completing, planned: all will do. A star says that the node does not respond."""
    return not state.startswith(("down", "drain", "fail", "unk")) and not state.endswith("*")


def daemons_on(machine: Namespace) -> list[int]:
    """The pids of slurmd or slurmctld there."""
    return [pid for pid in machine.pids() if command_name(pid) in ("slurmd", "slurmctld")]


def _remove_folder(folder: Path) -> None:
    # First detach what was mounted inside, perhaps dead or frozen: rmtree must not walk into it.
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in sorted((m for m in mounts if Path(m).is_relative_to(folder)), key=len, reverse=True):
        run_command(["umount", "--lazy", mount])
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != registry.MARKER:
            path.unlink()
    shutil.rmtree(folder)  # the marker goes last: until then an interrupted `down` can be said again
