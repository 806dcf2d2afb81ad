"""A real Slurm of N nodes on this machine: slurmctld, N slurmd, munge and fake GPUs, apart from everything else here.

Every daemon has a machine of its own, a UTS namespace, so `hostname -s` on a node prints the node's name and all
processes of a node can be told from all others. Ports, munge key, logs and state lie in the sandbox's folder. What is
shared between all machines: the loopback device (node names do not resolve; a node's address is 127.0.0.1), the
filesystem with /tmp, and the process table.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from safelaunch.errors import SandboxError
from safelaunch.sandbox import conf as slurm_conf
from safelaunch.sandbox import daemons, login, registry, users
from safelaunch.sandbox.command import run_command
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
        memory_mb: int = 2000, conf: Mapping[str, str] | None = None,
    ) -> Sandbox:
        """A new sandbox in `dir`, every node idle; its daemons outlive this process. `conf` overrides slurm.conf.

        SandboxError when that cannot be, with the ends of the logs; nothing is left behind then.
        """
        folder = dir.absolute()
        slurm_conf.check_dir(folder)
        daemons.check_able()
        with registry.locked():
            users.ensure_users()
        entry = registry.claim(name or folder.name, folder, nodes, cpus, gpus, memory_mb)
        sandbox = cls._of(entry)
        try:
            daemons.lay_out(entry, conf or {})
            daemons.start(folder, (daemons.MUNGE,))
            daemons.wait_for_file(folder / "munge" / "socket", UP_TIMEOUT_S)
            daemons.start(folder, (daemons.CONTROLLER,))
            # A slurmd or sinfo that finds no controller tries again only after a second.
            _wait_until(lambda: sandbox._has_controller(entry.port), UP_TIMEOUT_S, "slurmctld does not listen")
            daemons.start(folder, sandbox.nodes)
            sandbox.wait_idle(UP_TIMEOUT_S)
        except SandboxError as failed:
            words = daemons.last_words(folder)
            sandbox.down()
            raise SandboxError(f"{failed.message}\n{words}".strip(), hint=failed.hint) from failed
        except BaseException:
            sandbox.down()
            raise
        return sandbox

    @classmethod
    def load(cls, dir: Path) -> Sandbox:
        """The sandbox that is up in `dir`; SandboxError if there is none."""
        return cls._of(registry.find(str(dir.absolute())))

    @classmethod
    def find(cls, which: str | None = None) -> Sandbox:
        """The sandbox of this name or folder; None: the only one, or the one named default."""
        return cls._of(registry.find(which))

    @classmethod
    def _of(cls, entry: registry.Entry) -> Sandbox:
        folder = Path(entry.dir)
        return cls(entry.name, folder, slurm_conf.node_names(entry.nodes), folder / "slurm.conf")

    def down(self) -> None:
        """End every process of the sandbox, stopped ones and orphans of jobs included, and remove its folder."""
        daemons.check_root()
        with suppress(FileNotFoundError):
            entry = registry.read(self.dir / registry.MARKER)
            machines = [Namespace(path) for path in sorted((self.dir / "ns").glob("*"))]
            for machine in machines:
                machine.kill()
            for machine in machines:
                machine.remove()
            _remove_folder(self.dir)
            registry.forget(entry)

    def crash(self, node: str, *, silent: bool = False) -> None:
        """A node loses its power; `ctl` is slurmctld.

        Loud: all of its processes are killed and their sockets close. Silent: all are stopped, no FIN and no RST (its
        kernel still accepts connections, as that of a hung machine does), until `heal` or `kill_silent`. A loud crash
        of slurmctld forgets what it had not saved yet, some seconds at most: jobs may vanish, or end a second time.
        """
        daemons.check_root()
        machine = self.machine(node)
        if silent:
            machine.stop()
        else:
            machine.kill()

    def kill_silent(self, node: str) -> None:
        """Turn a silent node into one whose processes are gone."""
        self.crash(node)

    def heal(self, node: str, timeout_s: float = HEAL_TIMEOUT_S) -> None:
        """Bring a crashed or silent node back, and wait until Slurm would use it again."""
        daemons.check_root()
        machine = self.machine(node)
        machine.wake()
        if not _daemons_on(machine):
            daemons.start(self.dir, (node,))
        if node == daemons.CONTROLLER:
            _wait_until(lambda: self._states() is not None, timeout_s, "slurmctld does not answer")
            return
        if self._state(node).endswith("*"):
            # slurmctld pings a silent node every 100 s only (SlurmdTimeout / 3). A restarted slurmd registers at once,
            # and the steps on the node do not notice.
            for pid in _daemons_on(machine):
                os.kill(pid, signal.SIGKILL)
            daemons.start(self.dir, (node,))
        _wait_until(lambda: self._is_usable(node), timeout_s, f"{node} did not come back", self._describe_states)

    def _has_controller(self, port: int) -> bool:
        # It goes into the background before it has read its state, and may die there. A look at all processes can miss
        # one that forks meanwhile, so one look is no proof.
        if registry.is_listening(port):
            return True
        if any(_daemons_on(self.machine(daemons.CONTROLLER)) for _ in range(5)):
            return False
        raise SandboxError("slurmctld ended right after its start")

    def _is_usable(self, node: str) -> bool:
        state = self._state(node)
        if state.startswith(("down", "drain", "fail")):
            with suppress(SandboxError):
                self.slurm(["scontrol", "update", f"NodeName={node}", "State=RESUME"])
            return False
        # Idle, mixed, allocated, completing, planned: all will do. A star says that the node does not respond.
        return not state.startswith("unk") and not state.endswith("*")

    def machine(self, node: str) -> Namespace:
        """The machine of a node, or of `ctl`; SandboxError for another name."""
        if node not in (*self.nodes, daemons.CONTROLLER):
            known = ", ".join((*self.nodes, daemons.CONTROLLER))
            raise SandboxError(f"no node {node!r} in sandbox '{self.name}': {known}")
        return daemons.machine(self.dir, node)

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

        _wait_until(all_idle, timeout_s, "not all nodes became idle", self._describe_states)

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


def _daemons_on(machine: Namespace) -> list[int]:
    return [pid for pid in machine.pids() if command_name(pid) in ("slurmd", "slurmctld")]


def _wait_until(
    is_so: Callable[[], bool], timeout_s: float, complaint: str, describe: Callable[[], str] = lambda: ""
) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            raise SandboxError(f"{complaint} within {timeout_s:.0f} s: {describe()}".rstrip(": "))
        time.sleep(0.03)


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
