"""A script that resumes itself, of which no checkpoint folder is known, on the local cluster."""

from __future__ import annotations

import json
from pathlib import Path

from tests.localruns import LocalRun, type_safelaunch

# Saves each 20 steps, loads its newest checkpoint by itself, and is killed at each of KILLS once.
TRAINER = '''
import os, signal, sys, time
start = int(sys.argv[-1].rsplit("_", 1)[1].split(".")[0]) if "--resume" in sys.argv else 0
os.makedirs("ckpt", exist_ok=True)
kill = next((at for at in KILLS if at > start and not os.path.exists(f"ckpt/killed_{at}")), None)
for step in range(start + 1, 301):
    print(f"step {step}/300 loss 0.5", flush=True)
    time.sleep(0.005)
    if step % 20 == 0:
        open(f"ckpt/step_{step}.pt", "w").close()
    if step == kill:
        open(f"ckpt/killed_{kill}", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
'''
KILLS = (61, 115, 176, 250)
SCRIPT = """#!/bin/bash
#SBATCH --time=10
LATEST=$(ls -t ckpt/*.pt 2>/dev/null | head -1)
python3 -u train.py --out ckpt ${LATEST:+--resume $LATEST}
"""


def test_a_script_that_resumes_itself_outlives_more_crashes_than_its_budget(
        tmp_path: Path, local_env: dict[str, str], local_runs: list[LocalRun]) -> None:
    (tmp_path / "train.py").write_text(TRAINER.replace("KILLS", str(KILLS)))
    (tmp_path / "job.slurm").write_text(SCRIPT)
    words = ["submit", "job.slurm", "cluster=local", "--json", "--wait"]
    done = type_safelaunch(words, tmp_path, local_env)
    assert done.returncode == 0 and "add resume.dir=ckpt (a guess" in done.stderr, done.stderr
    local_runs.append(LocalRun(tmp_path, tmp_path / "runs" / "job", local_env))
    seen = json.loads(local_runs[0].type("status", "job", "--json").stdout)
    assert (seen["restarts"], seen["failures_without_progress"]) == (len(KILLS), 0)
    assert seen["attempt"]["began_step"] == 241
    assert seen["lost"]["steps"] == sum(at % 20 for at in KILLS), "what lay behind the newest checkpoint each time"
    told = local_runs[0].type("why", "job", "--attempt", "1").stdout
    assert "restarted by itself, and went on at step 61 (attempt 2)" in told, told
