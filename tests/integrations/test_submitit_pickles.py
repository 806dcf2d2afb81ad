"""Pickles in a folder that another user can write: what is not one's own is never loaded, and the folder is named."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from submitit.core import utils

from safelaunch.base.io import owners
from safelaunch.integrations.submitit.environment import EndRequest, OwnPaths, SafelaunchJobEnvironment
from safelaunch.integrations.submitit.job import RunPaths
from tests.io.nodehealth.test_ledger import ALICE, BOB, as_user, needs_root

pytestmark = needs_root


class Saving:
    """A function that goes on from where it was."""

    def __call__(self) -> int:
        return 7

    def checkpoint(self) -> utils.DelayedSubmission:
        return utils.DelayedSubmission(self)


class Evil:
    """What a pickle can hold: whoever loads it calls os.mkdir."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, (str(self.proof),)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of ALICE's that everybody may write; pytest's own is closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="safelaunch-test-"))
    folder.chmod(0o777)
    os.chown(folder, ALICE, ALICE)
    yield folder
    shutil.rmtree(folder)


def plant(path: Path, place: Path, how: str) -> None:
    """BOB's pickle under the name of hers: his file, or a link to it."""
    evil = path if how == "a file" else place / "bobs"
    evil.write_bytes(pickle.dumps(Evil(place / "proof")))
    os.chown(evil, BOB, BOB)
    if how == "a link":
        path.symlink_to(evil)
        os.lchown(path, BOB, BOB)
    elif how == "an own link":
        path.symlink_to(evil)
        os.lchown(path, ALICE, ALICE)


HOWS = ("a file", "a link", "an own link")


@pytest.mark.parametrize("how", HOWS)
def test_an_attempt_does_not_load_a_pickle_that_somebody_has_swapped(how: str, place: Path) -> None:
    plant(place / "1a2b3c4d_submitted.pkl", place, how)
    env = {"PATH": "/usr/bin:/bin", "SUBMITIT_EXECUTOR": "safelaunch", "SAFELAUNCH_RUN_ID": "1a2b3c4d"}
    ended = subprocess.run([sys.executable, "-m", "submitit.core._submit", str(place)], env=env, cwd=place, user=ALICE,
                           group=ALICE, extra_groups=[], capture_output=True, text=True, timeout=60, check=False)
    assert not (place / "proof").exists()
    assert ended.returncode == 1 and "is not loaded" in ended.stderr, ended.stderr


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", ["result_pickle", "submitted_pickle"])
def test_a_program_that_waits_does_not_load_anothers_result(name: str, how: str, place: Path) -> None:
    paths = RunPaths(place, job_id="1a2b3c4d", task_id=0)
    plant(Path(str(getattr(paths, name))), place, how)

    def load() -> str:
        try:
            with getattr(paths, name).open("rb") as file:
                pickle.load(file)
        except utils.FailedJobError as error:
            return str(error)
        return "loaded"

    assert "is not loaded" in str(as_user(ALICE, load, group=ALICE).value)
    assert not (place / "proof").exists()


@pytest.mark.parametrize("when", ["before it is opened", "while it is"])
@pytest.mark.parametrize("name", ["result_pickle", "submitted_pickle"])
def test_what_is_loaded_is_the_file_that_was_looked_at(name: str, when: str, place: Path) -> None:
    """BOB gives its name to a file of his as soon as the path was handed out, and again after the look."""
    paths = RunPaths(place, job_id="1a2b3c4d", task_id=0)
    path = Path(getattr(paths, name))
    path.write_bytes(pickle.dumps("hers"))
    os.chown(path, ALICE, ALICE)
    plant(place / "bobs", place, "a file")

    def load() -> object:
        given = getattr(paths, name)
        assert given.exists() and str(given) == str(path)
        opened = os.fspath(given) if when == "while it is" else given
        (place / "bobs").rename(path)
        try:
            return utils.pickle_load(opened)
        except utils.FailedJobError as error:
            return str(error)

    said = str(as_user(ALICE, load, group=ALICE).value)
    assert "is not loaded" in said if when == "before it is opened" else said == "hers"
    assert not (place / "proof").exists()


