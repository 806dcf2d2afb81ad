from __future__ import annotations

import gzip
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safelaunch.why.findings import CLOCK_ORDER, CLOCK_STAMPS, Log, Rule
from safelaunch.why.io import logbounds, logfiles
from safelaunch.why.io.linenumbers import line_numbers
from safelaunch.why.read.scan import TRACEBACK

RULES = (
    Rule("cuda", "native_crash", (b"CUDA error",), rb"CUDA error: \w+"),
    Rule("step", "none", (b"iteration",), rb"iteration +(?P<step>\d+)", role="progress"),
    Rule("exception", "user_code", (TRACEBACK,), rb"^(?P<type>[\w.]+)(?:: .*)?$", order=-10),
)
TEXT = b"[gpu-1:0]:iteration 1\n[gpu-1:0]:CUDA error: gone\n[gpu-2:1]:iteration 2\n"


def found(log: Log) -> list[tuple[str, int | None]]:
    return [(one.rule, one.line_number) for one in log.findings]


def read(path: Path, text: bytes, **options: bool | int) -> Log:
    path.write_bytes(text)
    return logfiles.read_logs([path], RULES, **options)  # type: ignore[arg-type]


def test_a_plain_log_is_read(tmp_path: Path) -> None:
    log = read(tmp_path / "a.log", TEXT)
    assert found(log) == [("cuda", 2)]
    assert [(sign.step, sign.host) for sign in log.progress] == [(1, "gpu-1"), (2, "gpu-2")]
    assert (log.size_bytes, log.read_bytes, log.lines, log.truncated) == (len(TEXT), len(TEXT), 3, False)
    assert [(line.line_number, line.text) for line in log.last] == [
        (1, "iteration 1"), (2, "CUDA error: gone"), (3, "iteration 2")]


def test_a_gzipped_log_is_read_whatever_its_name(tmp_path: Path) -> None:
    assert found(read(tmp_path / "a.log", gzip.compress(TEXT))) == [("cuda", 2)]


def test_a_gzipped_log_that_was_cut_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    packed = gzip.compress(TEXT + os.urandom(200_000))
    log = read(tmp_path / "a.log.gz", packed[:len(packed) // 2])
    assert found(log) == [("cuda", 2)] and log.truncated


def test_a_gzipped_log_with_a_damaged_middle_is_read_up_to_it(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(TEXT + os.urandom(200_000)))
    packed[100_000:100_100] = bytes(100)
    log = read(tmp_path / "a.log.gz", bytes(packed))
    assert found(log) == [("cuda", 2)]


def test_a_name_of_gzip_alone_is_no_gzip(tmp_path: Path) -> None:
    assert found(read(tmp_path / "a.log.gz", TEXT)) == [("cuda", 2)]


def test_standard_input_is_read() -> None:
    code = ("from pathlib import Path; from tests.io.why.test_logfiles import RULES, found\n"
            "from safelaunch.why.io.logfiles import read_logs; print(found(read_logs([Path('-')], RULES)))")
    done = subprocess.run([sys.executable, "-c", code], input=TEXT * 5000, capture_output=True, timeout=60, check=True)
    assert done.stdout.startswith(b"[('cuda', 2), ('cuda', 5)")


def test_an_empty_log_says_nothing(tmp_path: Path) -> None:
    log = read(tmp_path / "a.log", b"")
    assert (log.findings, log.progress, log.last, log.truncated) == ((), (), (), False)


def test_a_missing_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        logfiles.read_logs([tmp_path / "none.log"], RULES)


def test_a_log_that_ends_amid_a_line_is_truncated(tmp_path: Path) -> None:
    assert read(tmp_path / "a.log", TEXT + b"half a li").truncated


def test_a_named_pipe_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["dd", f"of={tmp_path / 'pipe'}", "status=none"], stdin=subprocess.PIPE) as writer:
        assert writer.stdin is not None
        writer.stdin.write(TEXT)
        writer.stdin.close()
        assert found(logfiles.read_logs([tmp_path / "pipe"], RULES)) == [("cuda", 2)]
        assert writer.wait(timeout=60) == 0


@pytest.mark.parametrize(("name", "host", "rank"), [
    ("nodes/gpu-7.log", "gpu-7", None), ("job-3.gpu07.out", "gpu07", None), ("slurm-1234.out", None, None),
    ("rank_17.log", None, 17), ("train-rank3.txt", None, 3), ("attempt_0/5/stderr.log", None, 5),
])
def test_the_name_of_a_log_tells_whose_it_is(tmp_path: Path, name: str, host: str | None, rank: int | None) -> None:
    paths = [tmp_path / name, tmp_path / "other.log"]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"CUDA error: gone\n")
    assert [(one.host, one.rank) for one in logfiles.read_logs(paths, RULES).findings] == [(host, rank), (None, None)]


