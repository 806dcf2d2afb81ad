"""The disposable child, on real frozen filesystems."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from safelaunch.base.io import probe
from safelaunch.base.io.probe import REAP_WITHIN_S, ChildAnswer, reap_children, run_in_child, stuck_children

if TYPE_CHECKING:
    from tests.frozen import FuseMount, LoopMount

SLACK_S = 200.0  # a child that held its parent would hold it for ten minutes, or until the thaw


def wait_until_nobody_is_stuck(within_s: float = 60.0) -> bool:
    until_s = time.monotonic() + within_s
    while stuck_children() and time.monotonic() < until_s:
        time.sleep(0.01)
    return stuck_children() == 0


def raise_oserror() -> None:
    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), "ckpt")


@pytest.mark.parametrize(
    "value", [None, 3, "grüße", [1, 2.5], {"a": [True]}, "x" * (1 << 20)],
    ids=["none", "int", "text", "list", "dict", "more-than-a-pipe-holds"],
)
def test_a_value_comes_back(value: object) -> None:
    answer = run_in_child(lambda: value, deadline_s=60)
    assert answer.is_ok
    assert answer.value == value


def test_an_error_comes_back_with_its_errno() -> None:
    answer = run_in_child(raise_oserror, deadline_s=60)
    assert not answer.is_ok
    assert answer.errno == errno.ESTALE
    assert "ckpt" in answer.error


def test_a_system_error_is_told_in_the_systems_words_with_the_path(tmp_path: Path) -> None:
    """Seen on screen: "run.json cannot be read: [Errno 13]"."""
    answer = run_in_child(lambda: (tmp_path / "gone").read_text(), deadline_s=60)
    assert answer.error == f"No such file or directory: {tmp_path}/gone"


def test_a_value_that_is_not_json_is_an_error() -> None:
    assert "TypeError" in run_in_child(object, deadline_s=60).error


def test_a_child_that_dies_is_an_error() -> None:
    answer = run_in_child(lambda: os.kill(os.getpid(), signal.SIGKILL), deadline_s=60)
    assert "died before it answered" in answer.error


def test_a_slow_child_is_late_and_dead() -> None:
    start_s = time.monotonic()
    answer: ChildAnswer[None] = run_in_child(lambda: time.sleep(600), deadline_s=0.1)
    assert answer.late
    assert not answer.is_ok
    assert time.monotonic() - start_s < 0.1 + REAP_WITHIN_S + SLACK_S
    assert wait_until_nobody_is_stuck()


def test_an_answer_that_was_there_in_time_is_not_late_where_the_parent_stood_still(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    read = probe._read_until

    def stand_still(reader: int, until_s: float, beside: Callable[[], None] | None) -> bytes | None:
        time.sleep(1.0)
        return read(reader, until_s, beside)

    monkeypatch.setattr(probe, "_read_until", stand_still)
    answer = run_in_child(lambda: 3, deadline_s=0.5)
    assert (answer.value, answer.late) == (3, False)


def test_the_child_runs_nothing_of_the_parent_on_its_way_out(tmp_path: Path) -> None:
    mark = tmp_path / "ran"

    def leave() -> None:
        raise SystemExit(3)

    try:
        answer = run_in_child(leave, deadline_s=60)
    finally:
        with mark.open("a") as file:
            file.write(f"{os.getpid()}\n")
    assert "SystemExit" in answer.error
    assert mark.read_text() == f"{os.getpid()}\n"


@pytest.mark.root
def test_a_late_child_does_not_hold_the_sockets_of_its_parent(loop_mount: LoopMount) -> None:
    ours, peer = socket.socketpair()
    loop_mount.freeze()
    try:
        for deadline_s in (0.2, 2.0, 20.0):   # until it has come to its write
            assert run_in_child(lambda: (loop_mount.path / "x").write_text("x"), deadline_s).late
            if stuck_children():
                break
        assert stuck_children() >= 1
        ours.close()
        peer.settimeout(60)
        assert peer.recv(1) == b""
    finally:
        loop_mount.thaw()
        peer.close()
    assert wait_until_nobody_is_stuck()


@pytest.mark.root
def test_a_frozen_folder_is_late_and_the_child_goes_after_the_thaw(freezable: LoopMount | FuseMount) -> None:
    freezable.freeze()
    start_s = time.monotonic()
    answer = run_in_child(lambda: (freezable.path / "x").write_text("x"), deadline_s=0.3)
    took_s = time.monotonic() - start_s
    freezable.thaw()
    assert answer.late
    assert took_s < 0.3 + REAP_WITHIN_S + SLACK_S
    assert wait_until_nobody_is_stuck()


@pytest.mark.root
def test_a_stopped_fuse_hangs_even_a_stat_and_the_prober_goes_on(fuse_mount: FuseMount) -> None:
    fuse_mount.stop()
    answer = run_in_child(lambda: os.stat(fuse_mount.path).st_mode, deadline_s=0.3)
    fuse_mount.cont()
    assert answer.late
    assert run_in_child(lambda: os.stat(fuse_mount.path).st_mode, deadline_s=60).is_ok


@pytest.mark.root
def test_a_read_only_folder_is_a_clear_error(loop_mount: LoopMount) -> None:
    loop_mount.read_only()
    answer = run_in_child(lambda: (loop_mount.path / "x").write_text("x"), deadline_s=60)
    assert answer.errno == errno.EROFS
    assert "Read-only file system" in answer.error
    assert str(loop_mount.path / "x") in answer.error


def test_a_child_that_somebody_else_reaped_is_gone() -> None:
    run_in_child(lambda: None, deadline_s=60)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    reap_children()
    assert stuck_children() == 0


def test_two_threads_of_a_program_that_has_imported_filelock_probe_at_once() -> None:
    """From Python 3.12 on filelock refuses the second fork."""
    code = ("import filelock, threading\nfrom safelaunch.base.io.probe import run_in_child\nfound = []\n"
            "def look():\n    for _ in range(100): found.append(run_in_child(lambda: 1, 60).value)\n"
            "both = [threading.Thread(target=look) for _ in range(4)]\n"
            "[one.start() for one in both]\n[one.join() for one in both]\nprint(found == [1] * 400)")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("True\n", "")
