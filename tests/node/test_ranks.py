"""Ranks that a node starts itself (`launch.torchrun: direct`): torchrun's environment, and torchrun's ways."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from safelaunch.node import ranks
from safelaunch.node.guard.processes import is_launcher
from safelaunch.node.proctable import Process, may_be_rank
from safelaunch.node.ranks import rank_variables
from tests.ports import free_ports
from tests.pure.why.judged import judge_text
from tests.torchbin import needs_torch

pytestmark = pytest.mark.timed   # real programs and screens, within real deadlines

TEXT = Path(ranks.__file__).read_text()
BEGIN = "import os; exec(os.environ.pop('SAFELAUNCH_RANKS'))"
WORLD = {"SLURM_NNODES": "2", "SLURM_NODEID": "1", "SAFELAUNCH_NPROC_PER_NODE": "2", "SAFELAUNCH_NODE": "n7",
         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
PLAIN = {"PATH": "/usr/bin:/bin"}
# What no other process than torchrun's agent can give.
AGENTS_OWN = {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_USE_AGENT_STORE"}
WAIT = "trap 'echo got TERM; exit 0' TERM; echo ready; while :; do sleep 0.02; done"


def command_of(script: str) -> list[str]:
    return [sys.executable, "-ISc", BEGIN, "torchrun", "--no_python", "bash", "-c", script]


@contextmanager
def started(script: str, env: Mapping[str, str] = WORLD) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command_of(script), env={**PLAIN, **env, "SAFELAUNCH_RANKS": TEXT}, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def run(script: str, **more: str) -> tuple[int, str, str]:
    with started(script, {**WORLD, **more}) as process:
        out, err = process.communicate(timeout=30)
        return process.returncode, out, err


def environments(folder: Path) -> list[dict[str, str]]:
    rows = [dict(pair.split("=", 1) for pair in (folder / f"env.{rank}").read_text().split("\0")[:-1])
            for rank in (2, 3)]
    return [{key: value for key, value in row.items() if key not in ("_", "SHLVL", "PWD", "OLDPWD")} for row in rows]


@needs_torch
@pytest.mark.torch
def test_a_rank_has_the_environment_and_the_session_that_torchrun_gives(tmp_path: Path) -> None:
    """The real one, of this node of two; the other node's agent has no ranks to wait for."""
    dump = ('cat /proc/self/environ >"env.$RANK"; '
            'read -r _ _ _ _ _ sid _ </proc/$BASHPID/stat; echo "own $((sid == BASHPID))"')
    (port,) = free_ports(1)
    world = {**WORLD, "MASTER_PORT": str(port), "HOME": str(tmp_path)}
    agents = []
    for node in "01":
        words = ["--nnodes", "2", "--node_rank", node, "--nproc_per_node", "2", "--master_addr", "127.0.0.1",
                 "--master_port", str(port), "--max_restarts", "0", "--role", f"n{int(node) + 6}:", "--tee", "3"]
        agents.append(subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *words, "--no_python", "bash", "-c", dump], text=True,
            env={**PLAIN, **world, "SLURM_NODEID": node}, cwd=tmp_path, stdout=subprocess.PIPE))
    said = [agent.communicate(timeout=120)[0] for agent in agents]
    theirs = environments(tmp_path)
    for rank in (2, 3):
        (tmp_path / f"env.{rank}").unlink()
    done = subprocess.run(command_of(dump), env={**PLAIN, **world, "SAFELAUNCH_RANKS": TEXT}, cwd=tmp_path, text=True,
                          stdout=subprocess.PIPE, timeout=30)

    ours = environments(tmp_path)
    assert sorted(done.stdout.splitlines()) == sorted(said[1].splitlines()) == ["[n7:0]:own 1", "[n7:1]:own 1"]
    for mine, own in zip(ours, theirs, strict=True):
        assert set(own) - set(mine) == {"TORCHELASTIC_ERROR_FILE"}
        assert {key for key in mine if mine[key] != own.get(key)} == {"TORCHELASTIC_USE_AGENT_STORE"}


