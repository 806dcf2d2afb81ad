"""One question to many nodes at once: a helper step a node, none waits for another.

The program travels as text in the helper's environment and its answer comes on stdout, so a frozen filesystem blocks
neither. `NodeRound` never blocks: the leader's loop polls it. A node that did not answer is evidence, and listed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from safelaunch.base.model import Silent
from safelaunch.errors import ParseError
from safelaunch.slurm import slurmtext
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Command, Result, StartCommand

Answer = TypeVar("Answer")


NODE = Path(__file__).parents[2] / "node"
START_S = 6.0          # for a helper step to start: 0.1 s here, and 5 s were seen on busy clusters
STARTS_A_POLL = 8      # each start takes 2 to 5 ms of a loop that has guards to answer
AT_ONCE = 64           # sruns: each is a process of 10 MB on the batch host
# A helper with the attempt's mark would be taken for a rank and ended by a sweep. The other variables name files that a
# loader, a shell or Python would open first, perhaps on the frozen filesystem.
_LEFT_OUT = frozenset(("SAFELAUNCH_MARK", "SLURM_EXPORT_ENV", "BASH_ENV", "ENV", "LD_LIBRARY_PATH", "LD_PRELOAD",
                       "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"))
# The system's own Python lies on the node's disk, the submitter's may be frozen. Whatever happens, the exit code is 0,
# since a helper step whose task fails ends the others. (An incident: py-spy got EPERM on one node, and seven dumps were
# lost.) A helper's memory is the job's (cgroups). When there is none left, the kernel should kill the helper and no
# rank (proc(5), oom_score_adj; not seen in a drill yet).
_RUN = """{ echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null
for python in /usr/bin/python3 "$1"; do
  if [[ $python ]] && "$python" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    "$python" -I -S -c "$2" "$3"
    (($? != 137)) || echo "the helper was killed: is no memory left?" >&2
    exit 0
  fi
done
echo '{"v": 1, "node": "", "ranks": [], "checks": [], "notes": ["no Python 3.9 on this node"], "blind": true}'"""
# Each module stands in its package in sys.modules, so that the imports of the next ones find it.
_BOOT = """import os, sys, types
def stand(name, module):
    module.__path__ = []
    sys.modules[name] = module
    if "." in name:
        above, _, last = name.rpartition(".")
        setattr(sys.modules.get(above) or stand(above, types.ModuleType(above)), last, module)
    return module
for part in sys.argv[1].split():
    module = stand("safelaunch.node." + part, types.ModuleType("safelaunch.node." + part))
    exec(compile(os.environ.pop("SAFELAUNCH_PART_" + part.replace(".", "__")), part, "exec"), module.__dict__)
module.main(os.environ.pop("SAFELAUNCH_ASKED"))
os._exit(0)
"""


class Target(NamedTuple):
    """Which nodes of which job. `mark`: "RUN_ID.JOB." of a safelaunch run's processes, "" = all of the job's id.

    `job` "": each node gets a short job of its own, with `options` for srun.
    """

    job: str
    nodes: tuple[str, ...]
    mark: str = ""
    is_local: bool = False
    has_gpus: bool = False
    python: str = sys.executable
    options: tuple[str, ...] = ()

    def helper(self, node: str, argv: Sequence[str], start_s: float, deadline_s: float) -> list[str]:
        """A command on one node, beside whatever runs there; `start_s`: how long it may take to start."""
        if not self.job and not self.is_local:
            return slurm.own_job(node, [*self.options, *argv], start_s, deadline_s)
        return slurm.helper_step(self.job, node, argv, is_local=self.is_local, has_gpus=self.has_gpus)


class NodeProgram(NamedTuple):
    """What runs on a node: modules of safelaunch.node, each after those that it imports; the last one has `main`."""

    modules: tuple[str, ...]
    is_urgent: bool = True   # else it gives way to whatever else the node does
    start_s: float = START_S

    def env(self) -> dict[str, str]:
        """The modules as variables: one variable can hold 128 kB (execve(2): MAX_ARG_STRLEN)."""
        return {f"SAFELAUNCH_PART_{name.replace('.', '__')}": _text(name) for name in self.modules}

    def argv(self, python: str) -> list[str]:
        """How a node starts it. `python`: where the system has none that is new enough."""
        nice = [] if self.is_urgent else ["nice", "-n", "10"]
        return [*nice, "bash", "-c", _RUN, "helper", python, _BOOT, " ".join(self.modules)]


class NodeRound(Generic[Answer]):
    """A question to all of a target's nodes, under way.

    `ask` makes a node's question. `read` makes its answer from (line, node), or raises ParseError. `deadline_s` is each
    node's, from the start of its program. `begin` starts a command.
    """

    def __init__(self, target: Target, env: Mapping[str, str], program: NodeProgram, *, deadline_s: float,
                 ask: Callable[[str], Mapping[str, Any]], read: Callable[[str, str], Answer], at_once: int = AT_ONCE,
                 begin: StartCommand = Command) -> None:
        self._target, self._program, self._begin, self._at_once = target, program, begin, at_once
        self._env = {key: value for key, value in env.items() if key not in _LEFT_OUT}
        self._env.update(program.env(), SAFELAUNCH_PYTHON=target.python)
        self._deadline_s, self._ask, self._read = deadline_s, ask, read
        self._start_s = time.monotonic()
        waves = -(-len(target.nodes) // at_once)
        self._until_s = self._start_s + program.start_s + deadline_s * max(1, waves)
        self._waiting = list(target.nodes)
        self._running: dict[str, Command] = {}
        self._order = {node: number for number, node in enumerate(target.nodes)}
        self._answers: dict[str, Answer] = {}
        self._silent: dict[str, Silent] = {}
        self.lines: dict[str, str] = {}   # each node's own
        self.asked_t: dict[str, float] = {}      # by this host's clock, as are
        self.answered_t: dict[str, float] = {}

    @property
    def answers(self) -> tuple[Answer, ...]:
        """What has come in so far, in the order of the nodes."""
        return tuple(self._answers[node] for node in sorted(self._answers, key=self._order.__getitem__))

    @property
    def silent(self) -> tuple[Silent, ...]:
        return tuple(self._silent[node] for node in sorted(self._silent, key=self._order.__getitem__))

    @property
    def size(self) -> int:
        return len(self._order)

    @property
    def took_s(self) -> float:
        return time.monotonic() - self._start_s

    def poll(self) -> bool:
        """Whether all nodes have answered, or their time is over. Never blocks."""
        for node, command in list(self._running.items()):
            result = command.poll()
            if result is not None:
                del self._running[node]
                self._take(node, result)
        free = min(STARTS_A_POLL, self._at_once - len(self._running), len(self._waiting))
        for _ in range(free if time.monotonic() < self._until_s else 0):
            node = self._waiting.pop(0)
            self._running[node] = self._start(node)
        if self._running or (self._waiting and time.monotonic() < self._until_s):
            return False
        for node in self._waiting:
            self._silent[node] = Silent(node, "was not asked: no time was left", is_node_mute=False)
        self._waiting.clear()
        return True

    def stop(self) -> None:
        """Wait for nobody: who has not answered by now is silent. `poll` then collects the helpers. Nothing is left to
        stop once all have answered.
        """
        self._until_s = time.monotonic()
        for node, command in self._running.items():
            command.terminate()
            self._silent[node] = Silent(node, "did not answer in time")
        for node in self._waiting:
            self._silent[node] = Silent(node, "was not asked: no time was left", is_node_mute=False)
        self._waiting.clear()

    def wait(self) -> None:
        """Wait until all nodes have answered, or their time is over."""
        while not self.poll():
            time.sleep(0.01)

    def _start(self, node: str) -> Command:
        limit_s = self._program.start_s + self._deadline_s
        self.asked_t[node] = time.time()
        argv = self._target.helper(node, self._program.argv(self._target.python), self._program.start_s, limit_s)
        return self._begin(argv, {**self._env, "SAFELAUNCH_ASKED": json.dumps(self._ask(node))}, limit_s)

    def _take(self, node: str, result: Result) -> None:
        line = next((line for line in reversed(result.stdout.splitlines()) if line.startswith("{")), "")
        try:
            self._answers[node] = self._read(line, node)
            self.lines[node], self.answered_t[node] = line, time.time()
        except ParseError:
            self._silent[node] = _silent(node, result)


@cache
def _text(module: str) -> str:
    return (NODE / f"{module.replace('.', '/')}.py").read_text()


def _silent(node: str, result: Result) -> Silent:
    said = [line for line in result.stderr.strip().splitlines() if line.strip()]
    words = f" ({said[-1][:160]})" if said else ""
    if result.returncode is None:
        return Silent(node, f"did not answer in time{words}")
    if result.is_unknown:
        return Silent(node, f"could not be asked: Slurm did not answer{words}", is_node_mute=False)
    if result.returncode == 0:
        return Silent(node, f"its helper gave no report{words}")
    # srun itself failed (a job that has just ended, an unknown option, no srun): that says nothing about the node.
    is_lost = slurmtext.has_given_up_node(result.stderr) or result.returncode > 128
    return Silent(node, f"its helper ended with exit code {result.returncode}{words}", is_node_mute=is_lost)
