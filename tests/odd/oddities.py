"""What can be odd: the files of a run, checkpoints, logs, configs, words of the command line, the surroundings."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safelaunch.base.io import sharedfile
from tests.odd.place import Place

Make = Callable[[Place], object]
EVIL = "\x1b[2J\x9b31m\u202e\u2066x\x00\r\n\t\udcff"   # ESC, C1, direction, NUL, line ends, a byte of no text
WIDE = "n[0-99999999]"


def _write(name: str, data: bytes | str) -> Make:
    def make(place: Place) -> None:
        path = place.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(data.encode(errors="surrogateescape") if isinstance(data, str) else data)
    return make


def _instead(name: str, put: Callable[[Path], object]) -> Make:
    """Something that is no file, under a file's or a folder's name."""
    def make(place: Place) -> None:
        path = place.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        put(path)
    return make


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2 << 30)


THINGS: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo, "a link to itself": _loop, "a link to /dev/zero": _zeros, "a folder": Path.mkdir,
    "2 GiB of zeros": _sparse,
}


def _write_sparse(name: str, most_bytes: int) -> Make:
    """Append a hole."""
    def make(place: Place) -> None:
        with (place.folder / name).open("ab") as file:
            file.truncate(most_bytes)
    return make


def _meta(*keys: str, value: Any) -> Make:
    """run.json with one value replaced."""
    def make(place: Place) -> None:
        path = place.run / "run.json"
        meta: Any = json.loads(sharedfile.read(path))   # a pipe may lie there already
        at = meta
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value
        path.write_text(json.dumps(meta))
    return make


def _event(kind: str, **data: Any) -> Make:
    def make(place: Place) -> None:
        line = {"v": 1, "t": time.time(), "gen": 1, "seq": 500, "host": "n0", "event": kind, **data}
        path = place.run / "journal" / "000001-n0-2.jsonl"
        path.write_bytes((path.read_bytes() if path.exists() else b"") + json.dumps(line).encode() + b"\n")
    return make


def _many_lines(count: int) -> Make:
    def make(place: Place) -> None:
        with (place.run / "journal" / "000001-n0-9.jsonl").open("wb") as file:
            for seq in range(1000, 1000 + count):
                file.write(b'{"v":1,"t":1700000000.0,"gen":1,"seq":%d,"host":"n0","event":"progress","attempt":1,'
                           b'"step":%d}\n' % (seq, seq))
    return make


FILES = ("run/run.json", "run/pulse.json", "run/journal/000009-x-1.jsonl", "run/journal", "run/claims/2", "run/claims",
         "run/submit.env", "run/git.json", "run/attempts/0001/verdict.json", "run/attempts/0001/index.json",
         "run/attempts/0001/exit.json", "run/attempts/0001/record.json", "run/slurm-12.out", "run/resume.args",
         "run/attempts/0001/system/cores.json", "run/attempts/0001/system/leftovers.json", "run/job.sbatch",
         "run/control", "run/control/kill", "run/control/kill-now", "run/control/hold", "run/control/extend")
LOGS = ("run/attempts/0001/main.log", "run/attempts/0002/main.log")
CHECKPOINTS = ("ckpt/step_2.pt", "ckpt/step_3.pt", "ckpt/latest", "ckpt/step_4", "ckpt/last.ckpt", "ckpt")
CONFIGS = ("train.yaml", "home/.config/safelaunch/config.yaml", "job.sh")

_OF_NO_CONFIG: tuple[Any, ...] = (None, [], "x", 7, {})
_OF_NO_KEY: tuple[Any, ...] = (None, [], "x", -1, 1e308)

RUN: dict[str, Make] = {
    **{f"{name}: {thing}": _instead(name, put) for name in FILES for thing, put in THINGS.items()},
    "run.json: deep lists": _write("run/run.json", "[" * 100_000),
    "run.json: deep objects": _write("run/run.json", '{"config":' * 100_000),
    "run.json: empty": _write("run/run.json", ""),
    "run.json: a list": _write("run/run.json", "[]"),
    "run.json: a great number": _write("run/run.json", "1" * 10_000),
    "run.json: NUL in the kill file": _meta("config", "kill_switch", "file", value="a\0b"),
    "run.json: NUL in run_dir": _meta("config", "run_dir", value="/a\0b"),
    "run.json: evil name": _meta("config", "name", value=EVIL),
    "run.json: evil id": _meta("run_id", value=EVIL),
    "run.json: evil cwd": _meta("cwd", value=EVIL),
    "run.json: evil cluster": _meta("cluster_name", value=EVIL),
    **{f"run.json: config is {value!r}": _meta("config", value=value) for value in _OF_NO_CONFIG},
    **{f"run.json: {key} is {value!r}": _meta("config", key, value=value)
       for key in ("slurm", "resume", "restart", "kill_switch", "launch", "progress", "env")
       for value in _OF_NO_KEY},
    "journal: a million lines": _many_lines(1_000_000),
    "journal: line ends": _write("run/journal/000001-x-1.jsonl", b"\n" * 3_000_000),
    "journal: nearly right lines": _write("run/journal/000001-x-1.jsonl", b" \n{\n{\"v\":1,}\n\0\n" * 60_000),
    "journal: a hole": _write_sparse("run/journal/000001-x-1.jsonl", 2 << 30),
    "log: a hole": _write_sparse("run/attempts/0001/main.log", 2 << 30),
    "journal: an attempt of 300 digits": _event("attempt_started", attempt=10 ** 299, nodes=["n0"]),
    "journal: NULs where paths are": _event("checkpoint", attempt=1, step=5, path="a\0b"),
    "journal: lists where numbers are": _event("attempt_ended", attempt=[1], exit_code=[[]], how=[], step=[7]),
    "exit.json: lists where numbers are": _write("run/attempts/0001/exit.json", json.dumps(
        {"v": 1, "attempt": [1], "how": [], "exit_code": [], "srun_code": {}, "tasks": [
            {"node": [], "task": [], "code": [], "signal": []}]})),
    "journal: bytes of no text": _write("run/journal/000001-x-1.jsonl", b"\xff\xfe\n{\"v\":1}\n\x00\x00\n"),
    "journal: deep lists": _write("run/journal/000001-x-1.jsonl", "[" * 100_000 + "\n"),
    "journal: a great number": _write("run/journal/000001-x-1.jsonl", '{"v":1,"t":' + "9" * 5000 + "}\n"),
    "pulse: deep lists": _write("run/pulse.json", "[" * 60_000),
    "pulse: great numbers": _write("run/pulse.json", '{"v":1,"count":1e999,"t":-1e999,"gen":1e400,"host":7,"job":[]}'),
    "verdict: deep lists": _write("run/attempts/0001/verdict.json", "[" * 100_000),
    "verdict: a list": _write("run/attempts/0001/verdict.json", "[]"),
    "index: deep lists": _write("run/attempts/0001/index.json", "[" * 100_000),
    "index: odd": _write("run/attempts/0001/index.json", '{"v":1,"chunks":[{"at":-1}],"bytes":1e999}'),
    # As links: a copy of what another oddity has put there, a link to /dev/zero, would fill the disk.
    "a run in the run": lambda place: shutil.copytree(place.run, place.run / "run", symlinks=True,
                                                      copy_function=os.link),
    "an attempt of an evil name": lambda place: (place.run / "attempts" / "９").mkdir(),
    "a claim of a great number": _write(f"run/claims/{'9' * 200}", "{}"),
    **{f"journal: {kind} at {t}": _event(kind, t=t, attempt=1, job="12", step=4, until=t, who=EVIL, why=EVIL)
       for kind in ("progress", "checkpoint", "preserved", "gave_up", "attempt_ended", "job_started")
       for t in (0.0, -1e10, 9.9e10)},
    "journal: evil words": _event("verdict", attempt=1, category=EVIL, summary=EVIL, node=EVIL, suspects=[EVIL],
                                  evidence=[EVIL], fingerprint=EVIL, action=EVIL),
    "journal: evil nodes": _event("attempt_started", attempt=2, job=EVIL, nodes=[EVIL, WIDE, "[", "@all", ""]),
    "journal: wide node": _event("node_excluded", node=WIDE, why=EVIL, owner=EVIL, until=9e10),
    "journal: evil end": _event("stopped", exit_code=10**18, why=EVIL),
    "journal: evil checkpoint": _event("checkpoint_skipped", path=EVIL, reason=EVIL, instead=EVIL),
    "journal: great step": _event("progress", attempt=1, step=10**400),
    "journal: great attempt": _event("attempt_started", attempt=10**400, job="12", nodes=[]),
}
LOG: dict[str, Make] = {
    **{f"{name}: {thing}": _instead(name, put) for name in LOGS for thing, put in THINGS.items()},
    "log: evil": _write(LOGS[0], ("[n0:0]:RuntimeError: " + EVIL + "\n") * 40),
    "log: every byte": _write(LOGS[0], bytes(range(256)) * 64),
    "log: a long line": _write(LOGS[0], b"step " + b" " * 3_000_000 + b"1"),
    "log: digits": _write(LOGS[0], b"loss 1,1," + b"1," * 40_000),
    "log: gzip of nothing": _write("run/attempts/0001/main.log.gz", b"\x1f\x8b\x08\x00"),
    "log: a great step": _write(LOGS[0], b"[n0:0]:step " + b"9" * 4000 + b" loss 1e999\n"),
    "job's output: evil": _write("run/slurm-12.out", "slurmstepd: error: *** JOB 12 ON n0 CANCELLED AT " + EVIL),
}
CKPT: dict[str, Make] = {
    **{f"{name}: {thing}": _instead(name, put) for name in CHECKPOINTS for thing, put in THINGS.items()},
    "checkpoint: an evil name": _write("ckpt/step_9\n\x1b[2J\udcff.pt", "torn"),
    "checkpoint: a great step": _write(f"ckpt/step_{'9' * 200}.pt", "torn"),
    "checkpoint: other digits": _write("ckpt/step_٣.pt", "torn"),
    "checkpoint: safetensors of great length": _write("ckpt/model-7.safetensors", b"\xff" * 8 + b"{}"),
    "checkpoint: deep JSON": _write("ckpt/step_4/metadata.json", "[" * 100_000),
    "checkpoint: many": lambda place: [
        _write(f"ckpt/step_{n}.pt", "")(place) for n in range(3000)],
}
CONFIG: dict[str, Make] = {
    **{f"{name}: {thing}": _instead(name, put) for name in CONFIGS for thing, put in THINGS.items()},
    "config: a chain of variables": _write("train.yaml", "name: x\ncommand: ${env.A0}\nenv:\n" + "".join(
        f"  A{n}: ${{env.A{n + 1}}}\n" for n in range(3000)) + "  A3000: end\n"),
    "config: deep": _write("train.yaml", "a: " + "[" * 50_000),
    "config: laughs": _write("train.yaml", "a0: &a0 [x, x]\n" + "".join(
        f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))),
    "config: evil": _write("train.yaml", "name: " + EVIL),
    "config: evil key": _write("train.yaml", f"name: x\ncommand: y\n{chr(0x202E)}key: 1\n\"\\e[2J\": 2\n"),
    "config: an evil tag": _write("train.yaml", "name: !!python/object/apply:os.system [id]\n"),
    "config: a wide exclude": _write("train.yaml", f"name: x\ncommand: y\nslurm: {{exclude: '{WIDE}'}}\n"),
    "config: NUL in run_dir": _write("train.yaml", 'name: x\ncommand: y\nrun_dir: "/a\\0b"\n'),
}
WORDS: tuple[tuple[str, ...], ...] = (
    ("logs", "--grep", "\udcff", "run"), ("logs", "--host", "\udcff", "run"), ("logs", "--host", WIDE, "run"),
    ("logs", "--grep", "(a+)+$", "run"), ("logs", "--grep", "(", "run"), ("logs", "--host", "n[0-3", "run"),
    ("logs", "--host", "n[0-9999]x[0-9999]", "run"), ("logs", "--rank", "9" * 30, "run"),
    ("logs", "-n", "9" * 30, "run"), ("logs", "--since", "9" * 30, "run"), ("logs", "--since", "\udcff", "run"),
    ("logs", "--since", "0001-01-01", "--fold", "run"),
    ("logs", "--attempt", "9" * 30, "run"), ("why", "--attempt", "9" * 30, "run"),
    ("nodes", "suspect", WIDE, "--why", "x"), ("nodes", "suspect", "\udcff", "--why", EVIL.replace("\0", "")),
    ("nodes", "clear", WIDE), ("init", "--from", "/dev/zero", "-o", "a.yaml"), ("why", "/proc"),
    ("init", "--from", "pipe", "-o", "a.yaml"), ("init", "--from", "/", "-o", "a.yaml"), ("init", "-o", "/x/y\udcff"),
    ("why", "/dev/zero"), ("why", "/dev/tty"), ("checkpoints", "/"), ("checkpoints", "/dev/zero"),
    ("submit", "/dev/zero"), ("check", "/dev/zero"), ("submit", "pipe"), ("status", "/"), ("status", "/dev"),
    *((verb, "\u202e\x9b31m\x1b[2J\udcff") for verb in (
        "status", "why", "logs", "events", "stop", "hold", "check", "submit", "checkpoints", "wait", "shell", "stacks",
        "nodes", "policy", "init", "schema", "sandbox", "\x1b[2J")),
    *((verb, "x" * 100_000) for verb in ("status", "why", "check", "stop", "checkpoints")),
    ("submit", "train.yaml", "name=\u202e"), ("submit", "train.yaml", f"slurm.exclude={WIDE}"),
    ("submit", "train.yaml", "run_dir=" + "x/" * 3000), ("check", "train.yaml", "=\x1b"),
    ("wait", "--timeout", "1e999s"),
    ("stop", "--checkpoint", "--within", "9" * 400 + "s", "run"), ("why", "--explain", "\x1b[2J"),
)


def _forget_me() -> None:
    os.environ.pop("HOME", None)
    if os.getuid() == 0:
        os.setuid(60_123)   # no passwd entry


def _delete_cwd() -> None:
    gone = Path.cwd() / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()


def _full_disk() -> None:
    """No byte can be written to any file: what a full disk says, by another number."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _no_stdout() -> None:
    os.close(1)
    sys.stdout = None   # as Python itself does


def _at(t: float) -> Callable[[], None]:
    def set_clock() -> None:
        time.time = lambda: t
    return set_clock


SURROUNDINGS: dict[str, Callable[[], object]] = {
    "nobody without a home": _forget_me,
    "a folder that is gone": _delete_cwd,
    "200 MB of memory left": lambda: resource.setrlimit(resource.RLIMIT_AS, (_memory() + (200 << 20),) * 2),
    "20 files": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20)),
    "no stdout": _no_stdout,
    "a full stdout": lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1),
    "a full disk": _full_disk,
    "1970": _at(0.0), "the year 5138": _at(1e11), "never": _at(float("inf")), "no time": _at(float("nan")),
}


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
