"""Leftovers on a node: ours are ended, by the very process and never by its number, others' are reported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from safelaunch.node import collect, cores, leftovers, proctable
from tests.frozen import FuseMount, LoopMount
from tests.node.names import JOB, OTHER_JOB, RUN
from tests.sandboxes import wait_until

NODE = "n0"
SLEEP = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
Rank = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def rank() -> Iterator[Rank]:
    """`rank(mark, code)`: a process with this mark, ended with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def go(mark: str, code: str = SLEEP, **env: str) -> subprocess.Popen[bytes]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SAFELAUNCH"))}
        own = {"SAFELAUNCH_MARK": mark, "SLURMD_NODENAME": NODE, "SLURM_JOB_ID": JOB, "RANK": "0", **env}
        process = subprocess.Popen([sys.executable, "-c", code], env={**kept, **own}, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline()
        return process

    yield go
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def look(capsys: pytest.CaptureFixture[str], **options: object) -> list[dict[str, Any]]:
    """The leftovers that the collector reports."""
    words = {"job": JOB, "node": NODE, "mark": f"{RUN}.{JOB}.", "run": RUN, "attempt": 3, "samples": 0, "gpus": False,
             "deadline_s": 120.0, **options}
    assert collect.main(json.dumps(words)) == 0
    said = json.loads(capsys.readouterr().out)
    assert not said["notes"], said["notes"]
    return list(said["left"])


def test_rank_of_an_earlier_attempt_is_ended_and_that_of_this_one_is_not(
    rank: Rank, capsys: pytest.CaptureFixture[str]
) -> None:
    old, own = rank(f"{RUN}.6.2", SLURM_JOB_ID="6"), rank(f"{RUN}.{JOB}.3")
    other = rank(f"{RUN}.{JOB}.1", SLURM_JOB_ID="8")   # of a job that the script has submitted, which inherits the mark

    (row,) = look(capsys, end_left=True)

    assert (row["pid"], row["whose"], row["ended"], row["mark"]) == (old.pid, "ours", True, f"{RUN}.6.2")
    assert old.wait(60) == -signal.SIGTERM and own.poll() is other.poll() is None
    assert row["cmd"].startswith(sys.executable) and row["rss_mb"] > 0


def test_rank_that_ignores_a_polite_word_is_killed(
    rank: Rank, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "GRACE_S", 0.1)
    old = rank(f"{RUN}.{JOB}.1", STUBBORN)
    (row,) = look(capsys, end_left=True)
    assert row["ended"] and old.wait(60) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("mark", "env"),
    [(f"{RUN}.8.4", {}), ("another.6.2", {}), (f"{RUN}x.6.2", {}), (f"{RUN}.6.2", {"SLURMD_NODENAME": "n1"}),
     (f"{RUN}.6.2", {"SAFELAUNCH_GUARD": "text"})],
    ids=["a later attempt", "another run", "a run of a longer name", "another node", "a guard, who ends by itself"])
def test_processes_of_others_are_no_leftovers(
    rank: Rank, capsys: pytest.CaptureFixture[str], mark: str, env: dict[str, str]
) -> None:
    process = rank(mark, **env)
    assert look(capsys, end_left=True) == []
    assert process.poll() is None


def test_leftover_is_only_reported_unless_it_is_to_be_ended(rank: Rank, capsys: pytest.CaptureFixture[str]) -> None:
    old = rank(f"{RUN}.{JOB}.2")
    (row,) = look(capsys)
    assert (row["pid"], row["ended"]) == (old.pid, None) and old.poll() is None


def test_number_that_was_given_to_another_process_meanwhile_is_left_alone(rank: Rank) -> None:
    process = rank(f"{RUN}.{JOB}.2")
    seen = proctable.read_stat(f"/proc/{process.pid}/stat")
    seen.env = {"SAFELAUNCH_MARK": f"{RUN}.{JOB}.2"}
    seen.started -= 1   # the process that was looked at had the same number, and began earlier
    rows = [{"pid": process.pid, "whose": leftovers.OURS, "state": "S", "ended": None, "why": ""}]

    leftovers.end_ours(rows, {process.pid: seen}, leftovers.Claim(RUN, 3, NODE), time.monotonic() + 5)

    assert rows[0]["ended"] is True, "the one that was meant has gone"
    assert process.poll() is None


