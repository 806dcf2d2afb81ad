"""The kill switch ends a run within 6 s, whatever stands under the names that somebody else can write: the table of
docs/security.md, row by row under SAFELAUNCH_LONG=1, and all rows at once in the short form.
"""

from __future__ import annotations

import contextlib
import http.server
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from safelaunch.base.model import RESTARTS, STOPS
from safelaunch.run.io.runfolder import REQUESTS
from tests.drills.proofs import IS_LONG
from tests.drills.test_door import KILL_S, another_user, door, hear
from tests.localruns import LocalRun, SubmitLocal
from tests.test_bounds import BOUNDS

ENDLESS = "--steps 1000000 --step-time 0.05 --handle-usr2 --save-every 1000000"
FOREVER = r"(?:[ -~]|[ -~])+ (\d+)!$"   # on each line of the training
# What no supervisor reads, and what only Slurm says: elsewhere.
ELSEWHERE = {
    "journal of another user's run, for people": "tests/verbs/test_heavy_folders.py",
    "logs, for people": "tests/verbs/test_heavy_folders.py",
    "answers of squeue and other programs": "tests/io/base/test_program.py",
}


@dataclass(frozen=True)
class Target:
    """A run that is to be stopped, and what it reads beside its folder."""

    run: LocalRun
    ledger: Path
    beside: contextlib.ExitStack