@pytest.mark.parametrize(("mode", "group", "is_loaded"), [
    (0o666, ALICE, False), (0o664, BOB, False), (0o644, BOB, True), (0o600, ALICE, True)])
def test_a_pickle_that_others_can_write_in_place_is_not_loaded(
    mode: int, group: int, is_loaded: bool, place: Path,
) -> None:
    paths = RunPaths(place, job_id="1a2b3c4d", task_id=0)
    path = Path(paths.submitted_pickle)
    path.write_bytes(pickle.dumps("hers"))
    path.chmod(mode)
    os.chown(path, ALICE, group)

    def load() -> object:
        try:
            return utils.pickle_load(paths.submitted_pickle)
        except utils.FailedJobError as error:
            return str(error)

    said = str(as_user(ALICE, load, group=ALICE).value)
    assert said == "hers" if is_loaded else "is not loaded" in said


def test_pickles_that_are_written_under_a_shared_umask_are_closed_to_the_group(place: Path) -> None:
    """That of the function, that of the next attempt, and the result."""
    os.chown(place, ALICE, BOB)
    place.chmod(0o2777)
    env = {"PATH": "/usr/bin:/bin", "SUBMITIT_EXECUTOR": "safelaunch", "SAFELAUNCH_RUN_ID": "r", "SLURM_PROCID": "0"}

    def write() -> list[str]:
        os.umask(0o002)
        paths = RunPaths(place, job_id="r", task_id=0)
        new = place / "new.pkl"
        utils.DelayedSubmission(abs, -7).dump(new)
        paths.move_temporary_file(new, "submitted_pickle")
        subprocess.run([sys.executable, "-m", "submitit.core._submit", str(place)], env=env, cwd=place, timeout=60,
                       check=True, capture_output=True)
        os.environ.update(env)
        EndRequest(SafelaunchJobEnvironment(), OwnPaths(place, "r", 0), utils.DelayedSubmission(Saving()))._save(False)
        assert utils.pickle_load(paths.result_pickle) == ("success", 7)
        return [f"{path.name} {path.stat().st_mode & 0o777:o}" for path in sorted(place.glob("*.pkl*"))]

    assert as_user(ALICE, write, group=ALICE).value == ["r_0_result.pkl 644", "r_submitted.pkl 644"]


def test_the_next_attempts_pickle_is_written_through_no_link_of_anothers(place: Path) -> None:
    hers = place / "hers"
    hers.write_text("precious")
    os.chown(hers, ALICE, ALICE)
    (place / "r_submitted.pkl.save_tmp").symlink_to(hers)

    def save() -> str:
        os.environ.update({"SAFELAUNCH_RUN_ID": "r", "SLURM_PROCID": "0"})
        return EndRequest(SafelaunchJobEnvironment(), OwnPaths(place, "r", 0),
                          utils.DelayedSubmission(Saving()))._save(False)

    assert as_user(ALICE, save, group=ALICE).value == ""
    assert hers.read_text() == "precious"
    assert (place / "r_submitted.pkl").lstat().st_uid == ALICE


@pytest.mark.parametrize(("mode", "owner", "said"), [
    (0o777, ALICE, "everybody"), (0o770, ALICE, "the group"), (0o755, BOB, str(BOB)), (0o755, ALICE, ""),
    (0o700, ALICE, ""), (0o755, 0, "")])
def test_a_submission_names_who_else_can_write_its_folder(mode: int, owner: int, said: str, place: Path) -> None:
    place.chmod(mode)
    os.chown(place, owner, BOB)
    found = as_user(ALICE, lambda: owners.who_else_writes(place.stat()), group=ALICE).value
    assert str(found).startswith(said) and bool(found) == bool(said)
