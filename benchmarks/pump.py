"""The log pump beside `cat` and `tail -f`, and what the leader pays to touch the shared folder through children.

    python benchmarks/pump.py [--folder DIR] [--size-mb 512] [--runs 5]

Every round runs each of them once, on a fresh copy, so that a busy moment of the machine hits all alike; medians count.
Exit code 1 where the pump passes less than its promised 200 MB/s.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from safelaunch.base.io.probe import run_in_child
from safelaunch.node import pump
from safelaunch.run.io.shared import SharedFolder

PROMISED_MB_PER_S = 200.0
LEADER_MB = 40  # the leader's budget: a fork copies the page table of so much
DEADLINE_S = 120.0
PUMP_ARGV = [sys.executable, "-I", pump.__file__]


def main() -> int:
    """The exit code; prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where the files go (default: a temporary folder)")
    parser.add_argument("--size-mb", type=int, default=512)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="safelaunch-pump-", dir=options.folder) as name:
        folder = Path(name)
        speeds = measure_speeds(folder, options.size_mb, options.runs)
        print_costs(folder)
        print_latency(folder)
    return 0 if statistics.median(speeds["pump"]) >= PROMISED_MB_PER_S else 1


def measure_speeds(folder: Path, size_mb: int, runs: int) -> dict[str, list[float]]:
    """MB/s of each peer per round, from its start as a process to the last byte in the target."""
    spool, target = folder / "spool", folder / "target"
    block = b"".join(b"[node%03d:%d]: step %08d loss 2.3141\n" % (n % 64, n % 8, n) for n in range(30_000))
    with spool.open("wb") as file:
        while file.tell() < size_mb << 20:
            file.write(block)
    paths = ["--spool", str(spool), "--target", str(target)]
    peers: dict[str, Callable[[], float]] = {
        "pump": lambda: _time_copy([*PUMP_ARGV, *paths, "--keep-mb", "1000000"], spool, target),
        "pump, fsync": lambda: _time_copy([*PUMP_ARGV, *paths, "--keep-mb", "1000000", "--once"], spool, target, True),
        "cat": lambda: _time_copy(["cat", str(spool)], spool, target),
        "cat, fsync": lambda: _time_copy(["dd", f"if={spool}", "bs=128k", "conv=fsync"], spool, target, True),
        "tail -f": lambda: _time_copy(["tail", "-c", "+1", "-f", str(spool)], spool, target),
    }
    speeds: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(runs):
        for name, copy in peers.items():
            speeds[name].append(spool.stat().st_size / 1e6 / copy())
    for name, found in speeds.items():
        ratio = statistics.median(ours / theirs for ours, theirs in zip(speeds["pump"], found, strict=True))
        print(f"{name:12} {statistics.median(found):7.0f} MB/s   pump is {ratio:5.2f} x of it")
    spool.unlink()
    return speeds


def _time_copy(argv: list[str], spool: Path, target: Path, until_end: bool = False) -> float:
    """Seconds until `target` is as long as `spool`, or until the program ends; peers write to their stdout."""
    target.unlink(missing_ok=True)
    size = spool.stat().st_size
    start_s = time.perf_counter()
    if argv[:len(PUMP_ARGV)] == PUMP_ARGV:
        process = subprocess.Popen(argv)
    else:
        with target.open("wb") as out:
            process = subprocess.Popen(argv, stdout=out, stderr=subprocess.DEVNULL)
    if until_end:
        process.wait(timeout=DEADLINE_S)
    else:
        while not target.exists() or target.stat().st_size < size:
            time.sleep(0.001)
    took_s = time.perf_counter() - start_s
    process.kill()
    process.wait(timeout=DEADLINE_S)
    return took_s


def print_costs(folder: Path) -> None:
    """What a probe and a durable append cost a leader of 40 MB."""
    ballast = bytearray(os.urandom(max(0, (LEADER_MB << 20) - _resident_bytes())))
    probe_s = [run_in_child(lambda: 1, DEADLINE_S).took_s for _ in range(200)]
    shared = SharedFolder(folder, folder / "outbox")
    append_s = [_time(lambda: shared.append("journal", b"x" * 300 + b"\n", DEADLINE_S)) for _ in range(200)]
    shared.close()
    bare_s = [_time(lambda: _append_bare(folder / "bare")) for _ in range(200)]
    leader_mb = _resident_bytes() / 1e6
    print(f"a probe in a child           {statistics.median(probe_s) * 1e3:6.2f} ms   (a leader of {leader_mb:.0f} MB)")
    del ballast
    print(f"a durable append             {statistics.median(append_s) * 1e3:6.2f} ms")
    print(f"the same without a courier   {statistics.median(bare_s) * 1e3:6.2f} ms")


def print_latency(folder: Path) -> None:
    """How long a single line takes from the spool to the target."""
    spool, target = folder / "line-spool", folder / "line-target"
    process = subprocess.Popen([*PUMP_ARGV, "--spool", str(spool), "--target", str(target)])
    took_s = []
    for number in range(1, 101):
        start_s = time.perf_counter()
        with spool.open("ab") as file:
            file.write(b"x" * 99 + b"\n")
        while not target.exists() or target.stat().st_size < 100 * number:
            time.sleep(0.0002)
        took_s.append(time.perf_counter() - start_s)
        time.sleep(0.03)
    process.terminate()
    process.wait(timeout=DEADLINE_S)
    # The first line waited for Python to start.
    del took_s[0]
    print(f"a line through the pump      {statistics.median(took_s) * 1e3:6.2f} ms   (longest {max(took_s) * 1e3:.1f})")


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _append_bare(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    os.write(descriptor, b"x" * 300 + b"\n")
    os.fsync(descriptor)
    os.close(descriptor)


def _time(fn: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    fn()
    return time.perf_counter() - start_s


if __name__ == "__main__":
    sys.exit(main())
