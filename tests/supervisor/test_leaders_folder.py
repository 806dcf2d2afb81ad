"""The supervisor executes nothing of a run folder that is not its user's own: at its birth, before each submission."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from safelaunch.base.io.probe import ChildAnswer
from safelaunch.errors import RunFolderError
from safelaunch.run.io import ownership, runfolder
from safelaunch.script.io import laterjobs
from safelaunch.supervisor.ends import takeover
from safelaunch.supervisor.leader import Leader, Superseded
from safelaunch.supervisor.state.folder import FolderState
from safelaunch.supervisor.state.nextjob import NextJob
from tests.handmade import Made, make_run

MALLORY = 60002

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files away: needs root")


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return make_run(tmp_path / "run")


@pytest.fixture
def leader(made: Made, tmp_path: Path) -> Any:
    """What the look at the folder needs of a leader."""
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "job.sbatch").write_bytes((made.dir / "job.sbatch").read_bytes())
    said: list[str] = []
    folder = FolderState()
    folder.note_read(runfolder.folder_id(made.dir), (), 0.0)
    here = SimpleNamespace(run_dir=made.dir, local=tmp_path / "local", world=SimpleNamespace(share=lambda *_: None))
    files = SimpleNamespace(ask_anyway=lambda ask, _: ChildAnswer(value=ask()), ask_patiently=lambda ask: ask())
    return SimpleNamespace(here=here, folder=folder, said=said, say=said.append, files=files,
                           next=NextJob(lambda: True),
                           **dict.fromkeys(("listen", "guard_endpoint", "clock", "standbys", "running")))


def test_a_folder_that_is_ones_own_is_sure_and_one_that_does_not_answer_is_not(leader: Any) -> None:
    laterjobs.write(leader.here.run_dir, {"time": "2:00:00"})
    assert Leader.check_folder(leader) and not leader.said
    assert leader.next.later == {"time": "2:00:00"}   # what the next submission is to have
    leader.files.ask_anyway = lambda ask, _: ChildAnswer(late=True)
    assert not Leader.check_folder(leader)


def test_one_that_its_owner_has_opened_to_others_is_closed_again_and_that_is_said(leader: Any, made: Made) -> None:
    made.dir.chmod(0o770)
    (made.dir / "submit.env").chmod(0o620)
    assert Leader.check_folder(leader)
    assert ownership.why_not_own_run(made.dir) is None
    assert "closed to them again" in leader.said[0]


def changed(run_dir: Path) -> None:
    run_dir.chmod(0o777)
    (run_dir / "job.sbatch").write_text("touch owned\n")


def given_away(run_dir: Path) -> None:
    os.chown(run_dir / "job.sbatch", MALLORY, MALLORY)


def replaced(run_dir: Path) -> None:
    run_dir.rename(run_dir.with_name("moved"))
    make_run(run_dir)


@needs_root
@pytest.mark.parametrize("attack", [changed, given_away, replaced])
def test_nothing_is_sent_from_one_that_another_user_may_have_changed(
    attack: Callable[[Path], None], leader: Any, made: Made
) -> None:
    attack(made.dir)
    with pytest.raises(Superseded):
        Leader.check_folder(leader)


@needs_root
@pytest.mark.parametrize("name", ["submit.env", "job.sbatch", "run.json"])
def test_no_supervisor_is_born_to_a_folder_that_is_not_its_users(
    name: str, leader: Any, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "open_control", lambda *parts: None)
    os.chown(made.dir / name, MALLORY, MALLORY)
    with pytest.raises(RunFolderError, match=f"{name} belongs to"):
        takeover.boot(leader)
