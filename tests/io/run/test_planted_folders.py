"""A folder, or a link, that somebody has put where a run is submitted: nothing is changed before its owner is known."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from safelaunch.errors import RunFolderError
from safelaunch.run.io import ownership
from safelaunch.verbs.status import runmetrics as metrics
from tests.handmade import make_run
from tests.io.nodehealth.test_ledger import ALICE, BOB, as_user, needs_root
from tests.verbs.test_foreign_links import place

__all__ = ["place"]
pytestmark = needs_root
DEAD = f"{os.uname().nodename} 999999999"   # of a submission that was killed


def shown(folder: Path) -> list[tuple[str, int, int]]:
    """Mode, owner and name of a folder and all below it."""
    return sorted((str(path), path.lstat().st_mode, path.lstat().st_uid) for path in (folder, *folder.rglob("*")))


def alices_project(place: Path) -> Path:
    """A folder that she shares with her team, with what a submission makes in it."""
    project = place / "alice" / "project"
    (project / "control").mkdir(parents=True)
    for path in (project / "control" / "followed", project / "job.sbatch", project / ".begun"):
        path.write_text(DEAD)
    project.chmod(0o2775)
    for path in (place / "alice", project, *project.rglob("*")):
        os.chown(path, ALICE, ALICE)
    return project


def a_link(place: Path, project: Path) -> Path:
    (place / "bob" / "tr").symlink_to(project)
    return place / "bob" / "tr"


def a_link_above(place: Path, project: Path) -> Path:
    (place / "bob" / "runs").symlink_to(project.parent)
    return place / "bob" / "runs" / project.name


def a_folder(place: Path, project: Path) -> Path:
    planted = place / "bob" / "tr"
    planted.mkdir()
    (planted / ".begun").write_text(DEAD)
    (planted / "control").symlink_to(project / "control")
    planted.chmod(0o777)
    os.chown(planted, BOB, BOB)
    return planted


def a_control_in_her_own(place: Path, project: Path) -> Path:
    mine = place / "alice" / "open"
    mine.mkdir()
    (mine / ".begun").write_text(DEAD)
    (mine / "control").symlink_to(project / "control")
    mine.chmod(0o777)
    os.chown(mine, ALICE, ALICE)
    os.chown(mine / ".begun", ALICE, ALICE)
    return mine


@pytest.mark.parametrize("plant", [a_link, a_link_above, a_folder, a_control_in_her_own])
@pytest.mark.parametrize("who", [ALICE, 0], ids=["a user", "root"])
def test_a_submission_into_what_somebody_has_planted_changes_nothing_of_hers(
    who: int, plant: Callable[[Path, Path], Path], place: Path
) -> None:
    project = alices_project(place)
    planted = plant(place, project)
    for path in (place / "bob", *(path for path in place.rglob("*") if path.is_symlink())):
        os.lchown(path, BOB, BOB)
    before = shown(project)

    def submit() -> str:
        try:
            make_run(planted)
        except RunFolderError as refused:
            return refused.message
        return "made"

    answer = as_user(who, submit, group=who)
    assert shown(project) == before
    assert answer.value is not None and answer.value != "made", answer


def test_closing_a_run_to_others_follows_no_link_that_they_have_put_there(place: Path) -> None:
    project = alices_project(place)
    made = make_run(place / "alice" / "run")
    (made.dir / "claims").rmdir()
    (made.dir / "claims").symlink_to(project)
    (made.dir / "run.json").chmod(0o666)
    made.dir.chmod(0o777)
    for path in (made.dir, *made.dir.iterdir()):
        os.lchown(path, ALICE, ALICE)
    os.lchown(made.dir / "claims", BOB, BOB)
    before = shown(project)
    assert as_user(ALICE, lambda: ownership.close_run(made.dir)).value is True
    assert shown(project) == before
    assert [stat.S_IMODE((made.dir / name).stat().st_mode) for name in (".", "run.json")] == [0o755, 0o644]


def test_a_page_of_figures_gives_its_mode_to_no_other_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who may write the folder puts a link in place of the file as soon as it has its name."""
    secret = place / "alice" / "secret"
    secret.write_text("")
    secret.chmod(0o600)
    rename = Path.replace

    def race(draft: Path, target: Path) -> Path:
        assert stat.S_IMODE(draft.stat().st_mode) == metrics.FILE_MODE
        rename(draft, target)
        target.unlink()
        target.symlink_to(secret)
        return target

    monkeypatch.setattr(Path, "replace", race)
    before = os.umask(0o077)
    try:
        metrics.store(str(place), "")
    finally:
        os.umask(before)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
