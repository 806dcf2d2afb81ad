"""The training: attempts, their srun, and on each node a guard with its ranks.

The guards decide and speak by the real node/guard. What a rank writes is noted: never may ranks of two attempts run at
the same instant.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safelaunch.run.io import runfolder
from safelaunch.supervisor.io.attempt import AttemptProcess
from tests.simulation.bench import DROP
from tests.simulation.clock import Timer
from tests.simulation.guards import Task
from tests.simulation.hosts import Host

if TYPE_CHECKING:
    from tests.simulation.sim import Sim

KILL_WAIT_S = 30.0        # slurm.conf(5), KillWait
SRUN_LAUNCH_S = 15.0      # srun asks a dead node for so long before it gives its step up (11 s measured)
BUSY_AGAIN_S = 60.0       # srun asks for its step so often, at last (src/api/step_ctx.c)
MOST_READ = 1000          # steps: a leader that is born again reads the last 64 KiB
COLLECTIVE_S = 90.0       # NCCL's own time-out: 600 s by default, shorter here to keep scenarios short


class Attempt:
    """One launch: srun on the launching host, its tasks, and how far the training has come."""

    def __init__(self, sim: Sim, host: Host, local: str, number: int, env: Mapping[str, str],
                 facts: Mapping[str, Any]) -> None:
        self.sim, self.host, self.local, self.number = sim, host, local, number   # `local`: job-restarts
        self.job = str(facts["job"])
        self.env, self.facts = env, facts
        self.nodes = [sim.hosts[node] for node in facts["nodes"]]
        self.resize: dict[str, Any] | None = facts.get("resize")   # it runs before_resize (resizing.py)
        self.told_step = int(env.get("SAFELAUNCH_RESUME_STEP") or 0)
        self.first_step = 0 if sim.is_forgetful else self.told_step
        self.tasks = [Task(self, node, index) for index, node in enumerate(self.nodes)]
        self.srun_code: int | None = None
        self.srun_alive = True
        self.first_bad: int | None = None
        self.has_started = False              # some rank of it ran
        self.lines: list[str] = []
        self.bad_from = self._first_nan()
        self.waits_for: set[Task] = set(self.tasks)
        self._active_s = 0.0                  # seconds of training so far, all ranks together
        self._since_t: float | None = None    # running since
        self._timer: Timer | None = None
        self._stall: Timer | None = None
        self._saved = self.first_step
        self._saving = False
        host.living.append(self)
        sim.attempts.append(self)
        sim.clock.after(sim.rng.uniform(0.05, 0.6), self._start)

    # --- srun -------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self.srun_alive and self.host.is_stopped:   # srun goes on with its host
            self.sim.clock.after(0.5, self._start)
            return
        if not self.srun_alive or not self.host.is_running:
            return
        why = self.sim.slurm.refuses_step(self.host, self.job, [node.name for node in self.nodes])
        if why is not None:
            self.lines.append(f"srun: error: {why}")
            self.sim.clock.after(1.0, lambda: self._end_srun(1))
            return
        if self.sim.clock.t < self.sim.busy_until_t:
            word = f"step creation {'still' if self.lines else 'temporarily'} disabled"
            self.lines.append(f"srun: Job {self.job} {word}, retrying (Requested nodes are busy)")
            self.sim.clock.after(BUSY_AGAIN_S, self._start)
            return
        if self.lines:
            self.lines.append(f"srun: Step created for StepId={self.job}.{self.number}")
        missing = [task for task in self.tasks if not self._reaches(task.host)]
        if missing:   # the tasks of the others wait for it, and are ended when srun gives up
            self.sim.clock.after(SRUN_LAUNCH_S, lambda: self._give_up(missing))
        for task in self.tasks:
            if task not in missing:
                self.sim.clock.after(self.sim.rng.uniform(0.05, 0.4), task.start)

    def _reaches(self, node: Host) -> bool:
        return node.is_running and self.sim.net.is_up(self.host, node) and self.sim.net.is_up(node, self.host)

    def _give_up(self, missing: list[Task]) -> None:
        if self.srun_alive:
            self.lines.append("srun: error: Task launch failed on node "
                              f"{missing[0].host.name}: Communication connection failure")
            for task in missing:
                self.waits_for.discard(task)
            self.end_step(1)

    def task_ended(self, task: Task, code: int) -> None:
        """A task's guard has gone, and srun hears of it if it can."""
        if self.srun_alive and self.sim.net.is_up(task.host, self.host):
            self.waits_for.discard(task)
            if code and self.first_bad is None:
                self.first_bad = code
                self.sim.clock.after(1.0, lambda: self.end_step(code))   # --kill-on-bad-exit
            self._look()
        elif self.srun_alive:
            self.sim.clock.after(5.0, lambda: self.task_ended(task, code))

    def end_step(self, code: int) -> None:
        """Slurm ends the step on every node that answers: TERM, and KILL after KillWait."""
        self.first_bad = code if self.first_bad is None else self.first_bad
        for task in self.tasks:
            task.slurm_ends(KILL_WAIT_S)
        self._look()

    def node_failed(self, node: Host) -> None:
        """slurmctld has given a node up: srun waits for it no more.

        Steps that do not use it live on (slurmctld's step_mgr.c, kill_step_on_node).
        """
        if node not in self.nodes:
            return
        for task in self.tasks:
            if task.host is node:
                self.waits_for.discard(task)
                self.first_bad = self.first_bad or 1
        self._look()
        if self.srun_alive:
            self.end_step(1)

    def _look(self) -> None:
        if not self.waits_for and self.srun_alive and self.srun_code is None:
            self.sim.clock.after(0.05, lambda: self._end_srun(self.first_bad or 0))

    def _end_srun(self, code: int) -> None:
        if self.srun_alive:
            self.srun_alive = False
            self.srun_code = code
            self._forget()
            self.sim.child_ended(self.host)

    def kill_srun(self) -> None:
        """KILL of srun: its shepherd ends the step."""
        if self.srun_alive:
            self.srun_alive = False
            self.srun_code = 137
            self._forget()
            self.sim.clock.after(0.1, lambda: self.end_step(137))
            self.sim.child_ended(self.host)

    def _forget(self) -> None:
        if self in self.host.living:
            self.host.living.remove(self)

    def stopped(self) -> None:
        """Of the batch host: srun stands still, the ranks elsewhere go on."""

    def resumed(self, gap_s: float) -> None:
        """srun goes on."""
        self._look()

    def died(self) -> None:
        """The batch host is gone, srun with it; nobody ends the tasks elsewhere."""
        self.srun_alive = False

    # --- progress ---------------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The last step that was finished."""
        since_s = self.sim.clock.t - self._since_t if self._since_t is not None else 0.0
        done = int((self._active_s + since_s) / self.sim.scenario.step_s)
        return min(self.sim.scenario.steps, self.first_step + done)

    def _first_nan(self) -> int | None:
        """From which step on its loss is no number, and what it saves, too."""
        scenario = self.sim.scenario
        if self.first_step in self.sim.bad:
            return self.first_step + 1
        is_due = scenario.nan == "always" or (scenario.nan == "once" and not self.sim.had_nan)
        return scenario.nan_step if is_due and scenario.nan_step > self.first_step else None

    def is_bad(self, step: int) -> bool:
        """Whether it is one of these steps."""
        is_bad = self.bad_from is not None and step >= self.bad_from
        self.sim.had_nan = self.sim.had_nan or is_bad
        return is_bad

    def step_time(self, step: int) -> str:
        """What its log says of a step, where it says so. Printed only: the steps themselves take as long as ever."""
        scenario = self.sim.scenario
        if not scenario.slow:
            return f" | loss: {'nan' if self.is_bad(step) else 2.5}" if scenario.nan else ""
        has_node = any(node.name == scenario.slow_node for node in self.nodes)
        is_slow = scenario.slow in ("other", "wrong") or (scenario.slow == "node" and has_node)
        longer = 1 + DROP * (is_slow and step > scenario.slow_step) + 0.001 * (step % 5 - 2)
        return f" | loss: 2.5 | step_time: {scenario.step_s * longer:.5f}"

    def update(self) -> None:
        """Something about the ranks has changed: they step only while all of them run and reach each other."""
        if self.resize is not None:
            return
        clock, scenario = self.sim.clock, self.sim.scenario
        is_stepping = not self._saving and all(task.is_training for task in self.tasks) and self._meet_each_other()
        if not is_stepping and self._since_t is not None:
            self._active_s += clock.t - self._since_t
            self._since_t = None
        elif is_stepping and self._since_t is None:
            self._since_t = clock.t
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if is_stepping:
            done_s = self._active_s
            goal = min(scenario.steps, self._saved + scenario.save_every)
            self._timer = clock.at(clock.t + (goal - self.first_step) * scenario.step_s - done_s + 1e-6, self._reached)
            if self._stall is not None:
                self._stall.cancel()
                self._stall = None
        elif self._stall is None and any(task.rank == "training" for task in self.tasks):
            self._stall = clock.after(COLLECTIVE_S, self._collective_times_out)

    def _meet_each_other(self) -> bool:
        net = self.sim.net
        if not net.cut:
            return True
        return all(net.is_up(one, other) for one in self.nodes for other in self.nodes if one is not other)

    def _collective_times_out(self) -> None:
        self._stall = None
        for task in self.tasks:
            if task.rank == "training" and task.host.is_running:
                self.lines.append(f"[{task.host.name}:{task.index}]: Watchdog caught collective operation timeout")
                task.rank_ends(134, 6)

    def _reached(self) -> None:
        self._timer = None
        self._active_s = (self.step - self.first_step) * self.sim.scenario.step_s
        self._since_t = None
        self._saving = True
        self.update()
        self._save(self.step, lambda: self._saved_at(self.step))

    def _saved_at(self, step: int) -> None:
        self._saving, self._saved = False, step
        if step >= self.sim.scenario.steps:
            for task in self.tasks:
                task.rank_ends(0, None)
        else:
            self.update()

    def save_now(self, task: Task) -> None:
        """The training was asked to end and handles that: a checkpoint, then exit code 0 everywhere."""
        if self._saving or not self.tasks[0].is_training:
            return
        self._active_s = (self.step - self.first_step) * self.sim.scenario.step_s
        self._since_t, self._saving = None, True
        self.update()

        def leave() -> None:
            for one in self.tasks:
                one.rank_ends(0, None)
        self._save(self.step, leave)

    def _save(self, step: int, then: Any) -> None:
        """Rank 0 writes a checkpoint: a half, then all of it; blocked as long as the folder is frozen."""
        task, sim = self.tasks[0], self.sim
        mount = task.host.mount
        path = sim.checkpoints / f"step_{step}.json"

        def go_on() -> None:
            task.unblock()
            begin()

        def thawed() -> None:
            task.unblock()
            sim.clock.after(0.5, end)

        def begin() -> None:
            if not task.is_training:
                return
            if mount.refuses:
                self.lines.append("[rank 0]: OSError: [Errno 28] No space left on device")
                task.rank_ends(1, None)
                return
            sim.overwrites(step)
            if step == sim.truncate_step:   # the disk took it, and lost the rest
                write_checkpoint(path, step, sim.server_t(), is_whole=False)
                sim.truncated.add(step)
                sim.truncate_step = None
                sim.clock.after(0.5, then)
                return
            write_checkpoint(path, step, sim.server_t(), is_whole=False)
            mount.client.changed(path)
            sim.clock.after(sim.scenario.save_s, end)

        def end() -> None:
            if task.rank != "training" or task._killed:
                return
            if mount.is_frozen:
                task.is_blocked = True
                mount.when_thawed(thawed)
                return
            if not task.host.is_running:
                sim.clock.after(0.5, end)
                return
            write_checkpoint(path, step, sim.server_t(), is_whole=True)
            (sim.bad.add if self.is_bad(step) else sim.bad.discard)(step)
            sim.saved(self, step)
            then()

        if mount.is_frozen:
            task.is_blocked = True
        mount.when_thawed(go_on)

    # --- the log ----------------------------------------------------------------------------------------------------

    def tail(self) -> bytes:
        """The last lines of its output."""
        said = "".join(f"{line}\n" for line in self.lines[-5:])
        return f"{said}step {self.step}\n".encode() if self.step > self.first_step else said.encode()

    def size(self) -> int:
        """Grows as the training does, and reaches the launching host where it is reachable."""
        return (self.step - self.first_step) * 10 + sum(map(len, self.lines))


