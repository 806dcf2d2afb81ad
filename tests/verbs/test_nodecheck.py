"""safelaunch nodes check: on this machine by the real checks, elsewhere by what srun is asked; jobs: tests/drills."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from safelaunch.cli import run
from safelaunch.node.checks.table import CHECKS
from tests.handmade import fake_command

HOST = os.uname().nodename.split(".")[0]
# What takes a second, or tells of this machine's own matters.
ONLY_DISK = [word for check in CHECKS if check.name not in ("rw", "space") for word in ("--skip", check.name)]


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NODELIST"):
        monkeypatch.delenv(name, raising=False)


def test_this_machine_is_checked_without_slurm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nodes", "check", "--local", "--path", str(tmp_path), *ONLY_DISK, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    (node,) = said["nodes"]
    assert (said["ok"], said["level"], node["node"], node["state"]) == (True, "light", HOST, "good")
    assert [(row["name"], row["item"], row["outcome"]) for row in node["checks"]] == [
        ("rw", str(tmp_path), "ok"), ("space", str(tmp_path), "ok")]


def test_a_node_that_fails_ends_with_13_and_a_table_that_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = str(tmp_path / "gone")
    assert run(["nodes", "check", "--local", "--path", gone, *ONLY_DISK]) == 13
    out, err = capsys.readouterr()
    assert out.splitlines()[1].split()[:3] == ["rw", gone, "failed"]
    assert out.splitlines()[-1] == (f"failed  {HOST:<5}  rw {gone}: No such file or directory; "
                                    f"space {gone}: No such file or directory")
    assert err.endswith(f"not to be used: {HOST}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "which nodes? outside of a job name them, or say --local for this machine"),
        (["n1", "--local"], "--local looks at this machine alone: name no nodes with it"),
        (["--local", "--skip", "gpu"], "--skip: no check is called gpu"),
        (["n1", "--", "-p", "gpu"], "'gpu' is no option of srun"),
        (["n[1-"], "not a node list: 'n[1-'"),
    ],
    ids=["no nodes", "local and nodes", "no such check", "option in two words", "no node list"],
)
def test_what_cannot_be_obeyed_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nodes", "check", *words]) == 2
    assert capsys.readouterr().err.splitlines()[0].startswith(f"safelaunch: {said}")


def test_nodes_outside_of_a_job_get_a_short_job_each_and_one_that_is_taken_gives_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_command(tmp_path, "srun", f"""\
[[ $* == *nodelist=n2* ]] && {{ echo "srun: error: Requested nodes are busy" >&2; exit 1; }}
echo "$@" | head -1 >{tmp_path}/asked
while [[ $1 == -* ]]; do shift; done
exec "$@\"""")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert run(["nodes", "check", "n[1-2]", *ONLY_DISK, "--path", str(tmp_path), "--", "--partition=gpu"]) == 13
    out, _ = capsys.readouterr()
    assert [line.split()[:3] for line in out.splitlines()] == [
        ["state", "nodes", "why"], ["no", "answer", "n2"], ["good", "n1", "-"]]
    assert "Requested nodes are busy" in out
    assert (tmp_path / "asked").read_text().startswith(
        "--job-name=safelaunch-check --nodes=1 --ntasks=1 --nodelist=n1 --immediate=30 --time=3 --quiet "
        "--partition=gpu bash -c")


@pytest.mark.parametrize(("steps", "code", "said"), [
    ("7.batch|batch", 13, "0 GPUs, 2 asked"), ("7.batch|batch\n7.0|bash", 0, "GPUs are not counted"),
], ids=["no step has them", "a step may hold them"])
def test_gpus_that_a_step_of_the_job_holds_are_not_called_missing(
    steps: str, code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str]
) -> None:
    fake_command(tmp_path, "squeue", f"printf '{steps}\\n'")
    fake_command(tmp_path, "srun", 'while [[ $1 == -* ]]; do shift; done; exec "$@"')
    fake_command(tmp_path, "nvidia-smi", "echo 'No devices were found'; exit 6")
    monkeypatch.setattr("safelaunch.node.devices.SYSTEM_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name, value in (("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "n1"), ("SLURMD_NODENAME", "n1")):
        monkeypatch.setenv(name, value)
    skip = [word for check in CHECKS if check.name not in ("limits", "gpu_count") for word in ("--skip", check.name)]
    assert run(["nodes", "check", "--gpus", "2", *skip]) == code
    assert said in "".join(capsys.readouterr())
