"""What `init --from` makes of a script really trains: on the local cluster, with a rank that dies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.localruns import ROOT, LocalRun, type_safelaunch
from tests.trainers.stepping import losses_until

SCRIPTS = {
    "converted": "export OMP_NUM_THREADS=1\npython3 -u {trainer} {flags}\n",
    "kept as it is": "for turn in 1; do\n  python3 -u {trainer} {flags} \\\n    "
                     "${{SAFELAUNCH_RESUME_PATH:+--load $SAFELAUNCH_RESUME_PATH}}\ndone\n",
}


@pytest.mark.parametrize("body", SCRIPTS.values(), ids=SCRIPTS)
def test_what_init_makes_of_a_script_trains_and_resumes_after_a_crash(
    tmp_path: Path, local_env: dict[str, str], body: str
) -> None:
    trainer = ROOT / "tests" / "trainers" / "steps.py"
    flags = "--steps 30 --save-every 10 --die-at 25 --ckpt ckpt"
    (tmp_path / "job.slurm").write_text(
        "#!/bin/bash\n#SBATCH -J own -N 1 --ntasks=1 -t 10\n" + body.format(trainer=trainer, flags=flags))
    assert type_safelaunch(["init", "--from", "job.slurm"], tmp_path, local_env).returncode == 0
    assert type_safelaunch(["check", "train.yaml"], tmp_path, local_env).returncode == 0
    said = type_safelaunch(["submit", "train.yaml", "--json", "cluster=local", "resume.dir=ckpt", "resume.format=torch",
                            "resume.args=--load {path}", "restart.backoff=0s"], tmp_path, local_env)
    run = LocalRun(tmp_path, Path(json.loads(said.stdout)["run_dir"]), local_env)
    assert run.wait_end().how == "completed", run.story()
    assert [attempt.resume_step for attempt in run.state().attempts] == [None, 20], run.story()
    assert run.losses() == losses_until(30)
