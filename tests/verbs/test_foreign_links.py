"""A run of somebody else whose folders are links to yours: no verb acts on your run, nor does an administrator's."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from safelaunch.cli import run
from safelaunch.verbs.common import confirmation
from tests.handmade import YAML, Made, make_run
from tests.io.nodehealth.test_ledger import ALICE, BOB, as_user, needs_root

pytestmark = needs_root

VERBS = (("stop",), ("stop", "--now"), ("stop", "--checkpoint"), ("stop", "--checkpoint", "--within", "2h"),
         ("hold",), ("resume",), ("release",), ("extend", "--for", "2h"))
KEPT = YAML + "preserve_site: {for: 1h}\nresume: {dir: /nonexistent, by: training}\nkill_switch: {grace: 1h}\n"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where everybody may pass; pytest's tmp_path is closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="safelaunch-test-"))
    folder.chmod(0o755)
    (folder / "bob").mkdir()
    (folder / "alice").mkdir()
    monkeypatch.setenv("HOME", str(folder / "alice"))
    monkeypatch.setattr(confirmation, "CONFIRM_S", 0.0)
    monkeypatch.setattr(confirmation, "ALIVE_S", 0.0)
    yield folder
    shutil.rmtree(folder)


def a_run(folder: Path, owner: int) -> Made:
    """A run whose first attempt has failed, and which has been asked to be held."""
    made = make_run(folder, KEPT, "1a2b3c4d", cluster="local")
    made.running()
    made.failed()
    (made.dir / "control" / "hold").touch()
    give(folder, owner)
    return made


def give(folder: Path, owner: int) -> None:
    for path in (folder, *folder.rglob("*")):
        os.lchown(path, owner, owner)
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | 0o055 if path.is_dir() else path.stat().st_mode | 0o044)


def what_is_in(folder: Path) -> list[tuple[str, int, int]]:
    return sorted((path.name, path.lstat().st_ino, path.lstat().st_mtime_ns) for path in folder.iterdir())


def type_verb(*words: str) -> tuple[int, str]:
    """Its exit code, and what it says."""
    raw = io.BytesIO()
    said = io.TextIOWrapper(raw, write_through=True)
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        return run(list(words)), raw.getvalue().decode()


def control_leads_away(place: Path) -> str:
    shutil.rmtree(place / "bob" / "evil" / "control")
    (place / "bob" / "evil" / "control").symlink_to(place / "alice" / "mine" / "control")
    return "bob/evil"


def control_leads_away_twice(place: Path) -> str:
    shutil.rmtree(place / "bob" / "evil" / "control")
    (place / "bob" / "evil" / "control").symlink_to("../step")
    (place / "bob" / "step").symlink_to(place / "alice" / "mine" / "control")
    return "bob/evil"


def run_leads_away(place: Path) -> str:
    (place / "bob" / "other").symlink_to(place / "alice" / "mine")
    return "bob/other"


def parent_leads_away(place: Path) -> str:
    (place / "bob" / "runs").symlink_to("../alice")
    return "bob/runs/mine"


def control_is_anothers(place: Path) -> str:
    """Not by a link: a folder of hers stands in it, as it does where it was moved or mounted there."""
    os.chown(place / "bob" / "evil" / "control", ALICE, ALICE)
    return "bob/evil"


@pytest.mark.parametrize("who", [ALICE, 0], ids=["a user", "root"])
@pytest.mark.parametrize("lead_away", [
    control_leads_away, control_leads_away_twice, run_leads_away, parent_leads_away, control_is_anothers])
def test_no_verb_on_a_run_of_somebody_else_acts_where_their_links_lead(
    lead_away: Callable[[Path], str], who: int, place: Path
) -> None:
    runs = a_run(place / "bob" / "evil", BOB), a_run(place / "alice" / "mine", ALICE)
    named = place / lead_away(place)
    for path in (place / "bob").rglob("*"):
        if path.is_symlink():
            os.lchown(path, BOB, BOB)
    os.chown(place / "bob", BOB, BOB)
    os.chown(place / "alice", ALICE, ALICE)
    mine = (named / "control").resolve()
    before = what_is_in(mine)
    wrong = []
    for words in VERBS:
        if words == ("release",):
            for made in runs:
                made.event("preserved", until=made.now + 600, nodes=["n0"])
        answer = as_user(who, partial(type_verb, words[0], str(named), *words[1:]), group=who).value
        if what_is_in(mine) != before or answer is None or answer[0] != 2 or "cannot be touched" not in answer[1]:
            wrong.append((words, answer, what_is_in(mine)))
            before = what_is_in(mine)
    assert not wrong


def test_a_link_of_ones_own_and_one_of_the_runs_owner_lead_on(place: Path) -> None:
    a_run(place / "alice" / "mine", ALICE)
    os.chown(place / "alice", ALICE, ALICE)
    (place / "bob" / "latest").symlink_to(place / "alice" / "mine")
    os.lchown(place / "bob" / "latest", ALICE, ALICE)
    for who in (ALICE, 0):
        answer = as_user(who, partial(type_verb, "stop", "--now", str(place / "bob" / "latest")), group=who)
        assert (place / "alice" / "mine" / "control" / "kill-now").exists(), answer
        (place / "alice" / "mine" / "control" / "kill-now").unlink()
