"""safelaunch logs: bytes unharmed, attempts in order, the tail, filters, the first error, following."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.why import OWN_SAMPLES, Case, load_corpus

from safelaunch.cli import run
from safelaunch.verbs.logs.attemptlogs import BLOCK_BYTES, tail_offset
from safelaunch.verbs.logs.logfollow import wait_for_last_lines
from tests.effort import at_rest_s
from tests.handmade import Made, make_run
from tests.sandboxes import wait_until

INCIDENTS = load_corpus(OWN_SAMPLES)
JUNK = b"\x00\xff\xfe\r 10%\r 20%\r\n\x1b[31mred\x1b[0m \xc3\x28\n"


@pytest.fixture
def bloom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A run with two attempts: the first failed, the second runs from step 40."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    made = make_run(tmp_path / "bloom")
    made.running()
    made.failed(1)
    made.attempt(2, nodes=["n0", "n1", "n2", "n4"], resume_step=40)
    return made


Said = Callable[..., tuple[bytes, str]]


@pytest.fixture
def logs(capfdbinary: pytest.CaptureFixture[bytes]) -> Said:
    """What `safelaunch logs WORDS` writes to stdout and stderr."""

    def said(*words: str, code: int = 0) -> tuple[bytes, str]:
        assert run(["logs", *words]) == code
        out, err = capfdbinary.readouterr()
        return out, err.decode()

    return said


@pytest.mark.parametrize(("sure", "word"), [(True, "not loaded"), (False, "perhaps not loaded")])
def test_the_header_of_an_attempt_that_began_below_its_checkpoint_says_so(
    bloom: Made, logs: Said, sure: bool, word: str,
) -> None:
    bloom.log(1, b"step 40\n")
    bloom.log(2, b"step 1\n")
    bloom.event("lost_progress", attempt=2, step=1, resume_step=40, sure=sure, then="warn", why="it counts 1 … 3")
    assert f"── attempt 2 · job 12 · n[0-2,4] · from step 40 · {word} ──" in logs("--attempt", "2")[1]
    assert f"attempt 2 on n[0-2,4] from step 40, {word} ---\n".encode() in logs()[0]


def test_all_attempts_are_shown_in_order_with_headers_on_stderr(bloom: Made, logs: Said) -> None:
    bloom.log(2, b"third\n")
    bloom.log(1, b"first\nsecond\n")
    out, err = logs()
    line = "--- attempt 1 failed after 0 s · attempt 2 on n[0-2,4] from step 40 ---"
    assert out == f"first\nsecond\n{line}\nthird\n".encode()
    assert err == "── attempt 1 · job 12 · n[0-3] ──\n"


def test_a_line_between_attempts_begins_a_line_and_can_be_left_out(bloom: Made, logs: Said) -> None:
    bloom.event("verdict", attempt=1, category="user_code", summary="KeyError: \x1b]52;c;eA\x07\n--- attempt 9 ---")
    bloom.log(1, b"torn")
    bloom.log(2, b"third\n")
    torn, line, third = logs()[0].decode().splitlines()
    assert (torn, third) == ("torn", "third")
    assert line.startswith("--- attempt 1 failed ") and line.endswith(" ---") and line.isprintable()
    assert logs("--attempt", "2")[0] == b"third\n"
    assert b"---" not in logs("--json")[0]


def test_bytes_pass_unharmed(bloom: Made, logs: Said) -> None:
    bloom.log(1, JUNK * 1000)
    assert logs()[0] == JUNK * 1000


def test_an_attempt_that_the_journal_does_not_know_is_shown_too(bloom: Made, logs: Said) -> None:
    bloom.log(7, b"x\n")
    assert logs() == (b"x\n", "── attempt 7 ──\n")


def test_without_a_log_it_says_so(bloom: Made, logs: Said) -> None:
    assert logs() == (b"", "there is no log yet; the run is running\n")
    assert logs("--attempt", "3") == (b"", "attempt 3 has no log; the run is running\n")


@pytest.mark.parametrize(("lines", "out", "between"), [
    (0, b"", 0), (1, b"d\n", 0), (2, b"c\nd\n", 0), (3, b"b\nc\nd\n", 1), (4, b"a\nb\nc\nd\n", 1),
    (9, b"a\nb\nc\nd\n", 1),
])
def test_the_last_lines_reach_back_into_earlier_attempts(
    bloom: Made, logs: Said, lines: int, out: bytes, between: int
) -> None:
    bloom.log(1, b"a\nb\n")
    bloom.log(2, b"c\nd\n")
    shown = logs("-n", str(lines))[0].splitlines(keepends=True)
    marks = [line for line in shown if line.startswith(b"--- attempt ")]
    assert (b"".join(line for line in shown if line not in marks), len(marks)) == (out, between)


@pytest.mark.parametrize(("data", "lines", "tail"), [
    (b"", 3, b""), (b"a", 3, b"a"), (b"a\n", 1, b"a\n"), (b"a\nb", 1, b"b"), (b"a\nb\n", 1, b"b\n"),
    (b"\n\n\n", 2, b"\n\n"),
    (b"x" * BLOCK_BYTES + b"\ny\n", 1, b"y\n"), (b"a\n" + b"x" * (3 * BLOCK_BYTES), 1, b"x" * (3 * BLOCK_BYTES)),
    (b"a\n" * BLOCK_BYTES, BLOCK_BYTES - 1, b"a\n" * (BLOCK_BYTES - 1)),
    (b"z" * (BLOCK_BYTES - 1) + b"\nb\n", 1, b"b\n"),
], ids=["empty", "unfinished only", "one line", "unfinished last", "two lines", "empty lines", "behind a block",
        "line of three blocks", "many blocks", "newline on the border"])
def test_the_tail_begins_at_a_line(tmp_path: Path, data: bytes, lines: int, tail: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(data)
    offset, count = tail_offset(path, lines)
    assert data[offset:] == tail
    assert count == min(lines, data.count(b"\n") + (not data.endswith(b"\n") and bool(data)))


@pytest.mark.parametrize("words", [("-n", "3"), (), ("--grep", "last"), ("--fold",), ("--first-error",),
                                   ("--rank", "0", "--first-error"), ("--json", "-n", "3")], ids=" ".join)
def test_a_log_of_a_terabyte_of_nothing_ends_the_verb_in_time(words: tuple[str, ...], bloom: Made, logs: Said) -> None:
    for number in (1, 2):
        path = bloom.log(number, b"")
        with path.open("wb") as file:
            file.truncate(1 << 40)
            file.seek(0, 2)
            file.write(b"[n0:0]:last\n")
    assert at_rest_s(lambda: logs(*words), 2.0) < 2.0


def test_the_tail_of_a_large_log_takes_no_time(bloom: Made, logs: Said) -> None:
    path = bloom.log(1, b"")
    with path.open("wb") as file:
        file.truncate(1 << 30)   # a sparse gigabyte
        file.seek(0, 2)
        file.write(b"\nlast\n")
    assert logs("-n", "1")[0] == b"last\n"
    assert at_rest_s(lambda: logs("-n", "1"), 1.0) < 1.0, "to read it whole takes 3 s"


LINES = b"""[n0:0]:a rank 0
[n0:1]:b rank 1
srun: no prefix
[n1:2]:c rank 2
[n10:20]:d rank 20
"""


@pytest.mark.parametrize(("words", "letters"), [
    (["--rank", "2"], "c"), (["--rank", "0"], "a"), (["--host", "n0"], "ab"), (["--host", "n[0-1]"], "abc"),
    (["--host", "n1"], "c"), (["--grep", r"rank [01]$"], "ab"), (["--host", "n0", "--grep", "b"], "b"),
    (["--rank", "1", "--host", "n1"], ""), (["--grep", "rank", "-n", "2"], "cd"),
], ids=" ".join)
def test_lines_are_filtered_by_rank_host_or_regex(bloom: Made, logs: Said, words: list[str], letters: str) -> None:
    bloom.log(1, LINES)
    wanted = [line + b"\n" for line in LINES.splitlines() if line[-8:].lstrip(b"0123456789:]").strip()]
    shown = logs(*words)[0].splitlines(keepends=True)
    assert shown == [line for line in wanted if any(f"]:{letter} ".encode() in line for letter in letters)]


def test_where_no_line_fits_that_is_said(bloom: Made, logs: Said) -> None:
    bloom.log(1, b"")
    assert "no line has been logged yet" in logs()[1]
    bloom.log(1, LINES)
    assert logs("--rank", "1", "--grep", "c") == (b"", "no line fits --rank 1 --grep c\n")
    assert logs("-n", "0")[0] == b"" and "no line" not in logs("--rank", "1")[1]


def test_a_global_rank_under_torchrun_is_found_on_its_node(tmp_path: Path, logs: Said, bloom: Made) -> None:
    yaml = "command: x\nslurm: {nodes: 2, gpus_per_node: 4}\nlaunch: {with: torchrun, nproc_per_node: 4}\n"
    made = make_run(tmp_path / "torch", yaml)
    made.running(nodes=["m3", "m7"])
    made.log(1, b"[m3:1]:rank 1\n[m7:1]:rank 5\n[m7:5]:nobody\n")
    assert logs(str(made.dir), "--rank", "5")[0] == b"[m7:1]:rank 5\n"
    assert logs(str(made.dir), "--rank", "1")[0] == b"[m3:1]:rank 1\n"
    assert "the ranks 0 to 7" in logs(str(made.dir), "--rank", "8", code=2)[1]


def test_a_progress_bar_stays_whole_under_a_filter(bloom: Made, logs: Said) -> None:
    bloom.log(1, b"[n0:0]:10%\r20%\rdone\n[n0:1]:other\n")
    assert logs("--rank", "0")[0] == b"[n0:0]:10%\r20%\rdone\n"


@pytest.mark.parametrize("words", [["--grep", "("], ["--host", "n[0-"], ["-f", "--first-error"], ["-f", "--json"],
                                   ["--fold", "--json"], ["--since", "1h", "--first-error"], ["--since", "soon"],
                                   ["--since", "2999-01-01"]],
                         ids=" ".join)
def test_what_cannot_be_obeyed_is_a_usage_error(bloom: Made, logs: Said, words: list[str]) -> None:
    bloom.log(1, b"x\n")
    assert logs(*words, code=2)[0] == b""


def test_json_says_where_the_logs_are(bloom: Made, logs: Said) -> None:
    path = bloom.log(1, b"x\n")
    told = json.loads(logs("--json")[0])
    assert told["v"] == 1
    assert told["attempts"] == [{"number": 1, "file": str(path), "bytes": 2, "nodes": ["n0", "n1", "n2", "n3"],
                                 "job": "12", "resume_step": None, "ended": "failed"}]


# --- the first error ------------------------------------------------------------------------------------------------

TRACE = [b"Traceback (most recent call last):", b'  File "a.py", line 1', b"    x()", b"ValueError: bad batch"]
ECHO = [b"Traceback (most recent call last):", b"  File",
        b"RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.1]:2000"]


def by(prefix: bytes, lines: list[bytes]) -> list[bytes]:
    return [prefix + line + b"\n" for line in lines]


def mixed(*ranks: list[bytes]) -> list[bytes]:
    """The ranks' lines in turn."""
    return [line for group in zip(*ranks, strict=False) for line in group]


