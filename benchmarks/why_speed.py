"""How fast `safelaunch why` reads, beside grep and a Python loop, on one core.

    [taskset -c 1] python -m benchmarks.why_speed [--folder DIR] [--mb 2000] [--big-gb 20] [--runs 3]

GB/s are bytes of the log by seconds of processor time, the interpreter's start included: other users of the machine
lengthen times at the wall, and hardly those. Rounds measure each in turn, medians count, ratios are of neighbours.
"read" is what was opened of the log: where steps are found, an error before the last of them is no cause (docs/why.md).
"default" is as `pip install safelaunch` brings it, "plain" without ahocorasick_rs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import whylogs
from benchmarks.figure import Figure, ratio_of_pairs, render_table
from safelaunch.why.read.scan import Compiled
from safelaunch.why.rulebook import RULES

DEADLINE_S = 900.0
LOOP_MB = 4            # of the log for the Python loops, which take as long for each byte as for the others
HOSTILE_MB = 32
WHY = """
import resource, sys
from pathlib import Path
from safelaunch.why.io import logfiles
from safelaunch.why import rulebook
from safelaunch.why.judge.engine import judge_log
from safelaunch.why.read import literals
log, mode = Path(sys.argv[1]), sys.argv[2]
if mode == "plain":
    literals.make_engine = lambda *words, **options: None
read = logfiles.read_logs([log], rulebook.RULES, workers=int(sys.argv[3]))
verdict = judge_log(read)
own = next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(read.read_bytes, verdict.category, own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
# What people search for at once, by `grep -F -c`.
THIRTY = (b"CUDA error\nTraceback\nuncorrectable ECC\nNCCL error\nout of memory\nWatchdog caught\nSegmentation fault\n"
          b"Bus error\nNo space left\nStale file handle\nNODE FAILURE\nTIME LIMIT\nPREEMPTION\nXid\nfallen off\n"
          b"Killed\noom-kill\nEADDRINUSE\nConnection refused\nConnection reset\nunhandled system error\ncore dumped\n"
          b"PytorchStreamReader\nModuleNotFoundError\nImportError\nGLIBC\nloss is nan\nRead-only file system\n"
          b"Disk quota\nInput/output error\n")
WORDS = b"Error\nTraceback\nKilled\nNCCL WARN\nXid\nout of memory\nNo space left\nFAILED\nsignal\ntimed out\n"
LOOP = """
import re, sys
words = re.compile(b"|".join(map(re.escape, open(sys.argv[2], "rb").read().split(b"\\n")[:-1])))
count = 0
with open(sys.argv[1], "rb") as log:
    for line in log:
        if words.search(line):
            count += 1
print(count)
"""


@dataclass(frozen=True)
class Run:
    """What one process took and printed."""

    cpu_s: float
    wall_s: float
    text: str

    @property
    def words(self) -> tuple[str, ...]:
        """What it printed."""
        return tuple(self.text.split())


def run(argv: Sequence[str]) -> Run:
    """A process from start to end."""
    start_s = time.monotonic()
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):   # grep: 1 = nothing found
        raise SystemExit(f"{argv[:3]} failed with {process.returncode}")
    return Run(usage.ru_utime + usage.ru_stime, time.monotonic() - start_s, text)


