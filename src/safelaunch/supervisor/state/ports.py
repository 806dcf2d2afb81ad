"""What a leader does outside, for the courses that may do it: questions to the run folder, lines that people read."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from safelaunch.base.io import owners
from safelaunch.base.io.localtime import clock as time_of_day
from safelaunch.base.io.probe import ChildAnswer
from safelaunch.base.plaintext import clean
from safelaunch.base.secretmask import mask
from safelaunch.base.timing import PATIENT_S
from safelaunch.guard.io.job import Allocation
from safelaunch.run.io import runfolder
from safelaunch.run.io.outbox import APPEND, PUT
from safelaunch.run.plan import Plan
from safelaunch.script.laterjobs import in_partition
from safelaunch.supervisor.io.world import World
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.folder import PATIENCE, FolderState
from safelaunch.supervisor.state.journal import LeaderJournal

T = TypeVar("T")


class TookOver(NamedTuple):
    """Who led this job before (host), when it was last heard (monotonic seconds of this node), and the other standbys.
    """

    host: str
    heard_s: float
    eligible: tuple[str, ...] = ()


class Here:
    """Where this leader runs, for which run, and as whom."""

    plan: Plan

    def __init__(self, run_dir: Path, local: Path, job: Allocation, world: World, took_over: TookOver | None) -> None:
        self.run_dir, self.local, self.job, self.world = run_dir, local, job, world
        self.took_over = took_over   # nothing else ends the job where this process was its standby
        self.user = owners.name_of(os.geteuid())

    def follow(self, plan: Plan) -> None:
        """The run's plan is known by now. It has the partition of this job, which may have been changed."""
        self.plan = plan._replace(sbatch=in_partition(plan.sbatch, self.job.env.get("SLURM_JOB_PARTITION", "")))


class Say:
    """`say(text)`: a line in the job's output; `say.decision`: one that the journal has, too."""

    def __init__(self, job: Allocation, clock: Clock, folder: FolderState, journal: LeaderJournal,
                 leave: Callable[[str, str], object]) -> None:
        self._job, self._clock, self._folder, self._journal, self._leave = job, clock, folder, journal, leave
        self._name = "job.out" if job.is_local else f"slurm-{job.id}.out"

    def __call__(self, text: str) -> None:
        """Write the line."""
        # One line: a name with a line end could imitate slurmstepd's messages, which are read here.
        line = f"safelaunch {time_of_day(self._clock.now)} {self._job.host}: {clean(text)}\n"
        if self._folder.gone is not None:
            self.there(line)
        else:
            self._folder.shared.enqueue(APPEND, self._name, line.encode())

    def decision(self, row: str, text: str, **more: Any) -> None:
        """Journal a decision, and say it."""
        self._journal.record(self._journal.event("decision", row=row, why=text, **more))
        self(text)

    def there(self, lines: str) -> None:
        """Lines in the folder of the submission, where sbatch's own output would lie: the run folder is gone."""
        self._leave(f"{self._job.cwd}/{self._name}", lines)


class FolderPort:
    """Questions to the run folder, which may be frozen, and files for it. A question never makes a standby suspect this
    leader: pings go before it, and a long wait listens and pings itself.
    """

    def __init__(self, run_dir: Path, clock: Clock, state: FolderState, ping: Callable[[], None],
                 pause: Callable[[], None], say: Say) -> None:
        self._root, self._clock, self.state, self._ping, self._say = str(run_dir), clock, state, ping, say
        self._pause = pause   # for a second, with the guards served

    def ask_patiently(self, ask: Callable[[], T]) -> Any:
        """The answer, however long the folder is frozen; the guards are served meanwhile."""
        refusals = 0   # not seconds: this process may stand still meanwhile
        while True:
            answer = self.ask_anyway(ask, PATIENT_S)
            if answer.is_ok:
                self.state.note_answer()   # the next question is worth its wait
                return answer.value
            self._pause()
            refusals += not answer.late
            if answer.error and (answer.errno == errno.ENOENT or refusals > PATIENCE):
                raise OSError(f"the run folder: {answer.error}")

    def ask(self, ask: Callable[[], T], deadline_s: float) -> ChildAnswer[T]:
        """The answer of a shared folder; late at once where one was late in this tick.

        Two such waits must not follow each other: on a stopped FUSE server that took 3.1 s without a ping (measured).
        """
        if self.state.was_late(self._clock.now_s):
            return ChildAnswer(late=True)
        answer = self.ask_anyway(ask, deadline_s)
        if answer.late:
            self.state.mark_late(self._clock.now_s)
        return answer

    def ask_anyway(self, ask: Callable[[], T], deadline_s: float) -> ChildAnswer[T]:
        """The same, even if another answer was late in this tick."""
        self._ping()
        return self.state.shared.ask(ask, deadline_s)

    def publish(self, name: str, content: bytes, deadline_s: float) -> bool | None:
        """Whether a file that only one process can publish is this one's; None = no answer."""
        self._ping()
        return self.state.shared.publish(name, content, deadline_s)

    def put(self, number: int, name: str, content: bytes | Mapping[str, Any]) -> None:
        """Put a file into an attempt's folder, a mapping as JSON, as soon as the run folder takes it."""
        try:
            data = content if isinstance(content, bytes) else mask(json.dumps(content)).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:   # a copy for people: no reason to end the supervisor
            self._say(f"{name} of attempt {number} cannot be written: {error!r}")
            return
        self.state.shared.enqueue(PUT, f"{runfolder.attempt_folder(number)}/{name}", data)

    def main_log(self, number: int) -> str:
        """Path of an attempt's log."""
        return f"{self._root}/{runfolder.attempt_folder(number)}/main.log"   # built without Path: asked each tick
