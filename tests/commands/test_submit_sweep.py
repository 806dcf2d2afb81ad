"""Submitting a sweep, several points at a time: what is written before each sbatch, and what a cut leaves behind.

The fake sbatch keeps a list of jobs, which the fake squeue shows; each can be told to fail, or to kill who called it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from safelaunch.adapters import submission
from safelaunch.cli import run
from tests.runs import is_so_within

SBATCH = """\
#!/bin/bash
dir=$(dirname "${@: -1}")
[[ -s $dir/run.json && -s $dir/submit.env && -s $dir/claims/1 ]] || { echo "$dir is not whole" >&2; exit 1; }
grep -q '"event":"intent"' "$dir"/journal/* || { echo "$dir: no intent" >&2; exit 1; }
exec 9>>jobs.lock; flock 9
number=$(($(wc -l <jobs) + 1))
[[ $number == "$(cat refuse)" ]] && { echo "Job violates accounting/QOS policy" >&2; exit 1; }
name=$(sed -n 's/^#SBATCH --job-name=//p' "${@: -1}")
echo "$number $name $*" >>jobs
[[ $number == "$(cat kill)" ]] && kill -9 $PPID
echo $number
"""
SQUEUE = """\
#!/bin/bash
for word; do [[ $word == --name=* ]] && names=${word#--name=}; done
while read -r number name _; do
    [[ ,$names, == *,$name,* ]] && echo "$number|PENDING|me|$name|Priority|"
done <"$HOME/jobs"
exit 0
"""
TRAIN = """\
name: many
cluster: slurm
command: cd . && python train.py --lr $lr
slurm: {nodes: 1, time: 5}
launch: {with: srun}
"""
POINTS = 40


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
    Path("train.yaml").write_text(TRAIN)


def words(parallel: int | None) -> list[str]:
    return ["submit", "train.yaml", f"sweep={{lr: 1-{POINTS}}}", *([f"max_parallel={parallel}"] if parallel else [])]


def jobs() -> dict[str, list[str]]:
    """Of each point's run: the words of the sbatch that Slurm has taken."""
    found: dict[str, list[str]] = {}
    for line in Path("jobs").read_text().splitlines():
        number, name, *argv = line.split()
        found.setdefault(name.partition(".")[0], []).append(f"{number} {' '.join(argv)}")
    return found


def all_is_right(parallel: int | None) -> None:
    """Each point has one job, which waits for the one before it in its lane, as its run does."""
    found = jobs()
    assert sorted(found) == sorted(f"many-lr{number}" for number in range(1, POINTS + 1))
    assert all(len(sent) == 1 for sent in found.values()), found
    for number in range(1, POINTS + 1):
        meta = json.loads(Path(f"runs/many-lr{number}/run.json").read_text())
        before = number - parallel if parallel else 0
        waits = re.findall(r"--dependency=(\S+)", found[f"many-lr{number}"][0])
        if before < 1:
            assert waits == ["singleton"] and not meta["config"].get("after")
            continue
        job = found[f"many-lr{before}"][0].split()[0]
        other = json.loads(Path(f"runs/many-lr{before}/run.json").read_text())
        assert waits == [f"afterany:{job},singleton"]
        assert meta["config"]["after"][0]["job_name"] == f"many-lr{before}.{other['run_id']}"
        assert Path(f"runs/many-lr{before}/control/followed").exists()


def others_have_ended() -> bool:
    """Whether no process works here any more: an sbatch outlives the submission that was killed."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.cwd() == str(Path.cwd()):
                return False
    return True


lanes = pytest.mark.parametrize("parallel", [None, 3, 1])


@lanes
def test_every_point_is_whole_and_announced_before_its_sbatch(parallel: int | None) -> None:
    assert run(words(parallel)) == 0
    all_is_right(parallel)


@lanes
def test_a_submission_that_is_killed_in_the_middle_is_finished_by_the_next(parallel: int | None) -> None:
    Path("kill").write_text("19")
    ended = subprocess.run([sys.executable, "-m", "safelaunch", *words(parallel)], capture_output=True, check=False)
    assert ended.returncode == -9
    assert is_so_within(others_have_ended, 20, 0.05)
    assert 19 <= len(jobs()) < POINTS
    Path("kill").write_text("")
    begun = Path("runs", f"many-lr{POINTS}")   # as if it had been killed while it wrote this one
    for name in ("journal", "attempts", "claims", "control"):
        (begun / name).mkdir(parents=True)
    (begun / "job.sbatch").write_text("half of it")
    assert run(words(parallel)) == 0
    all_is_right(parallel)


@lanes
def test_what_slurm_refuses_leaves_nothing_behind_and_is_submitted_later(
    parallel: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("refuse").write_text("12")
    assert run(words(parallel)) == 3
    assert "accounting/QOS policy" in capsys.readouterr().err
    sent = {f"many-lr{number}" for number in range(1, POINTS + 1)} & jobs().keys()
    assert {path.name for path in Path("runs").iterdir()} == sent and len(sent) == 11
    Path("refuse").write_text("")
    assert run(words(parallel)) == 0
    all_is_right(parallel)


def test_a_users_own_file_of_that_name_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own").mkdir()
    Path("own", "job.sbatch").write_text("mine")
    assert run(["submit", "train.yaml", "run_dir=own"]) != 0
    assert Path("own", "job.sbatch").read_text() == "mine" and "File exists" in capsys.readouterr().err