def test_stamps_or_order_give_the_time_and_which_is_said(tmp_path: Path) -> None:
    assert read(tmp_path / "a.log", TEXT).clock == CLOCK_ORDER
    assert read(tmp_path / "b.log", b"2024-05-01 12:00:00 CUDA error: gone\n").clock == CLOCK_STAMPS


def test_hosts_whose_clock_is_off_are_set_right_by_their_steps(tmp_path: Path) -> None:
    paths = []
    for host, ahead_s in (("gpu-1", 0), ("gpu-2", 0), ("gpu-3", 40)):
        path = tmp_path / f"{host}.log"
        path.write_text("".join(f"2024-05-01 12:{step:02d}:{ahead_s:02d} iteration {step}\n" for step in range(6))
                        + f"2024-05-01 12:05:{10 + ahead_s:02d} CUDA error: gone\n")
        paths.append(path)
    log = logfiles.read_logs(paths, RULES)
    assert log.offsets_s == {"gpu-3": 40.0}
    assert len({one.t for one in log.findings}) == 1


# --- big logs -------------------------------------------------------------------------------------------------------

MIB = 1 << 20


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds of gigabytes, scaled down to a few MB."""
    for name, value in {"SMALL": MIB, "HEAD": 64 << 10, "MARGIN": MIB // 2, "PROBE": 16 << 10, "STRIDE": 128 << 10,
                        "MOST_BACK": 8 * MIB, "DEAD_HEAD": MIB, "DEAD_TAIL": MIB // 2, "SAMPLE": 32 << 10,
                        "SAMPLE_EVERY": 256 << 10}.items():
        monkeypatch.setattr(logbounds, name, value)
    monkeypatch.setattr(logbounds, "PIECE", MIB // 2)
    monkeypatch.setattr(logfiles, "PARALLEL_FROM", 2 * MIB)


def steps(count: int, start: int = 0, who: bytes = b"[gpu-1:0]:") -> bytes:
    line = b"%siteration %d of many, loss 2.0, and some more words\n"
    return b"".join(line % (who, start + number) for number in range(count))


def echoes(size: int) -> bytes:
    return b"[gpu-2:1]:an echo of what went wrong elsewhere\n" * (size // 47)


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("before", "after"), [(100_000, MIB), (100_000, 8 * MIB), (10, 3 * MIB), (0, 3 * MIB)])
def test_a_cause_is_found_wherever_the_steps_end(tmp_path: Path, before: int, after: int, workers: int) -> None:
    log = read(tmp_path / "a.log", steps(before) + b"CUDA error: gone\n" + echoes(after), workers=workers)
    assert [one.rule for one in log.findings] == ["cuda"]
    assert before < 1000 or log.read_bytes < log.size_bytes
    assert before == 0 or max(sign.step or 0 for sign in log.progress) == before - 1


@pytest.mark.usefixtures("small_bounds")
def test_an_error_long_before_the_last_steps_is_not_read(tmp_path: Path) -> None:
    text = steps(20_000) + b"CUDA error: gone\n" + steps(100_000, 20_000)
    assert not read(tmp_path / "a.log", text).findings
    assert [one.rule for one in read(tmp_path / "a.log", text, thorough=True).findings] == ["cuda"]


@pytest.mark.usefixtures("small_bounds")
def test_a_rank_that_stopped_long_before_the_others_is_looked_for(tmp_path: Path) -> None:
    both = b"".join(steps(1, number) + steps(1, number, b"[gpu-2:1]:") for number in range(80_000))
    log = read(tmp_path / "a.log", both + b"[gpu-2:1]:CUDA error: gone\n" + steps(30_000, 80_000))
    assert [(one.rule, one.host) for one in log.findings] == [("cuda", "gpu-2")]
    assert log.read_bytes < log.size_bytes


@pytest.mark.usefixtures("small_bounds")
def test_a_rank_that_stopped_long_before_many_others_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each look at a part of the log sees all ranks in it, however many lines those before it had."""
    monkeypatch.setattr(logbounds, "PROBE", 512 << 10)   # some 7,000 steps
    ranks = [b"[gpu-1:%d]:" % rank for rank in range(64)]
    together = b"".join(steps(1, number, who) for number in range(900) for who in ranks)
    others = b"".join(steps(1, number, who) for number in range(900, 2200) for who in ranks if who != ranks[7])
    log = read(tmp_path / "a.log", together + ranks[7] + b"CUDA error: gone\n" + others)
    assert [(one.rule, one.rank) for one in log.findings] == [("cuda", 7)]


