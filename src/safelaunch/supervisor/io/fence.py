"""The fence: no attempt starts before nothing of the last one is left.

A node that answers proves it itself: by its guards, or by a helper step that ends whatever still carries the attempt's
mark. For a node that does not answer, the attempt's record is ended, and its guard's lease waited for. A guard that
hears nobody and reads that record ends its own ranks (node.guard).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from safelaunch.base.timing import FENCE_MARGIN_S
from safelaunch.decide.ends import fence
from safelaunch.decide.ends.fence import Fencing, Node, ScriptTask, StepAnswer, Swept
from safelaunch.decide.facts.actions import FAILED_GRACE_S
from safelaunch.decide.facts.seen import Live
from safelaunch.guard.io.control import ControlServer
from safelaunch.guard.io.guardcode import guard_text
from safelaunch.guard.io.job import Allocation
from safelaunch.node.guard.protocol import step_range
from safelaunch.run.plan import Plan
from safelaunch.slurm import slurmtext
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Command, Result, StartCommand, helper_step

SWEEP_GRACE_S = 1.0      # between TERM and KILL for what a dead guard left
SWEEP_DEADLINE_S = 15.0  # a helper step starts in 0.1 s; one on a silent node never does
_UNKNOWN_TASKS = 1 << 30   # of a script while a step of it can be on its way: each node is swept
ALL_NODES = ""           # stands for a node where the job is asked about
SWEEP_AGAIN_S = 5.0      # between two tries while slurmctld does not answer
_SWEEP = """for python in /usr/bin/python3 "$2"; do
  if "$python" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    exec "$python" -I -S -c "$SAFELAUNCH_GUARD" --sweep "$1" "$3"
  fi
