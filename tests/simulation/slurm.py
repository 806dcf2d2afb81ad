"""A fake Slurm: it reads the argument lists that the project builds, and answers in text, with the measured behaviours.

Sources: measured on Slurm 22.05 where nothing else is said, and the manual pages named where they are used.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.batch import Batch, Step
from tests.simulation.command import SimCommand
from tests.simulation.hosts import Host
from tests.simulation.training import KILL_WAIT_S

if TYPE_CHECKING:
    from tests.simulation.sim import Sim

MIN_JOB_AGE_S = 300.0       # slurm.conf(5)
MESSAGE_TIMEOUT_S = 10.0
REQUEUE_WAIT_S = 121.0      # a requeued job is not started sooner (measured)
NODE_FAILURE = "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")


def render_end(words: str, what: str, host: str, due: str) -> str:
    """slurmstepd's line on the end of a job, as a release words it."""
    stamp = "2024-01-01T00:00:00"
    if words == "22.05":
        return f"slurmstepd: error: *** {what} ON {host} CANCELLED AT {f'{stamp} {due}'.strip()} ***\n"
    said = due or "DUE to SIGNAL Terminated"
    if words == "later":
        said = f"FOR {said.rpartition(' ')[2]} REASONS"
    return f"[{stamp}.996] error: *** {what} ON {host} CANCELLED AT {stamp} {said} ***\n"


@dataclass(eq=False)
class Job:
    """One job; `state` as squeue says it, `end` the word that stays once COMPLETING is over."""

    id: str
    name: str
    script: Path
    nodes_wanted: int
    limit_s: float
    warn_s: float
    no_kill: bool
    after: str | None = None
    singleton: bool = False
    exclude: frozenset[str] = frozenset()
    may_requeue: bool = False   # --no-requeue, until its owner sets Requeue=1
    is_requeued: bool = False   # it ends in order to be queued again
    held: bool = False
    begin_t: float = 0.0
    start_t: float = 0.0        # StartTime, as its owner set it
    state: str = "PENDING"
    end: str = ""
    nodes: list[str] = field(default_factory=list)
    first_nodes: list[str] = field(default_factory=list)   # as the batch script's environment has them, for ever
    batch_host: str = ""
    batch: Batch | None = None
    started_t: float = 0.0
    ended_t: float = 0.0
    by: str = ""                # who cancelled it
    leaving: set[str] = field(default_factory=set)   # nodes whose epilog slurmctld waits for
    restarts: int = 0

    @property
    def is_live(self) -> bool:
        """Pending, running or completing."""
        return self.state in ("PENDING", "RUNNING", "COMPLETING")


