"""Inside an attempt: which task this is, and what a request to end means for the function.

submitit's own program reads the pickle, calls the function and writes its result. Attempts follow each other on the
same files, so each begins by removing what an earlier one may have left.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from submitit.core import job_environment, logger, utils

# A program that calls TorchDistributedEnvironment().export() would end here: it refuses variables that are set.
_NOT_SUBMITITS = ("MASTER_ADDR", "MASTER_PORT")


class OwnPaths(utils.JobPaths):
    """submitit's files; the pickle of the function is given to be loaded only where it is this user's own."""

    @property
    def submitted_pickle(self) -> Path:
        return own_file(super().submitted_pickle)


def own_file(path: Path) -> Path:
    """The path, if nobody else's file is there: loading a pickle runs what it holds. Raises FailedJobError."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return path
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
        return path
    raise utils.FailedJobError(f"{path} is {'a file' if stat.S_ISREG(status.st_mode) else 'no plain file'} of user "
                               f"{status.st_uid}'s, and loading a pickle runs what it holds: it is not loaded. See who "
                               f"may write its folder: ls -la {path.parent}")


class SafelaunchJobEnvironment(job_environment.JobEnvironment):
    """A task of an attempt. Its job id is the run's."""

    # Of the job step, as srun sets them: the job itself can have spare nodes.
    _env: ClassVar[dict[str, str]] = {
        "job_id": "SAFELAUNCH_RUN_ID", "num_tasks": "SLURM_NTASKS", "num_nodes": "SLURM_NNODES",
        "node": "SLURM_NODEID", "global_rank": "SLURM_PROCID", "local_rank": "SLURM_LOCALID",
    }

    @property
    def paths(self) -> OwnPaths:
        return OwnPaths(os.environ["SUBMITIT_FOLDER"], job_id=self.job_id, task_id=self.global_rank)

    @property
    def hostnames(self) -> Sequence[str]:
        from safelaunch.slurm.nodeset import expand

        listed = os.environ.get("SLURM_STEP_NODELIST", "")
        return expand(listed) if listed else [self.hostname]

    def _requeue(self, countdown: int) -> None:
        """Nothing to do: the run's supervisor starts the next attempt, and only where nobody has stopped the run."""
        logger.get_logger().info(f"The run may go on in another attempt ({countdown} remaining timeouts)")

    def _handle_signals(self, paths: utils.JobPaths, submission: utils.DelayedSubmission) -> None:
        remove_leftovers(paths, self.global_rank)
        for name in _NOT_SUBMITITS:
            os.environ.pop(name, None)
        handler = EndRequest(self, paths, submission)
        signal.signal(signal.SIGTERM, handler.bypass)
        signal.signal(signal.SIGCONT, handler.bypass)
        signal.signal(self._usr_sig(), handler.checkpoint_and_try_requeue)


class EndRequest(job_environment.SignalHandler):
    """What follows the run's kill_switch.signal: the function's checkpoint() is asked for the next attempt's pickle."""

    def __init__(self, env: SafelaunchJobEnvironment, paths: utils.JobPaths, delayed: Any) -> None:
        super().__init__(env, paths, delayed)
        # Attempts share a job's time limit, so its time counts, not this process'.
        start = os.environ.get("SLURM_JOB_START_TIME", "")
        if start.isdigit():
            self._start_time = float(start)

    def checkpoint_and_try_requeue(self, signum: int, frame: types.FrameType | None = None) -> None:
        """Write the next attempt's pickle and end. Where submitit would not requeue, end the run with submitit's
        error.
        """
        if self.env.global_rank != 0:
            self._logger.info("Not checkpointing: the task of rank 0 does.")
            return
        timed_out = self.has_timed_out()
        self._logger.warning(f"Caught {signal.Signals(signum).name} on {socket.gethostname()}: the run's supervisor "
                             f"asks to end{' near the time limit' if timed_out else ''}.")
        reason = self._save(timed_out)
        if reason:
            end_for_good()
            raise utils.UncompletedJobError(f"Job not requeued because: {reason}.")
        self.env._requeue(self._delayed._timeout_countdown - timed_out)
        self._exit()

    def _save(self, timed_out: bool) -> str:
        """Write the pickle; returns why no attempt should follow, or ""."""
        delayed = self._delayed
        countdown = delayed._timeout_countdown - timed_out
        if countdown < 0:
            return "timed-out too many times"
        if not hasattr(delayed.function, "checkpoint"):
            return "timed-out and not checkpointable" if timed_out else ""
        following = delayed._checkpoint_function()
        if following is None:
            return "checkpoint function returned None"
        following.set_timeout(delayed._timeout_min, countdown)
        # submitit removes the old pickle before it renames the new one: a node that dies between leaves none.
        target: Path = self._job_paths.submitted_pickle
        written = target.with_suffix(target.suffix + ".save_tmp")
        following.dump(written)
        with written.open("rb+") as file:
            os.fsync(file.fileno())
        written.replace(target)
        return ""


def remove_leftovers(paths: utils.JobPaths, rank: int) -> None:
    """Remove this task's result of an earlier attempt, and files that it had begun to write: submitit refuses to
    write beside one.
    """
    result = paths.result_pickle
    begun = [result.with_suffix(result.suffix + ".save_tmp")]
    if rank == 0:
        pickle = paths.submitted_pickle
        begun.append(pickle.with_suffix(pickle.suffix + ".save_tmp"))
    for path in (result, *begun):
        path.unlink(missing_ok=True)


def end_for_good() -> None:
    """Touch the run's kill switch: no attempt is to follow."""
    kill_file = os.environ.get("SAFELAUNCH_KILL_FILE")
    if kill_file:
        Path(kill_file).touch()
