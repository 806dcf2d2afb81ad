"""why RUN beside good logs of the same command: which are found, and what they change on the page."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from safelaunch.cli import run
from safelaunch.run.io import registry
from safelaunch.verbs.why import whygood
from tests.handmade import YAML, Made, make_run

REMARK = b"ValueError: no metrics server at {} given, metrics are off\n"
PUMP = b"the pump of rack 7 stands still\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _make(folder: Path, how: str, log: bytes, *overrides: str) -> Made:
    """A registered run whose only attempt ended so."""
    made = make_run(folder, YAML, "1a2b3c4d", *overrides)
    made.running()
    made.log(1, log)
    made.event("attempt_ended", attempt=1, how=how, exit_code=int(how == "failed"))
    assert registry.register(made.dir, folder.name, made.run.plan.run_id, "12")
    return made


def test_the_page_shows_what_no_earlier_run_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _make(here / "good", "completed", b"starting on gpu03\n" + REMARK)
    bad = _make(here / "bad", "failed", REMARK + PUMP + b"starting on gpu07\n" * 8)
    run(["why", str(bad.dir)])
    page = capsys.readouterr().out
    assert "the pump of rack 7" in page.partition("action")[0], page
    assert "ValueError" not in page.partition("action")[0], page


def test_only_good_ends_of_the_same_command_are_compared(here: Path) -> None:
    bad = _make(here / "bad", "failed", PUMP)
    _make(here / "failed", "failed", REMARK)
    _make(here / "other", "completed", REMARK, "command=python other.py")
    assert whygood.read(bad.run, bad.run.state().attempts[0]) == ()
    _make(here / "good", "completed", REMARK)
    assert len(whygood.read(bad.run, bad.run.state().attempts[0])) == 1


def test_a_log_that_is_huge_is_read_in_part(here: Path) -> None:
    made = _make(here / "good", "completed", b"a line of the start\n" + b"step 1 loss 2.0\n" * 400_000 + PUMP)
    start = time.monotonic()
    good = whygood.read(made.run, None)[0]
    assert "a line of the start\n" in good and "the pump" in good and len(good) < 500
    assert time.monotonic() - start < whygood.DEADLINE_S