class Controller:
    """slurmctld and all slurmds."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.jobs: dict[str, Job] = {}
        self.down: dict[str, str] = {}          # node → why slurmctld will not use it
        self.calls: list[tuple[float, tuple[str, ...]]] = []
        # When squeue told the truth in time, of ended jobs, too: of one, or of all ("").
        self.clear_looks: list[tuple[float, str]] = []
        self.callers: list[object] = []
        self.is_hung = False                    # takes connections, answers when it goes on: SIGSTOP
        self.is_gone = False                    # its process has ended
        self.manners: list[str] = []            # faults for the next commands
        self._waiting: list[SimCommand] = []    # what a hung one will work off
        self._numbers = itertools.count(101)
        self.steps: list[Step] = []              # of standbys
        self._silent: dict[str, tuple[float, int]] = {}
        self._tick_due = False
        sim.net.on_change.append(self._watch_nodes)

    # --- who reaches whom -------------------------------------------------------------------------------------------

    @property
    def answers(self) -> bool:
        """slurmctld works."""
        return not (self.is_hung or self.is_gone)

    def reaches(self, host: Host) -> bool:
        """slurmctld's word gets through to the slurmd there."""
        return host.is_running and self.sim.net.is_up(self.sim.controller, host) and self.sim.net.is_up(
            host, self.sim.controller)

    def notice(self) -> None:
        """A host has changed: slurmctld pings, and gives up after SlurmdTimeout."""
        self._watch_nodes()
        self.kick()

    def _watch_nodes(self) -> None:
        timeout_s = self.sim.scenario.slurmd_timeout_s
        for host in self.sim.nodes:
            if self.reaches(host):
                since = self._silent.pop(host.name, None)
                if since is not None:
                    wait_s = self.sim.rng.uniform(1.0, 5.0)
                    self.sim.clock.after(wait_s, partial(self._registers, host, since))
            elif host.name not in self._silent:
                self._silent[host.name] = since = (self.sim.clock.t, host.boots)
                wait_s = timeout_s * self.sim.rng.uniform(1.0, 1.4)
                self.sim.clock.after(wait_s, partial(self._not_responding, host, since))

    def _not_responding(self, host: Host, since: tuple[float, int]) -> None:
        if self._silent.get(host.name) != since:
            return
        if not self.answers:
            self.sim.clock.after(10.0, lambda: self._not_responding(host, since))
            return
        self.sim.trace("slurmctld", f"node {host.name} not responding, setting DOWN")
        self.down[host.name] = "Not responding"
        for job in list(self.jobs.values()):
            self._node_fails(job, host)
        self.kick()

    def _node_fails(self, job: Job, host: Host) -> None:
        job.leaving.discard(host.name)
        if job.state == "COMPLETING" and not job.leaving:
            self._finished(job)
        if job.state != "RUNNING" or host.name not in job.nodes:
            return
        for attempt in self.sim.attempts:
            if attempt.job == job.id:
                attempt.node_failed(host)
        if job.batch is None and host.name == job.batch_host:   # its launch was never answered: requeued
            self._requeue(job)
        elif job.no_kill and len(job.nodes) > 1:   # of one whose last node is DOWN it says NODE_FAIL (measured)
            job.nodes.remove(host.name)   # the trap: without its batch host it stays RUNNING, with no script
            if not job.nodes:             # measured (22.05)
                self._end(job, "NODE_FAIL", NODE_FAILURE)
        else:
            self._end(job, "NODE_FAIL", NODE_FAILURE)

    def _registers(self, host: Host, since: tuple[float, int]) -> None:
        """slurmd is back: what runs there and is of no job any more is ended; what should run there and does not fails.

        slurmctld's _purge_missing_jobs: only of jobs that still have the node.
        """
        if not self.reaches(host) or not self.answers:
            if host.is_running:
                self.sim.clock.after(5.0, lambda: self._registers(host, since))
            return
        self.down.pop(host.name, None)
        for job in self.sim.all_jobs:
            has_it = job.state == "RUNNING" and host.name in job.nodes
            for attempt in self.sim.attempts:
                if attempt.job == job.id and has_it and host.boots != since[1]:
                    attempt.node_failed(host)
            is_gone = job.batch is None or job.batch.is_over
            if has_it and is_gone and job.batch_host == host.name and job.started_t < since[0]:
                self._end(job, "NODE_FAIL", "")
            elif not has_it and job.batch is not None and job.batch.host is host:
                job.batch.kill()
        for attempt in self.sim.attempts:
            known = self.jobs.get(attempt.job)
            for task in attempt.tasks:
                if task.host is host and (known is None or host.name not in known.nodes or known.state != "RUNNING"):
                    task.slurm_kills()
        for step in self.steps:
            if step.host is host and (step.job.state != "RUNNING" or host.name not in step.job.nodes):
                step.kill()
        self.kick()

    # --- the queue --------------------------------------------------------------------------------------------------

    def kick(self) -> None:
        """Something has changed: a scheduler pass comes."""
        if not self._tick_due:
            self._tick_due = True
            self.sim.clock.after(self.sim.rng.uniform(0.2, 1.5), self._schedule)

    def _schedule(self) -> None:
        self._tick_due = False
        if not self.answers:
            return
        for job in list(self.jobs.values()):
            if job.state == "PENDING" and self._may_start(job):
                names = [host.name for host in self.sim.nodes]
                free = [name for name in names if self._is_free(name) and name not in job.exclude]
                if len(free) >= job.nodes_wanted:
                    self._start(job, free[:job.nodes_wanted])
        now_t = self.sim.clock.t
        begins_t = [job.begin_t for job in self.jobs.values() if job.state == "PENDING" and job.begin_t > now_t]
        if begins_t:
            self.sim.clock.at(min(begins_t), self.kick)

    def _may_start(self, job: Job) -> bool:
        if job.held or job.begin_t > self.sim.clock.t:
            return False
        if self.waits_for(job):
            return False
        same = [other for other in self.jobs.values() if other.name == job.name and other is not job]
        return not job.singleton or not any(
            other.state == "RUNNING" or (other.state == "PENDING" and int(other.id) < int(job.id)) for other in same)

    def waits_for(self, job: Job) -> list[str]:
        """The jobs of its afterany that have not ended."""
        after = job.after.split(":") if job.after else []
        return [one for one in after if self.sim.before.has(one) or ((known := self.jobs.get(one)) and known.is_live)]

    def _is_free(self, node: str) -> bool:
        return node not in self.down and not any(
            node in job.nodes and (job.state == "RUNNING" or (job.state == "COMPLETING" and node in job.leaving))
            for job in self.jobs.values())

    def _start(self, job: Job, nodes: list[str]) -> None:
        job.state, job.nodes, job.batch_host, job.started_t = "RUNNING", nodes, nodes[0], self.sim.clock.t
        job.first_nodes = list(nodes)
        self.sim.trace("slurmctld", f"job {job.id} starts on {nodes}")
        self.sim.job_started(job)
        number = job.restarts
        self.sim.clock.after(job.limit_s - job.warn_s, lambda: self._warn(job, number))
        self.sim.clock.after(job.limit_s, lambda: self._limit(job, number))
        self.sim.clock.after(self.sim.rng.uniform(0.05, 0.5), lambda: self._launch(job, 0))

    def _launch(self, job: Job, tries: int) -> None:
        if job.state != "RUNNING" or job.batch is not None:
            return
        host = self.sim.hosts[job.batch_host]
        if self.reaches(host):
            job.batch = Batch(self.sim, host, job)
        elif tries < 6:
            self.sim.clock.after(10.0, lambda: self._launch(job, tries + 1))
        else:
            self.down[host.name] = "batch job launch failure"
            self._requeue(job)

    def _requeue(self, job: Job) -> None:
        self._free_steps(job)
        self.sim.job_ended(job)
        self._back_in_the_queue(job)

    def requeue(self, job: Job) -> None:
        """scontrol requeue of a running job, or of one that ends already: it waits once nothing of it is left."""
        is_running = job.state == "RUNNING"
        job.is_requeued = True
        if is_running:
            self._end(job, "REQUEUED", "DUE TO JOB REQUEUE")

    def _back_in_the_queue(self, job: Job) -> None:
        self.sim.trace("slurmctld", f"job {job.id} is back in the queue")
        job.state, job.nodes, job.batch, job.is_requeued, job.end = "PENDING", [], None, False, ""
        # Slurm's own wait overwrites a StartTime of now, and keeps one that is still to come (measured).
        now_t = self.sim.clock.t
        job.begin_t = job.start_t if job.start_t > now_t else now_t + REQUEUE_WAIT_S
        job.restarts += 1
        self.kick()

    # --- ends -------------------------------------------------------------------------------------------------------

    def _warn(self, job: Job, number: int) -> None:
        if job.state == "RUNNING" and job.restarts == number and job.batch is not None:
            job.batch.usr2()

    def _limit(self, job: Job, number: int) -> None:
        if job.state == "RUNNING" and job.restarts == number:
            if not self.answers:
                self.sim.clock.after(5.0, lambda: self._limit(job, number))
                return
            self._end(job, "TIMEOUT", "DUE TO TIME LIMIT")

    def preempt(self, job: Job) -> None:
        """A job of a higher tier needs the nodes."""
        if job.state == "RUNNING":
            self._end(job, "PREEMPTED", "DUE TO PREEMPTION")

    def cancel(self, job: Job, by: str) -> None:
        """scancel."""
        if job.state == "PENDING":
            job.state, job.end, job.ended_t, job.by = "CANCELLED", "CANCELLED", self.sim.clock.t, by
            self._forget_later(job)
            self.kick()
        elif job.is_requeued:   # it hangs at its end, and will not come back
            job.is_requeued, job.end, job.by = False, "CANCELLED", by
        elif job.state == "RUNNING":
            job.by = by
            self._end(job, "CANCELLED", "")

    def script_ended(self, job: Job, batch: Batch, code: int) -> None:
        """The batch script has ended by itself. Slurm drops the word of a host that is no longer the job's ("Batch
        completion … sent from wrong node", slurmctld/proc_req.c; seed 88009711).
        """
        if job.state == "RUNNING" and batch is job.batch:
            job.end = "COMPLETED" if code == 0 else "FAILED"
            self._complete(job)

    def _end(self, job: Job, end: str, due: str) -> None:
        """slurmstepd writes its line, then TERM; KILL after KillWait."""
        job.end = end
        line = render_end(self.sim.scenario.words, f"JOB {job.id}", job.batch_host, due)
        host = self.sim.hosts[job.batch_host]
        if job.batch is not None and not job.batch.is_over and self.reaches(host):
            host.mount.append(self.sim.run_dir, f"slurm-{job.id}.out", line)
            batch = job.batch
            self.sim.clock.after(0.02, batch.term)
        self._end_steps(job, line, KILL_WAIT_S)
        batch_left = job.batch is not None and not job.batch.is_over
        job.state = "COMPLETING"
        job.leaving = set(job.nodes)
        self.sim.job_ended(job)
        self._epilogs(job, KILL_WAIT_S if batch_left else 2.0)

    def _complete(self, job: Job) -> None:
        job.state = "COMPLETING"
        job.leaving = set(job.nodes)
        self._free_steps(job)
        self.sim.job_ended(job)
        self._epilogs(job, 1.0)

    def _free_steps(self, job: Job) -> None:
        self._end_steps(job, "", 2.0)

    def _end_steps(self, job: Job, line: str, kill_after_s: float) -> None:
        for attempt in self.sim.attempts:
            if attempt.job == job.id:
                for task in attempt.tasks:
                    task.slurm_ends(kill_after_s)
        for step in self.steps:
            if step.job is job and not step.is_over:
                step.slurm_ends(line, kill_after_s)

    def _epilogs(self, job: Job, kill_after_s: float) -> None:
        """Each node reports once nothing of the job is left there; a silent one holds the job in COMPLETING."""
        def look(left_s: float) -> None:
            if job.state != "COMPLETING":
                return
            is_over = job.batch is None or job.batch.is_over
            if not is_over and left_s <= 0 and job.batch is not None and self.reaches(self.sim.hosts[job.batch_host]):
                job.batch.kill()
            for node in sorted(job.leaving):
                host = self.sim.hosts[node]
                if self.reaches(host) and self.answers and not self._is_busy(job, host):
                    job.leaving.discard(node)
                    self.kick()
            if job.leaving:
                self.sim.clock.after(1.0, lambda: look(left_s - 1.0))
            else:
                self._finished(job)
        self.sim.clock.after(0.3, lambda: look(kill_after_s))

    def _is_busy(self, job: Job, host: Host) -> bool:
        if host.name == job.batch_host and job.batch is not None and not job.batch.is_over:
            return True
        if any(step.job is job and step.host is host and not step.is_over for step in self.steps):
            return True
        return any(task.host is host and task.rank in ("loading", "training")
                   for attempt in self.sim.attempts if attempt.job == job.id for task in attempt.tasks)

    def _finished(self, job: Job) -> None:
        if job.is_requeued:
            self._back_in_the_queue(job)
            return
        job.state, job.ended_t = job.end or "FAILED", self.sim.clock.t
        self.sim.trace("slurmctld", f"job {job.id} has ended: {job.state}")
        self._forget_later(job)
        self.kick()

    def _forget_later(self, job: Job) -> None:
        def forget() -> None:
            self.jobs.pop(job.id, None)
        self.sim.clock.after(MIN_JOB_AGE_S * self.sim.rng.uniform(1.0, 1.2), forget)

    # --- steps ------------------------------------------------------------------------------------------------------

    def refuses_step(self, host: Host, job: str, nodes: Sequence[str]) -> str | None:
        """Why slurmctld creates no step for an attempt; None = it does."""
        if not self.answers or not self.sim.net.is_up(host, self.sim.controller):
            return f"Unable to create step for job {job}: Unable to contact slurm controller (connect failure)"
        known = self.jobs.get(job)
        if known is None or known.state != "RUNNING":
            return f"Unable to create step for job {job}: Job/step already completing or completed"
        if any(node in self.down or node not in known.nodes for node in nodes):
            return f"Unable to create step for job {job}: Required node not available (down, drained or reserved)"
        return None
