"""The parts of submitit's plugin that need no run: parameters, a task's environment, refusals, entry points."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import submitit
import tomllib
from submitit.core import utils

from safelaunch.config.keys import KEYS
from safelaunch.integrations.submitit import environment, parameters
from safelaunch.integrations.submitit.executor import SafelaunchExecutor
from safelaunch.integrations.submitit.watcher import STATES
from tests.integrations.submitits import executor as executor
from tests.integrations.submitits import own_home as own_home

ROOT = Path(__file__).parents[2]


def test_the_parameters_are_keys_of_train_yaml() -> None:
    given = parameters.read_parameters({
        "job_name": "bert", "nodes": 2, "ntasks_per_node": 8, "gpus_per_node": 8, "time": "1-00:00:30", "mem": "64M",
        "partition": "gpu", "exclusive": True, "additional_parameters": {"mail-type": "END"}, "setup": ["a", "b"],
        "srun_args": ["--hint=nomultithread"], "spare_nodes": 1, "env": {"A": "1"}})
    config = parameters.config_of(given, "python x", "/runs/bert")
    assert config == {
        "name": "bert", "run_dir": "/runs/bert", "command": "python x", "setup": "a\nb", "spare_nodes": 1,
        "slurm": {"nodes": 2, "ntasks_per_node": 8, "gpus_per_node": 8, "time": 1441, "mem": "64M",
                  "partition": "gpu", "exclusive": True, "mail-type": "END"},
        "launch": {"with": "none"}, "srun": {"extra": ["--hint=nomultithread"]},
        "env": {"A": "1", "SUBMITIT_EXECUTOR": "safelaunch"}}
    assert parameters.count_tasks(given) == 16


def test_without_parameters_it_is_submitits_job_of_five_minutes() -> None:
    config = parameters.config_of({}, "python x", "/r")
    assert (config["name"], config["slurm"]) == ("submitit", {"nodes": 1, "ntasks_per_node": 1, "time": 5})


def test_no_section_has_the_name_of_an_option_of_sbatch() -> None:
    assert not parameters.SECTIONS & (parameters.SBATCH | parameters.OTHERS)


def test_every_key_of_train_yaml_is_a_parameter_or_none_that_a_function_can_have() -> None:
    sections = {"env", "slurm", *(key.partition(".")[0] for key in KEYS)}
    assert sections == parameters.SECTIONS | parameters.NOT_FOR_FUNCTIONS
    assert not parameters.SECTIONS & parameters.NOT_FOR_FUNCTIONS


def test_a_program_that_uses_another_cluster_of_submitit_loads_little_of_safelaunch() -> None:
    code = ("import submitit, sys; submitit.AutoExecutor('logs', cluster='debug'); "
            "print(*(name for name in sys.modules if name.startswith('safelaunch.')))")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not {"safelaunch.run.plan", "safelaunch.config.keys", "safelaunch.api"} & set(said.stdout.split())
    assert not parameters.VALID & set(parameters.NOT_TAKEN)


@pytest.mark.parametrize(("given", "why"), [
    ({"safelaunch_teardown": ["rm x"]}, "teardown: put it behind"),
    ({"safelaunch_array_parallelism": 0}, "array_parallelism: expected a whole number from 1"),
    ({"safelaunch_time": "soon"}, "time: expected minutes"),
    ({"safelaunch_spare_nodes": "many"}, "spare_nodes: expected"),
    ({"safelaunch_restart": {"max_restart": 3}}, "max_restarts"),
    ({"name": "a b"}, "name: "),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) else "")
def test_what_is_not_taken_is_refused_when_it_is_set(
    executor: submitit.AutoExecutor, given: dict[str, Any], why: str
) -> None:
    before = dict(executor.parameters)
    with pytest.raises(ValueError) as caught:
        executor.update_parameters(**given)
    assert why in str(caught.value)
    assert executor.parameters == before


def test_a_refused_array_names_the_runs_that_are_submitted(
    executor: submitit.AutoExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safelaunch.errors import SlurmRefused
    from safelaunch.verbs.submit.submitting import Sending, Submitted

    real, count = Sending.submit, iter(range(9))

    def refuse_the_third(*args: Any, **words: Any) -> Submitted:
        if next(count) == 2:
            raise SlurmRefused("sbatch refused", argv=["sbatch"], returncode=1, stderr="QOSMaxSubmitJobPerUserLimit")
        return real(*args, **words)

    monkeypatch.setattr(Sending, "submit", refuse_the_third)
    with pytest.raises(utils.FailedSubmissionError) as caught:
        executor.map_array(abs, [1, 2, 3])
    assert "QOSMaxSubmitJobPerUserLimit\n2 of 3 functions are submitted already, as runs " in str(caught.value)


def test_tasks_are_counted_in_the_step_and_not_in_a_job_with_spare_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SAFELAUNCH_RUN_ID": "1a2b3c4d", "SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_NNODES": "2",
                        "SLURM_JOB_NUM_NODES": "3", "SLURM_STEP_NODELIST": "n[1,3]", "SLURM_NODEID": "1",
                        "SLURM_PROCID": "3", "SLURM_LOCALID": "1"}.items():
        monkeypatch.setenv(name, value)
    env = environment.SafelaunchJobEnvironment()
    assert (env.name(), env.job_id, env.num_tasks, env.num_nodes) == ("safelaunch", "1a2b3c4d", 4, 2)
    assert (list(env.hostnames), env.node, env.global_rank, env.local_rank) == (["n1", "n3"], 1, 3, 1)


def test_an_attempt_removes_what_an_earlier_one_has_left_of_its_own_task(tmp_path: Path) -> None:
    names = ["r_0_result.pkl", "r_0_result.pkl.save_tmp", "r_submitted.pkl", "r_submitted.pkl.save_tmp",
             "r_1_result.pkl"]
    for name in names:
        (tmp_path / name).touch()
    environment.remove_leftovers(utils.JobPaths(tmp_path, "r", 0), 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r_1_result.pkl", "r_submitted.pkl"]
    (tmp_path / "r_submitted.pkl.save_tmp").touch()
    environment.remove_leftovers(utils.JobPaths(tmp_path, "r", 1), 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r_submitted.pkl", "r_submitted.pkl.save_tmp"]


class Saving:
    """A function with a checkpoint, which can say that there is nothing to go on with."""

    def __init__(self, goes_on: bool) -> None:
        self.goes_on = goes_on

    def __call__(self) -> None:
        pass

    def checkpoint(self) -> utils.DelayedSubmission | None:
        return utils.DelayedSubmission(self) if self.goes_on else None


@pytest.mark.parametrize(("function", "minutes_ago", "countdown", "reason"), [
    (Saving(True), 1, 3, ""), (Saving(True), 590, 3, ""), (Saving(True), 590, 0, "timed-out too many times"),
    (Saving(False), 1, 3, "checkpoint function returned None"), (print, 590, 3, "timed-out and not checkpointable"),
    (print, 1, 3, ""),
], ids=["preempted", "time-limit", "last-time-limit", "nothing-to-go-on", "no-checkpoint", "no-checkpoint-preempted"])
def test_the_run_goes_on_where_submitit_would_requeue(
    function: Any, minutes_ago: float, countdown: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SAFELAUNCH_KILL_FILE", str(tmp_path / "kill"))
    monkeypatch.setenv("SLURM_JOB_START_TIME", str(int(time.time() - 60 * minutes_ago)))
    delayed = utils.DelayedSubmission(function)
    delayed.set_timeout(600, countdown)
    paths = utils.JobPaths(tmp_path, "r", 0)
    request = environment.EndRequest(environment.SafelaunchJobEnvironment(), paths, delayed)
    with pytest.raises(utils.UncompletedJobError if reason else SystemExit) as caught:
        request.checkpoint_and_try_requeue(signal.SIGUSR2)
    assert reason in str(caught.value) and (tmp_path / "kill").exists() == bool(reason)
    assert paths.submitted_pickle.exists() == (isinstance(function, Saving) and not reason)
    if paths.submitted_pickle.exists():
        assert utils.DelayedSubmission.load(paths.submitted_pickle)._timeout_countdown == countdown - (minutes_ago > 60)


def test_a_task_that_is_not_the_first_leaves_a_request_to_end_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_PROCID", "1")
    request = environment.EndRequest(environment.SafelaunchJobEnvironment(), utils.JobPaths(tmp_path, "r", 1),
                                     utils.DelayedSubmission(Saving(True)))
    request.checkpoint_and_try_requeue(signal.SIGUSR2)
    assert os.listdir(tmp_path) == []


def test_every_state_of_an_end_is_one_that_submitit_takes_for_an_end() -> None:
    from safelaunch.base.endings import RunEnd

    goes_on = {"PENDING", "RUNNING", "UNKNOWN"}   # submitit.core.core.InfoWatcher.is_done
    assert {name for name, word in STATES.items() if word not in goes_on} == set(map(str, RunEnd))


def test_the_entry_points_name_the_plugins_classes() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["submitit"]
    found = {}
    for name, value in points.items():
        module, _, inside = value.partition(":")
        found[name] = getattr(importlib.import_module(module), inside)
    assert found == {"executor": SafelaunchExecutor, "job_environment": environment.SafelaunchJobEnvironment}
    assert SafelaunchExecutor.name() == environment.SafelaunchJobEnvironment.name() == "safelaunch"


