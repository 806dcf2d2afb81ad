"""safelaunch doctor: answers of a Slurm that is odd, silent or not there, and what its exit code says."""

from __future__ import annotations

import grp
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from safelaunch.cli import run
from safelaunch.site.io import doctor, sitefolder
from tests.handmade import fake_command

COMMANDS = ("scontrol", "sacctmgr", "sbatch", "salloc", "squeue", "scancel")
REFUSES = "echo 'slurm_load_ctl_conf error: Invalid user' >&2; exit 1"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH without Slurm, and a folder that needs no measurement."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    for name in ("bash", "head", "tr", "sleep"):
        (tmp_path / "bin" / name).symlink_to(f"/usr/bin/{name}")
    monkeypatch.setattr(sitefolder, "PROBES", {"exec": sitefolder.PROBES["exec"]})
    return tmp_path


def ask(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    code = run(["doctor", str(folder), "--json", *words])
    said = json.loads(capsys.readouterr().out)
    assert said["v"] == 1 and said["ok"] is (code == 0)
    return code, {row["check"]: row for row in said["rows"]}


def test_where_there_is_no_slurm_this_machine_is_what_remains(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    code, rows = ask(capsys, folder, "--job")
    assert code == 0 and list(rows) == ["release", "exec"]
    assert rows["release"]["setting"] == "cluster: local"


@pytest.mark.parametrize("answer", ["", "head -c 3000000 /dev/zero", "head -c 3000000 /dev/zero | tr '\\0' '='",
                                    "echo 'SlurmdTimeout = ?'; echo '|||'", REFUSES],
                         ids=["empty", "zeros", "huge", "garbled", "refused"])
def test_odd_answers_are_unknown_and_never_a_crash(
    capsys: pytest.CaptureFixture[str], folder: Path, answer: str
) -> None:
    for name in COMMANDS:
        fake_command(folder / "bin", name, answer)
    code, rows = ask(capsys, folder, "--job")
    assert code == 4 and rows["release"]["verdict"] == "unknown"
    assert rows["nodes: job"]["verdict"] == "unknown" and rows["partition"]["verdict"] == "unknown"


def test_a_slurm_that_hangs_costs_its_deadline_and_is_unreachable(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "ASK_S", 0.3)
    for name in COMMANDS:
        fake_command(folder / "bin", name, "exec sleep 60")
    code, rows = ask(capsys, folder)
    assert code == 4 and rows["sbatch"]["verdict"] == "unknown"


def test_a_folder_that_is_not_safe_is_thirteen_and_people_see_the_worst_first(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    code, rows = ask(capsys, folder / "missing")
    assert code == 13 and rows["write"]["verdict"] == "not safe"
    assert run(["doctor", str(folder / "missing")]) == 13
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("not safe") and lines[-1].endswith("1 not safe, 1 caution")


def test_a_teams_group_that_does_not_exist_or_cannot_pass_is_told(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert ask(capsys, folder, "--group", "no-such-group")[1]["team"]["verdict"] == "unknown"
    mine = grp.getgrgid(os.getgid()).gr_name
    (folder / "closed").mkdir(0o700)
    closed = ask(capsys, folder / "closed", "--group", mine)[1]["team"]
    assert closed["verdict"] == "caution" and "does not let" in closed["measured"]


def test_the_partition_is_that_of_the_options_for_sbatch(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """As the row of a refused test job says: safelaunch doctor -- --account=… --partition=…"""
    fake_command(folder / "bin", "sbatch", "")
    fake_command(folder / "bin", "scontrol", "echo 'PartitionName=cpu Default=YES State=UP'; "
                 "echo 'PartitionName=gpu State=DOWN'")
    for words in (["--", "--partition=gpu"], ["--partition", "gpu"], ["--partition", "cpu", "--", "--partition=gpu"]):
        assert ask(capsys, folder, *words)[1]["partition"]["measured"] == "gpu is DOWN"
    assert ask(capsys, folder)[1]["partition"]["measured"].startswith("cpu: ")


def test_a_word_that_is_no_option_is_refused(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert run(["doctor", str(folder), "gpu"]) == 2
    assert "'gpu' is no option of sbatch" in capsys.readouterr().err


@pytest.mark.parametrize("salloc", ["echo 'salloc: Granted job allocation 12' >&2", "exec sleep 60", "exit 1"],
                         ids=["granted", "no answer", "refused"])
def test_the_small_job_is_cancelled_by_its_own_name_whatever_happens(
    folder: Path, monkeypatch: pytest.MonkeyPatch, salloc: str
) -> None:
    monkeypatch.setattr(doctor, "QUEUE_S", 0.2)
    fake_command(folder / "bin", "salloc", f'echo "$*" >"{folder}/asked"; {salloc}')
    fake_command(folder / "bin", "squeue", "echo 'n[3-4]'")
    fake_command(folder / "bin", "scancel", f'echo "$*" >"{folder}/cancelled"')
    monkeypatch.setattr(doctor, "ASK_S", 10.0 if "sleep" in salloc else 60.0)   # bash must begin within it
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt), doctor.small_job(["--job-name=mine"], dict(os.environ), said.append) as job:
        assert job.nodes == (("n3", "n4") if "Granted" in salloc else ()) and bool(job.trouble) is not bool(job.id)
        raise KeyboardInterrupt
    name = re.search(r"--job-name=(safelaunch-doctor-\S+)$", (folder / "asked").read_text())
    assert name and f"--name={name[1]}" in (folder / "cancelled").read_text() and said == []


def test_a_small_job_that_cannot_be_cancelled_is_said_with_the_command_that_ends_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_command(folder / "bin", "salloc", "echo 'salloc: Granted job allocation 12' >&2")
    fake_command(folder / "bin", "squeue", "echo 'n[3-4]'")
    fake_command(folder / "bin", "scancel", "echo 'Socket timed out' >&2; exit 1")
    said: list[str] = []
    with doctor.small_job([], dict(os.environ), said.append):
        pass
    assert len(said) == 1 and "Socket timed out" in said[0] and "scancel --name=safelaunch-doctor-" in said[0]
