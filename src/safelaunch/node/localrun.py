"""A stand-in for srun on the local cluster: the same tasks, with nodes that are process groups of this machine.

Obeys just those options of templates/slurm that mean something here, and sets just the variables that it
reads.
Standard library, Python 3.9.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from typing import Dict, List, Sequence, Tuple

KILL_WAIT_S = 5.0
_OPTIONS = frozenset(("--nodelist", "--nodes", "--ntasks-per-node", "--kill-on-bad-exit"))
_COMMAND = ["bash", "-c"]   # how the template's command starts


def main(argv: Sequence[str]) -> int:
    """The highest exit code of the tasks, as srun gives it."""
    options, command = parse(argv)
    nodes = options.get("--nodelist") or os.environ["SLURM_JOB_NODELIST"]
    names = expand(nodes)[: int(options["--nodes"])]
    tasks = Tasks(names, int(options["--ntasks-per-node"]), command, int(options.get("--kill-on-bad-exit", "0")))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: tasks.end())
    return tasks.wait()


def parse(argv: Sequence[str]) -> Tuple[Dict[str, str], List[str]]:
    """(options, command) of the template's srun command line.

    What srun.extra adds means nothing to process groups and is skipped. Whether a flag that is unknown here takes the
    next word (`-m block`, `--cpu-bind verbose`) nobody can tell; so the command is found by its start.
    """
    words = list(argv)
    start = next((index for index in range(len(words)) if words[index:index + 2] == _COMMAND), len(words))
    options: Dict[str, str] = {}
    for word in words[:start]:
        name, _, value = word.partition("=")
        if name in _OPTIONS:
            options.setdefault(name, value)   # the template's own stand before srun.extra
    return options, words[start:]


def expand(text: str) -> List[str]:
    """Names of "local[0-3]", "local[0,2]" or "local0,local1": the lists that safelaunch writes for a local cluster."""
    stem, bracket, rest = text.partition("[")
    if not bracket:
        return text.split(",")
    names = []
    for part in rest.rstrip("]").split(","):
        first, _, last = part.partition("-")
        names += [f"{stem}{number}" for number in range(int(first), int(last or first) + 1)]
    return names


class Tasks:
    """The tasks of one step."""

    def __init__(self, nodes: Sequence[str], per_node: int, command: Sequence[str], kill_on_bad_exit: int) -> None:
        self.kill_on_bad_exit = kill_on_bad_exit
        self.kill_at_s = 0.0
        self.is_held = "SAFELAUNCH_HELD" in os.environ   # its input goes to every task, as under srun
        self.processes: List["subprocess.Popen[bytes]"] = []
        shared = dict(os.environ, SLURM_NNODES=str(len(nodes)), SLURM_NTASKS=str(len(nodes) * per_node),
                      SLURM_NTASKS_PER_NODE=str(per_node),   # Lightning refuses SLURM_NTASKS without it
                      # ft_launcher of NVRx 0.7 refuses SLURM_JOB_ID without the first (its form: sbatch(1)), and two
                      # nodes of one host name without the second.
                      SLURM_TASKS_PER_NODE=f"{per_node}(x{len(nodes)})" if len(nodes) > 1 else str(per_node),
                      NVRX_ENABLE_MULTI_LAUNCHERS_PER_NODE="1",
                      SLURM_STEP_ID=os.environ.get("SAFELAUNCH_ATTEMPT", "0"), SLURM_LAUNCH_NODE_IPADDR="127.0.0.1")
        for node_id, node in enumerate(nodes):
            for local_id in range(per_node):
                env = dict(shared, SAFELAUNCH_NODE=node, SLURMD_NODENAME=node, SLURM_NODEID=str(node_id),
                           SLURM_PROCID=str(node_id * per_node + local_id), SLURM_LOCALID=str(local_id))
                self.processes.append(
                    subprocess.Popen(command, env=env, stdin=subprocess.PIPE if self.is_held else subprocess.DEVNULL,
                                     preexec_fn=os.setpgrp))

    def end(self) -> None:
        """TERM now, KILL after KILL_WAIT_S."""
        if not self.kill_at_s:
            self.kill_at_s = time.monotonic() + KILL_WAIT_S
            self.send(signal.SIGTERM)

    def send(self, number: int) -> None:
        """Signal every group that still has its leader."""
        for process in self.processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)

    def wait(self) -> int:
        """Wait for all; end the others at the first bad exit."""
        while True:
            codes = [process.poll() for process in self.processes]
            if None not in codes:
                return max(code if code >= 0 else 128 - code for code in codes if code is not None)
            if self.kill_on_bad_exit and any(code for code in codes):
                self.end()
            if self.kill_at_s and time.monotonic() > self.kill_at_s:
                self.send(signal.SIGKILL)
            if self.is_held:
                self._pass_input(0.02)
            else:
                time.sleep(0.02)

    def _pass_input(self, within_s: float) -> None:
        data = os.read(0, 1 << 16) if select.select([0], [], [], within_s)[0] else None
        for process in self.processes if data is not None else ():
            with contextlib.suppress(OSError, ValueError):
                assert process.stdin is not None
                process.stdin.write(data or b"")
                process.stdin.flush()
                if not data:
                    process.stdin.close()
        self.is_held = data != b""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
