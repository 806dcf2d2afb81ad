"""SBATCH_ variables as options: precedence and forms as sbatch 22.05.8 has them, what is said, and what is left out."""

from __future__ import annotations

import pytest

from safelaunch.config.resolve import ConfigLayer, Resolved, resolve
from safelaunch.config.scripts.sbatchvariables import VARIABLES
from safelaunch.errors import ConfigError
from safelaunch.slurm.sbatchoptions import OPTIONS
from tests.tables import each

SCRIPT = "#!/bin/bash\n#SBATCH -N 1 -t 10\n"
TRAIN = "command: x\nslurm: {time: 10}\n"


def read(text: str, environ: dict[str, str], *flags: str, overrides: tuple[str, ...] = ()) -> Resolved:
    file = "job.slurm" if text.startswith("#!") else "train.yaml"
    return resolve([ConfigLayer("file", file, text)], ["cluster=slurm", *overrides], {"HOME": "/h", **environ}, flags)


@each(("environ", "slurm"), [
    ({"SBATCH_TIMELIMIT": "7"}, {"time": 7}), ({"SBATCH_ACCOUNT": "0123"}, {"account": "0123"}),
    ({"SBATCH_ACCOUNT": ""}, {}), ({"SBATCH_MEM_PER_NODE": "100"}, {"mem": 100}),
    ({"SBATCH_EXCLUSIVE": ""}, {"exclusive": True}), ({"SBATCH_EXCLUSIVE": "user"}, {"exclusive": "user"}),
    ({"SBATCH_OVERCOMMIT": ""}, {"overcommit": True}), ({"SBATCH_OVERCOMMIT": "yes"}, {"overcommit": True}),
    ({"SBATCH_OVERCOMMIT": "1"}, {"overcommit": True}), ({"SBATCH_OVERCOMMIT": "0"}, {}),
    ({"SBATCH_OVERCOMMIT": "no"}, {}),
    ({"SBATCH_REQ_SWITCH": "2", "SBATCH_WAIT4SWITCH": "5:00"}, {"switches": "2@5:00"}),
    ({"SBATCH_WAIT4SWITCH": "5:00"}, {}), ({"SLURM_HINT": "nomultithread"}, {"hint": "nomultithread"}),
    ({"SLURM_HINT": "nomultithread", "SLURM_JOB_ID": "1"}, {}),
    ({"SBATCH_NODES": "2", "SBATCH_NTASKS": "2", "SLURM_NTASKS": "4", "SBATCH_CPUS_PER_TASK": "2"}, {}),
    ({"SBATCH_ACCOUNT": "a", "SLURM_JOB_ID": "1"}, {"account": "a"}),
    ({"SBATCH_COMMENT": "x", "SBATCH_QOS": "${A}"}, {"qos": "${A}"}),
], ids=str)
def test_a_variable_counts_as_sbatch_has_it(environ: dict[str, str], slurm: dict[str, object]) -> None:
    for text in (SCRIPT, TRAIN):
        assert read(text, environ).config["slurm"] == {"nodes": 1, "time": 10, **slurm}


def test_a_variable_counts_more_than_the_file_and_less_than_the_command_line_and_says_so() -> None:
    for text, place in ((SCRIPT, "job.slurm:2"), (TRAIN, "train.yaml:2")):
        found = read(text, {"SBATCH_TIMELIMIT": "7"})
        assert found.config["slurm"]["time"] == 7
        assert f"SBATCH_TIMELIMIT=7 in your environment: slurm.time, in place of 10 ({place})" in found.notes
        assert found.origins["slurm.time"][:2] == ("environment", "SBATCH_TIMELIMIT")
        for over in (read(text, {"SBATCH_TIMELIMIT": "7"}, "-t", "3"),
                     read(text, {"SBATCH_TIMELIMIT": "7"}, overrides=("slurm.time=3",))):
            assert over.config["slurm"]["time"] == 3 and not any("SBATCH" in note for note in over.notes)


@each("variable", ["SBATCH_REQUEUE", "SBATCH_NO_REQUEUE", "SBATCH_SIGNAL", "SBATCH_DEBUG"])
def test_what_safelaunch_does_itself_is_left_out_and_said(variable: str) -> None:
    for text in (SCRIPT, TRAIN):
        found = read(text, {variable: "1"})
        assert set(found.config["slurm"]) == {"nodes", "time"}
        assert any(note.startswith(variable) and "left out" in note for note in found.notes), found.notes


def test_a_name_an_output_and_an_array_are_a_scripts_own_as_in_its_lines() -> None:
    found = read(SCRIPT + "echo $SLURM_ARRAY_TASK_ID\n", {"SBATCH_JOB_NAME": "exp", "SBATCH_ARRAY_INX": "0-1",
                                                                 "SBATCH_OUTPUT": "%x.log"})
    assert found.config["name"] == "exp-task0" and found.config["own"]["job_name"] == "exp"
    assert found.config["own"]["output"] == "%x.log"
    assert read(TRAIN, {"SBATCH_JOB_NAME": "exp", "SBATCH_ARRAY_INX": "0-1"}).config["name"] == "train"


def test_what_would_move_the_run_into_a_container_is_refused() -> None:
    for text in (SCRIPT, TRAIN):
        with pytest.raises(ConfigError, match="SBATCH_CONTAINER"):
            read(text, {"SBATCH_CONTAINER": "/x"})


def test_a_wrong_value_names_the_variable() -> None:
    with pytest.raises(ConfigError, match=r"SBATCH_TIMELIMIT: slurm\.time: expected a time"):
        read(SCRIPT, {"SBATCH_TIMELIMIT": "abc"})


def test_the_scripts_own_shell_sees_the_variables_of_sbatch_and_srun_and_none_of_the_job_around() -> None:
    environ = {"SBATCH_ACCOUNT": "a", "SLURM_MPI_TYPE": "pmix", "SRUN_CPUS_PER_TASK": "2", "SLURM_NTASKS": "4"}
    assert read(SCRIPT, environ).config["env"] == {key: environ[key] for key in list(environ)[:3]}
    assert read(SCRIPT, {**environ, "SLURM_JOB_ID": "1"}).config["env"] == {"SBATCH_ACCOUNT": "a"}
    assert read(TRAIN, environ).config["env"] == {}


def test_every_variable_is_one_of_a_known_option() -> None:
    assert [name for name in VARIABLES.values() if name not in OPTIONS] == []
