"""The trainer that the other tests rely on does what its flags say."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from safelaunch.checkpoints.io.checkpoints import find
from tests.lease import leased
from tests.tables import each
from tests.trainers.stepping import losses_until

STEPS = Path(__file__).with_name("steps.py")


def start(*flags: object, **env: object) -> subprocess.Popen[str]:
    """A trainer of one rank, with its output in a pipe; what a failed test leaves of it ends with the test run."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "RANK", "WORLD_SIZE"))}
    argv = [sys.executable, str(STEPS), "--step-time", "0.001", *map(str, flags)]
    environment = clean | leased() | {key: str(value) for key, value in env.items()}
    return subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(*flags: object, **env: object) -> tuple[int, str]:
    trainer = start(*flags, **env)
    said, _ = trainer.communicate(timeout=60)
    return trainer.returncode, said


def losses(said: str) -> dict[int, str]:
    words = [line.split() for line in said.splitlines() if line.startswith("step ")]
    return {int(word[1]): word[3] for word in words}


def test_a_run_prints_the_losses_that_are_expected() -> None:
    code, said = run("--steps", 12)
    assert code == 0
    assert losses(said) == losses_until(12)


def test_a_killed_run_goes_on_from_its_checkpoint_with_the_same_losses(tmp_path: Path) -> None:
    flags = ("--steps", 20, "--save-every", 4, "--ckpt", tmp_path, "--die-at", 11)
    code, said = run(*flags)
    assert code == -signal.SIGKILL
    assert max(losses(said)) == 10
    best = find(str(tmp_path), "torch").best
    assert best is not None and best.step == 8
    code, again = run(*flags, "--load", best.path, SAFELAUNCH_ATTEMPT=2)
    assert code == 0
    assert losses(again) == {step: loss for step, loss in losses_until(20).items() if step > 8}


@each(
    ("flags", "code"),
    [
        (("--die-at", 3, "--die-signal", "SEGV"), -signal.SIGSEGV),
        (("--die-at", 3, "--exit-code", 7), 7),
        (("--die-at", 3, "--die-rank", 1), 0),
        (("--die-at", 3, "--die-attempt", 2), 0),
        (("--die-at", 3, "--die-attempt", 0, "--exit-code", 5, "--die-rank", -1), 5),
        (("--fail-always",), 1),
        (("--die-at", 3, "--raise"), 1),
        (("--die-node", "n1", "--die-after", 0), -signal.SIGKILL),
        (("--die-node", "n2", "--die-after", 0), 0),
    ],
)
def test_it_fails_as_asked(flags: tuple[object, ...], code: int) -> None:
    assert run("--steps", 5, *flags, SLURMD_NODENAME="n1")[0] == code


@pytest.mark.parametrize(("spoil", "format", "more"), [
    ("truncated", "torch", ()), ("empty", "torch", ()), ("zeros", "torch", ()),
    ("shard-lost", "deepspeed", ("--shards", 4)), ("shard-truncated", "deepspeed", ("--shards", 4))])
def test_spoilt_checkpoint_is_not_whole_and_the_one_before_is(
    tmp_path: Path, spoil: str, format: str, more: tuple[object, ...]
) -> None:
    run("--steps", 8, "--save-every", 4, "--ckpt", tmp_path, "--spoil", spoil, "--spoil-step", 8, *more)
    found = find(str(tmp_path), format)
    assert found.best is not None and found.best.step == 4
    assert found.skipped


def test_checkpoint_can_be_refused_and_loaded_from_a_folder(tmp_path: Path) -> None:
    run("--steps", 4, "--save-every", 4, "--ckpt", tmp_path, "--shards", 2)
    assert run("--steps", 6, "--load", tmp_path / "global_step4")[0] == 0
    code, said = run("--steps", 6, "--load", tmp_path / "global_step4", "--refuse-load", 4)
    assert code == 1
    assert "Error(s) in loading state_dict" in said


def test_last_step_can_be_told_while_it_runs(tmp_path: Path) -> None:
    trainer = start("--steps", 100_000, "--until", tmp_path / "last")
    assert trainer.stdout is not None
    while not trainer.stdout.readline().startswith("step 3"):
        pass
    tell(tmp_path, 3000)
    said, _ = trainer.communicate(timeout=60)
    assert trainer.returncode == 0
    assert said.endswith("done after step 3000\n")


