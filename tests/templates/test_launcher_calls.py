"""How each launcher is called on each node: golden command lines, from a stand-in that prints its words."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from safelaunch.run.io.local import srun_words
from safelaunch.run.plan import Plan
from safelaunch.script.script import render
from tests.ports import free_ports
from tests.pure.script.test_script import TEMPLATE, plan_of

YAML = "name: here\ncluster: local\nrun_dir: /nowhere/here\ncommand: echo trained\nslurm: {nodes: 2}\n"
# Prints its own words up to the shell of a rank, and starts nothing.
MPI = YAML + "launch: {with: mpi}\n"
STAND_IN = """\
#!/bin/bash
said="node $SLURM_NODEID: ${0##*/}"
while [[ $1 != bash ]]; do printf -v said '%s %q' "$said" "$1"; shift; done
echo "$said"
"""
ELASTIC = "--max_restarts 0 --role local{n}: --tee 3"
WORLD = base64.b64encode(b'{"0":["0","1"],"1":["0","1"]}').decode()
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
    ("ft_launcher", "--max-restarts=3"):   # its own restarts in the job: the last one counts
        "ft_launcher --nnodes 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint 127.0.0.1:4321 "
        "--rdzv_id 1a2b3c4d.77.1 --rdzv_conf is_host={first} " + ELASTIC + " --max-restarts=3 --no_python",
    ("deepspeed", "--bind_cores_to_rank"):
        "python3 -m deepspeed.launcher.launch --world_info " + WORLD + " --node_rank {n} --master_addr 127.0.0.1 "
        "--master_port 4321 --no_local_rank --bind_cores_to_rank --no_python",
}


def attempt(folder: Path, plan: Plan, program: str, text: str, **more: str) -> str:
    """What an attempt of two nodes prints, with `program` first on its PATH and more in its environment."""
    (folder / "bin").mkdir()
    (folder / "bin" / program).write_text(text)
    (folder / "bin" / program).chmod(0o755)
    return attempt_again(folder, plan, **more)


def attempt_again(folder: Path, plan: Plan, **more: str) -> str:
    """The same, with the program that is there."""
    script = folder / "job.sbatch"
    script.write_text(render(TEMPLATE, plan, python="/none/python", library=(), srun=srun_words()))
    env = {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": str(folder), "SLURM_JOB_NODELIST": "local[0-1]",
           "SLURM_JOB_ID": "77", "SAFELAUNCH_MASTER_ADDR": "127.0.0.1", "SAFELAUNCH_MASTER_PORT": "4321",
           "SAFELAUNCH_LOCAL": "1", **more}
    done = subprocess.run(["bash", str(script), "attempt"], cwd=folder, env=env, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200)
    return done.stdout


def plan_by(launcher: str, args: str = "", nproc: int | None = 2, yaml: str = YAML) -> Plan:
    number = "" if nproc is None else f", nproc_per_node: {nproc}"
    plan = plan_of(f"{yaml}launch: {{with: {launcher}{number}}}\n")
    return plan._replace(launch=plan.launch._replace(args=tuple(shlex.split(args))))


@pytest.mark.parametrize(("launcher", "args"), CALLS, ids=lambda word: word or "plain")
def test_its_command_line_on_each_node_is_the_golden_one(tmp_path: Path, launcher: str, args: str) -> None:
    program = "python3" if launcher == "deepspeed" else launcher
    said = attempt(tmp_path, plan_by(launcher, args), program, STAND_IN)
    wanted = [CALLS[launcher, args].format(n=n, first=first) for n, first in ((0, "true"), (1, "false"))]
    assert sorted(said.splitlines()) == [f"node 0: {wanted[0]}", f"node 1: {wanted[1]}"]


def test_lines_of_setup_and_of_the_launcher_itself_name_their_node_and_those_of_ranks_stay(tmp_path: Path) -> None:
    agent = """#!/bin/bash
    printf '[local%s:1]:of a rank\\nfailed (exitcode: 3) local_rank: 1\\nbar 10 %%\\rbar 20 %%\\r' "$SLURM_NODEID" >&2
    exit 3
    """
    plan = plan_by("torchrun")._replace(setup="source /none/activate || :")
    plan = plan._replace(srun=plan.srun._replace(kill_on_bad_exit=0))   # the first agent's end would end the other
    said = attempt(tmp_path, plan, "torchrun", agent)
    for node in ("local0", "local1"):
        own = [line for line in said.splitlines() if node in line]
        assert own[0].startswith(f"[{node}:node]:") and "/none/activate: No such file" in own[0], said
        assert own[1:] == [f"[{node}:1]:of a rank", f"[{node}:node]:failed (exitcode: 3) local_rank: 1",
                           f"[{node}:node]:bar 10 %", f"[{node}:node]:bar 20 %"], said
    failed = attempt_again(tmp_path, plan._replace(setup="exit 4"))
    assert sorted(line.partition(" on ")[0] for line in failed.splitlines() if "setup failed" in line) == [
        f"[local{number}:node]:safelaunch: setup failed with exit code 4" for number in (0, 1)], failed


@pytest.mark.torch
def test_real_accelerate_and_torchrun_take_these_options_whatever_a_config_file_says(
    torch: object, tmp_path: Path
) -> None:
    accelerate = pytest.importorskip("accelerate.commands.launch", reason="Accelerate is not installed")
    torchrun = pytest.importorskip("torch.distributed.run", reason="PyTorch is not installed")

    def words(*key: str) -> list[str]:
        return [*shlex.split(CALLS[key[0], key[1]].format(n=1, first=""))[1:], "bash", "-c", "text"]

    given = torchrun.get_args_parser().parse_args(words(*next(iter(CALLS))))
    assert (given.node_rank, given.no_python, given.training_script) == (1, True, "bash")
    config = tmp_path / "config.yaml"
    for kind in ("MULTI_GPU", "FSDP", "DEEPSPEED", "NO"):
        config.write_text(f"compute_environment: LOCAL_MACHINE\ndistributed_type: {kind}\nnum_machines: 1\n"
                          "num_processes: 1\nmachine_rank: 0\nmain_process_port: 9\nmixed_precision: 'no'\n"
                          "use_cpu: false\nrdzv_backend: c10d\n"
                          "deepspeed_config: {deepspeed_multinode_launcher: pdsh}\n")
        line = [str(config) if word == "fsdp.yaml" else word for word in words("accelerate", "--config-file fsdp.yaml")]
        given, _, _ = accelerate._validate_launch_command(accelerate.launch_command_parser().parse_args(line[1:]))
        assert (given.num_machines, given.machine_rank, given.num_processes, given.same_network) == (2, 1, 4, True)
        assert (given.main_process_port, given.rdzv_backend, given.max_restarts) == (4321, "static", 0), kind
        assert given.deepspeed_multinode_launcher == "standard", kind
        starts = {"MULTI_GPU": given.multi_gpu, "FSDP": given.use_fsdp, "DEEPSPEED": given.use_deepspeed}
        assert [name for name, is_on in starts.items() if is_on] == ([kind] if kind != "NO" else [])


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


def test_deepspeed_is_told_the_gpus_that_the_node_has(tmp_path: Path) -> None:
    said = attempt(tmp_path, plan_by("deepspeed"), "python3", STAND_IN, CUDA_VISIBLE_DEVICES="MIG-a,5,6")
    worlds = {line.partition("--world_info ")[2].partition(" ")[0] for line in said.splitlines()}
    assert [json.loads(base64.b64decode(world)) for world in worlds] == [{"0": ["MIG-a", "5"], "1": ["MIG-a", "5"]}]


# Starts two ranks as deepspeed.launcher.launch does, and ends with the code of the last one that fails.
DEEPSPEED = """\
#!/bin/bash
while [[ $1 != bash ]]; do shift; done
for LOCAL_RANK in 0 1; do RANK=$((SLURM_NODEID * 2 + LOCAL_RANK)) LOCAL_RANK=$LOCAL_RANK "$@" & pids+=($!); done
for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
exit "${code:-0}"
"""


def test_ranks_of_a_launcher_without_prefixes_carry_host_and_rank_up_to_their_last_words(tmp_path: Path) -> None:
    command = "printf 'a\\rb\\n'; echo end >&2; echo ${SAFELAUNCH_RANK-0}; kill -KILL $$"
    plan = plan_by("deepspeed")
    plan = plan._replace(command=command, srun=plan.srun._replace(kill_on_bad_exit=0))
    lines = attempt(tmp_path, plan, "python3", DEEPSPEED).splitlines()
    for rank in ("local0:0", "local0:1", "local1:0", "local1:1"):
        assert [line for line in lines if line.startswith(f"[{rank}]:")] == [
            f"[{rank}]:{word}" for word in ("a", "b", "end", "0")], lines


def test_mpi_ranks_without_a_pmi_are_ended_before_they_train_alone(tmp_path: Path) -> None:
    plan = plan_by("mpi", nproc=None)._replace(command="echo trained as $RANK of $WORLD_SIZE")
    assert "srun --mpi has set no variable PMI* here" in attempt(tmp_path, plan, "none", "")
    (tmp_path / "bin" / "none").unlink()
    (tmp_path / "bin").rmdir()
    said = attempt(tmp_path, plan, "none", "", PMIX_RANK="0")
    assert "[local1:1]:trained as 1 of 2" in said.splitlines()


def test_jax_meets_at_a_port_of_its_attempt(tmp_path: Path) -> None:
    plan = plan_by("jax", nproc=None)._replace(command="echo $JAX_COORDINATOR_ADDRESS $SLURM_STEP_NODELIST")
    assert "[local1:1]:127.0.0.1:4321 local[0-1]" in attempt(tmp_path, plan, "none", "").splitlines()


def test_mpi_is_asked_of_srun_before_what_the_user_says() -> None:
    words = subprocess.run(
        ["bash", "-c", render(TEMPLATE, plan_of(MPI)._replace(srun=plan_of(MPI).srun._replace(extra=("--mpi=pmi2",))),
                              python="/none/python", library=(), srun=("echo",)), "job.sbatch", "attempt"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env={"PATH": os.environ["PATH"],
        "SLURM_JOB_ID": "77", "SAFELAUNCH_MASTER_ADDR": "127.0.0.1"}).stdout
    assert " --mpi=pmix --mpi=pmi2 bash -c " in words


# Its head answers at its port until whoever has started it is gone; a worker stays until it is ended.
RAY = """\
#!/bin/bash
echo "node $SLURM_NODEID: ray $*"
[[ " $* " == *" --head "* ]] || { touch "$HOME/joined"; exec sleep 600; }
exec /usr/bin/python3 -c '
import os, socket, sys
port = sys.argv[sys.argv.index("--port") + 1]
parent, server = os.getppid(), socket.create_server(("127.0.0.1", int(port)))
server.settimeout(0.1)
while os.getppid() == parent:
    try:
        server.accept()[0].close()
    except TimeoutError:
        pass
