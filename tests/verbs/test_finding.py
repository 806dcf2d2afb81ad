"""Runs of teammates: found by what Slurm says of them, from anywhere, and private ones told in words."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from safelaunch.base.io.probe import run_in_child
from safelaunch.errors import RunFolderError, UsageError
from safelaunch.run.io import registry
from safelaunch.verbs.common import runs, teamruns
from tests.handmade import Made, fake_command, make_run

BOB = "nobody"   # an ordinary user of every machine


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A run in a folder that nothing below the working directory leads to; squeue knows its job 77."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "far" / "away").mkdir(parents=True)
    made = make_run(tmp_path / "far" / "away" / "bloom")
    made.submitted("77")
    squeue(tmp_path, f"77|{owner()}|RUNNING|bloom.1a2b3c4d|{made.dir}/job.sbatch",
           f"78|{owner()}|PENDING|bloom.1a2b3c4d|{made.dir}/job.sbatch",
           "79|eve|RUNNING|train|/home/eve/train.slurm")
    return made


def owner() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def squeue(tmp_path: Path, *lines: str) -> None:
    """Let squeue print these lines, and say no when it is asked about another job than the first two."""
    printed = "\n".join(f"echo '{line}'" for line in lines)
    fake_command(tmp_path / "bin", "squeue", "case \"$*\" in *--jobs=7[78]*) ;; *--jobs=*) exit 1 ;; esac\n" + printed)


@pytest.mark.parametrize("text", ["77", "78", "bloom", "1a2b3c4d"], ids=["its job", "its next job", "its name", "id"])
def test_a_run_that_slurm_knows_is_found_from_anywhere(team: Made, text: str) -> None:
    assert runs.find_folder(text) == team.dir


@pytest.mark.parametrize("text", ["79", "train", "blo", "12"], ids=["another job", "its name", "a prefix", "no job"])
def test_what_slurm_does_not_know_as_a_run_is_unknown(team: Made, text: str) -> None:
    with pytest.raises(UsageError, match="no run is known as"):
        runs.find_folder(text)


def test_a_job_that_points_at_a_folder_of_somebody_else_is_not_followed(team: Made, tmp_path: Path) -> None:
    squeue(tmp_path, f"77|{BOB}|RUNNING|bloom.1a2b3c4d|{team.dir}/job.sbatch")
    with pytest.raises(UsageError):
        runs.find_folder("77")


def test_an_ended_job_that_squeue_has_forgotten_is_found_where_the_site_keeps_accounts(
    team: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teamruns, "_me", lambda: BOB)
    fake_command(tmp_path / "bin", "squeue", "exit 1")
    line = f"77|{owner()}|COMPLETED|bloom.1a2b3c4d|sbatch --parsable --dependency=singleton {team.dir}/job.sbatch"
    fake_command(tmp_path / "bin", "sacct", f"case \"$*\" in *--jobs=77*) echo '{line}' ;; esac")
    assert runs.find_folder("77") == team.dir
    with pytest.raises(UsageError):
        runs.find_folder("76")
    fake_command(tmp_path / "bin", "sacct", "exit 1")
    assert runs.find_folder("bloom") == team.dir, "it is remembered"


def test_two_runs_of_one_name_are_listed(team: Made, tmp_path: Path) -> None:
    other = make_run(tmp_path / "far" / "bloom", run_id="5e6f7a8b")
    squeue(tmp_path, f"77|{owner()}|RUNNING|bloom.1a2b3c4d|{team.dir}/job.sbatch",
           f"80|{owner()}|RUNNING|bloom.5e6f7a8b|{other.dir}/job.sbatch")
    with pytest.raises(UsageError, match="may mean 2 runs"):
        runs.find_folder("bloom")


@pytest.mark.parametrize("text", ["77", "bloom", "1a2b3c4d"])
def test_a_run_of_somebody_else_is_remembered_for_when_slurm_has_forgotten_it(
    team: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(teamruns, "_me", lambda: BOB)
    for _ in range(2):
        runs.find_folder("77")
    squeue(tmp_path)
    assert runs.find_folder(text) == team.dir
    assert len(registry.others_file().read_text().splitlines()) == 1
    assert registry.listed() == [], "it is nobody's own: no watch looks after it"


def test_ones_own_run_comes_before_one_of_the_same_name(team: Made, tmp_path: Path) -> None:
    mine = make_run(tmp_path / "mine", run_id="5e6f7a8b")
    registry.register(mine.dir, "bloom", "5e6f7a8b", "12")
    registry.remember(team.dir, "bloom", "1a2b3c4d", "77")
    assert runs.find_folder("bloom") == mine.dir


def test_a_slurm_that_does_not_answer_leaves_the_run_unknown(team: Made, tmp_path: Path) -> None:
    fake_command(tmp_path / "bin", "squeue", "exit 1")
    with pytest.raises(UsageError, match="no run is known as"):
        runs.find_folder("77")


@pytest.fixture
def alices() -> Iterator[Made]:
    """A run of this user in a folder that everybody can reach."""
    folder = Path(tempfile.mkdtemp(prefix="safelaunch-team-"))
    folder.chmod(0o755)
    yield make_run(folder / "bloom")
    shutil.rmtree(folder)


@pytest.mark.root
@pytest.mark.parametrize(("mode", "said", "hint"), [
    (0o750, "is private: root alone may read it", "a run that is submitted with kill_switch: {group: GROUP} can be"),
    (0o2750, "is private: root and the group root may read it", "ask root to add you to the group"),
], ids=["private", "another group's"])
def test_a_run_that_may_not_be_read_says_whose_it_is(alices: Made, mode: int, said: str, hint: str) -> None:
    alices.dir.chmod(mode)
    error = as_nobody(lambda: runs.load(str(alices.dir)))
    assert said in error and hint in error and "Errno" not in error


@pytest.mark.root
def test_a_run_behind_a_closed_folder_says_how_to_see_which(alices: Made) -> None:
    alices.dir.parent.chmod(0o700)
    error = as_nobody(lambda: runs.load(str(alices.dir)))
    assert "a folder above it is closed to you" in error and "namei -l" in error


@pytest.mark.root
def test_what_only_the_owner_may_do_is_said_in_words(alices: Made) -> None:
    error = as_nobody(lambda: runs.check_mine(alices.run, "look at the ranks", "stacks"))
    assert "only root may look at the ranks of bloom: Slurm lets nobody else into the job" in error
    assert f"ask root to type: safelaunch stacks {alices.dir}" in error


def as_nobody(act: Callable[[], object]) -> str:
    """What the error of an act says to another user: message and hint."""
    def fallen() -> str:
        os.setgroups([])
        os.setgid(pwd.getpwnam(BOB).pw_gid)
        os.setuid(pwd.getpwnam(BOB).pw_uid)
        try:
            act()
        except (RunFolderError, UsageError) as error:
            return f"{error.message}\n{error.hint}"
        return "no error"

    answer = run_in_child(fallen, 60.0)
    assert answer.value is not None, answer.error
    return answer.value
