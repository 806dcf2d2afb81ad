"""How each launcher is called on each node: golden command lines, from a stand-in that prints its words."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from safelaunch.adapters.local import srun_words
from safelaunch.core.plan import Plan
from safelaunch.core.script import render
from tests.core.test_script import TEMPLATE, plan_of

YAML = "name: here\ncluster: local\nrun_dir: /nowhere/here\ncommand: echo trained\nslurm: {nodes: 2}\n"
# Prints its own words up to the shell of a rank, and starts nothing.
STAND_IN = """\
#!/bin/bash
said="node $SLURM_NODEID: ${0##*/}"
while [[ $1 != bash ]]; do printf -v said '%s %q' "$said" "$1"; shift; done
echo "$said"
"""
ELASTIC = "--max_restarts 0 --role local{n}: --tee 3"
CALLS = {
    ("torchrun", "--rdzv_conf 'timeout=60,x=a b'"):
        "torchrun --nnodes 2 --node_rank {n} --nproc_per_node 2 --master_addr 127.0.0.1 --master_port 4321 " + ELASTIC
        + r" --rdzv_conf timeout=60\,x=a\ b --no_python",
    ("accelerate", ""):
        "accelerate launch --num_machines 2 --machine_rank {n} --num_processes 4 --main_process_ip 127.0.0.1 "
        "--main_process_port 4321 --same_network --rdzv_backend static " + ELASTIC
        + " --deepspeed_multinode_launcher standard --multi_gpu --no_python",
    ("accelerate", "--config-file fsdp.yaml"):   # its distributed_type counts, which --multi_gpu would hide
        "accelerate launch --num_machines 2 --machine_rank {n} --num_processes 4 --main_process_ip 127.0.0.1 "
        "--main_process_port 4321 --same_network --rdzv_backend static " + ELASTIC
        + " --deepspeed_multinode_launcher standard --config-file fsdp.yaml --no_python",
}


def attempt(folder: Path, plan: Plan, program: str, text: str) -> str:
    """What an attempt of two nodes prints, with `program` first on its PATH."""
    script = folder / "job.sbatch"
    script.write_text(render(TEMPLATE, plan, python="/none/python", library=(), srun=srun_words()))
    (folder / "bin").mkdir()
    (folder / "bin" / program).write_text(text)
    (folder / "bin" / program).chmod(0o755)
    env = {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": str(folder), "SLURM_JOB_NODELIST": "local[0-1]",
           "SLURM_JOB_ID": "77", "SAFELAUNCH_MASTER_ADDR": "127.0.0.1", "SAFELAUNCH_MASTER_PORT": "4321",
           "SAFELAUNCH_LOCAL": "1"}
    done = subprocess.run(["bash", str(script), "attempt"], cwd=folder, env=env, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    return done.stdout


def plan_by(launcher: str, args: str = "", nproc: int = 2, yaml: str = YAML) -> Plan:
    plan = plan_of(f"{yaml}launch: {{with: {launcher}, nproc_per_node: {nproc}}}\n")
    return replace(plan, launch=replace(plan.launch, args=tuple(shlex.split(args))))


@pytest.mark.parametrize(("launcher", "args"), CALLS, ids=lambda word: word or "plain")
def test_its_command_line_on_each_node_is_the_golden_one(tmp_path: Path, launcher: str, args: str) -> None:
    said = attempt(tmp_path, plan_by(launcher, args), launcher, STAND_IN)
    call = CALLS[launcher, args]
    assert sorted(said.splitlines()) == [f"node {n}: {call.replace('{n}', str(n))}" for n in (0, 1)]


def test_the_default_config_of_accelerate_says_what_it_starts(tmp_path: Path) -> None:
    config = tmp_path / ".cache" / "huggingface" / "accelerate" / "default_config.yaml"
    config.parent.mkdir(parents=True)
    config.touch()
    assert "--multi_gpu" not in attempt(tmp_path, plan_by("accelerate"), "accelerate", STAND_IN)


def test_an_accelerate_that_starts_one_process_a_node_is_ended_before_it_trains(tmp_path: Path) -> None:
    alone = '#!/bin/bash\nwhile [[ $1 != bash ]]; do shift; done\n"$@"\n'
    said = attempt(tmp_path, plan_by("accelerate"), "accelerate", alone)
    assert "accelerate has started 1 process(es), not 2 x 2" in said and "trained" not in said


def test_one_process_alone_needs_no_world(tmp_path: Path) -> None:
    alone = '#!/bin/bash\n[[ " $* " != *" --multi_gpu "* ]] || exit\nwhile [[ $1 != bash ]]; do shift; done\n"$@"\n'
    yaml = YAML.replace("nodes: 2", "nodes: 1")
    assert "trained" in attempt(tmp_path, plan_by("accelerate", nproc=1, yaml=yaml), "accelerate", alone)
