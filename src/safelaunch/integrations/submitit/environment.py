"""Inside an attempt: which task this is, and what a request to end means for the function.

submitit's own program reads the pickle, calls the function and writes its result. Attempts follow each other on the
same files, so each begins by removing what an earlier one may have left.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from submitit.core import job_environment, logger, utils

from safelaunch.base.io import owners, sharedfile

# A program that calls TorchDistributedEnvironment().export() would end here: it refuses variables that are set.
_NOT_SUBMITITS = ("MASTER_ADDR", "MASTER_PORT")


class OwnPickle(type(Path())):   # type: ignore[misc]  # a path of this system
    """The path of a pickle: what opens it gets the file that was looked at, whoever gives its name to another one
    meanwhile. Raises FailedJobError where the file is not this user's alone: loading a pickle runs what it holds.
    """

    _held = -1   # a descriptor, for as long as the path is

    def __fspath__(self) -> str:
        try:
            held = sharedfile.open_file(str(self))
        except FileNotFoundError:
            return str(self)
        except sharedfile.OddFile as error:
            raise utils.FailedJobError(f"{self} is no plain file: it is not loaded") from error
        self.__del__()
        self._held = held
        status = os.fstat(held)
        if status.st_uid == os.geteuid():
            reason = owners.who_else_writes(status) and f"can be written by {owners.who_else_writes(status)}"
        else:
            reason = f"is a file of user {owners.name_of(status.st_uid)}'s"
        if reason:
            raise utils.FailedJobError(f"{self} {reason}, and loading a pickle runs what it holds: it is not loaded. "
                                       f"See who may write it: ls -la {self.parent}")
        return f"/proc/self/fd/{held}"

    def __del__(self) -> None:
        if self._held >= 0:
            os.close(self._held)
            self._held = -1


class OwnPaths(utils.JobPaths):
    """submitit's files; the pickle of the function is loaded only where it is this user's alone."""

    @property
    def submitted_pickle(self) -> Path:
        return OwnPickle(super().submitted_pickle)


def close(path: Path) -> None:
    """Take from all others the right to write a pickle of one's own, which a umask or the folder gave them."""
    with contextlib.suppress(OSError), sharedfile.stream(path) as file:
        os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode & 0o7755)


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
        atexit.register(close, paths.result_pickle)   # submitit writes it last
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
        target = Path(self._job_paths.submitted_pickle)
        written = target.with_suffix(target.suffix + ".save_tmp")
        written.unlink(missing_ok=True)
        file = os.open(written, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            following.dump(f"/proc/self/fd/{file}")   # not by its name, where others may have put a link by now
            os.fsync(file)
        finally:
            os.close(file)
        close(written)
        written.replace(target)
        return ""


def remove_leftovers(paths: utils.JobPaths, rank: int) -> None:
    """Remove this task's result of an earlier attempt, and files that it had begun to write: submitit refuses to
    write beside one.
    """
    result = paths.result_pickle
    begun = [result.with_suffix(result.suffix + ".save_tmp")]
    if rank == 0:
        pickle = Path(paths.submitted_pickle)
        begun.append(pickle.with_suffix(pickle.suffix + ".save_tmp"))
    for path in (result, *begun):
        path.unlink(missing_ok=True)


def end_for_good() -> None:
    """Touch the run's kill switch: no attempt is to follow."""
    kill_file = os.environ.get("SAFELAUNCH_KILL_FILE")
    if kill_file:   # an entry that is there already is a stop, a link of a member's too
        with contextlib.suppress(FileExistsError):
            os.close(os.open(kill_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