def memory_of(done: Run) -> str:
    """The most memory that the process held, and its workers, each of which shares most of it."""
    own, worker = (int(word) // 1024 for word in done.words[2:4])
    return f"{own} MB of memory" + (f" + {worker} MB a worker at most" if worker else "")


def why(log: Path, mode: str = "default", workers: int = 1) -> Run:
    """`safelaunch why` without its screen."""
    return run([sys.executable, "-c", WHY, str(log), mode, str(workers)])


def main() -> int:
    """The exit code: 1 where a ratio that was promised is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where the logs go (default: a temporary folder)")
    parser.add_argument("--mb", type=int, default=2000)
    parser.add_argument("--big-gb", type=int, default=20, help="0 = leave the big one out")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="safelaunch-why-", dir=options.folder) as name:
        folder = Path(name)
        figures = measure_speeds(folder, options.mb, options.runs)
        print(render_table("why: reading, GB/s of one core", figures), flush=True)
        print(render_table(f"why: {options.mb} MB with the line's number, seconds at the wall on all processors",
                           measure_walls(folder, options.mb, options.runs)), flush=True)
        if options.big_gb:
            print(render_table(f"why: {options.big_gb} GB, 384 ranks, cause in the middle, seconds at the wall",
                               measure_big(folder, options.big_gb)), flush=True)
        print(render_table("why: hostile logs, MB/s of one core", measure_hostile(folder, options.runs)), flush=True)
    return int(any(figure.is_missed for figure in figures))


def measure_speeds(folder: Path, size_mb: int, runs: int) -> list[Figure]:
    """GB/s of safelaunch on three logs, of grep and of a Python loop."""
    literals = folder / "literals"
    literals.write_bytes(b"".join(literal + b"\n" for literal in Compiled(RULES).literals if b"\n" not in literal))
    words = folder / "words"
    words.write_bytes(WORDS)
    start_s = min(run([sys.executable, "-c", "import re"]).cpu_s for _ in range(runs))   # not the loop's
    figures = []
    for layout in ("end", "middle", "no steps"):
        log = folder / "log"
        whylogs.write(log, size_mb << 20, layout)
        size = log.stat().st_size
        with log.open("rb") as stream, (folder / "head").open("wb") as head:
            head.write(stream.read(LOOP_MB << 20))
        ours: list[float] = []
        walls: list[float] = []
        greps: list[float] = []
        loops: list[float] = []
        short_loops: list[float] = []
        for _ in range(runs):
            done = why(log)
            ours.append(size / done.cpu_s / 1e9)
            walls.append(size / done.wall_s / 1e9)
            grep = run(["env", "LC_ALL=C", "grep", "-a", "-c", "-F", "-f", str(literals), str(log)])
            greps.append(size / grep.cpu_s / 1e9)
            for speeds, wanted in ((loops, literals), (short_loops, words)):
                loop = run([sys.executable, "-c", LOOP, str(folder / "head"), str(wanted)])
                speeds.append((LOOP_MB << 20) / (loop.cpu_s - start_s) / 1e9)
        assert done.words[1] == "gpu_hardware", done
        share = f"read {int(done.words[0]) / size:.0%}, {memory_of(done)}"
        promised = layout == "end"
        figures += [
            Figure(f"cause at: {layout} ({share})", "GB/s", tuple(ours), "≥ 2" if promised else ""),
            Figure("  the same by the clock at the wall", "GB/s", tuple(walls)),
            Figure("  grep -F -f with the same literals", "GB/s", tuple(greps), "≤ 0.33" if promised else "", "why",
                   ratio_of_pairs(greps, ours), 1 / 3 if promised else None),
            Figure("  a Python loop over lines, the same literals", "GB/s", tuple(loops), "≤ 0.029" if promised else "",
                   "why", ratio_of_pairs(loops, ours), 1 / 35 if promised else None),
            Figure("  a Python loop over lines, ten words", "GB/s", tuple(short_loops), "", "why",
                   ratio_of_pairs(short_loops, ours)),
        ]
        log.unlink()
    return figures


def measure_walls(folder: Path, size_mb: int, runs: int) -> list[Figure]:
    """Seconds of the verb, its start and the number of the line included, and of grep with thirty words."""
    words = folder / "thirty"
    words.write_bytes(THIRTY)
    figures = []
    for layout in ("end", "no steps"):
        log = folder / "log"
        whylogs.write(log, size_mb << 20, layout)
        verb = [sys.executable, "-m", "safelaunch", "why", "--json", str(log)]
        grep = ["env", "LC_ALL=C", "grep", "-a", "-F", "-c", "-f", str(words), str(log)]
        lines = [line["line_number"] for line in json.loads(run(verb).text)["verdict"]["evidence"]]
        assert lines and None not in lines, lines
        ours: list[float] = []
        greps: list[float] = []
        for _ in range(runs):
            ours.append(run(verb).wall_s)
            greps.append(run(grep).wall_s)
        figures += [Figure(f"cause at: {layout}", "s", tuple(ours)),
                    Figure("  grep -F -c with thirty words", "s", tuple(greps), "≥ 3 × why", "why",
                           ratio_of_pairs(greps, ours))]
        log.unlink()
    return figures


def measure_big(folder: Path, size_gb: int) -> list[Figure]:
    """Seconds from start to verdict, cold and warm."""
    log = folder / "big"
    if shutil.disk_usage(folder).free < (size_gb + 2) << 30:
        raise SystemExit(f"{folder} has no room for {size_gb} GB: name another by --folder, or less by --big-gb")
    whylogs.write(log, size_gb << 30, "middle")
    cores = len(os.sched_getaffinity(0))
    forget(log)
    cold = why(log, workers=cores)
    warm = why(log, workers=cores)
    assert cold.words[1] == warm.words[1] == "gpu_hardware", (cold, warm)
    return [Figure(f"{name}: read {int(done.words[0]) >> 20} MB, {memory_of(done)}", "s", (done.wall_s,), target)
            for name, done, target in (("cold", cold, "≤ 3"), ("warm", warm, ""))]


def forget(log: Path) -> None:
    """Take the log out of the page cache, as far as the kernel does that for the asking."""
    fd = os.open(log, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def measure_hostile(folder: Path, runs: int) -> list[Figure]:
    """MB/s on what is hard to read, with the engine and without."""
    source = random.Random(5)
    size = HOSTILE_MB << 20

    def unlike() -> bytes:
        letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGH"
        return b"".join(b"%s\n" % bytes(source.choices(letters, k=source.randrange(20, 200)))
                        for _ in range(size // 110))

    def prose() -> bytes:
        words = (b"the quick training rank error loss step node NCCL CUDA worker tensor memory failed connection host "
                 b"gpu file data load model save checkpoint time out reading writing").split()
        return b"".join(b" ".join(source.choices(words, k=source.randrange(4, 20))) + b"\n" for _ in range(size // 75))

    def again(piece: bytes) -> bytes:
        return piece * (size // len(piece))

    texts = {
        "random bytes": os.urandom(size), "words of rules, no two lines alike": prose(),
        "lines no two of which are alike": unlike(), "one line of NULs": bytes(size),
        "lines of 10 MB": again(b"x" * (10 << 20) + b" CUDA error: x\n"),
        "one line of near misses": again(b"CUDA erro: "),
        "a progress bar's carriage returns": again(b"\r 50%|#####     | 1/2 [00:00<00:00, 3.5it/s]"),
        "open tracebacks": again(b"Traceback (most recent call last):\n"), "newlines": again(b"\n"),
        "tracebacks": again(b"Traceback (most recent call last):\n  File \"x.py\", line 3\n    g()\nValueError: x\n"),
        "brackets and colons": again(b"[" * 100 + b"a:b:" * 50 + b"\n"),
        "digits": again(b"1234567890" * 30 + b" nan loss \n"),
        "labels": again(b"[rank1]:[rank2]:[rank3]:[rank4]: 2024-01-01 00:00:00 ERROR x\n"),
    }
    figures = []
    log = folder / "hostile"
    for name, text in texts.items():
        log.write_bytes(text)
        for mode, title, target in (("default", name, "≥ 50"), ("plain", "  plain", "")):
            speeds = tuple(len(text) / why(log, mode).cpu_s / 1e6 for _ in range(runs))
            figures.append(Figure(title, "MB/s", speeds, target))
    return figures


if __name__ == "__main__":
    raise SystemExit(main())