@pytest.mark.parametrize(("lines", "number", "last"), [
    ([b"step 1\n", *by(b"", TRACE)], 2, b"ValueError: bad batch\n"),
    (by(b"[n0:3]:", TRACE), 1, b"[n0:3]:ValueError: bad batch\n"),
    (mixed(by(b"[n0:3]:", TRACE), by(b"[n0:4]:", TRACE)), 1, b"[n0:3]:ValueError: bad batch\n"),
    ([*by(b"[n0:1]:", ECHO), *by(b"[n0:3]:", TRACE)], 4, b"[n0:3]:ValueError: bad batch\n"),
    ([b"slurmstepd: error: Detected 1 oom_kill event in StepId=8.0.\n"], 1,
     b"slurmstepd: error: Detected 1 oom_kill event in StepId=8.0.\n"),
    ([b"step 1\n", *by(b"[n0:3]:", TRACE), b"srun: error: n0: task 3: Exited with exit code 1\n"], 2,
     b"[n0:3]:ValueError: bad batch\n"),
], ids=["plain", "of a rank", "two ranks mixed", "behind an echo", "slurmstepd", "before srun's report"])
def test_the_first_error_is_the_line_that_why_calls_the_cause(
    bloom: Made, logs: Said, capfdbinary: pytest.CaptureFixture[bytes], lines: list[bytes], number: int, last: bytes,
) -> None:
    path = bloom.log(1, b"".join(lines))
    out, err = logs("--first-error", "--attempt", "1")
    assert f"{path}:{number}:" in err and out.splitlines(keepends=True)[-1] == last
    assert run(["why", str(bloom.dir), "--attempt", "1", "--json"]) == 0
    cited = json.loads(capfdbinary.readouterr().out)["verdict"]["evidence"][0]
    assert cited["text"].encode() in last
    assert cited["line_number"] == lines.index(last) + 1