def test_stranger_on_a_gpu_is_reported_with_user_and_memory(
    rank: Rank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own, stranger = rank(f"{RUN}.{JOB}.3"), rank("", SLURM_JOB_ID=OTHER_JOB)
    (tmp_path / "nvidia-smi").write_text(f"""#!/bin/sh
case $1 in
*compute-apps*) printf '%s\\n' "{own.pid}, GPU-aa, 1000" "{stranger.pid}, GPU-bb, 71000" "4194303, GPU-bb, 512";;
*) printf '%s\\n' "0, GPU-aa, 9, 1000, 81920, 1410, 87, 30, P0" "1, GPU-bb, 0, 71512, 81920, 1410, 87, 28, P0";;
esac""")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    first, second = look(capsys, gpus=True, end_left=True)

    assert (first["pid"], first["gpus"], first["gpu_mb"], first["ended"]) == (stranger.pid, ["1"], 71000, None)
    assert first["user"] in ("root", os.environ.get("USER")) and first["job"] == OTHER_JOB
    assert (second["pid"], second["whose"], second["gpu_mb"]) == (4194303, "nobody", 512)
    assert stranger.poll() is None


def test_leftover_in_an_unkillable_sleep_is_said_to_be_one(
    rank: Rank, loop_mount: LoopMount, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "GRACE_S", 0.1)
    code = (f"file = open({str(loop_mount.path / 'log')!r}, 'w')\nprint('up', flush=True)\n"
            "while True:\n    file.write('x')\n    file.flush()\n")
    old = rank(f"{RUN}.{JOB}.2", code)
    loop_mount.freeze()
    wait_until(lambda: proctable.read_stat(f"/proc/{old.pid}/stat").state == "D", 60, "no D state")

    (row,) = look(capsys, end_left=True)
    loop_mount.thaw()

    assert row["ended"] is False and "state D" in row["why"], row


# --- core files ------------------------------------------------------------------------------------------------------

CRASH = """import ctypes, resource
resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
def inner():
    ctypes.string_at(0)
inner()
"""


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A folder in which a Python has just died of SIGSEGV, with its core."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    if pattern.startswith(("|", "/")):
        pytest.skip(f"cores of this machine go elsewhere: {pattern.strip()}")
    done = subprocess.run([sys.executable, "-c", CRASH], cwd=tmp_path, check=False, timeout=60)
    assert done.returncode == -signal.SIGSEGV
    if not list(tmp_path.glob("core*")):
        pytest.skip("no core is written here (RLIMIT_CORE)")
    return tmp_path


def cores_of(capsys: pytest.CaptureFixture[str], folder: Path, since_t: float) -> dict[str, Any]:
    words = {"job": JOB, "node": NODE, "samples": 0, "gpus": False, "deadline_s": 120.0,
             "cores": [[str(folder)], since_t]}
    assert collect.main(json.dumps(words)) == 0
    return dict(json.loads(capsys.readouterr().out)["cores"])


def test_core_is_named_with_its_program_signal_and_stack(
    crashed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (core,) = cores_of(capsys, crashed, time.time() - 120)["cores"]

    assert core["path"].startswith(str(crashed)) and core["signal"] == signal.SIGSEGV
    assert core["command"].startswith(sys.executable) and core["pid"] > 0
    if core["by"] == "pystack":
        assert any(frame.startswith("inner (") for frame in core["backtrace"]), core
    elif not core["by"]:
        assert "pystack" in core["why"] or "gdb" in core["why"]


def test_core_of_an_earlier_crash_and_a_file_that_is_none_are_not_named(
    crashed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (crashed / "core_values.py").write_text("x = 1\n")
    assert cores_of(capsys, crashed, time.time() + 60)["cores"] == []
    for path in crashed.glob("core*"):
        if path.suffix != ".py":
            path.unlink()
    assert cores_of(capsys, crashed, 0.0)["cores"] == []


def test_folder_that_is_frozen_holds_nobody(fuse_mount: FuseMount, capsys: pytest.CaptureFixture[str]) -> None:
    fuse_mount.freeze()
    start_s = time.monotonic()
    said = cores.look([str(fuse_mount.path)], 0.0, time.monotonic() + 200)
    fuse_mount.thaw()
    assert "does not answer" in said["notes"][-1] and time.monotonic() - start_s < 150


def test_frames_of_gdb_are_read() -> None:
    text = """[New LWP 1]
#0  0x00007f01 in __strlen_evex () from /lib/x86_64-linux-gnu/libc.so.6
#1  0x00007f02 in ?? () from /usr/lib/libpython.so
#2  main (argc=1, argv=0x7ffe) at train.c:12
"""
    assert cores.read_gdb(text) == ["__strlen_evex (libc.so.6)", "main (train.c:12)"]


@pytest.mark.parametrize(
    ("pattern", "note"),
    [("|/usr/lib/systemd/systemd-coredump %P %u", "cores go to systemd-coredump: coredumpctl info"),
     ("|/usr/share/apport/apport -p%p", "cores go to apport: apport-unpack, /var/crash"),
     ("|/opt/site/take %p", "cores go to take")],
    ids=["systemd", "apport", "a site's own"])
def test_program_that_takes_cores_is_named_with_how_to_ask_it(
    pattern: str, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "_pattern", lambda: pattern)
    assert cores.look([str(tmp_path)], 0.0, time.monotonic() + 20) == {"cores": [], "notes": [note]}


@pytest.mark.parametrize(
    ("pattern", "name", "is_found"),
    [("core", "core", True), ("core", "core.4711", True), ("core.%e.%p", "core.python.12", True),
     ("/x/%h-%%-%t", "n1-%-17", True), ("core.%e.%p", "other", False)],
    ids=["plain", "with a pid", "named", "a percent sign", "another file"])
def test_core_is_found_by_the_kernels_pattern(
    pattern: str, name: str, is_found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "_pattern", lambda: pattern)
    (tmp_path / name).write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x04\x00" + bytes(100))
    found = cores.look([str(tmp_path)], 0.0, time.monotonic() + 20)["cores"]
    assert [core["path"] for core in found] == ([str(tmp_path / name)] if is_found else [])