done
echo '{"found": 0, "left": [], "blind": true}'"""


class Fencer:
    """Follows each attempt until nothing of it is left. `start` makes helper steps, `ask` asks Slurm at once."""

    def __init__(self, plan: Plan, job: Allocation, server: ControlServer, start: StartCommand,
                 ask: StartCommand) -> None:
        self._plan, self._job, self._server, self._start, self._ask = plan, job, server, start, ask
        self._source = guard_text()   # read while its file answers
        self._swept_steps: set[int] = set()       # foreign ones of earlier attempts
        self.no_helpers: str | None = None   # why no helper step runs here: silent nodes are left to their lease
        self._reset(0)

    def do_without_helpers(self, why: str) -> None:
        """No step can run beside the training: silent nodes are left to their lease."""
        self.no_helpers = why

    def _reset(self, number: int) -> None:
        self._number = number
        self._now_s, self._is_frozen = 0.0, False
        self._clean: set[str] = set()
        self._sweeping: set[str] = set()
        self._given_up: set[str] = set()
        self._failed: dict[str, int] = {}
        self._since_s: dict[str, float] = {}
        self._again_s: dict[str, float] = {}
        self._record_s: float | None = None
        self.alone_since_s: float | None = None   # since when a node without a guard here can have heard nobody
        self._old_host = ""                       # of the supervisor before: judged by its successor
        self._lost: list[tuple[str, str]] = []
        self._has_ended_steps = False
        self.is_asking = False                    # Slurm for the job's steps: all known tasks have told their end
        self._has_foreign: bool | None = None     # one that no wrapper has told of; None = not asked yet

    def helper(self, node: str, argv: Iterable[str]) -> list[str]:
        """A helper step on one node, beside whatever runs there."""
        return helper_step(self._job.id, node, argv, is_local=self._job.is_local, has_gpus=self._job.has_gpus)

    def advance(self, live: Live, now_s: float, lost: Mapping[str, str],
                ensure_record_moved: Callable[[], bool], is_frozen: bool = False,
                sruns: Sequence[str] | None = None) -> list[tuple[Command, str]]:
        """Sweeps to start now, with their nodes, or a question to Slurm for ALL_NODES. `sruns`: those of a script
        (decide.ends.fence.has_script_gone).

        `ensure_record_moved`: the attempt's record says that it has ended. `is_frozen`: the run folder is frozen. Ranks
        that sleep in it blame no node, and nothing can be launched anyhow.
        """
        if live.number != self._number:
            self._reset(live.number)
        self._now_s, self._is_frozen = now_s, is_frozen
        if self._record_s is None and ensure_record_moved():
            self._record_s = now_s
        sweeps = self._look_at_steps(live, sruns) if self._plan.is_script else []
        if self.is_asking:
            return sweeps
        for node in live.nodes:
            if node in self._clean or node in self._sweeping:
                continue
            match fence.judge(self._look(live, node, node in lost)):
                case Fencing.CLEAN:
                    self._clean.add(node)
                case Fencing.LEASE:
                    if node not in lost:
                        self._given_up.add(node)
                    self._wait_for_lease(node)
                case Fencing.WAIT:
                    self._since_s.setdefault(node, now_s)
                case Fencing.FROZEN:
                    self._since_s[node] = now_s
                case Fencing.LATER:
                    pass
                case Fencing.STUCK:
                    self._give_up(node, f"ranks have not ended {fence.STUCK_S:.0f} s after they were killed")
                case Fencing.SWEEP:
                    self._sweeping.add(node)
                    sweeps.append((self._sweep(node), node))
        return sweeps

    def _look_at_steps(self, live: Live, sruns: Sequence[str] | None) -> list[tuple[Command, str]]:
        """End tasks that outlive their script: Slurm does not where their srun was killed. Or see that none is left:
        where all have told so, Slurm is asked for those of an srun that went past the wrapper.
        """
        guards = self._server.guards.values()
        if not self._has_ended_steps and any(
                guard.step and guard.connection and not guard.gone for guard in guards):
            self._has_ended_steps = True
            self._server.tell_all({"do": "end", "grace_s": FAILED_GRACE_S}, self._now_s)
        if not fence.has_script_gone(sruns, (ScriptTask(guard.step, guard.gone, guard.tasks) for guard in guards)):
            return []
        if self._has_foreign is None and not self.is_asking:
            self.is_asking = True
            return [(self._ask(slurm.squeue_steps(self._job.id), self._job.env, SWEEP_DEADLINE_S), ALL_NODES)]
        if self._has_foreign is False:
            self._clean.update(live.nodes)
        return []

    def _take_steps(self, result: Result) -> None:
        """What Slurm said of the job's steps; no answer is no proof."""
        self.is_asking = False
        steps = slurmtext.parse_steps(result.stdout) if result.is_ok else None
        told = {guard.step for guard in self._server.guards.values()}
        foreign = {number for number, name in (steps or {}).items()
                   if name != slurm.OWN_STEP and step_range(number) not in told} - self._swept_steps
        self._has_foreign = steps is None or bool(foreign)
        self._swept_steps |= foreign

    def _look(self, live: Live, node: str, is_lost: bool) -> Node:
        guards = self._server.of(node)
        return Node(
            _UNKNOWN_TASKS if self._plan.is_script else self._plan.ntasks_per_node,
            len(guards), sum(guard.gone for guard in guards),
            connected=any(guard.connection and not guard.gone for guard in guards),
            is_lost=is_lost or node in self._given_up, is_frozen=self._is_frozen,
            waited_s=self._now_s - self._since_s.get(node, self._now_s),
            srun_ended=live.srun_code is not None and self.alone_since_s is None, is_old_host=node == self._old_host,
            may_ask=self._now_s >= self._again_s.get(node, self._now_s), has_helpers=self.no_helpers is None)

    def take_over(self, live: Live, alone_since_s: float, old_host: str) -> None:
        """Fence an attempt of another supervisor, whose last message its guards may have heard at `alone_since_s`."""
        self._reset(live.number)
        self.alone_since_s, self._old_host = alone_since_s, old_host

    def swept(self, node: str, result: Result) -> None:
        """Take a sweep's result: clean, to be repeated, or the node is lost."""
        if node == ALL_NODES:
            self._take_steps(result)
            return
        self._sweeping.discard(node)
        report, stderr = _report(result), result.stderr
        answer = StepAnswer(
            None if report is None else bool(report["left"]), self._is_frozen, is_unknown=result.is_unknown,
            is_refused=slurmtext.why_no_overlap(stderr) is not None or slurmtext.is_job_over(stderr),
            is_aborted=slurmtext.has_given_up_node(stderr), is_late=result.returncode is None,
            failed=self._failed.get(node, 0))
        match fence.judge_sweep(answer):
            case Swept.CLEAN:
                self._clean.add(node)
            case Swept.AGAIN:
                self._again_s[node] = self._now_s + SWEEP_AGAIN_S
            case Swept.RETRY:
                self._failed[node] = answer.failed + 1
            case Swept.LEASE:
                self._given_up.add(node)
            case Swept.STUCK:
                self._give_up(node, f"processes {report and report['left']} of the attempt cannot be ended")
            case Swept.DEAD:   # the other witness is its guard's closed connection
                said = (stderr.strip().splitlines() or ["no answer"])[-1][:200]
                self._give_up(node, f"it stopped answering, and Slurm could start nothing there ({said})")

    def _give_up(self, node: str, why: str) -> None:
        self._given_up.add(node)
        self._lost.append((node, why))

    def found_lost(self) -> list[tuple[str, str]]:
        """Nodes found dead since the last call."""
        found, self._lost = self._lost, []
        return found

    def is_done(self, live: Live) -> bool:
        """Nothing of the attempt is left anywhere."""
        return live.number == self._number and self._clean.issuperset(live.nodes)

    def _sweep(self, node: str) -> Command:
        mark = f"{self._plan.run_id}.{self._job.id}.{self._number}"
        argv = self.helper(node, ["bash", "-c", _SWEEP, "sweep", mark, self._job.env.get("SAFELAUNCH_PYTHON", ""),
                                  str(SWEEP_GRACE_S)])
        return self._start(argv, {**self._job.env, "SAFELAUNCH_GUARD": self._source}, SWEEP_DEADLINE_S)

    def _wait_for_lease(self, node: str) -> None:
        self._server.hang_up(node, self._now_s)
        if self._record_s is None:
            return
        default_s = self._record_s if self.alone_since_s is None else self.alone_since_s
        heard_s = max((guard.pinged_s for guard in self._server.of(node)), default=default_s)
        if fence.is_lease_over(self._now_s, heard_s, self._record_s, self._plan.lease_s, FENCE_MARGIN_S):
            self._clean.add(node)


def _report(result: Result) -> dict[str, Any] | None:
    """A sweep's report; None when the helper step did not run."""
    for line in reversed(result.stdout.splitlines()):
        try:
            report = json.loads(line)
        except ValueError:
            continue
        if isinstance(report, dict) and "left" in report:
            return report
    return None
