"""hydra/launcher=safelaunch on a real Slurm: a sweep with a bug and a preemption ends as its user expects."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable

import pytest

from safelaunch.run.io import runfolder
from safelaunch.sandbox.cluster import Sandbox
from tests.runs import ALICE, Drill, Installation
from tests.sandboxes import make_workdir

# Its own argument parser does not start there: the help of --shell-completion is no text.
pytestmark = pytest.mark.skipif(sys.version_info >= (3, 14), reason="hydra-core 1.3 does not run on Python 3.14")

PROGRAM = """\
import os, pathlib, time
import hydra

@hydra.main(version_base=None)
def main(cfg):
    print("point", cfg.n, "on", os.environ["SLURMD_NODENAME"], flush=True)
    if cfg.n == 1:
        raise IndexError("list index out of range")
    if cfg.n == 2 and os.environ["SAFELAUNCH_ATTEMPT"] == "1":
        pathlib.Path("started").touch()
        time.sleep(600)
    return cfg.n

if __name__ == "__main__":
    main()
"""
WORDS = ["--multirun", "+n=range(3)", "hydra/launcher=safelaunch", "hydra.launcher.wait=true", "hydra.sweep.dir=sweep",
         "hydra.launcher.partition=low", "hydra.launcher.standby=false", "+hydra.launcher.restart.backoff=1s"]
URGENT = ["sbatch", "--parsable", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null",
          "--wrap=sleep 3"]


def test_a_sweep_with_a_bug_and_a_preemption(own_sandbox: Callable[..., Sandbox], installation: Installation) -> None:
    sandbox = own_sandbox(2, preemption=True)
    sandbox.slurm(["scontrol", "update", "PartitionName=low", "GraceTime=0"])
    folder = make_workdir(sandbox)
    (folder / "train.py").write_text(PROGRAM)
    program = sandbox.start([str(installation.python), "train.py", *WORDS], user=ALICE, cwd=folder,
                            env={**installation.env, "XDG_STATE_HOME": f"{folder}/.state"})

    def runs() -> dict[str, Drill]:
        dirs = [path.parent for path in folder.glob("sweep/.safelaunch/runs/*/run.json")]
        return {runfolder.load(dir).plan.name: Drill(sandbox, installation, folder, dir, "") for dir in dirs}

    def others_have_ended() -> bool:
        found = runs()
        return len(found) == 3 and all(drill.state().ended for name, drill in found.items() if name != "train-2-n2")

    try:
        end_s = time.monotonic() + 180
        while not ((folder / "started").exists() and others_have_ended()):
            assert time.monotonic() < end_s and program.poll() is None, "the sweep did not come so far"
            time.sleep(0.1)
        assert sandbox.run(URGENT, user="sl-bob").returncode == 0
        said, _ = program.communicate(timeout=180)
    finally:
        program.kill()
    ends = {name: drill.state().ended for name, drill in runs().items()}
    assert {name: end.how for name, end in ends.items() if end} == {
        f"train-{n}-n{n}": "gave_up" if n == 1 else "completed" for n in range(3)}, said
    state = runs()["train-2-n2"].state()
    assert [one.category for one in state.attempts] == ["preempted", None] and state.restarts == 0
    assert runs()["train-1-n1"].state().attempts[-1].category == "user_code"
    assert program.returncode == 1 and re.search("#1 has failed: the run has given up.*safelaunch why", str(said))
