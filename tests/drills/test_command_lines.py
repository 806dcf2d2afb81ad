"""What other users of a node read in `ps` while a run trains: of command, env and setup only the words that run."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.drills.proofs import long_only
from tests.localruns import TRAINER, LocalRun, SubmitLocal
from tests.runs import parent_of
from tests.torchbin import needs_torch
from tests.users import command_lines_seen_by

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")]
NOBODY = 65534
ENDLESS = "--steps 100000 --step-time 0.02 --save-every 1000000 --handle-usr2"
# Each word with "secret" is one that a script without safelaunch would not show either.
COMMAND = f"""\
export FIRST=secret-exported
IN_IT=secret-assigned
cat <<<secret-here-string >here
until [[ -e go ]]; do sleep 0.05; done   # secret-remark
[[ $IN_IT == secret-assigned ]] && OWN=secret-own {TRAINER} {ENDLESS} --ckpt ckpt "${{RESUME_ARGS[@]}}"
"""
# The same of torchrun's ranks: test_torchrun.py.
by_each_launcher = pytest.mark.parametrize("by", ["none", "srun"])
by_torchrun_too = pytest.mark.parametrize(
    "by", ["none", "srun", pytest.param("torchrun", marks=[needs_torch, pytest.mark.torch, long_only])])


@pytest.fixture
def submit_secret(submit_local: SubmitLocal) -> Callable[[str], LocalRun]:
    """`submit_secret(launcher)`: a run whose command waits for the file `go` before it trains."""
    def go(by: str) -> LocalRun:
        setup = f"export PATH={Path(sys.executable).parent}:$PATH\nIN_SETUP=secret-setup"
        return submit_local("", f"command={COMMAND}", f"setup={setup}", "env.TOKEN=secret-env", f"launch.with={by}",
                            "env.GLOO_SOCKET_IFNAME=lo", *(["launch.nproc_per_node=1"] if by == "torchrun" else []))
    return go


def rank(run: LocalRun) -> int:
    run.wait_for(run.ranks, 60, "no rank runs")
    (pid,) = run.ranks()
    return pid


@by_each_launcher
def test_no_command_line_shows_more_than_the_words_that_run(
    submit_secret: Callable[[str], LocalRun], by: str
) -> None:
    run = submit_secret(by)
    run.wait_for(lambda: (run.folder / "here").exists(), 60, "the command did not start")
    before = command_lines_seen_by(NOBODY)
    (run.folder / "go").touch()
    run.wait_step(1)
    during = command_lines_seen_by(NOBODY)

    ours = set(run.pids())
    assert len(ours & during.keys()) > 5 and any("steps.py" in during[pid] for pid in run.ranks())
    assert not {pid: line for pid, line in {**before, **during}.items() if pid in ours and "secret-" in line}
    typed = ("pytest", " safelaunch submit ")   # words that somebody has typed; a slow submit is still there
    others = [line for line in [*before.values(), *during.values()] if not any(word in line for word in typed)]
    assert not [line for line in others if "secret-" in line]
    assert b"OWN=secret-own" in Path(f"/proc/{rank(run)}/environ").read_bytes().split(b"\0")


@by_each_launcher
def test_no_shell_stands_between_the_training_and_what_started_it(
    submit_secret: Callable[[str], LocalRun], by: str
) -> None:
    run = submit_secret(by)
    (run.folder / "go").touch()
    run.wait_step(1)
    pid = rank(run)
    above = Path(f"/proc/{parent_of(pid)}/cmdline").read_bytes().split(b"\0")

    assert b"-S" in above, above
    os.kill(pid, signal.SIGKILL)
    run.wait_for(lambda: len(run.state().attempts) > 1, 60, "no second attempt")
    assert "Killed" not in run.log(1), "a shell has seen it die"


@by_torchrun_too
def test_the_training_itself_is_signalled(submit_secret: Callable[[str], LocalRun], by: str) -> None:
    run = submit_secret(by)
    (run.folder / "go").touch()
    run.wait_step(1)

    (run.run_dir / "control" / "kill").touch()

    assert run.wait_end().how == "stopped", run.story()
    assert re.search(r"SIGUSR2 reached 1 processes ", run.story()), run.story()
