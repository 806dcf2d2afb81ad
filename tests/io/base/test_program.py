"""Programs with a deadline, bounded output, and a session that ends with them."""

from __future__ import annotations

import gc
import os
import resource
import sys
import time
from pathlib import Path

import pytest

from safelaunch.base.io.program import MOST_BYTES, ProgramEnd, ProgramRun, run
from safelaunch.slurm.io import slurm

LONG_S = 60.0
# A shell whose child sleeps in the same session, and would outlive it.
WITH_CHILD = ["sh", "-c", "sleep 600 & echo $!; wait"]


def is_there(pid: int) -> bool:
    """Whether a process lives; one that nobody has reaped has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(pid: int) -> None:
    until_s = time.monotonic() + LONG_S
    while is_there(pid):
        assert time.monotonic() < until_s, f"process {pid} lives on"
        time.sleep(0.01)


def test_a_program_tells_its_exit_code_and_both_outputs() -> None:
    assert run(["sh", "-c", "cat; echo no >&2; exit 3"], LONG_S, stdin=b"yes") == ProgramEnd(3, b"yes", b"no\n")


def test_a_program_without_input_reads_nothing() -> None:
    assert run(["cat"], LONG_S) == ProgramEnd(0, b"", b"")


def test_a_late_program_ends_with_all_of_its_session() -> None:
    running = ProgramRun(WITH_CHILD, LONG_S)
    while not (said := os.pread(running._out.fileno(), 100, 0)).endswith(b"\n"):
        time.sleep(0.01)
    running._end_s = time.monotonic()   # its deadline
    assert running.wait() == ProgramEnd(None, said, b"")
    wait_until_gone(int(said))


def test_a_closed_program_ends_with_all_of_its_session() -> None:
    running = ProgramRun(WITH_CHILD, LONG_S)
    while not (said := os.pread(running._out.fileno(), 100, 0)).endswith(b"\n"):
        time.sleep(0.01)
    running.close()
    wait_until_gone(int(said))


def test_a_program_does_not_outlive_ctrl_c_which_its_own_session_does_not_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[ProgramRun] = []

    def interrupted(self: ProgramRun, within_s: float = LONG_S) -> ProgramEnd | None:
        begun.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(ProgramRun, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(["sleep", "600"], LONG_S)
    wait_until_gone(begun[0]._process.pid)


@pytest.mark.parametrize("stream", ["out", "err"])
def test_a_program_that_says_too_much_is_ended(stream: str) -> None:
    endless = f"import sys\nwhile True: sys.std{stream}.write('x' * 4096)"
    ended = ProgramRun([sys.executable, "-I", "-S", "-c", endless], LONG_S, most_bytes=10_000).wait()
    assert ended is not None
    assert (ended.code, ended.is_cut, getattr(ended, stream)) == (None, True, b"x" * 10_000)


def test_a_short_program_that_says_too_much_has_no_exit_code_either() -> None:
    running = ProgramRun([sys.executable, "-I", "-S", "-c", "print('x' * 20_000)"], LONG_S, most_bytes=10_000)
    running._process.wait()
    assert running.poll() == ProgramEnd(None, b"x" * 10_000, b"", is_cut=True)


def test_a_running_program_is_waited_for_no_longer_than_asked() -> None:
    running = ProgramRun(["sleep", "600"], LONG_S)
    assert running.wait(0.0) is None and running.wait(0.02) is None
    running.terminate()
    assert running.wait() == ProgramEnd(-15, b"", b"")
    assert running.poll() is running.poll()


def test_a_program_that_is_not_there_is_an_error_and_leaves_no_file_open() -> None:
    gc.collect()   # what earlier tests have left open closes now, and not in between
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        ProgramRun(["/no/such/program"], LONG_S, stdin=b"x")
    assert os.listdir("/proc/self/fd") == before


def test_a_list_of_slurms_that_is_cut_is_no_answer() -> None:
    result = slurm.run(["head", "--bytes", str(MOST_BYTES + 1), "/dev/zero"], os.environ)
    assert (result.returncode, result.is_unknown) == (None, True)
    assert result.stderr == f"it printed more than {MOST_BYTES} bytes"


def test_a_command_of_slurms_that_has_no_room_to_start_is_unknown_and_not_missing() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))   # of open files
    try:
        crowded = slurm.run(["squeue"], os.environ)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    missing = slurm.run(["/no/such/squeue"], os.environ)
    assert (crowded.returncode, crowded.is_unknown) == (None, True) and "Too many open files" in crowded.stderr
    assert (missing.returncode, missing.is_unknown) == (127, False)
