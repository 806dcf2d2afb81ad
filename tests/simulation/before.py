"""Another run, for whose end the simulated one waits: its jobs and its journal, by a script instead of a supervisor."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from safelaunch.decide.facts.after import ABSENT_S
from safelaunch.launch.settings import AfterRun
from safelaunch.run.fold.state import State
from safelaunch.run.io import journal
from safelaunch.slurm import slurmtext

if TYPE_CHECKING:
    from tests.simulation.sim import Sim
    from tests.simulation.training import Attempt

JOBS = ("90001", "90002")
SECOND_S = 90.0        # how long its second job takes
RETURNS_S = 40.0       # ... and how long after the first one's end it comes, at most: less than ABSENT_S
SEEN_S = 240.0         # from its end without a good one to the end of the run that waits, where nothing goes wrong
WORDS = {"completes": "completed", "gives_up": "gave_up", "is_stopped": "stopped"}


class Before:
    """The run before. `over_t`: since when nothing of it trains, or ever will."""

    def __init__(self, sim: Sim) -> None:
        self._sim, self._how = sim, sim.scenario.before
        self._run_dir = sim.folder / "before"
        self._jobs: set[str] = set()
        self.over_t: float | None = None
        self._run = AfterRun("before", str(self._run_dir), "before.1", sim.scenario.before_any)

    @property
    def longest_s(self) -> float:
        """Until it is over, and that is certain."""
        more_s = SECOND_S + RETURNS_S + ABSENT_S + self._sim.scenario.faults_end_t
        return self._sim.scenario.before_s + more_s if self._how else 0.0

    @property
    def is_hopeless(self) -> bool:
        """It will not end as it should."""
        return self._how in ("gives_up", "is_stopped", "vanishes") and not self._run.is_any

    def add_to(self, meta: str) -> str:
        """run.json of the run that waits."""
        if not self._how:
            return meta
        raw = json.loads(meta)
        raw["config"]["after"] = [self._run._asdict()]
        self._make({**raw, "run_id": "1", "name": "before", "config": {**raw["config"], "name": "before", "after": []}})
        return json.dumps(raw)

    def _make(self, meta: object) -> None:
        server = self._sim.folder / "server" / "before"
        (server / "journal").mkdir(parents=True)
        (server / "run.json").write_text(json.dumps(meta))

    def begin(self) -> str:
        """Its first job runs; what the first job of the other waits for."""
        if not self._how:
            return "singleton"
        self._jobs.add(JOBS[0])
        self._write("submitted", job=JOBS[0])
        self._sim.clock.at(self._sim.scenario.before_s, self._first_ends)
        return f"afterany:{JOBS[0]},singleton"

    def _first_ends(self) -> None:
        clock = self._sim.clock
        if self._how in WORDS:
            self._ends(WORDS[self._how])
        elif self._how == "vanishes":
            self._jobs.clear()
            self.over_t = clock.t
            self._sim.slurm.kick()
        elif self._how == "returns":
            self._jobs.clear()
            self._sim.slurm.kick()
            clock.after(self._sim.rng.uniform(1.0, RETURNS_S), self._goes_on)
        else:
            if self._how == "moves":
                for job in self._sim.all_jobs:   # as supervisor/following does it
                    if job.state == "PENDING" and job.after is not None and JOBS[0] in job.after.split(":"):
                        job.after += f":{JOBS[1]}"
            self._goes_on()

    def _goes_on(self) -> None:
        self._jobs.clear()
        self._jobs.add(JOBS[1])
        self._write("submitted", job=JOBS[1])
        self._sim.slurm.kick()
        self._sim.clock.after(SECOND_S, lambda: self._ends("completed"))

    def _ends(self, word: str) -> None:
        """Its leader writes the end down, and its job ends then."""
        def end() -> None:
            self._write(word, why="as it is told")
            self._jobs.clear()
            self.over_t = self._sim.clock.t
            self._sim.slurm.kick()
        self._sim.controller.mount.when_thawed(end)

    def _write(self, event: str, **data: object) -> None:
        """By a writer of its own for each job: a new name in the journal."""
        pid = max(map(int, self._jobs), default=1)
        writer = journal.Writer(journal.Direct(self._sim.folder / "server" / "before"), pid - 90_000, "ctl",
                                self._sim.wall_t, pid)
        writer.write(writer.event(event, **data))

    # --- what others see of it --------------------------------------------------------------------------------------

    def has(self, job: str) -> bool:
        """Whether this is a job of it that has not ended."""
        return job in self._jobs

    def lines(self, names: str) -> list[str]:
        """squeue's, where its name is asked for."""
        if self._run.job_name not in names.split(","):
            return []
        row = slurmtext.SQUEUE_FORMAT.count("|")
        return ["|".join((job, "RUNNING", "u", self._run.job_name, "None", "n9")[:row + 1]) + "\n"
                for job in sorted(self._jobs)]

    # --- what must hold ---------------------------------------------------------------------------------------------

    def launched(self, attempt: Attempt) -> None:
        """Nothing trains before its end, or after one that is none to wait for."""
        if not self._how:
            return
        if self.over_t is None:
            self._sim.violate(f"attempt {attempt.number} starts before the end of the run that it waits for")
        elif self.is_hopeless:
            self._sim.violate(f"attempt {attempt.number} starts, and the run before it has not ended well")

    def check(self, state: State) -> None:
        """Nothing waits for what cannot come any more; nothing gives up that may start."""
        if not self._how or state.ended is None or self._sim.said:
            return
        said = "whose good end it waits" in state.ended.why
        if self.is_hopeless and not said:
            self._sim.violate(f"the run before has not ended well, and this one: {state.ended.how} ({state.ended.why})")
        if said and not self.is_hopeless:
            self._sim.violate(f"the run gives up ({state.ended.why}), and the one before it: {self._how}")
        quick = not self._sim.scenario.faults and not self._sim.scenario.fs_late_s and self._sim.scenario.site == ""
        if said and quick and self.over_t is not None and state.ended.t - self._sim.wall_t() + self._sim.clock.t - (
                self.over_t) > SEEN_S:
            self._sim.violate(f"the run waits on after {self.over_t:.0f} s, when its condition could no more hold")
