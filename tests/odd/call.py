"""One verb as a person types it: its exit code, its words, and how long it took.

It runs in a forked child of this process, which costs a tenth of a new interpreter, or in a new interpreter.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from safelaunch import cli
from safelaunch.errors import SafelaunchError
from safelaunch.why.io.logfiles import read_logs
from safelaunch.why.rulebook import RULES
from tests.effort import slowness

BUG = SafelaunchError.exit_code
LATE_S = 120.0     # a hang; the verbs' own deadlines are 10 s
MOST_CPU_S, MOST_KB = 5.0, 300 << 10   # of a quiet machine; resident, beyond what this process has
SHOWN_BYTES = 1 << 22
RAW = ("logs", "script", "schema", "sandbox")   # stdout is somebody's bytes, or safelaunch's own


@dataclass(frozen=True)
class Said:
    """How a verb ended; `code` None = it did not, and was killed."""

    argv: tuple[str, ...]
    code: int | None
    out: bytes
    err: bytes
    took_s: float
    cpu_s: float       # processor time, with that of its children
    most_kb: int       # resident, beyond what the process had that it was forked from

    def faults(self) -> list[str]:
        """What no verb may do, whatever it is given."""
        found = []
        if self.code is None:
            found.append(f"hangs: {self.took_s:.0f} s")
        if self.code is not None and (self.code == BUG or self.code < 0 or b"Traceback (most recent" in self.err):
            found.append(f"ends by {self.code}")
        if self.cpu_s > MOST_CPU_S and self.cpu_s / slowness() > MOST_CPU_S:
            found.append(f"takes {self.cpu_s:.1f} s of processor time")
        if self.most_kb > MOST_KB:
            found.append(f"has {self.most_kb >> 10} MB")
        shown = self.err if self.argv[0] in RAW or "--dry-run" in self.argv else self.err + self.out
        text = shown.decode(errors="surrogateescape")
        if any(_is_unfit(char) for char in text):
            found.append("sends control characters")
        return found

    def __str__(self) -> str:
        return f"{self.argv!r} ends by {self.code} after {self.took_s:.1f} s\n{self.err.decode(errors='replace')}"


def _is_unfit(char: str) -> bool:
    code = ord(char)
    return (code < 0x20 and char not in "\n\t") or 0x7F <= code < 0xA0 or char in "\u202e\u2066\u200f"


def import_verbs() -> None:
    """Once, and not by every call; the patterns of the rules are compiled when a log is read, most of what `why` takes.
    """
    for module, _ in cli.VERBS.values():
        importlib.import_module(module)
    with tempfile.NamedTemporaryFile() as log:
        log.write(b"step 1 loss 2.5\nTraceback (most recent call last):\nKeyError: 'x'\n")
        log.flush()
        read_logs([Path(log.name)], RULES)
    gc.collect()
    gc.freeze()   # a child that collected would copy all of this process


def call(argv: Sequence[str], folder: Path, env: Mapping[str, str | None],
         prepare: Callable[[], object] = lambda: None, *, is_new: bool = False) -> Said:
    """`safelaunch ARGV` in `folder`; `env` changes the environment, None takes a name away; `prepare` runs in the
    child before it; `is_new`: in an interpreter of its own, to which no more of `prepare` comes than limits and
    descriptors.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start_s, before_kb = time.monotonic(), _resident_kb()
        pid = os.fork()
        if pid == 0:
            _be_the_verb(argv, folder, env, prepare, (out.fileno(), err.fileno()), is_new)
        code, cpu_s, most_kb = _await(pid, start_s + LATE_S)
        took_s = time.monotonic() - start_s
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read(SHOWN_BYTES))   # the next call's process begins with what this one holds
    return Said(tuple(argv), code, said[0], said[1], took_s, cpu_s, max(0, most_kb - before_kb))


def _resident_kb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 10


def _await(pid: int, until_s: float) -> tuple[int | None, float, int]:
    """The exit code, None = it had to be killed; processor time in seconds; the most KiB that it had."""
    descriptor = os.pidfd_open(pid)
    try:
        is_over = not select.select([descriptor], [], [], max(0.0, until_s - time.monotonic()))[0]
    finally:
        os.close(descriptor)
    if is_over:
        os.killpg(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    return None if is_over else os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss


def _be_the_verb(argv: Sequence[str], folder: Path, env: Mapping[str, str | None], prepare: Callable[[], object],
                 streams: tuple[int, int], is_new: bool) -> NoReturn:
    code = 1
    try:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(streams[0], 1)
        os.dup2(streams[1], 2)
        os.chdir(folder)
        for name, value in env.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.stdout = open(1, "w", closefd=False)   # noqa: SIM115 - pytest's own are not these descriptors
        sys.stderr = open(2, "w", closefd=False)   # noqa: SIM115
        prepare()
        if is_new:
            os.execv(sys.executable, [sys.executable, "-m", "safelaunch", *argv])
        cli.main(list(argv))
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:   # noqa: BLE001 - whatever it is, it is the answer
        os.write(2, traceback.format_exc().encode(errors="replace"))
        code = BUG
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
