"""python -m tests.why.fuzz [--seconds 600] [--seed 0] [--atheris FOLDER] → reader, scan and judge on hostile logs.

Bytes become a log: each chooses a sample of a rule, a literal, a launcher's prefix, a stamp, a piece of a traceback or
raw bytes, and damages some of them. A failure prints the seed, or with atheris (`pip install atheris`) the file that
makes it again. The exit code is 1 after a failure, or when more memory was taken than MOST_MB.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from safelaunch.why.io import logbounds, logchunks
from safelaunch.why.io.logfiles import read_logs
from safelaunch.why.judge.engine import judge_log
from safelaunch.why.rulebook import RULES
from safelaunch.why.show import verdictjson
from tests.pure.why.judged import COMPILED

MOST_MB = 300
MOST_REPEATED = 20_000
MOST_RUN_S = 5.0     # of processor time, for a log of at most a few hundred KB
LITERALS = tuple(literal for rule in RULES for literal in rule.anchor)
LINES = tuple(text.encode() for rule in RULES for text in (rule.sample, rule.counter_sample))
HEADS = (
    b"[rank17]:", b"[default3]:", b"17: ", b"137: [default1]:[rank137]: ", b"[gpu-7:3]:", b"node-012: ",
    b"2024-05-01 12:00:00,123 ", b"[2024-05-01T12:00:00+01:00] ", b"E0311 14:12:27.954000 458395 file.py:897] ",
    b"[Wed Mar  1 17:52:09 2023] ", b"Nov 21 20:38:35 gpu-7 kernel: ", b"[ 1234.567890] ", b"\x1b[31m",
    b"(Actor pid=7) ", b"[1,3]<stderr>:",
)
FRAMES = (
    b"Traceback (most recent call last):\n", b'  File "x.py", line 3, in f\n    f()\n', b"ValueError: no\n",
    b"During handling of the above exception, another exception occurred:\n", b"Original Traceback",
    b" iteration 7/ 100 | lm loss: 2.0 |\n", b"frame #0: c10::Error::Error() + 0x57 (0x7f3a in /opt/libc10.so)\n",
)
SEPARATORS = (b"\n", b"\n", b"\n", b"\r", b"\r\n", b"", b"\x00", b"\n\n\n", b"\xff\xfe", b"x" * 9000, b"\x1f\x8b")


def grow(data: bytes) -> bytes:
    """The log that the bytes ask for; two bytes, and sometimes a few more, for each of its pieces."""
    said: list[bytes] = []
    at = 0
    while at + 1 < len(data):
        kind, which = data[at] % 16, data[at] // 16 * 256 + data[at + 1]
        at += 2
        if kind < 5:
            said += (HEADS[which % len(HEADS)] if which & 1 else b"", LINES[which % len(LINES)], b"\n")
        elif kind < 7:
            said += (LITERALS[which % len(LITERALS)], SEPARATORS[which % len(SEPARATORS)])
        elif kind < 9:
            said.append(FRAMES[which % len(FRAMES)])
        elif kind < 11:
            said.append(HEADS[which % len(HEADS)])
        elif kind == 11 and said:
            said.append((said[-1] * (which % 60))[:MOST_REPEATED])
        elif kind == 12 and said:
            said[-1] = said[-1][:which % (len(said[-1]) + 1)]
        elif kind == 13:
            said.append(data[at:at + which % 64])
            at += which % 64
        else:
            said.append(SEPARATORS[which % len(SEPARATORS)])
    return b"".join(said)


def check(data: bytes, folder: Path) -> None:
    """Raise where reading or judging the log of these bytes does what it must not."""
    log = grow(data)
    paths = [folder / "slurm-1.out", folder / "node-7.log"]
    cut = len(log) * (data[0] if data else 0) // 255
    paths[0].write_bytes(gzip.compress(log[:cut], 1)[:-3 if cut & 1 else None] if cut % 7 == 3 else log[:cut])
    paths[1].write_bytes(log[cut:])
    start_s = time.process_time()
    read = read_logs(paths, RULES, workers=1, compiled=COMPILED)
    verdict = judge_log(read)
    public = verdictjson.to_public(verdict)
    taken_s = time.process_time() - start_s
    assert taken_s < MOST_RUN_S, f"{taken_s:.1f} s for {len(log)} bytes"
    assert json.loads(json.dumps(public))["verdict"]["category"], public
    assert 0 <= verdict.confidence <= 1, verdict
    for finding in read.findings:
        assert len(finding.text) <= 2000 and 0 <= finding.offset <= len(log) and 0 <= finding.file < 2, finding


def make_small(source: random.Random) -> None:
    """Let blocks and bounds be so small that a short log has many of each."""
    logchunks.BLOCK = source.choice((600, 4096, 112 << 10))
    logbounds.SMALL = source.choice((20_000, 64 << 20))
    for name, size in (("HEAD", 1000), ("MARGIN", 8000), ("PROBE", 1000), ("STRIDE", 4000), ("DEAD_HEAD", 16_000),
                       ("DEAD_TAIL", 8000), ("SAMPLE", 1000), ("SAMPLE_EVERY", 4000)):
        setattr(logbounds, name, size)


def main(argv: Sequence[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--atheris", type=Path, metavar="FOLDER", help="guided by coverage; corpus goes there")
    options = parser.parse_args(argv)
    with TemporaryDirectory() as name:
        if options.atheris is not None:
            return _run_atheris(Path(name), options)
        seed, end_s = options.seed, time.monotonic() + options.seconds
        while time.monotonic() < end_s:
            source = random.Random(seed)
            make_small(source)
            try:
                check(source.randbytes(source.choice((20, 200, 2000, 8000))), Path(name))
            except Exception:
                print(f"seed {seed} (--seed {seed} --seconds 1)", flush=True)
                raise
            seed += 1
    most_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{seed - options.seed} logs, at most {most_mb} MB of memory")
    return int(most_mb > MOST_MB)


def _run_atheris(folder: Path, options: argparse.Namespace) -> int:
    import atheris  # type: ignore[import-untyped, import-not-found, unused-ignore]

    make_small(random.Random(1))
    logchunks.BLOCK = 600
    options.atheris.mkdir(parents=True, exist_ok=True)
    atheris.instrument_all()
    argv = [sys.argv[0], f"-max_total_time={options.seconds:.0f}", "-max_len=4000", f"-rss_limit_mb={4 * MOST_MB}",
            f"-artifact_prefix={options.atheris}/", str(options.atheris)]
    atheris.Setup(argv, lambda data: check(data, folder))
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
