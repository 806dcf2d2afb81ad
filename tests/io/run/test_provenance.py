"""What git says of the working tree of a submission."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from safelaunch.run.io import provenance
from safelaunch.run.io.provenance import GitFacts
from tests.handmade import fake_command

LONG_S = 60.0


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, of one file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "train.py").write_text("old")
    for words in ("init -q", "add train.py", "-c user.name=a -c user.email=a@b commit -q -m first"):
        subprocess.run(["git", *words.split()], cwd=tree, check=True)
    return tree


def collect(folder: Path) -> tuple[dict[str, str] | None, bool]:
    git = GitFacts(str(folder))
    try:
        return git.collect(LONG_S), git.is_cut
    finally:
        git.close()


def test_a_commit_and_the_difference_from_it_are_told(repository: Path) -> None:
    (repository / "train.py").write_text("new")
    facts, is_cut = collect(repository)
    assert facts and len(facts["commit"]) == 40 and "+new" in facts["diff"] and not is_cut


def test_a_difference_that_is_too_long_is_cut(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "MAX_DIFF_BYTES", 50)   # a commit has 41
    (repository / "train.py").write_text("new")
    facts, is_cut = collect(repository)
    assert facts and len(facts["diff"]) == 50 and is_cut


def test_a_folder_outside_of_a_repository_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert collect(tmp_path) == ({}, False)


def test_git_is_asked_in_a_repository_alone(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "deep" / "er").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    subprocess.run(["git", "worktree", "add", "-q", tmp_path / "worktree"], cwd=repository, check=True)
    assert {place: bool(collect(tmp_path / place)[0]) for place in ("tree/deep/er", "worktree", "outside")} == {
        "tree/deep/er": True, "worktree": True, "outside": False}
    fake_command(tmp_path, "git", f"touch {tmp_path}/asked")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path), prepend=":")
        assert collect(tmp_path / "outside") == ({}, False) and not (tmp_path / "asked").exists()
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))
    assert collect(tmp_path / "outside")[0]


def test_a_git_that_is_ended_at_its_deadline_is_unknown_and_not_outside_of_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_command(tmp_path, "git", "exec sleep 600")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(provenance, "DEADLINE_S", 0.0)
    (tmp_path / ".git").mkdir()
    assert collect(tmp_path) == (None, False)
