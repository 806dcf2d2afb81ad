"""`safelaunch attach`: looks after a job that safelaunch did not submit. It ends, signals and changes nothing.

The silence of its log is judged as that of a run (hangs). Its ranks are looked at in the same way, by helper steps
within the job.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from safelaunch.base.io import sharedfile
from safelaunch.base.model import DONE, FAILED_FOR_GOOD, STOPPED, UNREACHABLE
from safelaunch.errors import RunFolderError, SafelaunchError, SlurmUnreachable, UsageError
from safelaunch.notify.message import of_job
from safelaunch.notify.targets import targets
from safelaunch.run.plan import Plan
from safelaunch.slurm import jobstates, nodeset
from safelaunch.slurm.slurmtext import QueuedJob
from safelaunch.stacks.io import collect
from safelaunch.stacks.io.collect import Collected, Depth
from safelaunch.stacks.scene import HangVerdict
from safelaunch.supervisor.hang import hangchecks
from safelaunch.supervisor.state.hangs import HangWatch
from safelaunch.trainlog.lines import listen
from safelaunch.trainlog.steps import latest_of
from safelaunch.verbs.common import talk
from safelaunch.verbs.jobs import foreignjob
from safelaunch.verbs.site.trialmessage import deliver
from safelaunch.verbs.why import whyevidence, whyrun, whyverdict
from safelaunch.verbs.why.whysubject import Subject
from safelaunch.why.slurmfacts import JobFacts

LOOK_S = 1.0
ASK_S, SOON_S = 60.0, 5.0   # Slurm; where it is ending
PULSE_S = 600.0          # between two lines while all is well
LOST_ANSWERS = 2         # in a row that Slurm knows no such job
CHUNK_BYTES, TAIL_BYTES = 1 << 20, 64 << 10
_ENDS = b"*** JOB "      # Slurm's own word in the job's output (slurm/slurmoutput.py)


class AttachNote(NamedTuple):
    """What is told: `kind` is pulse, hang, trouble or end."""

    kind: str
    text: str
    code: int = DONE     # of an end


class _Logs:
    """The ends of the job's logs: what they have said since they were last read."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._offsets: dict[Path, int | None] = dict.fromkeys(paths)
        self.tail = b""
        self.trouble = ""

    def read(self) -> bytes:
        """New bytes of all of them; the first time the ends of what is there."""
        found = b""
        self.trouble = ""
        for path, offset in self._offsets.items():
            try:
                with os.fdopen(sharedfile.open_log(path), "rb") as file:
                    size = file.seek(0, os.SEEK_END)
                    start = max(0, size - TAIL_BYTES) if offset is None else offset
                    file.seek(start if start <= size else 0)   # it was cut
                    chunk = file.read(CHUNK_BYTES)
                    self._offsets[path] = file.tell()
            except FileNotFoundError:   # not made yet
                continue
            except OSError as error:
                self.trouble = f"{path} cannot be read: {error.strerror or error}"
                continue
            found += chunk
        self.tail = (self.tail + found)[-TAIL_BYTES:]
        return found


