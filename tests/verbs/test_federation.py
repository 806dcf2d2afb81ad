"""In a federation: what is sent to Slurm keeps to this cluster. What Slurm makes of that: tests/drills."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from safelaunch.cli import run
from safelaunch.slurm.io import slurm
from tests.handmade import fake_command
from tests.pure.slurm.test_slurmtext import FEDERATION

TRAIN = "command: python train.py\nslurm: {nodes: 1, time: 5}\nlaunch: {with: srun}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to type in, with Slurm's commands in its `bin`; sbatch only has to be there."""
    (tmp_path / "train.yaml").write_text(TRAIN)
    fake_command(tmp_path / "bin", "sbatch", "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answers(folder: Path, text: str) -> None:
    fake_command(folder / "bin", "scontrol", f"[[ $* == 'show federation' ]] && cat <<'EOF'\n{text}EOF")


@pytest.mark.parametrize(("text", "lines"), [(FEDERATION, ["#SBATCH --clusters=feda"]), ("", [])],
                         ids=["a member", "in none"])
def test_a_run_of_a_federation_is_kept_on_this_cluster_and_another_run_is_not(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, lines: list[str]
) -> None:
    answers(folder, text)

    assert run(["submit", "--dry-run", "train.yaml"]) == 0

    script, said = capsys.readouterr()
    assert [line for line in script.splitlines() if "clusters" in line and line.startswith("#SBATCH")] == lines
    assert ("all jobs of the run stay on feda" in said) == bool(lines)


@pytest.mark.parametrize("option", ["clusters", "cluster-constraint", "M"])
def test_a_user_cannot_send_a_run_to_another_cluster(
    folder: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    words = ["-M", "other"] if option == "M" else [f"--{option}=other"]
    assert run(["submit", "--dry-run", "train.yaml", "--", *words]) == 2
    assert "a run stays on the cluster where it is submitted" in capsys.readouterr().err


def test_a_short_job_on_a_node_is_kept_on_this_cluster(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NODELIST"):
        monkeypatch.delenv(name, raising=False)
    answers(folder, FEDERATION)
    fake_command(folder / "bin", "srun", f'echo "$@" | head -1 >>{folder}/asked; exit 1')

    assert run(["nodes", "check", "n1", "--", "--partition=gpu"]) == 13

    assert "--nodelist=n1 " in (folder / "asked").read_text()
    assert " --clusters=feda --partition=gpu " in (folder / "asked").read_text()


@pytest.mark.parametrize("program", ["squeue", "sinfo", "sacct", "scontrol", "sbatch", "srun", "scancel"])
def test_questions_are_about_this_cluster_whatever_the_site_shows_by_itself(folder: Path, program: str) -> None:
    fake_command(folder / "bin", program, "env")

    said = slurm.run([program], {"PATH": os.environ["PATH"], "SQUEUE_FORMAT": "%A"}).stdout.splitlines()

    local = [line for line in said if "_LOCAL=" in line]
    asks = program in ("squeue", "sinfo", "sacct", "scontrol")
    assert local == ([f"{program.upper()}_LOCAL=1"] if asks else []), "a job must not inherit it"
