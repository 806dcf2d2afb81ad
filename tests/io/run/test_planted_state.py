"""A state folder in which somebody else has put something under the names of the lists: XDG_STATE_HOME is shared."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from safelaunch.run.io import registry
from safelaunch.verbs.overview import sharedqueue
from safelaunch.watch.io import memory
from tests.io.nodehealth.test_ledger import ALICE, BOB, as_user, needs_root

pytestmark = needs_root
NAMES = ("runs.jsonl", "others.jsonl", "watch-n0.json")
PRECIOUS = b"alias ll='ls -l'\n"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """ALICE's .bashrc, and BOB's state/safelaunch, which she may write."""
    folder = Path(tempfile.mkdtemp(prefix="safelaunch-test-"))
    folder.chmod(0o755)
    (folder / "bashrc").write_bytes(PRECIOUS)
    os.chown(folder / "bashrc", ALICE, ALICE)
    (folder / "state" / "safelaunch").mkdir(parents=True)
    (folder / "state" / "safelaunch").chmod(0o777)
    os.chown(folder / "state" / "safelaunch", BOB, BOB)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    yield folder
    shutil.rmtree(folder)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


PLANTED: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo, "a terabyte": sparse, "a folder": Path.mkdir,
    "a link to her .bashrc": lambda path: path.symlink_to(path.parents[2] / "bashrc"),
    "a link to nothing": lambda path: path.symlink_to(path.parents[2] / "new"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_what_somebody_has_put_into_the_state_folder_holds_up_nothing_and_leads_nowhere(what: str, place: Path) -> None:
    for name in NAMES:
        path = place / "state" / "safelaunch" / name
        PLANTED[what](path)
        os.lchown(path, BOB, BOB)
        if not path.is_symlink():
            path.chmod(0o777)

    def use() -> list[object]:
        file = memory.file("n0")
        memory.load(file)
        with contextlib.suppress(OSError):
            memory.Memory().save(file)
        known = registry.register(place / "run", "bloom", "1a2b3c4d", "12", resume="/ckpt")
        return [known, len(registry.raw()), len(registry.with_resume("/ckpt")), len(registry.listed())]

    found = as_user(ALICE, use, group=ALICE)
    assert found.is_ok and found.value is not None, found
    assert (place / "bashrc").read_bytes() == PRECIOUS and not (place / "new").exists()
    assert what == "a terabyte" or found.value[0] is False


def test_drafts_beside_the_lists_are_written_through_no_link(place: Path) -> None:
    def use() -> bool:
        state = place / "state" / "safelaunch"
        for name in (f"runs.jsonl.{os.getpid()}", f".squeue.json.{os.getppid()}", f".squeue.json.{os.getpid()}"):
            (state / name).symlink_to(place / "bashrc")
        registry.register(place / "run", "bloom", "1a2b3c4d", "12")
        registry.COMPACT_BYTES = 0
        registry._compact(registry.file())
        sharedqueue._write({"t": 1.0, "whose": [], "jobs": []})
        return not (state / "squeue.json").is_symlink() and "1a2b3c4d" in registry.raw()

    assert as_user(ALICE, use, group=ALICE).value is True
    assert (place / "bashrc").read_bytes() == PRECIOUS


def test_a_list_behind_an_own_link_is_still_written(place: Path) -> None:
    (place / "home").mkdir()
    os.chown(place / "home", ALICE, ALICE)
    link = place / "state" / "safelaunch" / "runs.jsonl"
    link.symlink_to(place / "home" / "runs.jsonl")
    os.lchown(link, ALICE, ALICE)
    assert as_user(ALICE, lambda: registry.register(place, "bloom", "1a2b3c4d", "12"), group=ALICE).value is True
    assert b"1a2b3c4d" in (place / "home" / "runs.jsonl").read_bytes()