class Attachment:
    """One job, watched until it has ended. `logs`: its output files; () = those that Slurm names."""

    def __init__(self, job: str, plan: Plan, logs: tuple[Path, ...], env: Mapping[str, str]) -> None:
        self._env, self._plan = env, plan
        self.job: QueuedJob = foreignjob.find(job, "attach", env)
        named = logs or tuple(map(Path, whyevidence.ask_job(job).outputs))
        if not named:
            raise UsageError(f"Slurm names no output file of job {job}", hint=f"safelaunch attach {job} --log FILE")
        self.logs = named
        self._log = _Logs(named)
        self._hangs = HangWatch(time.monotonic())
        self._told_since_s: float | None = None   # of the silence that was told

    def follow(self) -> Iterator[AttachNote]:
        """What happens, as it happens; the last note is its end."""
        ask_next_s, told_s, strangers = time.monotonic() + ASK_S, float("-inf"), 0
        trouble = ""
        while True:
            now_s = time.monotonic()
            if self.job.state in jobstates.ON_NODES:
                self._hangs.follow(1, len(nodeset.expand(self.job.nodelist)), self._plan.hang, now_s)
                if chunk := self._log.read():
                    self._hangs.note_log(now_s, listen(chunk, self._plan.step_pattern))
                    if _ENDS in chunk:
                        ask_next_s = min(ask_next_s, now_s + SOON_S)
                elif self._log.trouble and self._log.trouble != trouble:
                    yield AttachNote("trouble", self._log.trouble)
                trouble = self._log.trouble
                if self._hangs.is_silent(now_s):
                    yield from self._check_ranks()
            if now_s - told_s >= PULSE_S:
                yield AttachNote("pulse", self._how_it_is())
                told_s = now_s
            if now_s >= ask_next_s:
                before = self.job.state
                try:
                    facts: JobFacts | None = whyevidence.ask_job(self.job.id)
                except SlurmUnreachable as error:
                    yield AttachNote("trouble", f"no clear answer from Slurm: {error.message}")
                    facts, strangers = None, 0
                except RunFolderError:   # it has forgotten the job
                    facts, strangers = None, strangers + 1
                if facts is not None:
                    self.job, strangers = self.job._replace(state=facts.state, nodelist=facts.nodes), 0
                if strangers >= LOST_ANSWERS or (facts is not None and not facts.is_alive):
                    yield self._end(facts)
                    return
                is_ending = self.job.state in jobstates.ENDING
                ask_next_s = now_s + (SOON_S if is_ending else ASK_S)
                if self.job.state != before and not is_ending:
                    told_s = float("-inf")
            time.sleep(LOOK_S)

    def _how_it_is(self) -> str:
        where = f" on {self.job.nodelist}" if self.job.nodelist else ""
        reason = f" ({self.job.reason})" if self.job.state == jobstates.PENDING and self.job.reason else ""
        step, total = latest_of(self._log.tail, self._plan.step_pattern)
        at = "" if step is None else f", step {step}{f' of {total}' if total else ''}"
        due_s = max(0.0, self._hangs.calls_in_s(time.monotonic()) or 0.0)
        is_watched = self.job.state in jobstates.ON_NODES and step is not None
        quiet = f"; without a further step its ranks are looked at in {talk.span(due_s)}" if is_watched else ""
        return f"job {self.job.id} ({self.job.name}) is {self.job.state}{reason}{where}{at}{quiet}"

    def _check_ranks(self) -> Iterator[AttachNote]:
        """Two checks that must agree, and a third for what may pass by itself, as of a run."""
        silent = f"no step for {talk.span(time.monotonic() - self._hangs.rhythm.since_s)}"
        checks = hangchecks.examine(self._hangs, time.monotonic, self._look, self._check_silent_still, lambda *_: None)
        try:
            while True:
                time.sleep(next(checks))
        except SafelaunchError as error:
            self._hangs.postpone_check(time.monotonic())
            yield AttachNote("trouble", f"{silent}, and its ranks could not be looked at: {error.message}")
            return
        except StopIteration as done:
            found: HangVerdict | str | None = done.value
        if isinstance(found, str):
            counts_s = self._hangs.counts_s
            counts = "" if counts_s is None else (
                f"; counted as a hang in {talk.span(counts_s - time.monotonic())} if nothing changes")
            yield AttachNote("pulse", f"{silent}: {found}{counts}")
        if not isinstance(found, HangVerdict):
            return
        self._hangs.postpone_check(time.monotonic())
        if self._told_since_s != self._hangs.rhythm.since_s:
            self._told_since_s = self._hangs.rhythm.since_s
            yield AttachNote("hang", _tell_hang(self.job, silent, found))

    def _look(self, depth: Depth) -> Generator[float, None, Collected]:
        """What the job's ranks do now; raises SafelaunchError."""
        yield 0.0
        target = foreignjob.target_of(foreignjob.find(self.job.id, "attach", self._env), self._env)
        return collect.start(target, self._env, depth).wait()

    def _check_silent_still(self) -> bool:
        if chunk := self._log.read():
            self._hangs.note_log(time.monotonic(), listen(chunk, self._plan.step_pattern))
        return self._hangs.is_silent(time.monotonic())

    def _end(self, facts: JobFacts | None) -> AttachNote:
        said = facts.said if facts is not None else "gone: Slurm does not know it any more"
        text = f"job {self.job.id} ({self.job.name}) is {said}"
        if facts is not None and facts.state == jobstates.COMPLETED:
            return AttachNote("end", text, DONE)
        text += f"; {self._why()}"
        if facts is None:
            return AttachNote("end", text, UNREACHABLE)
        return AttachNote("end", text, STOPPED if facts.state == jobstates.CANCELLED else FAILED_FOR_GOOD)

    def _why(self) -> str:
        try:
            try:
                subject = whyrun.find(self.job.id, None)
            except SafelaunchError:
                subject = Subject((), job=self.job.id)
            verdict = whyverdict.judge_subject(replace(subject, paths=subject.paths or self.logs))[1]
        except (SafelaunchError, OSError) as error:
            return f"why is unknown: {error}"
        return f"{verdict.category} ({verdict.confidence:.0%} sure): {verdict.summary}"

    def tell(self, note: AttachNote) -> list[str]:
        """Send a note to those whom notify names, if they want it; what failed."""
        if note.kind not in ("hang", "end"):
            return []
        word = "hang" if note.kind == "hang" else {DONE: "completed", STOPPED: "stopped"}.get(note.code, "gave_up")
        to = targets(self._plan.notify.to, self._plan.notify.command)
        if word not in self._plan.notify.when or not to:
            return []
        lines = [note.text, *(f"Output: {path}" for path in self.logs),
                 f"Next: safelaunch {'stacks' if note.kind == 'hang' else 'why'} {self.job.id}"]
        results = deliver(to, of_job(self.job.id, self.job.name, word, lines), self._plan.notify.smtp)
        return [f"{label} was not told: {why}" for label, why in results.items() if why]


def _tell_hang(job: QueuedJob, silent: str, verdict: HangVerdict) -> str:
    on = f" on {', '.join(verdict.suspects)}" if verdict.suspects else ""
    return f"job {job.id} ({job.name}) hangs: {silent}; {verdict.summary}{on}. See: safelaunch stacks {job.id}"
