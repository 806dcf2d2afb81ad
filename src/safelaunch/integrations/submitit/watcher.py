"""The state of many runs for submitit: ends by their journals, and Slurm asked once for all of them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from submitit.core import core

from safelaunch.slurm import jobstates

if TYPE_CHECKING:
    from safelaunch.run.fold.state import State
    from safelaunch.run.io.runfolder import Run
    from safelaunch.status.speech import SchedulerAnswer

WITNESSES = 2   # an empty answer is not yet a lost job, as in verbs/common/waiting.py
# A run's state in the words of Slurm that submitit knows; any other one is a run whose job runs.
STATES = {
    "completed": jobstates.COMPLETED, "gave_up": jobstates.FAILED, "stopped": jobstates.CANCELLED,
    "queued": jobstates.PENDING, "submitting": jobstates.PENDING, "waiting": jobstates.PENDING,
    "on_hold": jobstates.PENDING, "unknown": "UNKNOWN",
}


class RunWatcher(core.InfoWatcher):
    """What submitit calls a watcher: one for all jobs. An end is seen at the next look into the journal. Slurm is asked
    2, 4, 8 s and so on after the last submission, then each `delay_s`.
    """

    def __init__(self, delay_s: int = 60) -> None:
        super().__init__(delay_s)
        self._dirs: dict[str, Path] = {}
        self._runs: dict[str, Run] = {}
        self._absent: dict[str, int] = {}

    def register_run(self, job_id: str, run_dir: Path) -> None:
        """Watch this run, too."""
        if job_id not in self._dirs:
            self._dirs[job_id] = run_dir
            self.register_job(job_id)

    def get_info(self, job_id: str, mode: str = "standard") -> dict[str, str]:
        """JobID, State and a sentence on the run; {} = not known."""
        if mode != "cache" and job_id in self._dirs and job_id not in self._finished:
            self._look_for_end(job_id)
        info: dict[str, str] = super().get_info(job_id, mode)
        return info

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """The state in Slurm's words; UNKNOWN where nobody knows."""
        return self.get_info(job_id, mode).get("State") or "UNKNOWN"

    def update(self) -> None:
        """Ask Slurm once, and judge each run that goes on."""
        from safelaunch.slurm.slurmtext import STATUS_FORMAT
        from safelaunch.status.speech import SchedulerAnswer
        from safelaunch.verbs.common import runs

        self._last_status_check = time.time()
        live = {id: run for id in sorted(self._registered - self._finished) if (run := self._load(id)) is not None}
        own = {id: runs.known_without_slurm(run) for id, run in live.items()}
        if None not in own.values():
            word = SchedulerAnswer(())
        else:
            self._num_calls += 1
            word = runs.ask_squeue(("--me",), STATUS_FORMAT)   # before the journals are read: they are newer then
        for id, run in live.items():
            told = own[id]
            if told is None:
                told = word if word.jobs is None else SchedulerAnswer(
                    tuple(job for job in word.jobs if job.name == run.plan.job_name))
            self._judge(id, run, told)

    def _load(self, job_id: str) -> Run | None:
        """The run, its unchanging parts read once; None where it cannot be read."""
        from safelaunch.errors import SafelaunchError
        from safelaunch.verbs.common import runs

        if job_id not in self._runs and job_id in self._dirs:
            try:
                self._runs[job_id] = runs.load(str(self._dirs[job_id]))
            except SafelaunchError:
                return None
        return self._runs.get(job_id)

    def _look_for_end(self, job_id: str) -> None:
        run = self._load(job_id)
        state = None if run is None else run.state()
        if state is not None and state.ended is not None:
            from safelaunch.status.states import describe_end

            self._note(job_id, state.ended.how, describe_end(state.ended))

    def _judge(self, job_id: str, run: Run, slurm_answer: SchedulerAnswer) -> None:
        from safelaunch.status.states import describe_alone, judge
        from safelaunch.verbs.common import runs
        from safelaunch.verbs.common.speech import SPEECH

        state: State = run.state()
        self._absent[job_id] = self._absent.get(job_id, 0) + 1 if slurm_answer.jobs == () else 0
        if state.ended is None and state.failed_alone is not None and self._absent[job_id] >= WITNESSES:
            self._note(job_id, "gave_up", describe_alone(*state.failed_alone))
            return
        found = judge(state, slurm_answer, SPEECH, time.time(), runs.requests(run), run.plan.kill_switch.grace_s,
                      run.plan.cluster == "local")
        self._note(job_id, found.name, found.sentence)

    def _note(self, job_id: str, name: str, sentence: str) -> None:
        self._info_dict[job_id] = {"JobID": job_id, "State": STATES.get(name, jobstates.RUNNING), "Sentence": sentence}
        if self.is_done(job_id, mode="cache"):
            self._finished.add(job_id)
