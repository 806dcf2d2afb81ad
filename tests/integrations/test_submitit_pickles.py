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

from safelaunch.integrations.submitit import executor as executors
from safelaunch.integrations.submitit.job import RunPaths
from tests.io.nodehealth.test_ledger import ALICE, BOB, as_user, needs_root

pytestmark = needs_root


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


@pytest.mark.parametrize(("mode", "owner", "said"), [
    (0o777, ALICE, "everybody"), (0o770, ALICE, "the group"), (0o755, BOB, str(BOB)), (0o755, ALICE, ""),
    (0o700, ALICE, ""), (0o755, 0, "")])
def test_a_submission_names_who_else_can_write_its_folder(mode: int, owner: int, said: str, place: Path) -> None:
    place.chmod(mode)
    os.chown(place, owner, BOB)
    found = as_user(ALICE, lambda: executors._who_else_writes(place), group=ALICE).value
    assert str(found).startswith(said) and bool(found) == bool(said)
