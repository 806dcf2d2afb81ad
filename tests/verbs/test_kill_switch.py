"""What other members of kill_switch.group can do to control/: nothing that hides a stop, and nothing but a stop."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from safelaunch.cli import run
from safelaunch.errors import RunFolderError
from safelaunch.run.io import runfolder
from safelaunch.verbs.common import confirmation, controls
from tests.handmade import YAML, Made, make_run
from tests.io.nodehealth.test_ledger import BOB, MALLORY, TEAM, as_user, needs_root
from tests.users import acting_as


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return make_run(tmp_path / "run")


def asked(made: Made, kill_file: str | None = None) -> dict[str, str]:
    return {name: who for name, who, _ in runfolder.read_requests(made.dir, kill_file or made.run.plan.kill_file)}


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def dangling(path: Path) -> None:
    path.symlink_to("/nonexistent/kill")


def closed(path: Path) -> None:
    path.touch(mode=0)


ODD: list[Callable[[Path], object]] = [link_to_itself, dangling, os.mkfifo, Path.mkdir]


@pytest.mark.parametrize("make", [*ODD, closed])
@pytest.mark.parametrize("name", ["kill", "kill-now", "checkpoint", "hold"])
def test_whatever_bears_the_name_of_a_stop_is_one(make: Callable[[Path], object], name: str, made: Made) -> None:
    make(made.dir / "control" / name)
    assert list(asked(made)) == [name]


@pytest.mark.parametrize("make", ODD)
@pytest.mark.parametrize("name", ["extend", "release"])
def test_only_a_file_prolongs_or_gives_back_and_nothing_hides_a_stop_behind_it(
    make: Callable[[Path], object], name: str, made: Made
) -> None:
    make(made.dir / "control" / name)
    assert asked(made) == {}
    (made.dir / "control" / "kill-now").touch()
    assert list(asked(made)) == ["kill-now"]


def test_a_name_that_cannot_be_looked_at_is_a_stop_and_a_folder_that_cannot_is_none(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    lstat, sick = os.lstat, {"kill", "extend"}

    def fail(path: str, **kwargs: int) -> os.stat_result:
        if os.path.basename(path) in sick:
            raise OSError(errno.EIO, "Input/output error")
        return lstat(path, **kwargs)
    monkeypatch.setattr(os, "lstat", fail)
    assert asked(made) == {"kill": "somebody"}
    sick.add(".")
    with pytest.raises(OSError, match="Input/output"):
        asked(made)


@needs_root
def test_a_kill_file_in_a_folder_that_has_been_closed_hides_no_other_one(tmp_path: Path, made: Made) -> None:
    for folder in (made.dir, made.dir / "control"):
        os.chown(folder, BOB, BOB)
    (tmp_path / "team").mkdir(mode=0o700)
    open_way_to(made.dir)
    (made.dir / "control" / "kill").touch()
    answer = as_user(BOB, lambda: asked(made, str(tmp_path / "team" / "KILL")))
    assert list(answer.value or ()) == ["kill"], answer.error


def open_way_to(path: Path) -> None:
    for folder in path.parents:
        if folder.name.startswith("pytest-of") or "pytest-" in str(folder):
            folder.chmod(0o711)


@needs_root
def test_a_link_to_anothers_file_does_not_name_that_other_one(made: Made) -> None:
    (made.dir / "control" / "kill").symlink_to("/etc/passwd")
    os.lchown(made.dir / "control" / "kill", MALLORY, MALLORY)
    assert asked(made) == {"kill": str(MALLORY)}


@needs_root
def test_a_member_cannot_take_anothers_stop_back(made: Made) -> None:
    control = made.dir / "control"
    os.chown(control, -1, TEAM)
    control.chmod(0o3770)   # as a run with kill_switch.group has it (test_runfolder)
    made.dir.chmod(0o751)
    open_way_to(control)
    (control / "kill").touch()
    assert as_user(BOB, lambda: (control / "kill").unlink()).errno == errno.EPERM
    assert as_user(BOB, lambda: (control / "kill").rename(control / "x")).errno == errno.EPERM
    assert as_user(BOB, lambda: (control / "kill-now").touch()).is_ok
    with acting_as(BOB, TEAM), pytest.raises(RunFolderError, match="only root may change it"):
        controls.renew(control / "kill", 1.0)
    assert not list(control.glob(".*"))
    assert set(asked(made)) == {"kill", "kill-now"}


@needs_root
def test_only_the_owners_word_turns_a_cancel_into_no_persons(made: Made) -> None:
    word = made.dir / "control" / "orphaned-12"
    assert not runfolder.is_orphaned(made.dir, "12")
    word.touch()
    assert runfolder.is_orphaned(made.dir, "12")
    os.chown(word, MALLORY, MALLORY)
    assert not runfolder.is_orphaned(made.dir, "12")
    word.unlink()
    word.symlink_to("/etc/passwd")
    assert not runfolder.is_orphaned(made.dir, "12")


@needs_root
def test_stopping_anothers_run_touches_nothing_that_its_run_json_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirmation, "CONFIRM_S", 0.0)
    mine = make_run(tmp_path / "mine")
    theirs = make_run(tmp_path / "theirs", YAML + f"kill_switch: {{file: {mine.dir}/control/kill}}\n")
    theirs.running()
    for folder in (theirs.dir, theirs.dir / "control"):
        os.chown(folder, MALLORY, MALLORY)
    run(["stop", str(theirs.dir)])
    assert asked(mine) == {}
    assert (theirs.dir / "control" / "kill").exists()
