"""submitit's plugin on the local cluster: what becomes of a function whose attempts fail, end early or are stopped."""

from __future__ import annotations

import os
import pickle
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import submitit
from submitit.core import utils

from safelaunch.run.io import runfolder
from tests.integrations.submitits import executor as executor
from tests.integrations.submitits import own_home as own_home


class Counting:
    """Counts to three, a step an attempt; asks itself to end as the supervisor would."""

    def __init__(self, done: int = 0) -> None:
        self.done = done

    def __call__(self) -> int:
        self.done += 1
        if self.done < 3:
            os.kill(os.getpid(), signal.SIGUSR2)
            time.sleep(600)
        return self.done

    def checkpoint(self) -> utils.DelayedSubmission:
        return utils.DelayedSubmission(Counting(self.done))


class Waiting:
    """Waits for its checkpoint, which it marks by a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self) -> None:
        (self.folder / "waits").touch()
        time.sleep(600)

    def checkpoint(self) -> utils.DelayedSubmission:
        (self.folder / "asked").touch()
        return utils.DelayedSubmission(self)


def attempt() -> int:
    return int(os.environ["SAFELAUNCH_ATTEMPT"])


def dies_once(x: int) -> int:
    print(f"attempt {attempt()}", flush=True)
    if attempt() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return 10 * x + attempt()


def raises_once() -> str:
    if attempt() == 1:
        raise OSError("Connection reset by peer")
    return "second"


def raises() -> None:
    raise ValueError("too bad")


def asks_itself_to_end() -> None:
    os.kill(os.getpid(), signal.SIGUSR2)
    time.sleep(600)


def wait_until(what: Any, timeout_s: float = 60) -> None:
    end_s = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < end_s
        time.sleep(0.03)


def test_a_function_that_is_killed_returns_its_result_in_the_next_attempt(executor: submitit.AutoExecutor) -> None:
    job = executor.submit(dies_once, 4)
    assert job.result() == 42
    assert (job.state, job.exception(), job.done()) == ("COMPLETED", None, True)
    said = job.stdout()
    assert said is not None and said.index("attempt 1") < said.index("attempt 2")
    assert job.stderr() == said and job.paths.stdout.parent.name == "0002"


def test_an_error_of_an_attempt_is_no_result_while_another_one_follows(executor: submitit.AutoExecutor) -> None:
    assert executor.submit(raises_once).result() == "second"


def test_a_function_that_fails_for_good_gives_submitits_error_with_its_traceback(
    executor: submitit.AutoExecutor
) -> None:
    executor.update_parameters(safelaunch_restart={"max_restarts": 0})
    job = executor.submit(raises)
    with pytest.raises(utils.FailedJobError, match="ValueError: too bad"):
        job.result()
    assert job.state == "FAILED"


def test_an_array_is_a_run_for_each_of_its_functions(executor: submitit.AutoExecutor) -> None:
    jobs = executor.map_array(lambda x, y: x + y, [1, 2], [10, 20])
    with executor.batch():
        jobs.append(executor.submit(lambda: 33))
    assert [job.result() for job in jobs] == [11, 22, 33]
    assert len({job.job_id for job in jobs}) == 3
    assert {type(job).__name__ for job in jobs} == {"SafelaunchJob"}


def test_no_more_functions_of_an_array_run_at_a_time_than_its_parallelism(
    executor: submitit.AutoExecutor, tmp_path: Path
) -> None:
    def look(number: int) -> list[str]:
        if number == 0:
            time.sleep(0.5)
        (tmp_path / f"over{number}").touch()
        return sorted(path.name for path in tmp_path.glob("over*"))

    executor.update_parameters(safelaunch_array_parallelism=1)
    jobs: list[Any] = executor.map_array(look, [0, 1])
    assert [job.result() for job in jobs] == [["over0"], ["over0", "over1"]]
    assert [one.run_dir for one in runfolder.load(jobs[1].run.dir).plan.after] == [str(jobs[0].run.dir)]
    assert [(job.run.dir / "control" / runfolder.FOLLOWED).exists() for job in jobs] == [True, False]


def test_each_task_has_its_rank_its_result_and_its_lines(executor: submitit.AutoExecutor) -> None:
    executor.update_parameters(tasks_per_node=2)

    def rank() -> tuple[int, int, list[str]]:
        env = submitit.JobEnvironment()
        submitit.helpers.TorchDistributedEnvironment().export()
        print("I am", env.global_rank)
        return env.global_rank, env.num_tasks, sorted({"RANK", "MASTER_ADDR"} & set(os.environ))

    job = executor.submit(rank)
    assert job.results() == [(0, 2, ["MASTER_ADDR", "RANK"]), (1, 2, ["MASTER_ADDR", "RANK"])]
    said = job.task(1).stdout()
    assert said is not None and "I am 1" in said and "I am 0" not in said


def test_a_request_to_end_gives_the_next_attempt_the_functions_checkpoint(executor: submitit.AutoExecutor) -> None:
    executor.update_parameters(safelaunch_restart={"max_restarts": 5, "backoff": "1s"})
    job: Any = executor.submit(Counting())
    assert job.result() == 3
    assert job.submission().function.done == 2
    assert job.submission()._timeout_countdown == 1   # three, less one for each end near the time limit


def test_a_function_without_checkpoint_ends_for_good_at_its_time_limit(executor: submitit.AutoExecutor) -> None:
    job = executor.submit(asks_itself_to_end)
    with pytest.raises(utils.FailedJobError, match="timed-out and not checkpointable"):
        job.result()
    assert job.state == "CANCELLED"


def test_a_stop_asks_for_the_checkpoint_and_is_final(executor: submitit.AutoExecutor, tmp_path: Path) -> None:
    job: Any = executor.submit(Waiting(tmp_path))
    wait_until((tmp_path / "waits").exists)
    wait_until(lambda: job.state == "RUNNING")   # the journal may be a moment behind
    assert not job.done()
    job.run.stop()
    wait_until(job.done)
    assert (tmp_path / "asked").exists() and job.state == "CANCELLED"


def test_a_cancelled_function_is_done_and_has_no_result(
    executor: submitit.AutoExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job: Any = executor.submit(Waiting(tmp_path))
    monkeypatch.setattr(type(job), "_results_timeout_s", 0)
    wait_until((tmp_path / "waits").exists)
    job.cancel()
    assert isinstance(job.exception(), utils.UncompletedJobError)
    assert job.state == "CANCELLED" and not (tmp_path / "asked").exists()


def test_a_job_that_comes_out_of_a_pickle_or_of_folder_and_id_knows_its_run(executor: submitit.AutoExecutor) -> None:
    job: Any = executor.submit(abs, -2)
    copied = pickle.loads(pickle.dumps(job))
    again = type(job)(executor.folder, job.job_id)
    assert (copied.result(), again.result(), job.result()) == (2, 2, 2)
    assert again.run.run_id == job.job_id


def test_setup_and_variables_reach_the_function(executor: submitit.AutoExecutor) -> None:
    executor.update_parameters(name="prepared", safelaunch_setup=["export A=1", "export B=2"],
                               safelaunch_env={"C": "3"})
    job: Any = executor.submit(lambda: [os.environ[name] for name in "ABC"])
    assert job.result() == ["1", "2", "3"]
    assert job.run.name == "prepared"
