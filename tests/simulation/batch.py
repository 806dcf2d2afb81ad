"""The two shells of a job, as templates/slurm has them: each starts a supervisor, again when it dies."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.simulation.hosts import Host
from tests.simulation.process import Supervisor
from tests.simulation.setting import RUN_ID

if TYPE_CHECKING:
    from tests.simulation.command import SimCommand
    from tests.simulation.sim import Sim
    from tests.simulation.slurm import Job

PATIENCE_S = 60.0   # SL_PATIENCE_S
MAX_STRIKES = 5


class Shell:
    """`supervise` in a shell on one host; `role` is what its supervisor begins as."""

    role = ""

    def __init__(self, sim: Sim, host: Host, job: Job) -> None:
        self.sim, self.host, self.job = sim, host, job
        self.is_over = False
        self.leader: Supervisor | None = None
        self.restarts = job.restarts   # as in its environment: the job may be requeued beside it
        self.local = host.disk / f"{job.id}-{self.restarts}"
        self.strikes = 0
        self._born_t = 0.0
        self._waits_since_t = sim.clock.t
        host.living.append(self)
        sim.clock.after(sim.rng.uniform(0.1, 0.8), self._copy)

    def _copy(self) -> None:
        """The library is copied from the shared folder first, which may be frozen."""
        if self.is_over or not self.host.is_running:
            if not self.is_over:
                self.sim.clock.after(1.0, self._copy)
            return
        if not self.host.mount.is_frozen:
            self.local.mkdir(parents=True, exist_ok=True)
            self._lead()
        elif self.sim.clock.t - self._waits_since_t > PATIENCE_S:
            self.gives_up("its library was not copied")
        else:
            self.sim.clock.after(0.5, self._copy)

    def _lead(self) -> None:
        if self.is_over:
            return
        self._born_t = self.sim.clock.t
        self.leader = Supervisor(self.sim, self)
        self.leader.start()

    def supervisor_ended(self, error: str) -> None:
        """It left its last word, or it is born again, perhaps in another role."""
        if self.is_over:
            return
        final = self.local / "final"
        if final.exists():
            self.finish(int(final.read_text()))
            return
        if error:
            self.sim.crashed(self.role, error)
        self.died_alone()

    def died_alone(self) -> None:
        """The supervisor died, the shell did not."""
        self.strikes = 0 if self.sim.clock.t - self._born_t > 30.0 else self.strikes + 1
        if self.strikes >= MAX_STRIKES:
            self.gives_up("its supervisor died five times")
            return
        self.sim.clock.after(0.15 if self.strikes < 2 else 1.15, self._lead)

    def gives_up(self, why: str) -> None:
        """No supervisor lives here."""

    def finish(self, code: int) -> None:
        """The supervisor's last word."""

    def kill(self) -> None:
        """Nothing of the shell is left, its supervisor, srun and couriers included."""
        if self.is_over:
            return
        self.is_over = True
        if self in self.host.living:
            self.host.living.remove(self)
        if self.leader is not None:
            self.leader.kill()
            self.leader.kill_courier()
        for attempt in self.sim.attempts:
            if attempt.local == self.local.name and attempt.host is self.host and attempt.srun_alive:
                attempt.kill_srun()

    def signal(self, number: int) -> None:
        """A signal, handed on to the supervisor."""
        if self.is_over or not self.host.is_running:
            return
        if self.leader is not None and number == signal.SIGTERM:
            self.leader.end_commands()
        if self.leader is not None:
            self.leader.signal(number)   # lost, where that one is dead and the next not born: as in bash
        elif number == signal.SIGTERM:
            self.killed_early()

    def killed_early(self) -> None:
        """TERM before there is a trap for it: the shell dies."""
        self.kill()

    def stopped(self) -> None:
        """With its host."""

    def resumed(self, gap_s: float) -> None:
        """With its host."""

    def died(self) -> None:
        """With its host."""
        self.is_over = True


class Batch(Shell):
    """The batch script."""

    role = "leader"
    is_finished = False   # by itself; Slurm hears of it a moment later

    def __init__(self, sim: Sim, host: Host, job: Job) -> None:
        super().__init__(sim, host, job)
        if job.restarts:   # its output goes on in the same file: where it begins tells whose end a line is about
            line = f"safelaunch 2024-01-01T00:00:00 {host.name}: run {RUN_ID}, job {job.id} on {host.name}\n"
            host.mount.append(sim.run_dir, f"slurm-{job.id}.out", line)

    def gives_up(self, why: str) -> None:
        """Law 1: then the training runs without us."""
        self.sim.unsupervised(self, why)

    def finish(self, code: int) -> None:
        """The script ends, and the job with it."""
        self.kill()
        self.is_finished = True
        self.sim.trace(self.host.name, f"the script of job {self.job.id} ends with {code}")
        self.sim.clock.after(0.05, lambda: self.sim.slurm.script_ended(self.job, self, code))

    def term(self) -> None:
        """TERM."""
        self.signal(signal.SIGTERM)

    def usr2(self) -> None:
        """Slurm's warning before the limit."""
        self.signal(signal.SIGUSR2)


class Step(Shell):
    """A standby's step; `command` is its srun, on the leader's host."""

    role = "standby"

    def __init__(self, sim: Sim, host: Host, job: Job, command: SimCommand) -> None:
        self.command = command
        super().__init__(sim, host, job)

    def gives_up(self, why: str) -> None:
        """The leader has another one started."""
        self.finish(0)

    def finish(self, code: int) -> None:
        """The step ends."""
        self.kill()
        self.command.end(code, "", "")

    def slurm_ends(self, line: str, kill_after_s: float) -> None:
        """slurmstepd writes its line into the step's output, then TERM; KILL after KillWait."""
        if not self.sim.slurm.reaches(self.host):
            self.sim.clock.after(5.0, lambda: self.slurm_ends(line, kill_after_s) if not self.is_over else None)
            return
        if line:
            name = f"slurm-{self.job.id}.standby-{self.host.name}.out"
            head, _, rest = line.partition(f" JOB {self.job.id} ON {self.job.batch_host} ")
            text = f"{head} STEP {self.job.id}.1 ON {self.host.name} {rest}"   # of a step, never of the job
            self.host.mount.append(self.sim.run_dir, name, text)
        self.sim.clock.after(0.02, lambda: self.signal(signal.SIGTERM))
        self.sim.clock.after(kill_after_s, self._slurm_kills)

    def _slurm_kills(self) -> None:
        if self.is_over:
            return
        if not self.sim.slurm.reaches(self.host):
            self.sim.clock.after(5.0, self._slurm_kills)
            return
        self.kill()
        self.command.end(137, "", "")
