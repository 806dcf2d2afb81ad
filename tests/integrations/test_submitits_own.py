"""submitit's own tests of executors and environments, run against this executor; and why others are left out.

They are those in the installed package. A test that a new version adds must be put into one of the two tables.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import submitit

from safelaunch.integrations.submitit.environment import SafelaunchJobEnvironment
from safelaunch.integrations.submitit.executor import SafelaunchExecutor
from safelaunch.integrations.submitit.job import SafelaunchJob
from tests.integrations.submitits import executor as executor
from tests.integrations.submitits import own_home as own_home

TAKEN = {
    "local.test_local": (
        "test_local_map_array", "test_local_submit_array", "test_local_error", "test_pickle_output_from_main",
        "test_get_first_task_error", "test_stdout", "test_load_submission", "test_weird_dir"),
    "core.test_plugins": ("test_env", "test_executors"),
}
FAKES = "of submitit's fake executor, which runs no job"
OTHER = "of another executor, which it names"
SBATCH = "of submitit's own sbatch script, or of its answers from sbatch and sacct"
SIGNALS = "sends signals to a process of submitit's own; test_submitit.py has such an end, for runs"
# core.test_async cannot be imported without a plugin of pytest; its tests are of the fake executor, too.
LEFT_OUT = {
    "local.test_local": {
        "test_local_job": "looks at a process of submitit's own; test_submitit.py has tasks, batches and pickles",
        "test_killed": SIGNALS, "test_requeuing": SIGNALS, "test_custom_checkpoint": SIGNALS, "test_cancel": SIGNALS,
        "test_long_running_job": "takes two minutes", "test_make_subprocess": OTHER, "test_setup": OTHER,
    },
    "core.test_plugins": dict.fromkeys((
        "test_finds_default_environments", "test_finds_default_executors", "test_job_environment_works",
        "test_job_environment_raises_outside_of_job", "test_find_good_plugin", "test_skip_bad_plugin"),
        "of submitit's search for plugins"),
    "core.test_core": dict.fromkeys((
        "test_fake_job", "test_fake_job_cancel_at_deletion", "test_fake_executor", "test_fake_executor_batch",
        "test_unpickling_watcher_registration", "test_max_pickle_size_gb"), FAKES),
    "auto.test_auto": dict.fromkeys((
        "test_slurm_executor", "test_local_executor", "test_max_pickle_size_gb_in_auto", "test_python_executor",
        "test_executor_argument", "test_executor_unknown_argument", "test_executor_deprecated_arguments",
        "test_deprecated_argument", "test_overriden_arguments", "test_auto_batch_watcher",
        "test_redirect_stdout_stderr"), OTHER),
    "slurm.test_slurm": dict.fromkeys((
        "test_mocked_missing_state", "test_job_environment", "test_slurm_job_mocked", "test_slurm_job_array_mocked",
        "test_slurm_error_mocked", "test_requeuing_checkpointable", "test_requeuing_not_checkpointable",
        "test_checkpoint_and_exit", "test_make_sbatch_string", "test_make_sbatch_string_gpu",
        "test_make_sbatch_stderr", "test_update_parameters", "test_update_parameters_error", "test_read_info",
        "test_read_info_array", "test_read_job_id", "test_get_id_from_submission_command",
        "test_get_id_from_submission_command_raise", "test_watcher", "test_get_default_parameters", "test_name",
        "test_slurm_node_list", "test_slurm_node_list_online_documentation", "test_slurm_invalid_parse",
        "test_slurm_missing_node_list", "test_slurm_weird_dir", "test_slurm_through_auto",
        "test_slurm_job_no_stderr", "test_slurm_through_auto_with_setup_and_teardown"), SBATCH),
    "test_helpers": {
        **dict.fromkeys(("test_function_sequence_checkpoint", "test_snapshot", "test_snapshot_excludes",
                         "test_monitor_jobs", "test_clean_env"), "of no executor"),
        "test_as_completed": "holds what it measures against 1.5 s",
        "test_job_use_snapshot_cwd": "needs rsync", "test_job_use_snapshot_modules": "needs rsync",
    },
}
# Folders for test_weird_dir. One with a line end or a backslash cannot be a run_dir (docs/train-yaml.md).
FOLDERS = ("a 0", "a'; echo foo")
CASES = [(module, name) for module, names in TAKEN.items() for name in names]


def load(module: str) -> Any:
    return importlib.import_module(f"submitit.{module}")


@pytest.mark.parametrize(("module", "name"), CASES, ids=[name for _, name in CASES])
def test_submitits_own_test_passes(
    module: str, name: str, executor: submitit.AutoExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = {**executor.parameters, "restart": {"max_restarts": 0}, "srun": {"kill_on_bad_exit": 0}}

    def make(folder: Path) -> SafelaunchExecutor:
        made = SafelaunchExecutor(folder)
        made._internal_update_parameters(**parameters)
        return made

    from submitit.core.core import Executor

    # So that `update_parameters` knows submitit's general words, as AutoExecutor does.
    monkeypatch.setattr(SafelaunchExecutor, "update_parameters", lambda self, **words: Executor.update_parameters(
        self, **self._convert_parameters(words)))
    local = load("local.local")
    monkeypatch.setattr(local, "LocalExecutor", make)
    monkeypatch.setattr(local, "LocalJob", SafelaunchJob)
    test: Callable[..., Any] = getattr(load(module), name)
    values = {"tmp_path": tmp_path, "ex": SafelaunchExecutor,
              "env": SafelaunchJobEnvironment()}
    wanted = inspect.signature(test).parameters
    for folder in FOLDERS if "weird_tmp_path" in wanted else ("",):
        test(**{key: value for key, value in {**values, "weird_tmp_path": tmp_path / folder}.items() if key in wanted})


@pytest.mark.parametrize("module", LEFT_OUT)
def test_every_other_test_of_submitit_is_left_out_for_a_reason(module: str) -> None:
    there = {name for name, value in vars(load(module)).items()
             if name.startswith("test_") and inspect.isfunction(value) and value.__module__ == f"submitit.{module}"}
    assert there == set(TAKEN.get(module, ())) | set(LEFT_OUT[module])
    assert not set(TAKEN.get(module, ())) & set(LEFT_OUT[module])
