"""A submitted function: its result, state and output follow the run across attempts and jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from submitit.core import core
from submitit.core.core import R

from safelaunch.integrations.submitit.environment import OwnPaths, OwnPickle, close
from safelaunch.integrations.submitit.watcher import RunWatcher

if TYPE_CHECKING:
    from safelaunch.api import RunHandle


class RunPaths(OwnPaths):
    """submitit's own files, with the newest attempt's log as both streams."""

    @property
    def result_pickle(self) -> Path:
        return OwnPickle(super().result_pickle)

    def move_temporary_file(self, tmp_path: Path | str, name: str, keep_as_symlink: bool = False) -> None:
        """Give submitit's new pickle its name, closed to others."""
        close(Path(tmp_path))
        super().move_temporary_file(tmp_path, name, keep_as_symlink)

    @property
    def stdout(self) -> Path:
        """main.log of the newest attempt that has one."""
        run_dir = Path(self.submission_file.resolve().parent)
        logs = sorted(run_dir.glob("attempts/*/main.log"))
        return logs[-1] if logs else run_dir / "attempts" / "0001" / "main.log"

    @property
    def stderr(self) -> Path:
        return self.stdout


class SafelaunchJob(core.Job[R]):
    """One function's run. Its job id is the run's id, which stays the same across Slurm's jobs."""

    watcher = RunWatcher()

    def __init__(self, folder: Path | str, job_id: str, tasks: Sequence[int] = (0,)) -> None:
        super().__init__(folder, job_id, tasks)
        self._paths = RunPaths(folder, job_id=job_id, task_id=self.task_id)

    @property
    def run(self) -> RunHandle:
        """The run itself, with all that safelaunch can tell and do (docs/python.md)."""
        from safelaunch import api

        return api.load(self._run_dir)

    @property
    def _run_dir(self) -> Path:
        return Path(self.paths.submission_file.resolve().parent)

    def _register_in_watcher(self) -> None:
        self.watcher.register_run(self.job_id, self._run_dir)

    def done(self, force_check: bool = False) -> bool:
        """Whether the run has ended. A result alone is no end: an attempt that failed leaves one, too, and a restart
        may follow.
        """
        return bool(self.watcher.is_done(self.job_id, mode="force" if force_check else "standard"))

    def cancel(self, check: bool = True) -> None:
        """End the run at once and for good. With `check` raise RuntimeError where nobody has confirmed it."""
        answer = self.run.stop(now=True)
        if check and not answer.is_done:
            raise RuntimeError("\n".join(answer.sentences))

    def _get_logs_string(self, name: str) -> str | None:
        """The output of all attempts in order, each line behind its "[host:rank]:"; None = there is none yet."""
        if name not in ("stdout", "stderr"):
            raise ValueError(f'Unknown "{name}", available are stdout and stderr')
        from safelaunch.api import RunHandle
        from safelaunch.verbs.common import runs

        stored = runs.load(str(self._run_dir))
        rank = self.task_id if stored.plan.tasks > 1 else None   # else also lines that no task has written
        text = "".join(f"{line.text}\n" for line in RunHandle(stored).logs(rank=rank))
        return text if self.paths.stdout.exists() else None   # looked at last: the log may be copied meanwhile