@pytest.mark.parametrize("case", INCIDENTS, ids=[case.id for case in INCIDENTS])
def test_why_and_first_error_never_name_two_different_lines(
    bloom: Made, logs: Said, capfdbinary: pytest.CaptureFixture[bytes], case: Case
) -> None:
    log = gzip.decompress(case.path.read_bytes()) if case.path.suffix == ".gz" else case.path.read_bytes()
    path = bloom.log(1, log)
    out, err = logs("--first-error", "--attempt", "1")
    assert run(["why", str(bloom.dir), "--attempt", "1", "--json"]) == 0
    evidence = json.loads(capfdbinary.readouterr().out)["verdict"]["evidence"]
    if evidence and evidence[0]["role"] == "cause":
        number = evidence[0]["line_number"]
        assert out.removesuffix(b"\n").split(b"\n")[-1] == path.read_bytes().split(b"\n")[number - 1]
    else:
        assert out == b"" and "no line of the log states the cause" in err


def test_the_first_error_of_one_rank_is_looked_for_among_its_lines(bloom: Made, logs: Said) -> None:
    path = bloom.log(1, b"".join([*by(b"[n0:0]:", TRACE), *by(b"[n0:1]:", [*TRACE[:-1], b"KeyError: 7"])]))
    out, err = logs("--first-error", "--attempt", "1", "--rank", "1")
    assert out.endswith(b"[n0:1]:KeyError: 7\n") and f"{path}:5:" in err


