"""The plan: what a resolved config asks for, as the script and the supervisor use it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.run import plan
from safelaunch.slurm.gpus import gpu_type
from tests.tables import each


def config(**changes: Any) -> dict[str, Any]:
    """A complete resolved config, with some keys changed."""
    return {
        "name": "bloom", "run_dir": "/scratch/runs/bloom", "cluster": "slurm", "command": "train ${RESUME_ARGS}",
        "setup": None, "env": {"A": 1}, "slurm": {"nodes": 2, "time": "20:00:00"},
        "launch": {"with": "srun", "nproc_per_node": None, "tee": 3},
        "srun": {"wait": 60, "kill_on_bad_exit": 1, "extra": []},
        "resume": {"dir": None, "format": "auto", "args": None, "pattern": None},
        "progress": {"step": "auto"}, "restart": {"max_restarts": 30, "max_without_progress": 3, "backoff": 60},
        "kill_switch": {"file": "control/kill", "grace": 900, "group": None, "signal": "SIGUSR2"},
        "preserve_site": {"for": 0, "when": ["unknown"], "nodes": "suspects"}, **changes,
    }


def options(**slurm: Any) -> list[tuple[str, str | None]]:
    return list(plan.of_config(config(slurm=slurm), "r").sbatch)


def test_the_jobs_name_is_the_runs_own() -> None:
    assert plan.of_config(config(), "a1b2").job_name == "bloom.a1b2"


@each(("file", "expected"), [
    ("control/kill", "/scratch/runs/bloom/control/kill"), ("/shared/kill", "/shared/kill"),
], ids=["in the run folder", "elsewhere"])
def test_the_kill_switch_has_an_absolute_path(file: str, expected: str) -> None:
    switch = {"file": file, "grace": 900, "group": None, "signal": "SIGUSR2"}
    assert plan.of_config(config(kill_switch=switch), "r").kill_file == expected


@each(
    ("slurm", "expected"),
    [
        ({"nodes": 2, "time": "20:00:00"}, [("nodes", "2"), ("time", "20:00:00")]),
        ({"exclusive": True}, [("exclusive", None)]),
        ({"exclusive": False, "account": None}, []),
        ({"mail-type": ["END", "FAIL"]}, [("mail-type", "END"), ("mail-type", "FAIL")]),
    ],
    ids=["values", "a flag", "a flag that is off, and nothing", "an option given twice"],
)
def test_sbatch_options(slurm: dict[str, Any], expected: list[tuple[str, str | None]]) -> None:
    assert options(**slurm) == expected


@each(
    ("slurm", "expected"),
    [
        ({}, None),
        ({"gpus-per-node": 8}, 8),
        ({"gpus-per-node": "a100:4"}, 4),
        ({"gres": "gpu:8"}, 8),
        ({"gres": "gpu:a100:8"}, 8),
        ({"gres": "gpu:a100:8,nvme:1"}, 8),
        ({"gres": "nvme:1,gpu:4"}, 4),
        ({"gres": "nvme:1"}, None),
        ({"gres": "gpu"}, 1),
    ],
    ids=["none", "a number", "with a type", "a gres", "a gres with a type", "a gres and another", "another and a gres",
         "a gres that is no GPU", "a bare gres"],
)
def test_gpus_of_a_node(slurm: dict[str, Any], expected: int | None) -> None:
    assert plan.of_config(config(slurm=slurm), "r").gpus_per_node == expected


@each(("slurm", "expected"), [
    ({}, ""), ({"gpus-per-node": 8}, ""), ({"gpus-per-node": "h100:8"}, "h100"), ({"gres": "gpu:a100"}, "a100"),
    ({"gres": "nvme:fast:1,gpu:a100:8(S:0-1)"}, "a100"), ({"gpus": "v100:16", "nodes": 4}, "v100"),
    ({"gres": "gpu:a100:2,gpu:v100:2"}, ""), ({"gres": "gpu:a100:2,gpu:2"}, ""), ({"constraint": "a100"}, ""),
    ({"gpus-per-node": "a100:8", "gres": "gpu:v100:8"}, "a100"),
], ids=str)
def test_the_type_of_gpu_that_is_asked_for(slurm: dict[str, Any], expected: str) -> None:
    assert gpu_type(slurm) == expected


@each(
    ("launch", "slurm", "expected"),
    [
        ({"with": "torchrun", "nproc_per_node": 8}, {"gpus-per-node": 8, "ntasks-per-node": 8}, 1),
        ({"with": "srun", "nproc_per_node": None}, {"gpus-per-node": 8}, 8),
        ({"with": "srun", "nproc_per_node": 4}, {"gpus-per-node": 8}, 4),
        ({"with": "srun", "nproc_per_node": None}, {"gpus-per-node": 8, "ntasks-per-node": 2}, 2),
        ({"with": "srun", "nproc_per_node": None}, {"ntasks": 8, "nodes": 4}, 2),
        ({"with": "srun", "nproc_per_node": None}, {"ntasks": 1, "nodes": 4}, 1),
        ({"with": "srun", "nproc_per_node": None}, {}, 1),
        ({"with": "none", "nproc_per_node": None}, {"gpus-per-node": 8}, 1),
    ],
    ids=["torchrun starts its own ranks", "one for each GPU", "the launcher's number", "Slurm's number",
         "all tasks over the nodes", "fewer tasks than nodes", "no GPU", "no launcher"],
)
def test_tasks_of_a_node(launch: dict[str, Any], slurm: dict[str, Any], expected: int) -> None:
    assert plan.of_config(config(launch={"tee": 3, **launch}, slurm=slurm), "r").ntasks_per_node == expected


def test_an_attempt_has_a_guard_for_each_task_of_each_node() -> None:
    made = plan.of_config(config(slurm={"nodes": 4, "gpus-per-node": 8}), "r")
    assert made.tasks == 32


ARRAY = '"${RESUME_ARGS[@]}"'


@each(
    ("command", "expected"),
    [
        ("train ${RESUME_ARGS}", f"train {ARRAY}"),
        ("train $RESUME_ARGS --x", f"train {ARRAY} --x"),
        (f"train {ARRAY}", f"train {ARRAY}"),
        ("train $RESUME_ARGS_OLD", "train $RESUME_ARGS_OLD"),
        ("train '$RESUME_ARGS'", "train '$RESUME_ARGS'"),
        ('train "$RESUME_ARGS"', 'train "$RESUME_ARGS"'),
        ("train \\$RESUME_ARGS", "train \\$RESUME_ARGS"),
        ("train \"it's\" $RESUME_ARGS", f"train \"it's\" {ARRAY}"),
        ("a $RESUME_ARGS\nb ${RESUME_ARGS}", f"a {ARRAY}\nb {ARRAY}"),
        ("train", "train"),
    ],
    ids=["braces", "no braces", "the array already", "another variable", "in single quotes", "in double quotes",
         "escaped", "behind a quoted apostrophe", "twice", "not at all"],
)
def test_the_short_form_of_resume_args_means_all_of_them(command: str, expected: str) -> None:
    assert plan.array_form(command) == expected


@given(st.text(st.sampled_from("ab $\\'\"{}\n")))
def test_a_command_without_resume_args_stays_as_it_is(command: str) -> None:
    assert plan.array_form(command) == command


def test_a_run_of_an_older_version_goes_on_without_what_its_settings_do_not_name() -> None:
    made = plan.of_config(config(of_a_newer_one=1), "r")
    assert (made.standby, made.suspects.exclude, made.hang.is_on, made.slow.is_on, made.checks.boot) == (False,) * 5
    assert (made.launch.is_direct, made.restart.on_lost_progress, made.on_nan) == (False, "warn", None)
    null = plan.of_config(config(standby=None, container=None, args=None, notify={"to": None}), "r")
    assert null == made
    launch = {"with": "torchrun", "nproc_per_node": 2, "tee": 3, "torchrun": "direct"}
    assert plan.of_config(config(launch=launch), "r").launch.is_direct
