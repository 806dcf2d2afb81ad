"""Two runs with one `resume.dir`: the second is refused as long as the first lives."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from safelaunch.cli import run
from safelaunch.run.io import journal
from safelaunch.script.io import submission
from safelaunch.verbs.submit import samefolder
from tests.verbs.test_sweep import SBATCH, SQUEUE

TRAIN = """\
name: {name}
cluster: slurm
command: python3 train.py ${{RESUME_ARGS}}
slurm: {{nodes: 1, time: 5}}
resume: {{dir: {dir}, args: "--load {{path}}"}}
"""


@pytest.fixture(autouse=True)
def _a_folder_with_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    (tmp_path / "site.yaml").touch()
    monkeypatch.setenv("SAFELAUNCH_SITE_CONFIG", str(tmp_path / "site.yaml"))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(submission, "SETTLE_S", 0.01)
    monkeypatch.chdir(tmp_path)
    Path("bin").mkdir()
    for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE), ("scontrol", "#!/bin/sh\nexit 0\n")):
        Path("bin", name).write_text(text)
        Path("bin", name).chmod(0o755)
    for name in ("jobs", "kill", "refuse"):
        Path(name).touch()
    write("one", "ckpt")


def write(name: str, dir: str) -> None:
    Path(f"{name}.yaml").write_text(TRAIN.format(name=name, dir=dir))


def ends(name: str) -> None:
    """Its supervisor writes so."""
    writer = journal.Writer(journal.Direct(Path("runs", name)), 1, "n0")
    writer.write(writer.event("completed", exit_code=0, why="attempt 1 ended with exit code 0"))


@pytest.mark.parametrize("dir", ["ckpt", "./ckpt/", "$HOME/ckpt", "other/../ckpt", "link"])
def test_folder_of_a_living_run_is_refused_with_the_ways_out(
    dir: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("link").symlink_to("ckpt")
    assert run(["submit", "one.yaml"]) == 0
    write("two", dir.replace("$HOME", str(tmp_path)))
    capsys.readouterr()
    assert run(["submit", "two.yaml"]) == 2
    said = capsys.readouterr().err
    for word in (f"{tmp_path}/ckpt", "run one", f"{tmp_path}/runs/one", "job 1", "safelaunch stop", "--after",
                 "resume.shared=true", "nothing was submitted"):
        assert word in said, word
    assert not Path("runs/two").exists()
    assert len(Path("jobs").read_text().splitlines()) == 1
    assert run(["check", "two.yaml"]) == 0
    assert "warning" in capsys.readouterr().err


@pytest.mark.parametrize("words", [
    ["resume.shared=true"], ["--after", "one"], ["--after-any", "one"], ["slurm.dependency=afterok:1"],
    ["resume.dir=ckpt2"], ["resume.dir=ckpt/a/b/c/d"],
], ids=" ".join)
def test_way_out_is_taken(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["submit", "one.yaml"]) == 0
    write("two", "ckpt")
    assert run(["submit", "two.yaml", *words]) == 0
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize("dir", ["ckpt/inner", "ckpt/a/b/c", "."])
def test_folder_in_the_other_s_is_told_and_taken(dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["submit", "one.yaml"]) == 0
    write("two", dir)
    for verb in ("check", "submit"):
        assert run([verb, "two.yaml"]) == 0
        said = capsys.readouterr().err
        assert "newer one of th" in said and "the run one writes its checkpoints" in said and "refuses" not in said


def test_run_behind_the_one_behind_it_may_have_it_too() -> None:
    for name, words in (("one", []), ("two", ["--after", "one"]), ("three", ["--after", "two"])):
        write(name, "ckpt")
        assert run(["submit", f"{name}.yaml", *words]) == 0
    write("four", "ckpt")
    assert run(["submit", "four.yaml", "--after", "two"]) == 2   # three starts then, too


def test_run_that_has_ended_holds_nothing() -> None:
    assert run(["submit", "one.yaml"]) == 0
    write("two", "ckpt")
    ends("one")
    assert run(["submit", "two.yaml"]) == 0
    assert run(["submit", "one.yaml"]) == 2   # two lives


def test_run_of_which_slurm_knows_no_job_holds_nothing() -> None:
    assert run(["submit", "one.yaml"]) == 0
    write("two", "ckpt")
    Path("jobs").write_text("")
    assert run(["submit", "two.yaml"]) == 0


def test_run_whose_folder_is_gone_holds_it_while_its_job_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["submit", "one.yaml"]) == 0
    shutil.rmtree("runs")
    write("two", "ckpt")
    assert run(["submit", "two.yaml"]) == 2
    assert "its folder is gone" in capsys.readouterr().err
    Path("jobs").write_text("")
    assert run(["submit", "two.yaml"]) == 0


def test_slurm_that_does_not_answer_makes_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["submit", "one.yaml"]) == 0
    write("two", "ckpt")
    Path("bin/squeue").write_text("#!/bin/sh\nexit 1\n")
    assert run(["check", "two.yaml"]) == 0
    assert "does not say whether it still lives" in capsys.readouterr().err


def test_script_that_says_its_folder_is_refused_too() -> None:
    Path("job.slurm").write_text("#!/bin/bash\n#SBATCH -N 1 -t 5\nsrun python3 train.py\n")
    assert run(["submit", "one.yaml"]) == 0
    assert run(["submit", "job.slurm", "resume.dir=ckpt"]) == 2
    assert run(["submit", "job.slurm"]) == 0   # nothing is known of what it writes


def test_points_of_a_sweep_may_share_where_that_is_said() -> None:
    sweep = ["submit", "one.yaml", "sweep={lr: 1-2}"]
    assert run(sweep) == 2
    assert run([*sweep, "resume.shared=true"]) == 0


def test_of_two_at_once_one_is_refused() -> None:
    write("two", "ckpt")
    Path("bin/sbatch").write_text(SBATCH.replace("exec 9>>", "sleep 0.5\nexec 9>>"))
    both = [subprocess.Popen([sys.executable, "-m", "safelaunch", "submit", f"{name}.yaml"], stderr=subprocess.DEVNULL)
            for name in ("one", "two")]
    assert sorted(one.wait() for one in both) == [0, 2]


def test_lost_folder_is_told_and_its_job_is_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["submit", "one.yaml"]) == 0
    run_id = json.loads(Path("runs/one/run.json").read_text())["run_id"]
    Path("runs").rename("runs.old")
    Path("bin/scancel").write_text('#!/bin/sh\ncd "$HOME"; echo "$*" >>cancelled\n>jobs\n')
    Path("bin/scancel").chmod(0o755)
    capsys.readouterr()
    for which in ("one", run_id, "1", "runs/one"):
        assert run(["status", which]) == 2
        said = capsys.readouterr().err
        assert f"{tmp_path}/runs/one of one is gone" in said and "job 1" in said and "scancel 1" in said, which
    Path("runs/one").mkdir(parents=True)   # a supervisor that writes can be quicker than rm
    assert run(["status", "one"]) == 2
    assert "emptied" in capsys.readouterr().err
    shutil.rmtree("runs")
    assert run(["stop", "one"]) == 0
    assert f"--name=one.{run_id}" in Path("cancelled").read_text()
    assert run(["stop", "one"]) == 0
    assert "knows no job" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_run_that_names_runs_before_it_without_end_holds_no_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run.json may be another user's."""
    assert run(["submit", "one.yaml"]) == 0
    write("two", "elsewhere")
    assert run(["submit", "two.yaml", "--after", "one"]) == 0
    meta = json.loads(Path("runs/two/run.json").read_text())
    meta["config"]["after"] = [
        {**meta["config"]["after"][0], "run_dir": f"/nowhere/{number}"} for number in range(100)]
    Path("runs/two/run.json").write_text(json.dumps(meta))
    monkeypatch.setattr(samefolder, "MOST_BEFORE", 10)
    asked: list[str] = []
    load = samefolder._load

    def look(run_dir: str) -> object:
        asked.append(run_dir)
        return load(run_dir)

    monkeypatch.setattr(samefolder, "_load", look)
    write("three", "elsewhere")
    run(["submit", "three.yaml", "--after", "two"])
    assert 1 < len(asked) < 15
