"""sbatch's words in all spellings, and what a self-submission asks for."""

from __future__ import annotations

import pytest

from safelaunch.node.standin import sbatchcall
from safelaunch.node.standin.links import add
from safelaunch.slurm.sbatchoptions import LETTERS, OPTIONS
from tests.tables import each

TAKES = {name: option.takes for name, option in OPTIONS.items()}


@each(("words", "options", "script", "args"), [
    ("job.slurm", {}, "job.slurm", []),
    ("--parsable job.slurm 2 -x", {"parsable": ""}, "job.slurm", ["2", "-x"]),
    ("-d afterany:7 job.slurm", {"dependency": "afterany:7"}, "job.slurm", []),
    ("-dafterany:7 job.slurm", {"dependency": "afterany:7"}, "job.slurm", []),
    ("--dependency=afterok:7 job.slurm", {"dependency": "afterok:7"}, "job.slurm", []),
    ("--dep afterok:7 job.slurm", {"dependency": "afterok:7"}, "job.slurm", []),
    ("-Q -HJ name job.slurm", {"quiet": "", "hold": "", "job-name": "name"}, "job.slurm", []),
    ("-N2 -t 10 -- job.slurm a", {"nodes": "2", "time": "10"}, "job.slurm", ["a"]),
    ("--exclusive job.slurm", {"exclusive": ""}, "job.slurm", []),
    ("--export=ALL,A=1 --time=1 --time=2 job.slurm", {"export": "ALL,A=1", "time": "2"}, "job.slurm", []),
    ("--wrap hostname", {"wrap": "hostname"}, None, []),
    ("", {}, None, []),
])
def test_options_script_and_arguments_are_told_apart(
        words: str, options: dict[str, str], script: str | None, args: list[str]) -> None:
    call = sbatchcall.parse(words.split(), TAKES, LETTERS)
    assert (call.options, call.script, call.args) == (options, script, args)


@pytest.mark.parametrize("words", [["--container-image=x", "a"], ["--n", "2", "a"], ["-z", "a"], ["--time"]], ids=str)
def test_an_option_of_a_plugin_is_not_guessed(words: list[str]) -> None:
    with pytest.raises(sbatchcall.Unreadable):
        sbatchcall.parse(words, TAKES, LETTERS)


@each(("dependency", "when"), [
    ("", "any"), ("singleton", "any"), ("afterany:7", "any"), ("after:7", "any"), ("after:7+5", "any"),
    ("afterok:7", "ok"), ("afternotok:7", "notok"), ("afterany:7:7,singleton", "any"), ("afterok:7_3", "ok"),
    ("afterok:8", None), ("afterany:7:8", None), ("afterburstbuffer:7", None), ("aftercorr:7", None),
])
def test_a_dependency_on_this_job_says_after_which_end_the_link_starts(dependency: str, when: str | None) -> None:
    assert sbatchcall.waits_for(dependency, ("7",)) == when


START = {"PATH": "/t/bin:/usr/bin", "A": "1", "GONE": "x", "SLURM_JOB_ID": "7", "SAFELAUNCH_MARK": "r.7.1"}


@each(("env", "asked", "found", "gone"), [
    ({}, "ALL", {}, []),
    ({"A": "2"}, "ALL", {"A": "2"}, []),
    ({"B": "a,b"}, "ALL,C=1,D", {"B": "a,b", "C": "1"}, []),
    ({"PATH": "/t/bin:/opt/bin:/usr/bin"}, "ALL", {"PATH": "/opt/bin:/usr/bin"}, []),
    ({"SLURM_X": "1", "PWD": "/", "SAFELAUNCH_STEP": "yes", "BASH_FUNC_srun%%": "() { :; }"}, "ALL", {}, []),
    ({"A": "2"}, "NONE", {}, []),
    ({"A": "2"}, "A,B=x y", {"A": "2", "B": "x y"}, []),
    ({"GONE": ""}, "ALL", {"GONE": ""}, []),
])
def test_a_link_has_what_the_script_has_set_and_named(
        env: dict[str, str], asked: str, found: dict[str, str], gone: list[str]) -> None:
    assert sbatchcall.exported({**START, **env}, START, {}, asked, "/t/bin") == (found, gone)


def test_a_link_keeps_what_the_one_before_had_and_loses_what_is_unset() -> None:
    now = {name: value for name, value in START.items() if name != "GONE"}
    assert sbatchcall.exported(now, START, {"A": "1"}, "ALL", "/t/bin") == ({"A": "1"}, ["GONE"])


def test_another_job_gets_nothing_of_this_run() -> None:
    env = {**START, "BASH_FUNC_srun%%": "() { :; }", "BASH_FUNC_module%%": "() { :; }", "BASH_ENV": "/t/bash_env",
           "WANDB_RUN_ID": "r"}
    assert sbatchcall.without(env, "/t/bin", ["WANDB_RUN_ID"]) == {
        "PATH": "/usr/bin", "A": "1", "GONE": "x", "SLURM_JOB_ID": "7", "BASH_FUNC_module%%": "() { :; }"}


def test_slurm_is_told_the_jobs_id_for_that_of_a_link() -> None:
    words = ["--dependency=afterok:9000000101:5", "eval.slurm", "x9000000101"]
    assert sbatchcall.with_own_ids(words, ["9000000101"], "7") == ["--dependency=afterok:7:5", "eval.slurm", "x7"]


def test_options_for_another_job_than_the_runs_are_named() -> None:
    options = {"time": "2:00", "nodes": "2", "job-name": "b", "parsable": "", "exclusive": ""}
    assert sbatchcall.unfollowed(options, {"nodes": "2", "time": "1:00"}) == ["--time=2:00", "--exclusive"]


def test_a_run_goes_on_as_one_job_after_each_end() -> None:
    links = [{"id": "1", "when": "ok", "args": []}]
    assert add(links, {"id": "2", "when": "ok", "args": []}) == links[0] and len(links) == 1
    assert add(links, {"id": "2", "when": "ok", "args": ["x"]}) is None
    assert add(links, {"id": "2", "when": "any", "args": []}) is None
    assert add(links, {"id": "2", "when": "notok", "args": ["x"]}) == links[1]