@pytest.mark.usefixtures("small_bounds")
def test_a_log_without_steps_is_read_whole(tmp_path: Path) -> None:
    log = read(tmp_path / "a.log", echoes(3 * MIB) + b"CUDA error: gone\n" + echoes(3 * MIB), workers=2)
    assert found(log) == [("cuda", echoes(3 * MIB).count(b"\n") + 1)]
    assert log.read_bytes == log.size_bytes


@pytest.mark.usefixtures("small_bounds")
def test_pieces_give_what_one_reading_gives(tmp_path: Path) -> None:
    trace = TRACEBACK + b":\n" + b'  File "x.py", line 3, in f\n    f()\n' * 9 + b"ValueError: no\n"
    text = b"".join(b"%d some text\n%s%s" % (number, trace, b"z" * 997 + b"\n") for number in range(4000))
    pieces, whole = (read(tmp_path / "a.log", text, thorough=True, workers=workers) for workers in (2, 1))
    assert pieces.lines == whole.lines == text.count(b"\n")
    assert len(pieces.findings) > 60 and len(whole.findings) > 60
    assert pieces.findings[-1].offset == whole.findings[-1].offset == text.rindex(b"ValueError")
    assert {one.block[1:] for one in pieces.findings} == {pieces.findings[0].block[1:]}


def test_lines_found_without_a_number_can_be_numbered(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(TEXT)
    assert line_numbers(path, [0, TEXT.index(b"[gpu-2"), 22]) == {0: 1, 22: 2, TEXT.index(b"[gpu-2"): 3}


# --- hostile logs ---------------------------------------------------------------------------------------------------

HOSTILE = {
    "binary": random.Random(1).randbytes(300_000),   # of others one in 65,536 begins as a gzip file
    "one line of NULs": bytes(400_000), "one long line": b"x" * 3_000_000,
    "carriage returns": b"\r 5%" * 100_000, "newlines": b"\n" * 300_000, "no newline": b"CUDA error",
    "open tracebacks": b"Traceback (most recent call last):\n" * 20_000, "half a UTF-8 letter": b"\xe2\x82" * 100_000,
    "escapes": b"\x1b[" * 100_000, "brackets": b"[" * 200_000, "UTF-16": ("CUDA error: x\n" * 5000).encode("utf-16"),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_cause_is_found_behind_anything(tmp_path: Path, text: bytes) -> None:
    log = read(tmp_path / "a.log", text + b"\nCUDA error: gone\n")
    assert log.findings[-1].text == "CUDA error: gone"


def test_a_literal_across_two_blocks_of_a_long_line_is_found(tmp_path: Path) -> None:
    for shift in range(0, 30, 3):
        log = read(tmp_path / "a.log", b"x" * ((112 << 10) - shift) + b" CUDA error: gone " + b"y" * 200_000 + b"\n")
        assert len(log.findings) >= 1


def test_of_a_line_of_megabytes_the_start_is_searched_and_what_comes_behind_it(tmp_path: Path) -> None:
    huge = b"x" * (5 << 20)
    text = b"CUDA error: early " + huge + b" CUDA error: late " + huge + b"\niteration 7\nCUDA error: behind\n"
    log = read(tmp_path / "a.log", text, workers=1)
    assert [(one.text[:18], one.line_number) for one in log.findings] == [
        ("CUDA error: early ", 1), ("CUDA error: behind", 3)] and log.lines == 3


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.binary(max_size=80), st.sampled_from([
    b"CUDA error: gone\n", b"iteration 7\n", TRACEBACK + b":\n", b"  File\n", b"ValueError: x\n", b"\r", b"\x1f\x8b",
    b"[rank1]: ", b"\n" * 50, b"2024-05-01 12:00:00 ", b"x" * 9000,
])), max_size=40).map(b"".join))
def test_no_log_makes_the_reader_fail(tmp_path: Path, text: bytes) -> None:
    log = read(tmp_path / "fuzz.log", text)
    assert log.size_bytes == len(text) or text.startswith(b"\x1f\x8b")
