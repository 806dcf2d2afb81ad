"""What a supervisor reads of an attempt's log: what the pump has left of it."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from safelaunch.why import rulebook
from safelaunch.why.findings import OutsideEvidence
from safelaunch.why.io import logbounds, logfiles
from safelaunch.why.io.diagnosis import diagnose

OOM = b"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a capacity of 79 GiB.\n"
STEP = b" iteration %8d/ 500000 | elapsed time per iteration (ms): 401.0 | lm loss: 2.5E+00 |\n"


def steps(first: int, count: int) -> bytes:
    return b"".join(STEP % number for number in range(first, first + count))


def punch(path: Path, end: int) -> None:
    """Give back the blocks of the file's beginning, as the pump does."""
    with path.open("r+b") as stream:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.fallocate(stream.fileno(), 0x3, ctypes.c_longlong(0), ctypes.c_longlong(end)):
            pytest.skip("no holes on this file system")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log that the pump has given back but for its end."""
    path = tmp_path / "a.log"
    path.write_bytes(steps(0, 400) + OOM)
    punch(path, 20480)
    return path


def test_what_the_pump_has_left_of_a_log_is_read(log: Path) -> None:
    found = diagnose(log, OutsideEvidence())
    assert found is not None and found["verdict"]["category"] == "cuda_oom"


def test_a_line_behind_a_hole_has_no_number(log: Path) -> None:
    read = logfiles.read_logs([log], rulebook.RULES, workers=1)
    assert read.findings[-1].line_number is None and read.lines is None
    assert read.read_bytes == log.stat().st_size - 20480


def test_of_a_long_log_with_a_hole_what_is_left_is_searched_for_the_last_steps(
    log: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"SMALL": 2000, "HEAD": 100, "MARGIN": 1000, "PROBE": 500, "STRIDE": 500}.items():
        monkeypatch.setattr(logbounds, name, value)
    read = logfiles.read_logs([log], rulebook.RULES, workers=1)
    assert read.findings[-1].rule == "gpu.out_of_memory" and read.read_bytes < log.stat().st_size - 20480


def test_the_first_line_behind_a_hole_is_read(tmp_path: Path) -> None:
    """A log that was cut under a writer that does not append begins with a hole, and there with its first line."""
    path = tmp_path / "a.log"
    with path.open("wb") as stream:
        stream.seek(100_000)
        stream.write(OOM)
    found = diagnose(path, OutsideEvidence())
    assert found is not None and found["verdict"]["category"] == "cuda_oom"