def huge(path: Path) -> None:
    """A terabyte of nothing in its place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name("huge").touch()
    os.truncate(path.with_name("huge"), 1 << 40)
    path.with_name("huge").replace(path)


def in_journal(to: Target) -> None:
    journal = to.run.run_dir / "journal"
    huge(journal / "000008-n9-1.jsonl")
    (journal / "000009-n9-1.jsonl").write_bytes(b"\n" * (3 << 20))
    os.mkfifo(journal / "000009-n9-2.jsonl")


def in_control(to: Target) -> None:
    control = to.run.run_dir / "control"
    for name in REQUESTS:
        if name not in (*STOPS, *RESTARTS, "hold"):
            os.mkfifo(control / name)
    for number in range(5000):
        (control / f"kil{number}").symlink_to("/dev/zero")


def in_claims(to: Target) -> None:
    claims = to.run.run_dir / "claims"
    for name in ("9" * 8, "9" * 18, "9" * 200):
        huge(claims / name)
    os.mkfifo(claims / "8888888")
    huge(to.run.run_dir / "pulse.json")


def in_attempt(to: Target) -> None:
    for name in ("exit", "verdict", "cores"):
        huge(to.run.run_dir / "attempts" / "0001" / f"{name}.json")


def in_ledger(to: Target) -> None:
    uid, month = os.geteuid(), time.strftime("%Y-%m", time.gmtime())
    to.ledger.mkdir(exist_ok=True)
    line = '{"v":1,"t":%d,"used":"%s[0-%d]","used_s":1e5,"run":"r","attempt":1,"cluster":"local"}\n'
    (to.ledger / f"{uid}-h-{month}.jsonl").write_text("".join(
        line % (time.time(), name, most) for name, most in (("n37", 65_000), ("n9999", 65_000), ("m01", 57_000))))
    huge(to.ledger / f"{uid}-i-{month}.jsonl")
    os.mkfifo(to.ledger / f"{uid}-j-{month}.jsonl")


def in_checkpoints(to: Target) -> None:
    ckpt = to.run.folder / "ckpt"
    ckpt.mkdir(exist_ok=True)
    (ckpt / "pumped").write_bytes(b"\x80\x02" + b"I1\n" * 5_000_000 + b"N.")
    for step in range(100, 103):
        (ckpt / f"step_{step}.pt").hardlink_to(ckpt / "pumped")
    huge(ckpt / "step_121.pt")
    os.mkfifo(ckpt / "step_122.pt")
    (ckpt / "step_123.safetensors").write_bytes((1 << 60).to_bytes(8, "little"))


def is_silent(to: Target) -> None:
    """The service that is told of the restart takes the message, and never answers."""
    to.run.wait_step(1, attempt=2)


def at_the_door(to: Target) -> None:
    flood = to.beside.enter_context(
        another_user("tests.flood", "hold", str(door(to.run)), str(10_000 if IS_LONG else 600)))
    hear(flood, to.run)


ROWS: dict[str, Callable[[Target], None]] = {
    "train.yaml, a script": lambda to: huge(to.run.folder / "train.yaml"),
    "run.json": lambda to: huge(to.run.run_dir / "run.json"),
    "journal, for its supervisor": in_journal,
    "control": in_control,
    "claims, pulse": in_claims,
    "exit.json, verdicts, cores": in_attempt,
    "ledger": in_ledger,
    "list of runs": lambda to: huge(to.run.folder / ".local" / "state" / "safelaunch" / "runs.jsonl"),
    "checkpoints": in_checkpoints,
    "logs, for the supervisor": lambda to: None,   # progress.step takes for ever on each line
    "rule packs": lambda to: None,                 # so does its rule
    "replies to notify": is_silent,
    "the supervisor's endpoint": at_the_door,
}


def is_stopped(run: LocalRun) -> bool:
    """Whether a supervisor has written so, which it does once no rank is left."""
    files = (path for path in (run.run_dir / "journal").iterdir() if path.is_file() and path.stat().st_size < 1 << 20)
    return any(b'"event":"stopped"' in path.read_bytes() for path in files)


@contextlib.contextmanager
def silent_service() -> Iterator[str]:
    """The URL of one that takes a message and says nothing."""
    is_over = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            is_over.wait()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        is_over.set()
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("rows", [(row,) for row in ROWS] if IS_LONG else [tuple(ROWS)], ids=lambda rows: rows[0])
def test_the_kill_switch_is_obeyed_beside_each_hostile_file(
    rows: tuple[str, ...], submit_local: SubmitLocal, local_env: dict[str, str], tmp_path: Path,
) -> None:
    """A rank is killed once all stands there: an attempt that ends, and the next one, read most."""
    assert ROWS.keys() | ELSEWHERE.keys() == BOUNDS.keys()
    (tmp_path / "pack.yaml").write_text(
        "version: 1\nrules:\n- {id: own.slow, category: code, anchor: [step], weight: 0.9, do: Wait.,\n"
        f"   pattern: '{FOREVER}', sample: 'a step 1!', counter_sample: a step}}\n")
    with contextlib.ExitStack() as beside:
        local_env["URL"] = beside.enter_context(silent_service())
        given = [f"suspects.ledger={tmp_path}/nodes"]
        if "logs, for the supervisor" in rows:
            given.append(f"progress.step={FOREVER}")
        if "rule packs" in rows:
            local_env["SAFELAUNCH_RULES"] = str(tmp_path / "pack.yaml")
        if "replies to notify" in rows:
            given += ["notify.to=[env:URL]", "notify.when=[restarted]"]
        run = submit_local(ENDLESS, *given)
        run.wait_ranks(1)
        to = Target(run, tmp_path / "nodes", beside)
        (rank,) = run.ranks()
        request = run.run_dir / "run.json"   # the test itself finds the run's processes by it, also when it fails
        beside.callback(os.replace, request.with_name("kept"), request)
        request.with_name("kept").write_bytes(request.read_bytes())
        for row in rows:
            if ROWS[row] is not is_silent:
                ROWS[row](to)
        os.kill(rank, signal.SIGKILL)
        if "replies to notify" in rows:
            is_silent(to)
        else:
            time.sleep(1.0)   # nothing can be waited for: it may be at any of its steps
        begin_s = time.monotonic()
        (run.run_dir / "control" / "kill").touch()
        run.wait_for(lambda: is_stopped(run), KILL_S, "it is not stopped")
        took_s = time.monotonic() - begin_s
    print(f"\n{', '.join(rows)}: {took_s:.1f} s")
    assert not run.ranks() and took_s <= KILL_S, run.story()
