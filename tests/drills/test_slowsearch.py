"""A run on a real Slurm whose steps become longer because of one node: it stops, measures all nodes, and goes on
without that one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from safelaunch.run.io import runfolder
from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import IS_LONG
from tests.runs import Submitter
from tests.sandboxes import make_workdir

SLOW = "n1"
# Each attempt prints what a step takes: 8 % more from step 150 on, while n1 is among its nodes; n1 itself 10 %.
TRAIN = """\
import json, os, time
path, rank = os.environ.get("SAFELAUNCH_RESUME_PATH"), os.environ["SLURM_PROCID"]
first = json.load(open(path))["step"] if path else 0
is_slow = os.environ["SAFELAUNCH_NODELIST"] == "n[0-2]"
for step in range(first + 1, 801):
    time.sleep(0.6)
    took = 0.6 * (1.08 if is_slow and step > 150 else 1.0) + 0.0005 * (step % 3)
    if is_slow and step > 150 and rank == "1":
        took *= 1.02
    print(f"step {step}/50000 | loss: 2.5 | step_time: {took:.4f}", flush=True)
    if rank == "0" and step % 10 == 0:
        os.makedirs("ckpt", exist_ok=True)
        with open("ckpt/tmp", "w") as file:
            json.dump({"step": step}, file)
        os.rename("ckpt/tmp", f"ckpt/step_{step}.json")
"""
# Stands for the training's PyTorch: what four nodes of one machine really do depends on the others.
TORCH = """#!/bin/bash
rate=700; [[ $SLURMD_NODENAME == n1 ]] && rate=600
echo '{"torch": "2", "name": "H100", "gpus": 1, "threads": 8, "matmul": [['$rate', '$rate'.5, '$rate'.2]], "memory": [[3000.0, 3001.0, 3002.0]]}'
"""  # noqa: E501


@pytest.mark.skipif(not IS_LONG, reason="a drop must last for five minutes; SAFELAUNCH_LONG=1")
def test_a_run_that_becomes_slow_stops_at_a_checkpoint_finds_the_node_and_wins_its_speed_back(
    sandbox: Sandbox, submit: Submitter
) -> None:
    work = make_workdir(sandbox)
    tools: Path = work / "bin"
    tools.mkdir()
    for name, text in (("python", TORCH), ("train.py", TRAIN)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    drill = submit(sandbox)(
        nodes=3, tasks=1, folder=work, command=f"python3 {tools}/train.py",
        env={"PATH": f"{tools}:{os.environ['PATH']}"},
        overrides=("slow.then=restart", "spare_nodes=1", "resume.format=pattern", "resume.pattern=step_{step}.json",
                   "resume.args="))

    state = drill.wait_end(timeout_s=800)

    assert state.ended and state.ended.how == "completed", drill.story()
    assert len(state.attempts) == 2, drill.story()
    first, second = state.attempts
    assert (first.nodes, second.nodes) == (("n0", "n1", "n2"), ("n0", "n2", "n3")), drill.story()
    assert (first.asked_row, first.ended) == ("slow_restart", "interrupted") and state.restarts == 0, drill.story()
    assert second.resume_step is not None and first.step is not None and first.step - second.resume_step <= 10
    (benched,) = drill.events("nodes_benched")
    told = (drill.run_dir / runfolder.attempt_folder(2) / "bench.json").read_text()
    assert list(benched.data["slow"]) == [SLOW], f"{benched.data['why']}\n{told}"
    assert [event.data["won"] for event in drill.events("swap_judged")] == [True], drill.story()
    assert [node for node, _ in state.suspects] == [SLOW] and state.slower is None
