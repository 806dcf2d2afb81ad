"""The executor: each function becomes a run of its own, which calls submitit's own program on its pickle."""

from __future__ import annotations

import contextlib
import gc
import os
import shlex
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from submitit.core import core, logger, utils

from safelaunch.base.io import owners
from safelaunch.integrations.submitit import parameters
from safelaunch.integrations.submitit.job import SafelaunchJob

if TYPE_CHECKING:
    from safelaunch.config.resolve import Resolved
    from safelaunch.run.io.questions import Questions
    from safelaunch.verbs.submit.submitting import Sending, Submitted

FRESH_S = 1.0   # what git and Slurm have said of submissions: parameters are set just before one


@contextlib.contextmanager
def without_collecting() -> Iterator[None]:
    """Look for no garbage: what imports and a config make stays, and looking takes a tenth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():   # both: all counts as old, and nothing is looked at right now
                gc.freeze()
                gc.unfreeze()
            gc.enable()


class SafelaunchExecutor(core.PicklingExecutor):
    """Submits functions as supervised runs; `python` is shell code that starts Python on the nodes."""

    job_class = SafelaunchJob

    def __init__(self, folder: str | Path, max_num_timeout: int = 3, max_pickle_size_gb: float = 1.0,
                 python: str | None = None) -> None:
        super().__init__(folder, max_num_timeout=max_num_timeout, max_pickle_size_gb=max_pickle_size_gb)
        self.python = shlex.quote(sys.executable) if python is None else python
        self._sent: list[Submitted] = []
        self._asked = 0   # functions of this submission
        self._questions: Questions | None = None
        self._sending: Sending | None = None
        self._throttling = 0.0   # submitit's pause between two: each submission here waits for Slurm's answer

    @classmethod
    def affinity(cls) -> int:
        """0: never chosen unless it is named, so that installing safelaunch changes no program."""
        return 0

    @classmethod
    def _equivalence_dict(cls) -> core.EquivalenceDict:
        return {"name": "job_name", "timeout_min": "time", "mem_gb": "mem", "nodes": "nodes",
                "cpus_per_task": "cpus_per_task", "gpus_per_node": "gpus_per_node",
                "tasks_per_node": "ntasks_per_node"}

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        """Those that are not taken are among them: the error should say why."""
        return set(parameters.VALID) | set(parameters.NOT_TAKEN)

    def _convert_parameters(self, params: dict[str, Any]) -> dict[str, Any]:
        """submitit's general parameters under sbatch's names; memory in whole MB, which sbatch takes."""
        converted: dict[str, Any] = super()._convert_parameters(params)
        if "mem" in converted:
            converted["mem"] = f"{int(converted['mem'] * 1024)}M"
        return converted

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        """Keep them if they make a config that safelaunch would submit; else raise ValueError."""
        with without_collecting():
            self._ask()
            from safelaunch.config.io.configfiles import read_mapping
            from safelaunch.errors import SafelaunchError

            updated = {**self.parameters, **parameters.read_parameters(kwargs)}
            config = parameters.config_of(updated, self._submitit_command_str, self._new_run_dir(updated))
            try:
                read_mapping(config, (), ())
            except SafelaunchError as error:
                raise ValueError(error.message) from error
        super()._internal_update_parameters(**updated)

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        """A run for each. Where one is refused, the error names those that are submitted already."""
        self._sent, self._asked = [], len(delayed_submissions)
        # A folder that is not there yet is made for this submission.
        if self.folder.exists() and (who := owners.who_else_writes(self.folder.stat())):
            logger.get_logger().warning(f"{who} can write {self.folder}: whoever changes a pickle there runs code as "
                                        f"you. To close it: chmod go-w {shlex.quote(str(self.folder))}")
        with without_collecting():
            questions = self._ask()
            from safelaunch.verbs.submit.submitting import open_submission

        self._questions = None   # they are of this submission
        try:
            with open_submission(logger.get_logger().info, questions) as self._sending:
                jobs: list[core.Job[Any]] = super()._internal_process_submissions(delayed_submissions)
        except utils.FailedSubmissionError as error:
            if not self._sent:
                raise
            raise utils.FailedSubmissionError(
                f"{error}\n{len(self._sent)} of {self._asked} functions are submitted already, as runs "
                f"{', '.join(one.run.plan.run_id for one in self._sent)}. To end one: safelaunch stop RUN") from error
        return jobs

    def _ask(self) -> Questions:
        """What git and Slurm are asked, or have just been, so that they answer while the rest is imported."""
        from safelaunch.run.io.questions import Questions

        last, cwd = self._questions, str(Path.cwd())
        if last is None or last.cwd != cwd or time.monotonic() - last.asked_s > FRESH_S:
            if last is not None:
                last.close()
            last = self._questions = Questions(os.environ, cwd)
        return last

    def _submit_command(self, command: str) -> core.Job[Any]:
        from safelaunch.config.io.configfiles import read_mapping
        from safelaunch.errors import SafelaunchError

        sending = self._sending
        assert sending is not None   # submitit calls this for each function of a submission
        try:
            with without_collecting():
                config = parameters.config_of(self.parameters, command, self._new_run_dir(self.parameters))
                [resolved] = read_mapping(config, (), ())
                sent = self._send(sending, sending.settle(resolved))
        except SafelaunchError as error:
            hint = f"\n{error.hint}" if error.hint else ""
            raise utils.FailedSubmissionError(f"{error.message}{hint}") from error
        self._sent.append(sent)
        run = sent.run
        paths = utils.JobPaths(self.folder, job_id=run.plan.run_id)
        paths.folder.mkdir(parents=True, exist_ok=True)
        paths.submission_file.symlink_to(run.dir / "job.sbatch")   # by it a job finds its run folder
        return self.job_class(folder=self.folder, job_id=run.plan.run_id, tasks=list(range(self._num_tasks())))

    def _send(self, sending: Sending, resolved: Resolved) -> Submitted:
        """Submit a run that waits for the one before it in its queue slot, however that ends, as in a sweep."""
        from safelaunch.verbs.submit.submitting import QueueSlot, Waits

        number, slot, waits = len(self._sent), QueueSlot(), Waits()
        at_once = self.parameters.get("array_parallelism", self._asked)
        slot.is_followed = number + at_once < self._asked
        if number >= at_once:
            before, job = self._sent[number - at_once]
            waits = Waits((before.plan.awaited,), () if before.plan.cluster == "local" else (job,))
        return sending.submit(resolved, waits=waits, slot=slot)

    def _new_run_dir(self, given: dict[str, Any]) -> str:
        folder = utils.JobPaths.get_first_id_independent_folder(self.folder)
        return str(folder / "runs" / f"{given.get('job_name', parameters.NAME)}-{uuid.uuid4().hex[:12]}")

    @property
    def _submitit_command_str(self) -> str:
        return f"{self.python} -u -m submitit.core._submit {shlex.quote(str(self.folder))}"

    def _num_tasks(self) -> int:
        return parameters.count_tasks(self.parameters)

    # submitit asks for these three where it runs a command of the cluster; here safelaunch.submit does all of it.

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        raise NotImplementedError("safelaunch writes the script of the run")

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        raise NotImplementedError("safelaunch sends the job itself")

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        raise NotImplementedError("the id is that of the run")
