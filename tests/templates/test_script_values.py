"""Hostile values in a real bash: each arrives where it should, byte for byte, and none of them runs."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given

from safelaunch.run.plan import Plan
from safelaunch.script.script import render
from tests.hostile import batches, many, printable
from tests.pure.script.test_script import GOLDEN, MINIMAL, TEMPLATE, plan_of

HERE = Path(__file__).parents[1]
SCRIPTS = [*(HERE / "pure" / "script" / "golden").glob("*.sbatch"),
           *(HERE.parent / "src" / "safelaunch").glob("*/*.sh")]
# Stands for srun: says what it was given. What it was asked to start is the user's code, and does not start.
DOORMAN = """printf '%s\\0' "$@" >"$SEEN.argv"; env -0 >"$SEEN.env" """
BATCH = 25


def hostile_plan(values: list[str]) -> Plan:
    plan = plan_of(MINIMAL)
    path = printable(values[2]).replace("\\", "")[:500]
    return plan._replace(command=values[0], setup=values[1], run_dir=f"/nowhere/{path}",
        kill_switch=plan.kill_switch._replace(file=f"/nowhere/{values[2]}"),
        srun=plan.srun._replace(extra=tuple(values[3:8])),
        env=tuple((f"V{number}", value) for number, value in enumerate(values[8:])))


def run_script(folder: Path, plan: Plan, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """What the doorman was given by the script of this plan: words and environment."""
    script, seen = folder / "job.sbatch", folder / "seen"
    script.write_text(render(TEMPLATE, plan, python="/none/python", library=("/none/lib",),
                             srun=("bash", "-c", DOORMAN, "doorman")), encoding="utf-8", newline="")
    env = {"PATH": os.environ["PATH"], "SEEN": str(seen), "SAFELAUNCH_MASTER_ADDR": "here", "LANG": "C.UTF-8",
           "SLURM_JOB_ID": "1",
           "SAFELAUNCH_LOCAL_DIR": "/proc/none"}
    done = subprocess.run(["bash", str(script), *arguments], cwd=folder, env=env, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    pairs = seen.with_suffix(".env").read_bytes().decode().split("\0")[:-1]
    return (seen.with_suffix(".argv").read_bytes().decode().split("\0")[:-1],
            dict(pair.split("=", 1) for pair in pairs))


def without_mark(command: str) -> str:
    """A command's text as it was, without what the script puts before its last simple command."""
    return re.sub(r"SL_LAST \d+ (?:\w+ )*-- ", "", command, count=1)


@many(BATCH)
@given(batches(BATCH))
def test_hostile_values_reach_srun_unchanged_and_none_runs(values: list[str]) -> None:
    plan = hostile_plan(values)
    with tempfile.TemporaryDirectory() as name:
        words, env = run_script(Path(name), plan, "attempt", *values)
        assert sorted(os.listdir(name)) == ["job.sbatch", "seen.argv", "seen.env"]
    assert without_mark(env["SAFELAUNCH_COMMAND"]) == plan.command
    assert env["SAFELAUNCH_SETUP"] == plan.setup
    assert env["SAFELAUNCH_KILL_FILE"] == plan.kill_file
    assert {name: env[name] for name, _ in plan.env} == dict(plan.env)
    node = words.index("safelaunch-node")
    assert words[node + 1:] == values
    assert tuple(words[node - 8:node - 3]) == plan.srun.extra


@many(BATCH * 10)
@given(batches(BATCH))
def test_hostile_values_do_not_run_without_a_supervisor_either(values: list[str]) -> None:
    plan = hostile_plan(values)._replace(preserve=plan_of(MINIMAL).preserve._replace(for_s=100))
    with tempfile.TemporaryDirectory() as name:
        _, env = run_script(Path(name), plan)
        assert sorted(os.listdir(name)) == ["job.sbatch", "seen.argv", "seen.env"]
    assert without_mark(env["SAFELAUNCH_COMMAND"]) == plan.command


def test_the_longest_value_that_is_not_refused_is_one_that_a_process_can_be_given(tmp_path: Path) -> None:
    longest = "x" * 120_000
    plan = plan_of(MINIMAL)._replace(command=longest, setup=longest, env=(("V", longest[2:]),))
    _, env = run_script(tmp_path, plan, "attempt")
    assert env["SAFELAUNCH_COMMAND"] == env["SAFELAUNCH_SETUP"] == longest


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_bash_and_shellcheck_find_nothing_in_it(path: Path) -> None:
    said = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, timeout=60)
    assert (said.returncode, said.stderr) == (0, "")
    # SC2016: text for the nodes stands in single quotes on purpose.
    try:
        argv = ["shellcheck", "--exclude=SC2016", str(path)]
        said = subprocess.run(argv, capture_output=True, text=True, timeout=240)
    except FileNotFoundError:
        pytest.skip("shellcheck is not installed")
    assert said.stdout == ""


def test_every_golden_script_is_looked_at() -> None:
    assert len(SCRIPTS) == 6 + len(GOLDEN)
