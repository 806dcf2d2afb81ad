"""The log pump against real frozen, full and read-only filesystems, and against kill -9."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from safelaunch.node import pump as pump_module
from tests.patience import Patience, stand

if TYPE_CHECKING:
    from tests.frozen import FuseMount, LoopMount

PUMP = Path(pump_module.__file__)
DEADLINE_S = 60.0
LINE_BYTES = 1000


def line(number: int) -> bytes:
    """Line `number` of the generator: what was written can be told without reading it back."""
    return f"{number:012d}:".encode().ljust(LINE_BYTES - 1, b"%x" % (number % 16)) + b"\n"


def lines(count: int) -> bytes:
    return b"".join(map(line, range(count)))


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def wait_for(what: Callable[[], bool], why: str) -> None:
    patience = Patience(DEADLINE_S)
    while not what():
        assert not patience.is_over(), f"waited {DEADLINE_S} s in vain: {why}"
        time.sleep(0.005)


@dataclass
class Bench:
    """A spool on a local disk, a target, and the pumps of one test."""

    folder: Path
    spool: Path
    target: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *options: str, program: tuple[str, ...] = (str(PUMP),)) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-I", *program, "--spool", str(self.spool), "--target", str(self.target), *options]
        with (self.folder / "stderr").open("ab") as stderr:
            self.started.append(subprocess.Popen(argv, stderr=stderr, cwd="/"))
        return self.started[-1]

    def stop(self) -> int:
        self.started[-1].terminate()
        return self.started[-1].wait(timeout=DEADLINE_S)

    def said(self) -> str:
        return (self.folder / "stderr").read_text()

    def wait_until_caught_up(self) -> None:
        def is_caught_up() -> bool:
            with contextlib.suppress(FileNotFoundError):
                return self.target.stat().st_size >= self.spool.stat().st_size
            return False

        wait_for(is_caught_up, f"the target to be as long as the spool; the pump said: {self.said()}")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path, tmp_path / "spool", tmp_path / "main.log")
    yield bench
    for process in bench.started:
        process.kill()
        process.wait(timeout=DEADLINE_S)


class Writer(threading.Thread):
    """A training that logs at `mb_per_s` into the spool, `most` lines, and keeps its longest wait for a write."""

    def __init__(self, spool: Path, mb_per_s: float, most: float = float("inf")) -> None:
        super().__init__(daemon=True)
        self._spool = spool
        self._rate, self._most = mb_per_s * 1e6 / LINE_BYTES, most
        self._ended = threading.Event()
        self.count = 0
        self.longest_write_s = 0.0

    def run(self) -> None:
        start_s = time.monotonic()
        with self._spool.open("ab", buffering=0) as file:
            while not self._ended.wait(0.005):
                due = min((time.monotonic() - start_s) * self._rate, self._most)
                while self.count + 1 <= due:
                    before_s = time.monotonic()
                    file.write(line(self.count))
                    self.longest_write_s = max(self.longest_write_s, time.monotonic() - before_s)
                    self.count += 1

    def end(self) -> int:
        self._ended.set()
        self.join(DEADLINE_S)
        return self.count


def least_s(bench: Bench, count: int, pause_s: float = 0.0) -> float:
    """The shortest time that one of so many lines, written one after the other behind a first one, took to be there."""
    append(bench.spool, line(0))
    bench.wait_until_caught_up()
    took_s = []
    for number in range(1, count + 1):
        start_s = time.monotonic()
        append(bench.spool, line(number))
        bench.wait_until_caught_up()
        took_s.append(time.monotonic() - start_s)
        time.sleep(pause_s)
    return min(took_s)


def test_a_line_is_there_within_a_tenth_of_a_second(bench: Bench) -> None:
    bench.start()
    assert least_s(bench, 20, 0.02) < 0.1
    assert bench.target.read_bytes() == lines(21)


def changed(words: str) -> tuple[str, ...]:
    """The pump as a program, after these words."""
    code = f"import sys; sys.path.insert(0, sys.argv.pop(1)); import pump; {words}; sys.exit(pump.main())"
    return "-c", code, str(PUMP.parent)


def test_without_inotify_it_looks_by_itself(bench: Bench) -> None:
    bench.start(program=changed("pump.ctypes = None"))
    assert least_s(bench, 3) < 10.0   # 0.1 s and the machine's load: nobody else looks
    assert bench.stop() == 0
    assert bench.target.read_bytes() == lines(4)


def test_an_idle_pump_costs_nothing(bench: Bench) -> None:
    process = bench.start()
    append(bench.spool, line(0))
    bench.wait_until_caught_up()
    time.sleep(1.2)  # past its fsync: what follows is idleness, which no event announces

    def cpu_ticks() -> int:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = cpu_ticks()
    time.sleep(3)
    assert cpu_ticks() - before <= 1  # a tick is 10 ms


@pytest.mark.parametrize(
    "data",
    [b"", b"no newline at the end", bytes(range(256)) * 4096, b"\0" * (3 << 20), (b"x" * (10 << 20) + b"\n") * 3],
    ids=["empty", "torn-line", "binary", "zeros", "10-mb-lines"],
)
def test_every_byte_is_copied_as_it_is(bench: Bench, data: bytes) -> None:
    append(bench.spool, data)
    assert bench.start("--once").wait(timeout=DEADLINE_S) == 0
    assert bench.target.read_bytes() == data


def test_sigterm_drains_what_is_still_being_written(bench: Bench) -> None:
    writer = Writer(bench.spool, mb_per_s=20)
    writer.start()
    bench.start(program=changed("pump.QUIET_S = 2.0"))   # the writer may have to wait for a processor
    wait_for(lambda: writer.count > 2000, "the writer to get going")
    wait_for(lambda: bench.target.exists() and bench.target.stat().st_size > 0, "the pump to get going")
    bench.started[-1].send_signal(signal.SIGTERM)
    wait_for(lambda: writer.count > 10_000, "the writer to go on after the SIGTERM")
    count = writer.end()
    assert bench.started[-1].wait(timeout=DEADLINE_S) == 0
    assert bench.target.read_bytes() == lines(count)


def test_signals_meant_for_the_training_do_not_end_the_pump(bench: Bench) -> None:
    process = bench.start()
    append(bench.spool, line(0))
    bench.wait_until_caught_up()
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGHUP):
        process.send_signal(number)
    append(bench.spool, line(1))
    bench.wait_until_caught_up()
    assert bench.stop() == 0


@pytest.mark.parametrize(("folder", "file"), [(0o750, 0o600), (0o2750, 0o640)], ids=["alone", "kill_switch.group"])
def test_the_target_is_its_owners_unless_its_folder_hands_a_group_on(bench: Bench, folder: int, file: int) -> None:
    bench.target.parent.chmod(folder)
    append(bench.spool, line(0))
    assert bench.start("--once").wait(timeout=DEADLINE_S) == 0
    assert bench.target.stat().st_mode & 0o777 == file


def test_killed_20_times_at_random_moments_no_byte_is_lost_or_doubled(bench: Bench) -> None:
    moments = random.Random(20)
    writer = Writer(bench.spool, mb_per_s=10, most=50_000)   # less than what makes a pump give blocks back
    writer.start()
    for _ in range(20):
        process = bench.start()
        time.sleep(moments.uniform(0.02, 0.35))  # the random moment is the point
        process.kill()
        process.wait(timeout=DEADLINE_S)
    count = writer.end()
    assert bench.start("--once").wait(timeout=DEADLINE_S) == 0
    assert count > 10_000
    assert bench.target.read_bytes() == lines(count)
    assert bench.spool.read_bytes() == lines(count)


def test_the_spool_gives_the_copied_part_back_to_the_disk(bench: Bench) -> None:
    block = lines(1 << 14)
    bench.start("--keep-mb", "1")
    for _ in range(20):
        append(bench.spool, block)
    total = 20 * len(block)
    wait_for(lambda: bench.spool.stat().st_blocks * 512 < total / 2, "holes in the spool")
    bench.started[-1].kill()
    append(bench.spool, block)
    assert bench.start("--once").wait(timeout=DEADLINE_S) == 0
    assert bench.spool.stat().st_size == total + len(block)
    with bench.target.open("rb") as file:
        assert all(file.read(len(block)) == block for _ in range(21))
        assert file.read(1) == b""


def test_after_an_error_the_given_back_part_is_not_copied_again_as_zeros(bench: Bench) -> None:
    block = lines(1 << 14)
    process = bench.start("--keep-mb", "1")
    for _ in range(8):
        append(bench.spool, block)
    wait_for(lambda: bench.spool.stat().st_blocks * 512 < 7 * len(block), "holes in the spool")
    bench.wait_until_caught_up()
    process.kill()
    process.wait(timeout=DEADLINE_S)
    away = bench.target.rename(bench.folder / "away")
    bench.target.mkdir()
    append(bench.spool, block)
    bench.start()
    wait_for(lambda: "Is a directory" in bench.said(), "the pump to fail")
    bench.target.rmdir()
    away.rename(bench.target)
    bench.wait_until_caught_up()
    assert bench.stop() == 0
    with bench.target.open("rb") as file:
        assert all(file.read(len(block)) == block for _ in range(9))


def test_two_pumps_on_one_spool_never_work_at_once(bench: Bench) -> None:
    first = bench.start()
    append(bench.spool, line(0))
    bench.wait_until_caught_up()
    assert bench.start().wait(timeout=DEADLINE_S) == 3
    assert "another pump works" in bench.said()
    append(bench.spool, line(1))
    bench.wait_until_caught_up()
    assert first.poll() is None
    assert bench.target.read_bytes() == lines(2)


def test_a_successor_waits_for_a_pump_that_is_about_to_die(bench: Bench) -> None:
    append(bench.spool, line(0))
    with bench.spool.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = bench.start("--once", program=changed("pump.LOCK_S = 60.0"))
        time.sleep(0.3)  # long enough that it has met the lock; nothing tells
        assert process.poll() is None
    assert process.wait(timeout=DEADLINE_S) == 0
    assert bench.target.read_bytes() == line(0)


def test_the_pid_file_lives_as_long_as_the_pump(bench: Bench) -> None:
    pid_file = bench.folder / "pump.pid"
    process = bench.start("--pid-file", str(pid_file))
    wait_for(pid_file.exists, "the pid file")
    assert pid_file.read_text() == f"{process.pid}\n"
    assert bench.stop() == 0
    assert not pid_file.exists()


def test_a_pump_whose_leader_and_folder_are_gone_copies_all_and_leaves(bench: Bench) -> None:
    """Seen on a full disk: no file told the next leader which pump to ask."""
    bench.spool.touch()
    (bench.folder / "stderr").touch()
    pid_file, words = bench.folder / "pid", ["--spool", str(bench.spool), "--target", str(bench.target)]
    leader = subprocess.Popen(["sh", "-c", '"$@" & read -r word', "sh", sys.executable, "-I", str(PUMP), *words,
                               "--pid-file", str(pid_file)], stdin=subprocess.PIPE)
    wait_for(pid_file.exists, "the pump to be there")
    pump = int(pid_file.read_text())
    try:
        append(bench.spool, lines(10))
        bench.wait_until_caught_up()
        leader.kill()
        leader.communicate()
        with bench.spool.open("ab") as spool:
            bench.spool.unlink()
            spool.write(line(10))
        wait_for(lambda: not pid_file.exists(), "the pump to leave")
        assert bench.target.read_bytes() == lines(11)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pump, signal.SIGKILL)


def test_a_target_longer_than_the_spool_is_said_and_kept(bench: Bench) -> None:
    append(bench.target, lines(5))
    append(bench.spool, line(0))
    bench.start()
    wait_for(lambda: "bytes longer than" in bench.said(), "the pump to say so")
    append(bench.spool, line(5))
    wait_for(lambda: bench.target.stat().st_size == 6 * LINE_BYTES, "the next line")
    assert bench.target.read_bytes() == lines(6)


def test_what_stands_in_a_spool_that_was_cut_is_copied_behind_what_was_before(bench: Bench) -> None:
    """`echo … > /dev/stderr` in a script: the line must not be lost with the cut."""
    bench.start()
    append(bench.spool, lines(5))
    wait_for(lambda: bench.target.exists() and bench.target.stat().st_size == 5 * LINE_BYTES, "the first lines")
    bench.spool.write_bytes(line(5))
    wait_for(lambda: bench.target.stat().st_size == 6 * LINE_BYTES, "the line behind the cut")
    append(bench.spool, line(6))
    wait_for(lambda: bench.target.stat().st_size == 7 * LINE_BYTES, "the next line")
    assert bench.stop() == 0
    assert bench.target.read_bytes() == lines(7)


def test_a_log_that_somebody_deleted_comes_back_whole(bench: Bench) -> None:
    bench.start()
    append(bench.spool, lines(10))
    bench.wait_until_caught_up()
    bench.target.unlink()
    append(bench.spool, line(10))
    bench.wait_until_caught_up()
    assert bench.stop() == 0
    assert bench.target.read_bytes() == lines(11)


def test_a_symlink_at_the_target_is_not_followed(bench: Bench) -> None:
    victim = bench.folder / "victim"
    victim.write_bytes(b"mine")
    bench.target.symlink_to(victim)
    append(bench.spool, lines(3))
    bench.start()
    wait_for(lambda: "symbolic links" in bench.said(), "the pump to say so")
    bench.target.unlink()
    bench.wait_until_caught_up()
    assert victim.read_bytes() == b"mine"


def test_a_folder_that_does_not_exist_yet_is_waited_for(bench: Bench) -> None:
    bench.target = bench.folder / "attempts" / "main.log"
    append(bench.spool, lines(3))
    bench.start()
    wait_for(lambda: "No such file" in bench.said(), "the pump to say so")
    bench.target.parent.mkdir()
    bench.wait_until_caught_up()
    assert bench.stop() == 0
    assert bench.target.read_bytes() == lines(3)
    assert bench.said().count("No such file or directory; it waits") == 1


@pytest.mark.root
def test_a_frozen_log_filesystem_never_blocks_the_writer_and_loses_no_line(
    bench: Bench, freezable: LoopMount | FuseMount,
) -> None:
    bench.target = freezable.path / "main.log"
    bench.start()
    writer = Writer(bench.spool, mb_per_s=2)
    writer.start()
    wait_for(lambda: bench.target.exists() and bench.target.stat().st_size > 0, "the first lines")
    freezable.freeze()
    before, writer.longest_write_s = writer.count, 0.0
    longest_s, _ = stand(5)  # the freeze of the incident, in small
    written_meanwhile = writer.count - before
    freezable.thaw()
    assert written_meanwhile > 5_000
    wait_for(lambda: writer.count > before + written_meanwhile + 1000, "the writer to go on")
    assert writer.longest_write_s < 2.5 + longest_s, "half of the freeze"
    count = writer.end()
    bench.wait_until_caught_up()
    assert bench.stop() == 0
    assert bench.target.read_bytes() == lines(count)


@pytest.mark.root
def test_a_pump_killed_while_frozen_is_followed_by_one_that_goes_on_exactly(
    bench: Bench, freezable: LoopMount | FuseMount,
) -> None:
    bench.target = freezable.path / "main.log"
    append(bench.spool, lines(1000))
    first = bench.start()
    bench.wait_until_caught_up()
    freezable.freeze()
    append(bench.spool, b"".join(line(number) for number in range(1000, 3000)))
    time.sleep(0.3)  # it hangs in its write now, or just before
    first.kill()
    second = bench.start()
    freezable.thaw()
    bench.wait_until_caught_up()
    second.terminate()
    assert second.wait(timeout=DEADLINE_S) == 0
    assert bench.target.read_bytes() == lines(3000)


@pytest.mark.root
@pytest.mark.parametrize("loop_mount", [16], indirect=True, ids=["16-mb"])
def test_a_full_disk_is_said_once_and_waited_out(bench: Bench, loop_mount: LoopMount) -> None:
    bench.target = loop_mount.path / "main.log"
    ballast = loop_mount.path / "ballast"
    ballast.write_bytes(bytes(loop_mount.free_bytes() - (4 << 20)))
    append(bench.spool, lines(9_000))
    bench.start()
    wait_for(lambda: "No space left" in bench.said(), "the full disk")
    time.sleep(1)  # a few retries, which must stay silent
    ballast.unlink()
    bench.wait_until_caught_up()
    assert bench.stop() == 0
    assert bench.target.read_bytes() == lines(9_000)
    assert bench.said().count("cannot copy") == 1
    assert bench.said().count("can be written again") == 1


@pytest.mark.root
def test_a_filesystem_turned_read_only_is_waited_out(bench: Bench, loop_mount: LoopMount) -> None:
    bench.target = loop_mount.path / "main.log"
    append(bench.spool, lines(10))
    assert bench.start("--once").wait(timeout=DEADLINE_S) == 0
    loop_mount.read_only()
    append(bench.spool, line(10))
    bench.start()
    wait_for(lambda: "Read-only file system" in bench.said(), "the read-only filesystem")
    loop_mount.read_only(False)
    bench.wait_until_caught_up()
    assert bench.stop() == 0
    assert bench.target.read_bytes() == lines(11)


def test_a_pump_that_cannot_write_leaves_in_the_end_and_says_what_is_missing(bench: Bench) -> None:
    bench.target = bench.folder / "gone" / "main.log"
    append(bench.spool, lines(3))
    assert bench.start("--once", program=changed("pump.DRAIN_S = 0.5")).wait(timeout=DEADLINE_S) == 4
    assert f"{3 * LINE_BYTES} bytes" in bench.said()
    assert os.path.exists(bench.spool)


def test_a_file_for_each_rank_is_kept_where_the_leader_wants_them_and_survives_a_kill(bench: Bench) -> None:
    ranks = bench.target.parent / "ranks"
    bench.spool.with_suffix(".json").write_text(json.dumps({"nodes": ["n0", "n1"], "rank_logs": 2}))
    append(bench.spool, b"[n1:0]: one\n")
    bench.start()
    wait_for(lambda: (ranks / "rank-2-n1.log").exists(), "the first line of a rank")
    bench.started[-1].kill()
    append(bench.spool, b"[n1:0]: two\n[n0:1]: three")
    bench.start()
    bench.wait_until_caught_up()
    assert bench.stop() == 0, bench.said()
    assert {path.name: path.read_bytes() for path in ranks.iterdir()} == {
        "rank-1-n0.log": b"[n0:1]: three\n", "rank-2-n1.log": b"[n1:0]: one\n[n1:0]: two\n"}
    assert bench.target.read_bytes() == bench.spool.read_bytes()
    with (ranks / "rank-2-n1.log").open() as kept:
        append(bench.spool, b"\n[n1:0]: four\n")
        assert bench.start("--once").wait(timeout=DEADLINE_S) == 0
        assert os.fstat(kept.fileno()).st_nlink == 1, "the copy of an attempt's last lines wrote them anew"
    assert (ranks / "rank-2-n1.log").read_bytes().endswith(b"two\n[n1:0]: four\n")


def test_rank_files_that_cannot_be_written_cost_the_log_nothing(bench: Bench) -> None:
    bench.spool.with_suffix(".json").write_text(json.dumps({"nodes": ["n0"], "rank_logs": None}))
    (bench.target.parent / "ranks").symlink_to(bench.folder)   # nothing is removed where it points
    append(bench.spool, b"[n0:0]: one\n")
    bench.start()
    bench.wait_until_caught_up()
    assert bench.stop() == 0
    assert bench.target.read_bytes() == b"[n0:0]: one\n" and "logs --rank" in bench.said()
    assert bench.spool.exists()


def test_a_pump_whose_package_is_gone_keeps_the_log_all_the_same(bench: Bench) -> None:
    alone = bench.folder / "a" / "b" / "pump.py"
    alone.parent.mkdir(parents=True)
    alone.write_bytes(PUMP.read_bytes())
    bench.spool.with_suffix(".json").write_text(json.dumps({"nodes": ["n0"], "rank_logs": None}))
    append(bench.spool, b"[n0:0]: one\n")
    assert bench.start("--once", program=("-S", str(alone))).wait(timeout=DEADLINE_S) == 0, bench.said()
    assert bench.target.read_bytes() == b"[n0:0]: one\n"