' "$@"
"""
# Instead of Ray's own word that all nodes have joined.
NO_RAY = """\
#!/bin/bash
[[ $2 == *"import os, ray"* ]] || exec /usr/bin/python3 "$@"
until [[ -e $HOME/joined ]]; do sleep 0.02; done
"""


def test_rays_command_runs_on_the_first_node_and_the_others_end_when_its_head_is_gone(tmp_path: Path) -> None:
    port = str(free_ports(1)[0])
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "python3").write_text(NO_RAY)
    (tmp_path / "own" / "python3").chmod(0o755)
    plan = plan_by("ray", "--num-gpus 4", nproc=None)._replace(command="echo trained by $RAY_ADDRESS on $SLURM_NODEID",
                                                               setup=f"PATH={tmp_path}/own:$PATH")
    said = attempt(tmp_path, plan, "ray", RAY, SAFELAUNCH_MASTER_PORT=port)
    said = re.sub(r"--num-cpus \d+", "--num-cpus N", said)
    start = "ray start --num-cpus N --block"
    assert sorted(said.splitlines()) == [
        f"[local0:0]:node 0: {start} --head --port {port} --include-dashboard=false --num-gpus 4",
        f"[local0:0]:trained by 127.0.0.1:{port} on 0",
        f"[local1:1]:node 1: {start} --address 127.0.0.1:{port} --num-gpus 4"]


def test_a_head_of_ray_that_does_not_start_ends_the_attempt(tmp_path: Path) -> None:
    plan = plan_by("ray", nproc=None)._replace(command="echo trained")
    said = attempt(tmp_path, plan, "ray", "#!/bin/bash\nexit 1\n", SAFELAUNCH_MASTER_PORT="1")
    assert "[local0:0]:safelaunch: the head of ray has not started" in said and "trained" not in said