class SimProcess(AttemptProcess):
    """supervisor.io.attempt.AttemptProcess over an attempt of the simulation."""

    def __init__(self, attempt: Attempt, local: Path, is_child: bool) -> None:
        super().__init__(local, attempt.number, attempt.facts)
        self._attempt, self._is_child = attempt, is_child
        self._read_step = attempt.first_step

    def poll(self) -> int | None:
        """srun's exit code."""
        return self._attempt.srun_code

    def kill(self) -> None:
        """srun and its shepherd, if this leader started them."""
        if self._is_child:
            self._attempt.kill_srun()

    def size(self) -> int:
        """Bytes so far."""
        return self._attempt.size()

    def tail(self, length: int = 65536) -> bytes:
        """The last lines."""
        return self._attempt.tail()

    def read(self, start: int, length: int) -> bytes:
        """The last lines, and the steps that are new."""
        last = self._attempt.step
        steps = range(max(self._read_step, last - MOST_READ) + 1, last + 1)
        self._read_step = last
        said = "".join(f"{line}\n" for line in self._attempt.lines[-5:])
        return (said + "".join(f"step {step}{self._attempt.step_time(step)}\n" for step in steps)).encode()

    def keep_pump(self, target: str, now_s: float) -> None:
        """The pump copies by itself: into the folder, while that answers."""
        attempt, sim = self._attempt, self._attempt.sim
        if sim.scenario.has_log and not attempt.host.mount.is_frozen:
            path = sim.run_dir / runfolder.attempt_folder(attempt.number) / "main.log"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(attempt.tail())
            attempt.host.mount.client.changed(path)

    def finish_pump(self) -> bool:
        """It ends by itself, too."""
        return False

    def forget(self) -> None:
        """It is over and dealt with."""


def write_checkpoint(path: Path, step: int, wall_t: float, is_whole: bool) -> None:
    """A file that checkpoints judges by its structure: an empty one is none."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(json.dumps({"step": step}).encode() if is_whole else b"")
    os.utime(path, (wall_t, wall_t))
