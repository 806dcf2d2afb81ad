"""scripts/beside: two commands at once, one of which goes first; both count, and neither is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sandboxes import wait_until

BESIDE = Path(__file__).parent.parent / "scripts" / "beside"
OWN_NICE = os.getpriority(os.PRIO_PROCESS, 0)   # of make test itself; a test that computes may have a higher one
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(low, command)`: both as shell text."""
    started: list[subprocess.Popen[str]] = []

    def go(low: str, command: str) -> subprocess.Popen[str]:
        started.append(subprocess.Popen(
            [str(BESIDE), "bash", "-c", low, "--", "bash", "-c", command], text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        return started[-1]

    yield go
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)   # COMMAND as well, where it has lost its parent
        process.communicate()


def have_said(*files: Path) -> bool:
    return all(file.exists() and file.read_text() for file in files)   # the shell makes the file first, and then writes


def is_gone(file: Path) -> bool:
    return not Path("/proc", file.read_text().strip()).exists()


@pytest.mark.parametrize(("low", "command", "code"), [
    ("exit 0", "exit 0", 0), ("exit 3", "exit 0", 3), ("exit 0", "exit 4", 4), ("exit 3", "exit 4", 4),
    ("kill -9 $$", "exit 0", 137), ("sleep 1000", "kill -9 $$", 137),
], ids=["both well", "low fails", "command fails", "both fail", "low is killed", "command is killed"])
def test_exit_code_is_that_of_both(start: Start, low: str, command: str, code: int) -> None:
    process = start(low, command)
    process.communicate(timeout=60)
    assert process.returncode == code


def test_what_the_low_one_says_is_shown_last(start: Start, tmp_path: Path) -> None:
    said, _ = start(f"echo low; touch {tmp_path}/said", f"until [ -e {tmp_path}/said ]; do :; done; echo first"
                    ).communicate(timeout=60)
    assert said == "first\nlow\n"


def test_low_one_steps_back_in_its_session_and_beside_others(start: Start, tmp_path: Path) -> None:
    autogroup = Path("/proc/self/autogroup").exists()
    low = f"nice; {'cat /proc/self/autogroup' if autogroup else 'echo nice 19'}; touch {tmp_path}/said"
    said, _ = start(low, f"nice; until [ -e {tmp_path}/said ]; do sleep 0.02; done").communicate(timeout=60)
    own, nice, group = said.splitlines()
    assert (own, nice, group.split()[-2:]) == (str(os.getpriority(os.PRIO_PROCESS, 0)), "19", ["nice", "19"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take a step back again")
@pytest.mark.skipif(OWN_NICE == 19, reason="below that there is nothing to come back from")
def test_low_one_catches_up_once_it_is_alone(start: Start) -> None:
    said, _ = start(f"until [ $(nice) = {os.getpriority(os.PRIO_PROCESS, 0)} ]; do sleep 0.02; done; echo alone", "true"
                    ).communicate(timeout=60)
    assert said == "alone\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda one: one.name)
def test_signal_reaches_the_command_and_ends_the_low_one_with_its_children(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    process = start(f"sleep 1000 & echo $! >{tmp_path}/child; wait",
                    f"trap 'echo heard; exit 7' {number.name[3:]}; touch {tmp_path}/up; while :; do sleep 0.1; done")
    wait_until(lambda: (tmp_path / "up").exists() and have_said(tmp_path / "child"), 60, "they did not start")
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert (process.returncode, said) == (7, "heard\n")
    wait_until(lambda: is_gone(tmp_path / "child"), 60, "a child is left")


def test_signal_between_both_ends_the_low_one(start: Start, tmp_path: Path) -> None:
    process = start(f"echo $$ >{tmp_path}/low; sleep 1000", f"echo done; until [ -s {tmp_path}/low ]; do :; done")
    assert process.stdout is not None and process.stdout.readline() == "done\n"
    wait_until(lambda: have_said(tmp_path / "low"), 60, "it did not start")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    wait_until(lambda: is_gone(tmp_path / "low"), 60, "it is left")


def test_kill_of_it_ends_both_with_the_low_ones_children(start: Start, tmp_path: Path) -> None:
    up, child, heard = tmp_path / "up", tmp_path / "child", tmp_path / "heard"
    process = start(f"trap '' TERM; sleep 1000 & echo $! >{child}; wait",
                    f"trap 'echo heard >{heard}; exit' TERM; echo $$ >{up}; while :; do sleep 0.1; done")
    wait_until(lambda: have_said(up, child), 60, "they did not start")
    process.kill()
    process.wait()
    wait_until(lambda: is_gone(up) and is_gone(child), 60, "something is left")
    assert heard.read_text() == "heard\n"


def test_it_ends_with_what_has_started_it(tmp_path: Path) -> None:
    up, low = tmp_path / "up", tmp_path / "low"
    words = [str(BESIDE), "bash", "-c", f"echo $$ >{low}; exec sleep 1000", "--",
             "bash", "-c", f"echo $$ >{up}; exec sleep 1000"]
    make = subprocess.Popen([sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *words])
    wait_until(lambda: have_said(up, low), 60, "they did not start")
    make.kill()
    make.wait()
    wait_until(lambda: is_gone(up) and is_gone(low), 60, "something is left")


def test_what_a_low_one_leaves_behind_is_ended(start: Start, tmp_path: Path) -> None:
    process = start(f"sleep 1000 & echo $! >{tmp_path}/left", "true")
    process.communicate(timeout=60)
    assert process.returncode == 0
    wait_until(lambda: is_gone(tmp_path / "left"), 60, "it is left")


@pytest.mark.parametrize("words", [[], ["true"], ["--", "true"], ["true", "--"]])
def test_half_a_command_line_is_refused(words: list[str]) -> None:
    done = subprocess.run([str(BESIDE), *words], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "LOW" in done.stderr
