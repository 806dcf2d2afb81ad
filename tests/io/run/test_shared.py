"""The shared folder on real frozen, full and read-only filesystems, and with its processes killed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from safelaunch.base.io.probe import stuck_children
from safelaunch.errors import RunFolderError
from safelaunch.run.io.outbox import APPEND, PUT, RESERVED_BYTES, Outbox
from safelaunch.run.io.shared import FROZEN_AFTER_S, MAX_STUCK, SharedFolder
from tests.patience import is_so_within

if TYPE_CHECKING:
    from tests.frozen import FuseMount, LoopMount

pytestmark = pytest.mark.timed   # a courier, a child and the test take turns within seconds

DEADLINE_S = 60.0
SLACK_S = 30.0  # two cores, shared with other tests; who waits for the folder waits until the thaw
JOURNAL = "journal/1-host-1.jsonl"


def record(number: int) -> bytes:
    return b'{"v":1,"gen":1,"seq":%d}\n' % number


def records(count: int) -> bytes:
    return b"".join(map(record, range(count)))


def wait_for(what: Callable[[], bool], why: str) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < until_s, f"waited {DEADLINE_S} s in vain: {why}"
        time.sleep(0.005)


def wait_until_delivered(folder: SharedFolder) -> None:
    def is_delivered() -> bool:
        folder.poll(time.monotonic())
        return folder.stalled_for_s(time.monotonic()) == 0.0

    wait_for(is_delivered, f"the outbox to be delivered; trouble: {folder.trouble!r}")


def wait_for_trouble(folder: SharedFolder, words: str) -> None:
    def is_told() -> bool:
        folder.poll(time.monotonic())
        return words in folder.trouble

    wait_for(is_told, words)


def courier_of(leader_pid: int) -> int:
    """The process id of the one child of `leader_pid`."""
    (child,) = Path(f"/proc/{leader_pid}/task/{leader_pid}/children").read_text().split()
    return int(child)


@contextlib.contextmanager
def opened(root: Path, spool_dir: Path) -> Iterator[SharedFolder]:
    folder = SharedFolder(root, spool_dir)
    try:
        yield folder
    finally:
        folder.close(deadline_s=5)


@contextlib.contextmanager
def another_leader(act: Callable[[], None]) -> Iterator[int]:
    """The process id of a fork that runs `act` and then waits to be killed, as soon as `act` is done."""
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os.write(tell, b".")
            signal.pause()
        finally:
            os._exit(1)
    os.close(tell)
    try:
        assert os.read(ready, 1) == b"."
        yield pid
    finally:
        os.close(ready)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def is_free(outbox: Path) -> bool:
    """Whether nobody holds its lock: the kernel takes it from a dead process last of all."""
    with outbox.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def kill_and_reap(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture
def spool_dir(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def test_appended_records_are_durable_and_in_order(root: Path, spool_dir: Path) -> None:
    with opened(root, spool_dir) as folder:
        assert all(folder.append(JOURNAL, record(number), deadline_s=DEADLINE_S) for number in range(50))
        assert (root / JOURNAL).read_bytes() == records(50)
        assert not folder.is_frozen


def test_put_replaces_a_file_as_a_whole(root: Path, spool_dir: Path) -> None:
    with opened(root, spool_dir) as folder:
        assert folder.put("pulse.json", b"a long first version", deadline_s=DEADLINE_S)
        assert folder.put("pulse.json", b"short", deadline_s=DEADLINE_S)
    assert (root / "pulse.json").read_bytes() == b"short"
    assert [path.name for path in root.iterdir()] == ["pulse.json"]


def test_files_and_folders_are_their_owners_alone(root: Path, spool_dir: Path) -> None:
    with opened(root, spool_dir) as folder:
        assert folder.put("attempts/0001/nodes/n0", b"{}", deadline_s=DEADLINE_S)
        assert folder.append(JOURNAL, record(0), deadline_s=DEADLINE_S)
        assert folder.put("pulse.json", b"{}", deadline_s=DEADLINE_S)
        assert folder.publish("claims/1", b"me", deadline_s=DEADLINE_S)
    modes = {path.name: path.stat().st_mode & 0o7777 for path in root.rglob("*")}
    assert modes == {
        "attempts": 0o700, "0001": 0o700, "nodes": 0o700, "journal": 0o700, "claims": 0o700,
        "n0": 0o600, "1-host-1.jsonl": 0o600, "pulse.json": 0o600, "1": 0o600,
    }


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", ""], ids=["absolute", "above", "hidden", "empty"])
def test_a_name_outside_the_run_folder_is_refused(root: Path, spool_dir: Path, name: str) -> None:
    with opened(root, spool_dir) as folder, pytest.raises(ValueError, match="not a name below the run folder"):
        folder.append(name, b"x")


def test_a_symlink_is_not_followed(root: Path, spool_dir: Path, tmp_path: Path) -> None:
    (root / "log").symlink_to(tmp_path / "victim")
    with opened(root, spool_dir) as folder:
        assert not folder.append("log", b"x", deadline_s=0.5)
        wait_for_trouble(folder, "symbolic links")
        (root / "log").unlink()
        wait_until_delivered(folder)
    assert (root / "log").read_bytes() == b"x"
    assert not (tmp_path / "victim").exists()


def test_a_spool_folder_that_cannot_be_made_is_a_clear_error(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match=r"node-local outbox in .*file/spool: Not a directory"):
        SharedFolder(root, tmp_path / "file" / "spool")


def test_the_outbox_stays_small_and_is_removed_at_the_end(root: Path, spool_dir: Path) -> None:
    with opened(root, spool_dir) as folder:
        for _ in range(30):
            assert folder.append("log", b"x" * 99_999 + b"\n", deadline_s=DEADLINE_S)
        (outbox,) = spool_dir.iterdir()
        assert outbox.stat().st_size <= RESERVED_BYTES
    assert (root / "log").stat().st_size == 3_000_000
    assert list(spool_dir.iterdir()) == []


@pytest.mark.root
def test_on_a_frozen_folder_append_keeps_its_deadline_and_the_order_after_the_thaw(
    freezable: LoopMount | FuseMount, spool_dir: Path,
) -> None:
    with opened(freezable.path, spool_dir) as folder:
        assert folder.append(JOURNAL, record(0), deadline_s=DEADLINE_S)
        freezable.freeze()
        start_s = time.monotonic()
        assert not folder.append(JOURNAL, record(1), deadline_s=0.5)
        assert time.monotonic() - start_s < 0.5 + SLACK_S
        wait_for(lambda: folder.is_frozen, "the freeze to be noticed")
        assert folder.stalled_for_s(time.monotonic()) >= FROZEN_AFTER_S
        start_s = time.monotonic()
        assert not any(folder.append(JOURNAL, record(number)) for number in range(2, 500))
        assert time.monotonic() - start_s < 1.0 + SLACK_S, "one deadline for the freeze, not one for every line"
        freezable.thaw()
        wait_until_delivered(folder)
        assert not folder.is_frozen
        assert folder.append(JOURNAL, record(500), deadline_s=DEADLINE_S)
        assert (freezable.path / JOURNAL).read_bytes() == records(501)


@pytest.mark.root
def test_of_the_pulses_of_a_freeze_the_last_one_comes(loop_mount: LoopMount, spool_dir: Path) -> None:
    with opened(loop_mount.path, spool_dir) as folder:
        loop_mount.freeze()
        for number in range(2000):
            folder.enqueue(PUT, "pulse.json", b"%d" % number)
        start_s = time.monotonic()
        loop_mount.thaw()
        wait_until_delivered(folder)
        assert time.monotonic() - start_s < 1.0 + SLACK_S
        assert (loop_mount.path / "pulse.json").read_bytes() == b"1999"


@pytest.mark.root
def test_no_more_than_two_probes_hang_at_a_time(loop_mount: LoopMount, spool_dir: Path) -> None:
    with opened(loop_mount.path, spool_dir) as folder:
        loop_mount.freeze()
        late = [folder.ask(lambda: (loop_mount.path / "x").write_text("x"), deadline_s=1.0) for _ in range(4)]
        assert all(answer.late for answer in late)
        assert [answer.took_s > 0.5 for answer in late] == [True, True, False, False]
        assert stuck_children() == MAX_STUCK
        loop_mount.thaw()
        wait_for(lambda: stuck_children() == 0, "the probes to go after the thaw")
        assert folder.ask(lambda: (loop_mount.path / "x").write_text("x"), deadline_s=DEADLINE_S).is_ok


@pytest.mark.root
def test_a_read_only_folder_answers_with_a_clear_error(loop_mount: LoopMount, spool_dir: Path) -> None:
    with opened(loop_mount.path, spool_dir) as folder:
        loop_mount.read_only()
        answer = folder.ask(lambda: (loop_mount.path / "x").write_text("x"), deadline_s=DEADLINE_S)
        assert answer.errno == errno.EROFS
        assert folder.publish("claims/1", b"me", deadline_s=DEADLINE_S) is None
        assert "Read-only file system" in folder.trouble
        assert not folder.append("log", b"x", deadline_s=0.5)
        wait_for_trouble(folder, "Read-only file system")
        loop_mount.read_only(False)
        wait_until_delivered(folder)
        assert folder.trouble == ""
        assert folder.publish("claims/1", b"me", deadline_s=DEADLINE_S) is True


@pytest.mark.root
@pytest.mark.parametrize("loop_mount", [8], indirect=True, ids=["8-mb"])
def test_a_full_folder_is_told_and_nothing_is_torn_or_doubled(loop_mount: LoopMount, spool_dir: Path) -> None:
    ballast = loop_mount.path / "ballast"
    lines = [b"%d" % number * 9_999 + b"\n" for number in range(10, 99)]
    with opened(loop_mount.path, spool_dir) as folder:
        ballast.write_bytes(bytes(loop_mount.free_bytes() - (1 << 19)))
        delivered = [folder.append("log", line) for line in lines]
        assert not all(delivered)
        wait_for_trouble(folder, "No space left on device")   # a courier that had no turn yet stalls without a reason
        wait_for(lambda: folder.is_frozen, "the full folder to be noticed")
        assert folder.trouble.startswith("No space left on device")
        ballast.unlink()
        wait_until_delivered(folder)
    assert (loop_mount.path / "log").read_bytes() == b"".join(lines)


def test_a_folder_that_comes_late_is_waited_for(root: Path, spool_dir: Path) -> None:
    root.rmdir()
    with opened(root, spool_dir) as folder:
        assert not folder.append(JOURNAL, record(0), deadline_s=0.3)
        wait_for_trouble(folder, "No such file or directory")
        root.mkdir()
        wait_until_delivered(folder)
    assert (root / JOURNAL).read_bytes() == record(0)


def has_followed(folder: SharedFolder) -> bool:
    """True once a new courier runs in place of one that was just killed."""
    before = folder.courier_pid
    folder.poll(time.monotonic())
    return folder.courier_pid not in (0, before)


def test_a_courier_killed_at_random_moments_loses_and_doubles_nothing(root: Path, spool_dir: Path) -> None:
    moments = random.Random(7)
    lines = [b"%03d" % number * 30_000 + b"\n" for number in range(120)]
    killed = 0
    with opened(root, spool_dir) as folder:
        for line in lines:
            folder.append("log", line, deadline_s=moments.uniform(0, 0.003))
            if folder.courier_pid and moments.random() < 0.2:
                os.kill(folder.courier_pid, signal.SIGKILL)
                killed += 1
                wait_for(lambda: has_followed(folder), "another courier")
        wait_until_delivered(folder)
    assert killed > 5
    assert (root / "log").read_bytes() == b"".join(lines)


@pytest.mark.parametrize("there", range(0, 27, 5), ids=lambda there: f"{there}-bytes-there")
def test_a_record_that_was_half_written_is_finished_not_repeated(root: Path, spool_dir: Path, there: int) -> None:
    """The outbox of a leader and a courier that both died while the courier was in its write."""
    name = root.rename(root.with_name("away"))

    def begin() -> None:
        SharedFolder(root, spool_dir).append("log", record(0), deadline_s=0.1)

    with another_leader(begin) as leader:
        courier = courier_of(leader)
        kill_and_reap(leader)
        os.kill(courier, signal.SIGKILL)
        (outbox,) = spool_dir.iterdir()
        wait_for(lambda: is_free(outbox), "the courier to die")
    with outbox.open("r+b") as file:  # frame 1 begun, on an empty file
        file.seek(16)
        file.write((1).to_bytes(8, "little"))
    name.rename(root)
    (root / "log").write_bytes(record(0)[:there])
    with opened(root, spool_dir) as folder:
        assert folder.append("log", record(1), deadline_s=DEADLINE_S)
    assert (root / "log").read_bytes() == records(2)
    assert list(spool_dir.iterdir()) == []


@pytest.mark.root
def test_a_leader_killed_while_frozen_loses_nothing(loop_mount: LoopMount, spool_dir: Path) -> None:
    def lead() -> None:
        folder = SharedFolder(loop_mount.path, spool_dir)
        folder.append(JOURNAL, record(0), deadline_s=DEADLINE_S)
        loop_mount.freeze()
        for number in range(1, 100):
            folder.append(JOURNAL, record(number), deadline_s=0.01)

    with another_leader(lead) as leader:
        kill_and_reap(leader)
        with opened(loop_mount.path, spool_dir) as successor:
            assert not successor.append("journal/2-host-2.jsonl", record(0), deadline_s=0.2)
            loop_mount.thaw()
            wait_until_delivered(successor)
        wait_for(lambda: list(spool_dir.iterdir()) == [], "the old courier to deliver what its leader left")
    assert (loop_mount.path / JOURNAL).read_bytes() == records(100)
    assert (loop_mount.path / "journal/2-host-2.jsonl").read_bytes() == record(0)


@pytest.mark.root
def test_close_keeps_its_deadline_on_a_frozen_folder_and_the_rest_comes_after_the_thaw(
    freezable: LoopMount | FuseMount, spool_dir: Path,
) -> None:
    folder = SharedFolder(freezable.path, spool_dir)
    freezable.freeze()
    folder.append(JOURNAL, record(0), deadline_s=0.1)
    start_s = time.monotonic()
    assert not folder.close(deadline_s=0.5)
    assert time.monotonic() - start_s < 0.5 + SLACK_S
    freezable.thaw()
    wait_for(lambda: list(spool_dir.iterdir()) == [], "the courier to deliver and leave")
    assert (freezable.path / JOURNAL).read_bytes() == record(0)


def test_the_courier_does_not_hold_the_sockets_of_its_leader(root: Path, spool_dir: Path) -> None:
    ours, peer = socket.socketpair()
    with opened(root, spool_dir) as folder:
        assert folder.append("log", b"x", deadline_s=DEADLINE_S)
        ours.close()
        peer.settimeout(10)
        assert peer.recv(1) == b""
    peer.close()


def test_a_signal_for_the_whole_step_does_not_end_the_courier(root: Path, spool_dir: Path) -> None:
    with opened(root, spool_dir) as folder:
        assert folder.append("log", b"1\n", deadline_s=DEADLINE_S)
        courier = folder.courier_pid
        for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT, signal.SIGHUP):
            os.kill(courier, number)
        assert folder.append("log", b"2\n", deadline_s=DEADLINE_S)
        assert folder.courier_pid == courier


@pytest.mark.parametrize("number", range(5))
def test_of_eight_processes_that_publish_a_claim_exactly_one_wins(root: Path, spool_dir: Path, number: int) -> None:
    code = (
        "import sys; from pathlib import Path; from safelaunch.run.io.shared import SharedFolder\n"
        "folder = SharedFolder(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        f"print(folder.publish(sys.argv[3], sys.argv[4].encode(), {DEADLINE_S})); folder.close()"
    )
    claim = f"claims/{number}"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(root), str(spool_dir), claim, f"racer {me}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for me in range(8)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    said = [racer.communicate(timeout=DEADLINE_S)[0].strip() for racer in racers]
    assert sorted(said) == ["False"] * 7 + ["True"]
    assert (root / claim).read_text() == f"racer {said.index('True')}"
    assert [path.name for path in (root / "claims").iterdir()] == [str(number)]


@pytest.mark.root
def test_a_claim_whose_answer_was_lost_in_a_freeze_is_known_as_ours_when_repeated(
    loop_mount: LoopMount, spool_dir: Path,
) -> None:
    with opened(loop_mount.path, spool_dir) as folder:
        loop_mount.freeze()
        start_s = time.monotonic()
        assert folder.publish("claims/1", b"me", deadline_s=0.3) is None
        assert time.monotonic() - start_s < 0.3 + SLACK_S
        loop_mount.thaw()
        wait_for(lambda: stuck_children() == 0, "the child to go")
        assert folder.publish("claims/1", b"me", deadline_s=DEADLINE_S) is True
        assert folder.publish("claims/1", b"me", deadline_s=DEADLINE_S) is True
        assert folder.publish("claims/1", b"another", deadline_s=DEADLINE_S) is False


def test_the_leader_imports_nothing_heavy_for_it() -> None:
    code = "import sys, safelaunch.run.io.shared; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not {"pydantic", "yaml", "click", "rich", "asyncio", "subprocess"} & set(modules.stdout.split())


@pytest.mark.parametrize("kept", [0, 1, 22, 23, 26, 40], ids=lambda kept: f"{kept}-bytes-kept")
def test_a_frame_torn_by_the_death_of_the_leader_is_as_if_it_was_never_added(
    root: Path, spool_dir: Path, kept: int,
) -> None:
    spool_dir.mkdir()
    outbox = Outbox.create(spool_dir, root)
    outbox.add(APPEND, "log", record(0))
    with outbox.path.open("r+b") as file:
        before = len(file.read().rstrip(b"\0"))
        outbox.add(APPEND, "log", record(1))
        file.seek(before + kept)
        file.write(bytes(200))
    assert [frame.data for frame in outbox.undelivered()] == [record(0)]


def test_an_outbox_that_went_back_to_its_start_is_read_right_by_a_new_courier(root: Path, spool_dir: Path) -> None:
    spool_dir.mkdir()
    outbox = Outbox.create(spool_dir, root)
    for _ in range(8):
        outbox.add(APPEND, "log", b"x" * 100_000)
    outbox.mark_done(8)
    outbox.rewind()
    for number in (9, 10, 11):
        assert outbox.add(APPEND, "log", record(number)) == number
    outbox.mark_done(10)
    outbox.seek_undelivered()
    assert [(frame.seq, frame.data) for frame in outbox.undelivered()] == [(11, record(11))]


def test_a_folder_that_is_gone_takes_nothing_and_holds_nobody_until_it_is_there_again(
    root: Path, spool_dir: Path
) -> None:
    with opened(root, spool_dir) as folder:
        assert folder.append(JOURNAL, record(0), DEADLINE_S)
        old = root.rename(root.with_name("old"))
        folder.append(JOURNAL, record(1), 0.0)
        wait_for_trouble(folder, "No such file")
        folder.abandon()
        for number in range(2, 200):
            assert folder.append(JOURNAL, record(number), 0.0)
        assert folder.publish("claims/1", b"mine", 0.0)
        assert folder.is_delivered and not folder.is_frozen and not folder.courier_pid
        assert not root.exists() and (old / JOURNAL).read_bytes() == record(0)
        old.rename(root)
        folder.take_up()
        assert folder.append(JOURNAL, record(200), DEADLINE_S)
    assert (root / JOURNAL).read_bytes() == record(0) + record(1) + record(200)


def test_what_may_take_long_is_asked_beside_the_caller(tmp_path: Path) -> None:
    waits: list[float] = []

    def wait() -> None:
        waits.append(time.monotonic())
        time.sleep(0.01)

    folder = SharedFolder(tmp_path / "run", tmp_path / "spool", wait)
    try:
        answer = folder.ask(lambda: time.sleep(0.3) or [1], DEADLINE_S)   # type: ignore[func-returns-value]
        assert answer.value == [1] and len(waits) > 2
        waits.clear()
        assert folder.ask(lambda: [1]).value == [1] and not waits   # a folder that works costs no turn
        refused = folder.ask(lambda: (tmp_path / "none").read_text())
        assert not refused.is_ok and refused.errno == errno.ENOENT
        late = folder.ask(lambda: time.sleep(60), 1.0)
        assert late.late and waits
        assert is_so_within(lambda: not stuck_children(), 10, 0.01)
    finally:
        folder.close(0.0)


@pytest.mark.root
def test_whoever_waits_for_a_frozen_folder_does_something_else_meanwhile(
    freezable: LoopMount | FuseMount, spool_dir: Path,
) -> None:
    turns: list[float] = []

    def beside() -> None:
        turns.append(time.monotonic())
        time.sleep(0.01)

    assert is_so_within(lambda: not stuck_children(), 10, 0.01)   # of tests before: MAX_STUCK bounds them all
    folder = SharedFolder(freezable.path, spool_dir, beside)
    freezable.freeze()
    try:
        waits: list[Callable[[], bool]] = [
            lambda: folder.ask(lambda: (freezable.path / "x").write_text("x"), 1.0).late,
            lambda: folder.publish("claims/1", b"mine", 1.0) is None,
            lambda: not folder.append(JOURNAL, record(0), 1.0)]
        for wait in waits:
            turns.clear()
            assert wait() and len(turns) > 2
    finally:
        freezable.thaw()
        folder.close()