def test_ranks_in_lockstep_that_are_told_a_step_behind_them_end_at_the_same_one(tmp_path: Path) -> None:
    flags = ("--steps", 100_000, "--step-time", 0.001, "--until", tmp_path / "last", "--lockstep", tmp_path / "meet")
    ranks = [start(*flags, RANK=rank, WORLD_SIZE=3) for rank in range(3)]
    for rank in ranks:
        assert rank.stdout is not None
        while not rank.stdout.readline().startswith("step 3"):
            pass
    tell(tmp_path, 1)
    last = {rank.communicate(timeout=60)[0].splitlines()[-1] for rank in ranks}
    assert last == {f"done after step {(tmp_path / 'last.agreed').read_text()}"}
    assert not list(tmp_path.glob("last.1.*"))


def tell(folder: Path, step: int) -> None:
    (folder / "draft").write_text(str(step))
    (folder / "draft").rename(folder / "last")


def test_rank_and_world_come_from_the_launcher() -> None:
    assert " rank 3\n" in run("--steps", 1, RANK=3, WORLD_SIZE=4)[1]
    assert " rank 2\n" in run("--steps", 1, SLURM_PROCID=2, SLURM_NTASKS=4)[1]


def test_a_request_by_signal_saves_and_ends_well(tmp_path: Path) -> None:
    trainer = start("--steps", 100_000, "--save-every", 100_000, "--ckpt", tmp_path, "--handle-usr2")
    assert trainer.stdout is not None
    while not trainer.stdout.readline().startswith("step 3"):
        pass
    trainer.send_signal(signal.SIGUSR2)
    said, _ = trainer.communicate(timeout=60)
    assert trainer.returncode == 0
    step = int(said.split()[-1])
    assert [path.name for path in tmp_path.iterdir()] == [f"step_{step:08d}.pt"]


def test_a_touched_kill_file_saves_and_ends_well(tmp_path: Path) -> None:
    flags = ("--steps", 100_000, "--save-every", 100_000, "--ckpt", tmp_path, "--watch-kill-file")
    trainer = start(*flags, SAFELAUNCH_KILL_FILE=tmp_path / "kill")
    assert trainer.stdout is not None
    while not trainer.stdout.readline().startswith("step 3"):
        pass
    (tmp_path / "kill").touch()
    said, _ = trainer.communicate(timeout=60)
    assert trainer.returncode == 0
    assert "stopped on request" in said


def test_term_can_be_ignored_and_a_hang_stands_still() -> None:
    trainer = start("--hang-at", 2, "--ignore-term")
    assert trainer.stdout is not None
    assert trainer.stdout.readline().startswith("step 1 ")
    trainer.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        trainer.wait(0.3)
    trainer.kill()
    assert trainer.wait(60) == -signal.SIGKILL
    trainer.stdout.close()


def test_stamps_tell_time_attempt_and_step(tmp_path: Path) -> None:
    run("--steps", 3, "--stamp-dir", tmp_path, SAFELAUNCH_ATTEMPT=4, RANK=1)
    stamps = [tuple(map(int, line.split())) for line in (tmp_path / "rank_0001").read_text().splitlines()]
    assert [stamp[1:] for stamp in stamps] == [(4, 1), (4, 2), (4, 3)]
    assert stamps == sorted(stamps)


def test_in_lockstep_no_rank_is_ahead_by_more_than_a_step(tmp_path: Path) -> None:
    flags = ("--steps", 30, "--stamp-dir", tmp_path / "stamps", "--lockstep", tmp_path / "meet")
    ranks = [start(*flags, "--step-time", 0.001 * (1 + 3 * rank), RANK=rank, WORLD_SIZE=2) for rank in (0, 1)]
    for rank in ranks:
        rank.communicate(timeout=60)
    times = [
        [int(line.split()[0]) for line in (tmp_path / "stamps" / f"rank_000{rank}").read_text().splitlines()]
        for rank in (0, 1)
    ]
    assert all(times[0][step + 1] > times[1][step] for step in range(29))


def test_over_tcp_no_rank_goes_on_without_the_others(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    flags = ("--steps", 5, "--lockstep", "tcp", "--die-at", 4, "--die-rank", 1, "--stamp-dir", tmp_path)
    ranks = [start(*flags, RANK=rank, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port) for rank in (0, 1)]
    ranks[1].communicate(timeout=60)
    with pytest.raises(subprocess.TimeoutExpired):
        ranks[0].wait(0.5)
    ranks[0].kill()
    ranks[0].communicate(timeout=60)
    assert len((tmp_path / "rank_0000").read_text().splitlines()) == 3


@pytest.mark.torch
def test_real_torch_reads_its_checkpoints(torch: Any, tmp_path: Path) -> None:
    run("--steps", 5, "--ckpt", tmp_path)
    assert torch.load(tmp_path / "step_00000005.pt", weights_only=True)["step"] == 5