def test_numbers_of_a_rank_follow_from_its_node_and_what_a_user_has_set_stays() -> None:
    row = rank_variables({**WORLD, "OMP_NUM_THREADS": "6", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}, 1, "n7:")
    assert [row[key] for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")] == [
        "3", "4", "1", "2", "1"]
    assert (row["OMP_NUM_THREADS"], row["TORCH_NCCL_ASYNC_ERROR_HANDLING"]) == ("6", "3")
    assert "OMP_NUM_THREADS" not in rank_variables({**WORLD, "SAFELAUNCH_NPROC_PER_NODE": "1"}, 0, "n7:")


def test_each_line_comes_whole_by_its_own_stream_with_host_and_local_rank() -> None:
    code, out, err = run(r"printf 'a\r\nbar 1\rbar 2\r'; printf 'no end'; echo bad >&2")
    lines = ["a", "bar 1", "bar 2", "no end"]
    assert code == 0
    assert sorted(out.splitlines()) == sorted(f"[n7:{rank}]:{line}" for rank in (0, 1) for line in lines)
    assert {"[n7:0]:bad", "[n7:1]:bad"} <= set(err.splitlines()), err
    assert "OMP_NUM_THREADS=1" in err and "Root Cause" not in err


@pytest.mark.parametrize(("end", "code", "words"), [
    ("exit 7", 7, ("exitcode  : 7 ",)), ("kill -9 $$", 137, ("exitcode  : -9 ", "Signal 9 (SIGKILL) received by PID")),
    ("kill -11 $$", 139, ("Signal 11 (SIGSEGV) received by PID",))], ids=["code", "killed", "crash"])
def test_the_first_rank_that_fails_ends_the_others_at_once_and_is_named(
    end: str, code: int, words: tuple[str, ...]
) -> None:
    before = time.monotonic()
    ended, _, err = run(f"((LOCAL_RANK)) || exec sleep 60; ulimit -c 0; {end}")
    assert ended == code and time.monotonic() - before < 4
    for word in ("host      : n7", "rank      : 3 (local_rank: 1)", *words):
        assert word in err, err
    verdict = judge_text(err)
    assert (verdict.host, verdict.rank) == ("n7", 3), verdict


def test_a_rank_that_is_deaf_to_term_is_killed_after_the_grace() -> None:
    text = TEXT.replace("GRACE_S = 5.0 ", "GRACE_S = 0.1 ")
    assert text != TEXT
    code, _, _ = run("trap '' TERM; if ((LOCAL_RANK)); then sleep 0.2; exit 3; fi; while :; do sleep 60; done",
                     SAFELAUNCH_RANKS=text)
    assert code == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_starter_reaches_the_ranks_and_never_ends_well(number: signal.Signals) -> None:
    with started(WAIT.replace("TERM", number.name[3:])) as process:
        assert process.stdout is not None
        for _ in range(2):
            assert process.stdout.readline().endswith("ready\n")
        process.send_signal(signal.SIGUSR2)   # the kill switch's, for ranks: it ends nothing here
        process.send_signal(number)
        out, _ = process.communicate(timeout=30)
    assert out.count(f"got {number.name[3:]}") == 2
    assert process.returncode == 128 + number


def test_what_a_rank_leaves_behind_with_its_output_open_does_not_keep_the_step_alive() -> None:
    before = time.monotonic()
    code, out, _ = run("((LOCAL_RANK)) || { sleep 30 & echo $!; }; echo over")
    assert code == 0 and out.count("over") == 2 and time.monotonic() - before < 10
    left = re.search(r":(\d+)$", out, re.MULTILINE)
    assert left
    os.kill(int(left[1]), signal.SIGKILL)


def test_its_process_is_a_launcher_and_no_rank() -> None:
    words = ["python3", "-ISc", BEGIN, "torchrun", "--no_python", "bash"]
    process = Process(5, 1, "S", "python3", 0, 0)
    process.words, process.env = words, {}
    assert is_launcher([word.encode() for word in words]) and not may_be_rank(process)