def test_the_first_error_of_the_last_failed_attempt_is_shown_with_its_place(bloom: Made, logs: Said) -> None:
    path = bloom.log(1, b"".join([b"step 1\n", *by(b"[n0:3]:", TRACE), b"after\n"]))
    bloom.log(2, b"step 41\n")
    out, err = logs("--first-error")
    assert out == b"".join(by(b"[n0:3]:", TRACE))
    assert f"{path}:2:" in err and "attempt 1" in err


def test_without_an_error_line_the_journals_word_is_told(bloom: Made, logs: Said) -> None:
    bloom.event("verdict", attempt=1, category="unknown", summary="task 3 on n0: killed by signal 9")
    bloom.log(1, b"step 1\n")
    out, err = logs("--first-error")
    assert out == b"" and "no line of the log states the cause; why: unknown: task 3 on n0: killed by signal 9" in err


# --- following ------------------------------------------------------------------------------------------------------


def test_follow_goes_on_into_the_next_attempt_and_ends_with_the_run(
    tmp_path: Path, bloom: Made, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    made = make_run(tmp_path / "live")
    made.running()
    made.log(1, b"".join(b"old %d\n" % number for number in range(30)))
    codes: list[int] = []
    follower = threading.Thread(target=lambda: codes.append(run(["logs", "-f", str(made.dir)])))
    follower.start()
    out = b""

    def has_shown(words: bytes) -> bool:
        nonlocal out
        out += capfdbinary.readouterr().out
        return words in out

    wait_until(lambda: has_shown(b"old 29\n"), 60, "the end of the log is not shown")
    made.log(1, b"new, and an unfinished li")
    wait_until(lambda: has_shown(b"unfinished li"), 60, "nor what is new in it")
    made.failed(1)
    made.attempt(2, resume_step=20)
    made.log(2, b"resumed\n")
    made.log(1, b"ne\n")
    made.log(2, JUNK + b"no newline at the end")
    made.event("completed", exit_code=0, why="attempt 2 ended with exit code 0")
    follower.join(60)
    more, err = capfdbinary.readouterr()
    out += more
    assert codes == [0]
    old = b"".join(b"old %d\n" % number for number in range(20, 30))
    assert out == (old + b"new, and an unfinished line\n"
                   b"--- attempt 1 failed after 0 s \xc2\xb7 attempt 2 on n[0-3] from step 20 ---\n"
                   b"resumed\n" + JUNK + b"no newline at the end")
    assert err.decode().splitlines()[-1] == "the run has completed: attempt 2 ended with exit code 0"


def test_follow_of_one_attempt_ends_with_that_attempt(bloom: Made, logs: Said) -> None:
    bloom.log(1, b"a\n")
    bloom.log(2, b"b\n")
    assert logs("-f", "--attempt", "1")[0] == b"a\n"


def test_follow_filters_whole_lines(bloom: Made, logs: Said) -> None:
    bloom.completed()
    bloom.log(2, LINES + b"[n0:1]:bar 1%\r2%\n[n0:1]:unfinished b")
    out = logs("-f", "-n", "99", "--rank", "1")[0]
    assert out == b"[n0:1]:b rank 1\n[n0:1]:bar 1%\r2%\n[n0:1]:unfinished b"


def test_a_log_is_read_at_once_where_the_run_has_ended_by_a_clock_that_is_an_hour_ahead(bloom: Made) -> None:
    bloom.event("completed", ago_s=-3600.0, exit_code=0, why="attempt 2 ended with exit code 0")
    bloom.log(2, b"the end\n")
    reader = threading.Thread(target=wait_for_last_lines, args=(bloom.run,), daemon=True)
    reader.start()
    reader.join(60)
    assert not reader.is_alive()
