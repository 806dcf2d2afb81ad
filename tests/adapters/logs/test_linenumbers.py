"""Numbers of lines that were found without."""

from __future__ import annotations

from pathlib import Path

import pytest

from safelaunch.adapters.logs import linenumbers, logbounds, logfiles
from safelaunch.adapters.logs.linenumbers import line_numbers, number_verdict
from safelaunch.core.why import rulebook
from safelaunch.core.why.judge.engine import judge_log

OOM = b"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a capacity of 79 GiB.\n"
STEP = b" iteration %8d/ 500000 | elapsed time per iteration (ms): 401.0 | lm loss: 2.5E+00 |\n"
NUMBERED = 3001


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of which the middle is skipped."""
    monkeypatch.setattr(logbounds, "SMALL", 10_000)
    monkeypatch.setattr(logbounds, "HEAD", 100)
    monkeypatch.setattr(logbounds, "MARGIN", 5000)
    path = tmp_path / "a.log"
    path.write_bytes(b"".join(STEP % number for number in range(NUMBERED - 1)) + OOM)
    return path


def test_a_line_behind_what_was_skipped_gets_its_number(log: Path) -> None:
    verdict = judge_log(logfiles.read_logs([log], rulebook.RULES, workers=1))
    assert verdict.cause is not None and verdict.cause.line_number is None
    numbered = number_verdict(verdict)
    assert numbered.cause is not None and numbered.cause.line_number == NUMBERED
    assert numbered.cited[0].line_number == NUMBERED


def test_where_there_is_no_time_a_line_keeps_its_byte(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linenumbers, "BUDGET_S", -1.0)
    verdict = judge_log(logfiles.read_logs([log], rulebook.RULES, workers=1))
    assert number_verdict(verdict) == verdict


@pytest.mark.parametrize("name", ["none", "."], ids=["gone", "a folder"])
def test_a_file_that_cannot_be_read_has_no_numbers(tmp_path: Path, name: str) -> None:
    assert line_numbers(tmp_path / name, [5]) == {}
