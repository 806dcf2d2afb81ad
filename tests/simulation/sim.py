"""One simulated run: hosts, network, folder and Slurm put together; what happens is noted for the invariants."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from safelaunch.node.guard.fence import is_to_be_cancelled
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.run.io import journal
from tests.simulation import faults, setting
from tests.simulation.before import Before
from tests.simulation.clients import Client, make_server
from tests.simulation.clock import Clock, Spinning
from tests.simulation.folder import Mount
from tests.simulation.guards import Task
from tests.simulation.hosts import Host
from tests.simulation.invariants import check, goes_on_only_by_progress
from tests.simulation.net import Net
from tests.simulation.person import Person, answer
from tests.simulation.process import EPOCH_T, Actor, Supervisor, Watching
from tests.simulation.resizing import Conversions
from tests.simulation.scenario import Scenario
from tests.simulation.slurm import REQUEUE_WAIT_S, Job
from tests.simulation.slurmcommands import Slurm
from tests.simulation.training import Attempt

if TYPE_CHECKING:
    from tests.simulation.batch import Batch

LOOK_EVERY_S = 5.0
WATCH_S = 3600.0      # ... for as long as a watch may take to find that nothing is left of a run
RELAX_S = 900.0       # a watch finds a job that its own exclusions keep back within two looks
TROUBLE_S = 15.0      # after a fault its consequences are no false alarm for so long
LIMBO_S = 90.0        # ... for one whose batch host died: its next job asks for 60 s what has become of it
BOTH_S = 20.0         # ... for a job that nothing keeps back, and the one that has submitted it
MAX_JOBS = 30         # of a run; those with the most bad luck need ten
QUIET_S = 20.0        # after the run's end: does anything still start?
ANSWER_S = 900.0      # for a person to hear that the run is on hold by safelaunch, and to look up why


@dataclass
class Outcome:
    """How a simulated run went."""

    scenario: Scenario
    how: str = ""
    violations: list[str] = field(default_factory=list)
    virtual_s: float = 0.0
    events: int = 0
    calls: int = 0
    attempts: int = 0
    jobs: int = 0
    timeline: list[str] = field(default_factory=list)
    outside_calls: list[str] = field(default_factory=list)
    launched_t: list[float] = field(default_factory=list)
    ended_t: float | None = None        # when the journal says that the run ended
    saved: list[int] = field(default_factory=list)   # the steps of whole checkpoints
    told: list[str] = field(default_factory=list)    # words of notify.when that people were told
    sizes: list[int] = field(default_factory=list)   # nodes of each attempt; 0: it has run before_resize


class Sim:
    """The whole world of one run."""

    def __init__(self, scenario: Scenario, folder: Path, is_verbose: bool = False, until: str | None = None) -> None:
        self.scenario, self.folder, self.until = scenario, folder, until
        self.rng = random.Random(f"run {scenario.seed}")
        self.told: list[str] = []   # what messages to people have told
        self.busy_until_t = 0.0          # no step of an attempt starts before
        self.still_sees: frozenset[str] = frozenset()   # hosts that find the run folder, which others do not
        self.left: list[tuple[float, str]] = []   # lines where sbatch's output would lie: the run folder is gone
        self.clock = Clock()
        self.net = Net(self.clock, random.Random(f"net {scenario.seed}"), scenario.net_latency_s)
        self.work_dir = folder / "work"
        self.checkpoints = self.work_dir / "ckpt"
        self.run_dir = folder / "run"
        make_server(folder)
        names = ["ctl", "login", *(f"n{index}" for index in range(scenario.pool))]
        self.hosts = {name: self._host(name) for name in names}
        self.nodes = [self.hosts[name] for name in names[2:]]
        self.controller = self.hosts["ctl"]
        self.attempts: list[Attempt] = []
        self.supervisors: list[Supervisor] = []
        self.watchers: list[Watching] = []
        self.violations: list[str] = []
        self.timeline: list[str] = []
        self.is_verbose = is_verbose
        self.writing: dict[Attempt, set[Task]] = {}   # by launch: two can bear one number
        self.said: list[tuple[float, str]] = []          # what people asked for
        self.cancelled_late = False      # a person cancelled a job whose script had ended: it may count, or not
        self.people: list[Person] = []
        self.holds: list[list[float]] = []               # from when on nothing new is to start; and until when
        self._answer_t = 0.0             # when a person says what only people know
        self.all_jobs: list[Job] = []
        self.launches: list[tuple[float, Attempt, Supervisor]] = []
        self.takeovers: list[tuple[float, Supervisor]] = []
        self.resumes: list[tuple[float, Attempt, int]] = []   # attempts, and the newest whole checkpoint then
        self.saves: list[tuple[float, int]] = []
        self.truncated: set[int] = set()
        self.truncate_step: int | None = None
        self.corrupt: set[int] = set()   # steps of checkpoints that look whole, and cannot be loaded
        self.bug_step: int | None = None
        self.is_forgetful = False        # the training does not load what it is told to
        self.dies_at = (0, "")
        self.bad: set[int] = set()       # steps of checkpoints whose weights are no numbers
        self.had_nan = False
        self.benched: list[tuple[str, ...]] = []   # nodes of each round of measurements
        self.failed_checks: set[str] = set()   # nodes that have failed one
        self.dead_gpus: set[str] = set()       # nodes that have lost one
        self.conversions = Conversions(self)
        self.before = Before(self)
        self.slurm = Slurm(self)
        self.is_plain = False
        self.outside_calls: list[str] = []
        self._ended_t: float | None = None

    def _host(self, name: str) -> Host:
        host = Host(self.clock, name, self.folder / "disks" / name, self.rng.uniform(0.0, 1e6))
        host.wall_offset_s = self.rng.uniform(-0.5, 0.5)
        client = Client(self.clock, random.Random(f"client {self.scenario.seed} {name}"), self.folder, name,
                        self.scenario.fs_late_s)
        host.mount = Mount(self.clock, self.rng, self.scenario.fs_latency_s, client)
        host.mount.is_running = lambda: host.is_running
        return host

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Let it all happen."""
        self.plan = setting.make_run(self)
        first = self.slurm.submit(self.run_dir / "job.sbatch", {"--dependency": self.before.begin()})
        setting.write_submitted(self, first.id)
        for fault in self.scenario.faults:
            self.clock.at(fault.t, partial(faults.inject, self, fault))
        for _ in range(self.scenario.watchers):
            self.clock.after(self.rng.uniform(0.0, 60.0), self.start_watch)
        self.clock.after(LOOK_EVERY_S, self._look)
        try:
            self.clock.run(self.bound_t)
            if self._answer_t:
                self.clock.run(self._answer_t + self.bound_t - self.scenario.faults_end_t)
        except Spinning as error:
            self.violations.append(f"time stands still: {error}")
        state = self.state()
        if not self.is_plain:
            check(self, state)
        outcome = Outcome(self.scenario, state.ended.how if state.ended else f"({state.name})", self.violations,
                          self.clock.t, self.clock.events, len(self.slurm.calls), len(self.attempts),
                          len(self.all_jobs), self.timeline, self.outside_calls, [t for t, _, _ in self.launches],
                          state.ended.t - EPOCH_T if state.ended else None, [step for _, step in self.saves],
                          self.told)
        outcome.sizes = [0 if one.resize is not None else len(one.nodes) for one in self.attempts]
        for actor in (*self.supervisors, *self.watchers, *self.people):
            actor.process.kill()
        return outcome

    def types(self, verb: Callable[[Person], object]) -> None:
        """Somebody types a verb of safelaunch at a login node."""
        person = Person(self, self.hosts["login"], verb)
        self.hosts["login"].processes.append(person.process)
        self.people.append(person)

    def start_watch(self) -> None:
        """Somebody types `safelaunch watch`."""
        watch = Watching(self, self.hosts["login"], "watch")
        self.hosts["login"].processes.append(watch.process)
        self.watchers.append(watch)

    @property
    def bound_t(self) -> float:
        """When a run must have ended: after the faults, what is left takes a few jobs' time at most."""
        scenario = self.scenario
        training_s = scenario.steps * (scenario.step_s + scenario.save_s / scenario.save_every)
        jobs_s = 4 * scenario.limit_min * 60.0
        waits_s = 1800.0 + self.before.longest_s + 2 * scenario.preserve_s + 4 * REQUEUE_WAIT_S
        return scenario.faults_end_t + jobs_s + 4 * training_s + 2 * scenario.slurmd_timeout_s + waits_s

    def _look(self) -> None:
        """Over once the run has ended, no job is left, and nothing starts any more."""
        self._look_for_hold()
        quiet = not any(job.is_live for job in self.all_jobs) and self.clock.t >= max(
            min(self.scenario.faults_end_t, 400.0), self._answer_t)
        if not quiet:
            self._ended_t = None
        elif self._ended_t is None:
            self._ended_t = self.clock.t
        elif self.clock.t - self._ended_t > QUIET_S:
            waits_for_watch = bool(self.watchers) and self.clock.t - self._ended_t < WATCH_S
            self.clock.is_over = not waits_for_watch or self.state().ended is not None
        self.clock.after(LOOK_EVERY_S, self._look)

    def _look_for_hold(self) -> None:
        """Where safelaunch itself has put the run on hold, there is a note in the file."""
        hold = self.run_dir / "control" / "hold"
        if not self._answer_t and hold.exists() and hold.stat().st_size:
            self._answer_t = self.clock.t + ANSWER_S
            self.clock.at(self._answer_t, lambda: self.types(answer))

    def state(self) -> State:
        """The fold of the journal as it lies in the run folder."""
        return fold(journal.read(self.run_dir).events)

    def wall_t(self) -> float:
        """The time of day."""
        return EPOCH_T + self.clock.t

    def server_t(self) -> float:
        """The time of day of the file server."""
        return self.wall_t() + self.scenario.fs_clock_s

    def trace(self, where: str, text: str) -> None:
        """A line of the timeline, for people."""
        if self.is_verbose:
            self.timeline.append(f"{self.clock.t:9.3f} {where:10s} {text}")

    def violate(self, text: str) -> None:
        """Note a broken invariant."""
        line = f"{self.clock.t:.1f} s: {text}"
        if len(self.violations) < 20:
            self.violations.append(line)
        if self.until is not None and self.until in line:
            self.clock.is_over = True
        self.trace("VIOLATION", text)

    # --- who is who -------------------------------------------------------------------------------------------------

    def host_at(self, name: str) -> Host:
        """The host of a name or address."""
        return self.hosts[name]

    def live_job(self) -> Job | None:
        """The running job."""
        return next((job for job in self.slurm.jobs.values() if job.state == "RUNNING"), None)

    def live_attempt(self) -> Attempt | None:
        """The newest attempt, while a rank of it lives."""
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and any(task.rank in ("loading", "training") for task in last.tasks) else None

    def live_leader(self) -> Supervisor | None:
        """Who leads now."""
        return next((one for one in reversed(self.supervisors) if one.is_leading and not one.process.dead), None)

    # --- what happens -----------------------------------------------------------------------------------------------

    def job_submitted(self, job: Job) -> None:
        """A job is in."""
        self.all_jobs.append(job)
        self.trace("slurmctld", f"job {job.id} is in: after {job.after} singleton {job.singleton} "
                                f"exclude {sorted(job.exclude)}")
        self._count_pending()
        self.excluded(job)
        if len(self.all_jobs) > MAX_JOBS:
            self.violate(f"the run goes from job to job: {MAX_JOBS} of them, with {len(self.attempts)} attempts")
            self.clock.is_over = True

    def excluded(self, job: Job) -> None:
        """A pending job's exclusions are set: it must not wait for them for ever, nor until a person comes."""
        if len(self.nodes) - len(job.exclude) >= job.nodes_wanted:
            return
        exclude = job.exclude

        def look() -> None:
            if job.state == "PENDING" and job.exclude == exclude:
                self.violate(f"job {job.id} must not use {sorted(exclude)}, and waits for ever")
        self.clock.after(RELAX_S, look)

    def _count_pending(self) -> None:
        if sum(job.state == "PENDING" for job in self.all_jobs) > 2:
            self.violate("more than two jobs of this run are pending")

    def job_started(self, job: Job) -> None:
        """A job runs: no other may. Where no dependency keeps it back (restart.via: resubmit), the one before may be
        about to end, with nothing of an attempt left in it.
        """
        goes_on_only_by_progress(self)
        others = [other for other in self.all_jobs if other is not job and other.state == "RUNNING"]
        if not others:
            return
        names = [other.id for other in others]
        training = any(task.rank in ("loading", "training") and not task.is_doomed for attempt in self.attempts
                       for task in attempt.tasks if attempt.job in names)
        if job.singleton or training:
            self.violate(f"job {job.id} starts while {names} run")

        in_limbo = any(other.batch_host not in other.nodes for other in others)
        patience_s = LIMBO_S if in_limbo else BOTH_S
        # A supervisor without ranks writes its last lines once the folder takes them (seeds 87012751, 87035658).
        patience_s += sum(
            fault.length_s for fault in self.scenario.faults if fault.kind in ("away", "freeze", "refuses")
            and fault.t <= self.clock.t + BOTH_S and self.clock.t < fault.end_t)

        def look() -> None:
            if any(other.state == "RUNNING" for other in others):
                self.violate(f"jobs {names} still run {patience_s:.0f} s after job {job.id} has started")
        self.clock.after(patience_s, look)

    def job_ended(self, job: Job) -> None:
        """A job ends."""
        self.trace("slurmctld", f"job {job.id} ends: {job.end or 'requeued'}")

    def launched(self, attempt: Attempt, by: Supervisor) -> None:
        """An attempt is launched."""
        self.launches.append((self.clock.t, attempt, by))
        self.before.launched(attempt)
        self.trace(by.host.name, f"attempt {attempt.number} on {[node.name for node in attempt.nodes]} from step "
                                 f"{attempt.told_step}")
        same = [other for other in self.attempts if other is not attempt and other.number == attempt.number]
        if same:
            self.violate(f"attempt {attempt.number} is launched twice")
        self.resumes.append((self.clock.t, attempt, max((step for _, step in self.saves), default=0)))
        if attempt.told_step in self.bad and not self.scenario.faults:
            self.violate(f"attempt {attempt.number} starts from weights that are no numbers ({attempt.told_step})")
        self.conversions.launched(attempt)
        if attempt.told_step in self.truncated:
            self.violate(f"attempt {attempt.number} starts from a truncated checkpoint ({attempt.told_step})")

    def load(self, task: Task) -> None:
        """A rank has loaded; where the user's code has a bug it dies a step later."""
        if task.attempt.resize is not None:
            self.conversions.begins(task)
            return
        if task.attempt.first_step in self.corrupt and task.index == 0:
            task.attempt.lines += ["[rank0]: Traceback (most recent call last):", "[rank0]: ValueError: bad checkpoint"]
            self.clock.after(0.2, lambda: task.rank_ends(1, None))
        if self.bug_step is not None and task.index == 0:
            self._fails_at(task, self.bug_step, "ValueError: a bug")
        if task.host.name == self.scenario.bad_node:
            self._fails_at(task, self.scenario.bad_step, "OSError: [Errno 5] Input/output error: '/local/data'")

    def _fails_at(self, task: Task, step: int, error: str) -> None:
        attempt, place = task.attempt, f"[{task.host.name}:{task.index}]:"

        def fail() -> None:
            if task.is_training:
                attempt.lines += [f"{place}Traceback (most recent call last):", f"{place}{error}"]
                task.rank_ends(1, None)
        self.clock.after(max(0.0, step - attempt.first_step) * self.scenario.step_s + 0.1, fail)

    def writes(self, task: Task) -> None:
        """A rank began or ceased to be able to write: never two attempts at once."""
        mine = self.writing.setdefault(task.attempt, set())
        if not task.is_writing:
            mine.discard(task)
            return
        mine.add(task)
        for other, known in self.writing.items():
            tasks = {one for one in known if not one.is_doomed}
            if other is not task.attempt and tasks:
                names = sorted({one.host.name for one in tasks})
                self.violate(f"attempts {other.number} and {task.attempt.number} write at once, on {names} and "
                             f"{task.host.name}")

    def saved(self, attempt: Attempt, step: int) -> None:
        """A checkpoint is whole."""
        self.truncated.discard(step)
        self.saves.append((self.clock.t, step))
        self.conversions.saves(step, len(attempt.nodes))
        self.trace("training", f"attempt {attempt.number} has saved step {step}")

    def overwrites(self, step: int) -> None:
        """A checkpoint of this step is written once more, in its place: until that is done there is none."""
        self.saves = [(t, saved) for t, saved in self.saves if saved != step]

    def truncate_next(self) -> None:
        """The next checkpoint will look written, and be empty."""
        attempt = self.live_attempt()
        if attempt is not None:
            goal = attempt._saved + self.scenario.save_every
            if goal < self.scenario.steps:
                self.truncate_step = goal

    def ranks_changed(self) -> None:
        """The network has changed under the ranks."""
        for attempt in self.attempts:
            if any(task.rank == "training" for task in attempt.tasks):
                attempt.update()

    def child_ended(self, host: Host) -> None:
        """srun has ended: SIGCHLD for its leader."""
        for supervisor in self.supervisors:
            if supervisor.host is host:
                supervisor.child_ended()

    def kill_leader(self, leader: Supervisor) -> None:
        """kill -9 of the leader; the batch shell starts another."""
        self.kill_actor(leader)

    def kill_actor(self, actor: Actor) -> None:
        """kill -9 of a process of ours."""
        if not actor.process.dead:
            actor.kill()
            self.bury(actor)

    def bury(self, actor: Actor) -> None:
        """A process is dead: the kernel closes its sockets, and its shell starts another."""
        self.trace(actor.host.name, f"{actor.process.name} is killed")
        actor.close()
        if isinstance(actor, Supervisor):
            actor.shell.died_alone()
        elif actor.host.is_running:
            self.clock.after(60.0, self.start_watch)

    def guard_kills(self, task: Task, why: str) -> None:
        """A guard ends its ranks by itself: only after its lease, and never while it can read that they may go on."""
        is_read = "unreadable" not in why
        if is_read and json.loads(Path(task.attempt.env["SAFELAUNCH_RECORD"]).read_bytes())["state"] == "live":
            self.violate(f"the guard on {task.host.name} ends ranks whose record is live: {why}")
        lease_s = float(task.attempt.env.get("SAFELAUNCH_LEASE_S", "10"))
        if task.looked_after_s <= lease_s:
            self.violate(f"the guard on {task.host.name} ends ranks after {task.looked_after_s:.1f} s of silence; its "
                         f"lease is {lease_s:.0f} s")

    def guard_cancels(self, host: Host, job: str) -> None:
        """A guard's scancel of a job that nobody leads, where squeue says that Slurm goes on running it."""
        known = self.slurm.jobs.get(job)
        answers = known is not None and self.slurm.answers and self.slurm.reaches(host)
        said = known.state.encode() if known is not None and answers else b""
        leader = self.live_leader()
        if leader is not None and leader.shell.job is known and self._is_well(leader, host):
            self.violate(f"a guard cancels job {job} as orphaned, which {leader.host.name} leads")
        if known is not None and is_to_be_cancelled(0 if answers else 1, said) and answers:
            word = self.run_dir / "control" / f"orphaned-{job}"
            word.touch()
            host.mount.client.changed(word)
            self.slurm.cancel(known, "guard")

    def _is_well(self, leader: Supervisor, *others: Host) -> bool:
        """It runs, and nothing has been wrong with its host and these for a while."""
        quiet_t = max(leader.born_t, leader.led_t, *(host.troubled_t for host in (leader.host, *others)))
        return leader.process.last_t > self.clock.t - 3.0 and quiet_t < self.clock.t - TROUBLE_S

    def took_over(self, standby: Supervisor) -> None:
        """A standby takes over."""
        self.takeovers.append((self.clock.t, standby))
        now_t = self.clock.t
        try:
            has_resigned = bool(json.loads((self.run_dir / "pulse.json").read_bytes()).get("alone"))
        except (OSError, ValueError):
            has_resigned = False
        if self.scenario.at_calls or has_resigned:
            return
        for other in self.supervisors:
            lead, is_awake = other.lead_object, not other.process.dead and other.process.last_t > now_t - 3.0
            is_well = max(other.born_t, other.host.troubled_t) < now_t - TROUBLE_S and other.led_t < now_t - 5.0
            leads = lead is not None and lead.course.final is None and not lead.reach.alone and not lead.reach.resigned
            if other is not standby and is_awake and is_well and leads:
                self.violate(f"false takeover: {standby.host.name} from {other.host.name}, which is well")

    def a_person_says(self, word: str) -> None:
        """Somebody touches a control file, or cancels."""
        self.said.append((self.clock.t, word))
        self.trace("person", word)

    def crashed(self, who: str, error: str) -> None:
        """A process of ours died of an exception."""
        self.violate(f"a {who} died of an exception: {error.strip().splitlines()[-1]}\n{error}")

    def unsupervised(self, batch: Batch, why: str) -> None:
        """Law 1: where no supervisor can start, the training runs as under plain sbatch; nothing more is judged."""
        self.trace(batch.host.name, f"job {batch.job.id} trains unsupervised: {why}")
        if not why.startswith("its library"):
            self.violate(f"job {batch.job.id} trains unsupervised: {why}")
        self.is_plain = self.clock.is_over = True

    def outside(self, actor: Actor, what: str) -> None:
        """A process is about to act on the outside: here a scenario can let something go wrong."""
        self.outside_calls.append(what)
        number = len(self.outside_calls)
        for call, kind in (*self.scenario.at_calls, self.dies_at):
            if call == number:
                self.trace("fault", f"{kind} at outside call {number}: {what}")
                faults.inject_at(self, actor, kind)

    def remove(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self.folder, ignore_errors=True)
