"""Eighteen sbatch scripts in the shapes that people have: at least sixteen run unchanged, the others are refused.

Their texts are in tests/pure/config/jobscripts. The long form runs each on a real Slurm, with fewer nodes, tasks and
processors. The programs that they call are stand-ins, which say what they were called with: the training among them
loses its first rank in the first attempt. Real frameworks in scripts of the same shapes: tests/frameworks.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from safelaunch.config.resolve import ConfigLayer, resolve
from safelaunch.errors import ConfigError
from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import long_only
from tests.localruns import ROOT
from tests.runs import ALICE, Drill, Installation
from tests.sandboxes import make_workdir

SCRIPTS = ROOT / "tests" / "pure" / "config" / "jobscripts"


class Row(NamedTuple):
    """A script; what starts its training, as the stand-in is called, in how many tasks; what is cut for a sandbox."""

    name: str
    training: str = ""
    tasks: int = 2
    cut: tuple[str, ...] = ()
    refused: tuple[int, str] | None = None   # the line, and a word of the reason


TABLE = (
    Row("accelerate_bash_c", "accelerate launch"),
    Row("accelerate_multinode", "accelerate launch", cut=("slurm.cpus_per_task=1",)),
    Row("deepspeed_hostfile", "deepspeed --hostfile", 1),
    Row("megatron_container_variables", "python -u", 4, ("slurm.ntasks_per_node=2",)),
    Row("lightning_argument", "python fit.py", 4, ("slurm.ntasks_per_node=2",)),
    Row("nemo_here_document", "python /opt/NeMo", 4, ("slurm.ntasks_per_node=2", "slurm.partition=main")),
    Row("torchtitan_head_ip", "torchrun --nnodes 4", cut=("slurm.ntasks=2", "slurm.partition=main")),
    Row("nanotron_array", "torchrun --nproc_per_node 8"),
    Row("axolotl_two_steps", "axolotl train"),
    Row("jax_job_id_name", "python train.py", 4, ("slurm.ntasks_per_node=2",)),
    Row("ray_head_workers", "python3 -u -m verl", 1, ("slurm.cpus_per_task=1",)),
    Row("array_sweep", "python train.py", 1, ("slurm.nodes=1",)),
    Row("hetjob", refused=(4, "heterogeneous")),
    Row("requeue_trap"),   # it hides its training's end from whoever runs it
    Row("several_srun", "torchrun --nnodes 2"),
    Row("apptainer_here_document", "torchrun --nnodes=2"),
    Row("megatron_quoted_wrapper", "python -m torch.distributed.run"),
    Row("single_gpu_log", "python -u finetune.py", 1, ("slurm.cpus_per_task=1", "slurm.nodes=1", "slurm.mem=1G")),
)
RUNS = tuple(row for row in TABLE if row.refused is None and row.training)
STAND_IN = """\
#!/bin/bash
called="${0##*/} $*"
case $called in
apptainer\\ exec*) while [[ $1 != *.sif ]]; do shift; done; shift; exec "$@" ;;
srun*)   # pyxis, whose options srun knows no more than here
  words=()
  while (($#)); do
    case $1 in --container-*=*) shift ;; --container-* | -o) shift 2 ;; *) words+=("$1"); shift ;; esac
  done
  exec /usr/bin/srun "${words[@]}" ;;
ray*) exec sleep 600 ;;
"$TRAINING"*) echo "training $SAFELAUNCH_ATTEMPT of $SLURMD_NODENAME: $called" >>"called.$SAFELAUNCH_ATTEMPT" ;;
*) exit 0 ;;
esac
[[ $SAFELAUNCH_ATTEMPT == 1 ]] || exit 0
[[ ${SLURM_PROCID:-0} != $((TASKS - 1)) ]] || kill -9 $$
exec sleep 600
"""
PROGRAMS = ("accelerate", "apptainer", "axolotl", "dcgmi", "deepspeed", "hostname", "module", "nvidia-smi", "python",
            "python3", "ray", "srun", "tar", "torchrun")


def test_sixteen_of_eighteen_scripts_are_taken_as_they_are_and_the_others_refused_with_line_and_reason() -> None:
    refused: dict[str, list[tuple[int, str]]] = {}
    for row in TABLE:
        sizes = [] if row.name != "array_sweep" else ["slurm.nodes=1"]   # its text names no number of nodes
        try:
            taken = resolve([ConfigLayer("file", f"{row.name}.slurm", text_of(row))], sizes, {"HOME": "/h"})
            assert taken.config["launch"]["with"] == "script", row.name
        except ConfigError as error:
            refused[row.name] = [(problem.line, problem.text) for problem in error.problems]
    assert len(TABLE) == 18 and len(RUNS) >= 16
    assert set(refused) == {row.name for row in TABLE if row.refused}, refused
    for row in TABLE:
        if row.refused:
            line, word = row.refused
            assert any(at == line and word in why for at, why in refused[row.name]), refused[row.name]


def text_of(row: Row) -> str:
    return (SCRIPTS / f"{row.name}.slurm").read_text()


@long_only
@pytest.mark.parametrize("row", RUNS, ids=[row.name for row in RUNS])
def test_a_script_that_is_taken_runs_unchanged_and_goes_on_when_a_rank_is_killed(
    row: Row, sandbox: Sandbox, installation: Installation
) -> None:
    work = make_workdir(sandbox)
    lay_out(work, row)
    env = {**installation.env, "XDG_STATE_HOME": f"{work}/.state", "PATH": f"{work}/bin:/usr/bin:/bin",
           "TRAINING": row.training, "TASKS": str(row.tasks), "HOME": str(work), "TERM": "xterm",
           "PRIMARY_ADDR": "n0", "PRIMARY_PORT": "29500"}
    nodes = () if any(cut.startswith("slurm.nodes") for cut in row.cut) else ("slurm.nodes=2",)
    argv = [*installation.argv, "submit", f"{row.name}.slurm", "--json", *nodes, "slurm.time=20", "restart.backoff=0s",
            "srun.kill_on_bad_exit=1",   # the ranks that are left only sleep
            *row.cut]
    done = sandbox.run(argv, cwd=work, user=ALICE, env=env, timeout_s=180)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
    told = json.loads(done.stdout)
    for one in told.get("runs", [told]):
        drill = Drill(sandbox, installation, work, Path(one["run_dir"]), one["job"], [done.stderr], env)
        state = drill.wait_end(300)
        said = drill.story() + drill.log(1)
        assert state.ended is not None and state.ended.how == "completed", said
        assert [attempt.ended for attempt in state.attempts] == ["failed", "completed"], said
        assert drill.events("verdict")[0].data["category"] == "unknown", said   # a SIGKILL that nobody explains
    for attempt in ("1", "2"):
        starts = (work / f"called.{attempt}").read_text().splitlines()
        assert len(starts) == row.tasks * len(told.get("runs", [told])), starts


def lay_out(work: Path, row: Row) -> None:
    """The script, what it sources, and the programs that it calls, in sl-alice's folder and home."""
    (work / f"{row.name}.slurm").write_text(text_of(row))
    for sourced in (".bashrc", "activateEnvironment.sh", "bin/activate", "envs/one/bin/activate"):
        (work / sourced).parent.mkdir(parents=True, exist_ok=True)
        (work / sourced).touch()
    for program in PROGRAMS:
        (work / "bin" / program).write_text(STAND_IN)
        (work / "bin" / program).chmod(0o755)
