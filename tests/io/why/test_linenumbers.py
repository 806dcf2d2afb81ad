"""Numbers of lines that were found without."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from safelaunch.why import rulebook
from safelaunch.why.io import linenumbers, logbounds, logfiles
from safelaunch.why.io.linenumbers import line_numbers, number_verdict
from safelaunch.why.io.logchunks import count_lines
from safelaunch.why.judge.engine import judge_log

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


def refuse(*_: object, **__: object) -> int:
    raise OSError(errno.EINVAL, "no pipe takes these pages")


@pytest.mark.parametrize("way", ["wc", "no wc", "pipes refused", "wc that says nothing"])
def test_lines_of_a_big_file_are_counted_whatever_counts_them(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setattr(linenumbers, "WC_FROM", 1 << 20)
    log = tmp_path / "big.log"
    log.write_bytes(b"a line of the log\n" * 250_000 + b"the last one")
    by_python: list[int] = []

    def count(fd: int, start: int, end: int) -> int:
        by_python.append(end)
        return count_lines(fd, start, end)

    monkeypatch.setattr(linenumbers, "count_lines", count)
    if way == "pipes refused":
        monkeypatch.setattr(os, "splice", refuse)
    elif way != "wc":
        monkeypatch.setenv("PATH", str(tmp_path))
        if way != "no wc":
            (tmp_path / "wc").symlink_to("/bin/true")
    assert line_numbers(log, [17, 18, 18 * 249_999, 18 * 250_000, 18 * 250_000 + 5]) == {
        17: 1, 18: 2, 18 * 249_999: 250_000, 18 * 250_000: 250_001, 18 * 250_000 + 5: 250_001}
    assert (max(by_python) > 1 << 20 and len(by_python) < 5) == (way == "wc"), "what is short is counted here"


def test_lines_are_not_counted_for_at_a_pace_that_would_take_too_long(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "big.log"
    with log.open("wb") as stream:
        stream.truncate(1 << 30)
    clock = iter(range(10_000))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock) / 4)
    assert line_numbers(log, [3 << 20, 1 << 30], 20.0) == {3 << 20: 1}
    assert next(clock) < 20, "it would have taken 256 s"


@pytest.mark.parametrize("name", ["none", "."], ids=["gone", "a folder"])
def test_a_file_that_cannot_be_read_has_no_numbers(tmp_path: Path, name: str) -> None:
    assert line_numbers(tmp_path / name, [5]) == {}
