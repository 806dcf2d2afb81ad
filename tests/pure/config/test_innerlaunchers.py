"""A launcher in `command`: refused where several of it would start, with the word's place and what to write."""

from __future__ import annotations

import pytest

from safelaunch.config.resolve import MAY_LAUNCH, ConfigLayer, Resolved, resolve
from safelaunch.config.shell.innerlaunchers import INNER, find_calls
from safelaunch.errors import ConfigError
from tests.tables import each

WIDE = "slurm: {nodes: 1, gpus_per_node: 4}\n"
TWO = "slurm: {nodes: 2, ntasks_per_node: 1}\n"


def read(command: str, rest: str = "") -> Resolved:
    body = "\n".join(f"  {line}" for line in command.split("\n"))
    text = f"command: |\n{body}\n{rest}" if "\n" in command else f"command: {command}\n{rest}"
    return resolve([ConfigLayer("file", "train.yaml", text)], ["cluster=slurm"], {"HOME": "/home/a"}, (), "/work")


@each(("code", "names"), [
    ("torchrun --nproc_per_node 4 train.py", ["torchrun"]),
    ("./torchrun --nproc_per_node=2 2 python3 rank.py", ["torchrun"]),
    ("/opt/env/bin/torchrun a.py", ["torchrun"]),
    ("python -m torch.distributed.run a.py", ["torch.distributed.run"]),
    ("python3 -u -m torch.distributed.launch a.py", ["torch.distributed.launch"]),
    ("OMP_NUM_THREADS=4 NCCL_DEBUG=INFO torchrun a.py", ["torchrun"]),
    ("env OMP_NUM_THREADS=4 torchrun a.py", ["torchrun"]),
    ("cd /work && torchrun a.py", ["torchrun"]),
    ("cd /work\nexport A=1\nexec accelerate launch a.py", ["accelerate"]),
    ("accelerate-launch a.py", ["accelerate-launch"]),
    ("python -m accelerate.commands.launch a.py", ["accelerate.commands.launch"]),
    ("deepspeed --num_gpus 4 a.py", ["deepspeed"]),
    ("ft_launcher a.py", ["ft_launcher"]),
    ("mpirun -np 4 python a.py", ["mpirun"]),
    ("mpiexec -n 4 python a.py", ["mpiexec"]),
    ("srun -n 4 python a.py | tee log", ["srun"]),
    ("jsrun -n 4 python a.py", ["jsrun"]),
    ("horovodrun -np 4 python a.py", ["horovodrun"]),
    ("colossalai run --nproc_per_node 4 a.py", ["colossalai"]),
    ("composer -n 4 a.py", ["composer"]),
    ("lightning run model a.py --devices 4", ["lightning"]),
    ("fabric run a.py", ["fabric"]),
    ("ray start --head", ["ray"]),
    ("axolotl train cfg.yml", ["axolotl"]),
    ('bash -c "torchrun a.py"', ["torchrun"]),
    ("bash -lc 'cd x; torchrun a.py'", ["torchrun"]),
    ('eval "torchrun a.py"', ["torchrun"]),
    ("timeout 1h stdbuf -oL torchrun a.py", ["torchrun"]),
    ("uv run torchrun a.py", ["torchrun"]),
    ("conda run -n env torchrun a.py", ["torchrun"]),
    ("apptainer exec --nv image.sif bash -c 'torchrun a.py'", ["torchrun"]),
    ("apptainer exec --nv image.sif python -m torch.distributed.run a.py", ["torch.distributed.run"]),
    ("if [ -e x ]; then torchrun a.py; else torchrun b.py; fi", ["torchrun", "torchrun"]),
    ("go() { torchrun a.py; }\ngo", ["torchrun"]),
    ('LAUNCHER="torchrun --nproc_per_node 4"\n$LAUNCHER a.py', ["torchrun"]),
    ("for i in 1 2; do srun a; done", ["srun"]),
    ("torchrun \\\n  --nproc_per_node 4 \\\n  a.py", ["torchrun"]),
    ("(torchrun a.py)", ["torchrun"]),
    ("$(which torchrun) a.py", ["torchrun"]),
    ("python -u `which torchrun` a.py", ["torchrun"]),
    ("python /env/bin/torchrun a.py", ["torchrun"]),
    ("false || torchrun a.py", ["torchrun"]),
    ("tune run --nproc_per_node 2 full_finetune_distributed --config a.yaml", ["tune"]),
    ("NPROC_PER_NODE=2 swift sft --model a", ["swift"]), ("NPROC_PER_NODE=2 swift pt --model a", ["swift"]),
    ("export NPROC_PER_NODE=2\nswift rlhf --model a", ["swift"]),
    ("env CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 swift sft a", ["swift"]),
    ("NPROC_PER_NODE=2 xtuner train a.py", ["xtuner"]),
    ("FORCE_TORCHRUN=1 llamafactory-cli train a.yaml", ["llamafactory-cli"]),
    ("uv run env FORCE_TORCHRUN=1 llamafactory-cli train a.yaml", ["llamafactory-cli"]),
    ("python -m accelerate.commands.accelerate_cli launch a.py", ["accelerate.commands.accelerate_cli"]),
    ("python -m oneflow.distributed.launch a.py", ["oneflow.distributed.launch"]),
    ("python -m torch_npu.distributed.run a.py", ["torch_npu.distributed.run"]),
    ("python -m torch_npu.contrib.launch a.py", ["torch_npu.contrib.launch"]),
    ("python -m colossalai.cli run --nproc_per_node 4 a.py", ["colossalai.cli"]),
    ("python -m lightning.fabric.cli run a.py", ["lightning.fabric.cli"]),
    ("python -m lightning run model a.py", ["lightning"]),
    ("python -m lightning_fabric.cli run a", ["lightning_fabric.cli"]),
    ("python -m deepspeed.launcher.runner a.py", ["deepspeed.launcher.runner"]),
    ("python -m deepspeed a.py", ["deepspeed"]),
    ("python -m composer.cli -n 4 a.py", ["composer.cli"]),
    ("python -m ray.scripts.scripts start", ["ray.scripts.scripts"]),
    ("python -m horovod.runner.launch -np 4 a.py", ["horovod.runner.launch"]),
    ("python -m torchtune._cli.tune run --nproc_per_node 2 a", ["torchtune._cli.tune"]),
    ("NPROC_PER_NODE=2 python -m swift.cli.main sft a", ["swift.cli.main"]),
    ("FORCE_TORCHRUN=1 python -m llamafactory.cli train a", ["llamafactory.cli"]),
    ("python -m axolotl.cli.main train a.yml", ["axolotl.cli.main"]), ("python -m torchx.cli run a", ["torchx.cli"]),
    ("python -mtorch.distributed.run a.py", ["torch.distributed.run"]),
    ("python3 -um torch.distributed.run a.py", ["torch.distributed.run"]),
    ("python -W ignore -m torch.distributed.run a.py", ["torch.distributed.run"]),
    ("python -X faulthandler -Wd -m torch.distributed.run a.py", ["torch.distributed.run"]),
    ("python -m cProfile -o x.prof -m torch.distributed.run a.py", ["torch.distributed.run"]),
    ("python -m coverage run -m torch.distributed.run a.py", ["torch.distributed.run"]),
    ("coverage run -m torch.distributed.run a.py", ["torch.distributed.run"]),
    ("uv run -m torch.distributed.run a.py", ["torch.distributed.run"]),
    ("bpslaunch python a.py", ["bpslaunch"]), ("msrun --worker_num=8 a.py", ["msrun"]),
    ("cd x && sbatch job.slurm", ["sbatch"]), ("salloc -N 2 python a.py", ["salloc"]),
])
def test_a_launcher_is_found_as_shells_call_it(code: str, names: list[str]) -> None:
    assert [call.name for call in find_calls(code)] == names


@each("code", [
    "python tools/torchrun_helper.py", "echo torchrun", 'echo "use torchrun a.py"', "# torchrun a.py\npython a.py",
    "python a.py --launcher torchrun", "python a.py # srun", "torchrun=1\necho $torchrun", "bash job.sh torchrun",
    "python torchrun.py", "which srun", "accelerate config", "accelerate env", "composer --version", "ray status",
    "python -m composer_tools a", "lightning --help", "cat <<END\nsrun a\nEND", "conda run -n torchrun python a.py",
    "python -m accelerate.test_utils a", "python -m axolotl.cli.train a.yml", "python -m ray.tune.x a",
    "python -c 'x' -m srun", "python -m deepspeed.env_report", "python -m lightning_app x",
    "python -m colossalai.cli check", "python a.py -m torch.distributed.run",
    "srun_log=1 python a.py", "command -v torchrun", "pip install deepspeed",
    "grep -c 'torchrun a' log", "source srun/activate", "python a.py \"srun x",
])
def test_a_word_that_calls_no_launcher_is_left_alone(code: str) -> None:
    assert find_calls(code) == []


def test_every_name_has_the_piece_that_is_looked_for_first() -> None:
    texts = [f"{name} {' '.join(inner.subcommands)}" for name, inner in INNER.items()]
    assert [text for text in texts if not MAY_LAUNCH.search(text)] == []


@each(("command", "rest", "said"), [
    ("torchrun --nproc_per_node 4 train.py --lr 1", WIDE, r"train.yaml:1:10: command: torchrun would start once for "
     r"each of 4 tasks .*write launch: \{with: torchrun, nproc_per_node: 4\} and command: python train.py --lr 1$"),
    ("torchrun --standalone --nproc_per_node 4 train.py", WIDE, "torchrun would start once for each of 4 tasks"),
    ("cd /work && ./torchrun a.py", WIDE, ":1:24: command: torchrun would"),
    ("cd /work\nA=1 \\\n  torchrun a.py", WIDE, r":4:5: command: torchrun would"),
    ("cd /work\nexport A=1\ntorchrun a.py", WIDE, ":4:3: command: torchrun would"),
    ("torchrun a.py", "launch: {with: torchrun}\n", "under launch.with: torchrun, which starts the ranks"),
    ("accelerate launch a.py", "launch: {with: accelerate, nproc_per_node: 2}\n", r"launch: \{with: accelerate"),
    ("srun python train.py", TWO, r"srun within a step .*\{with: srun\} and command: python train.py"),
    ("srun python train.py", "launch: {with: none}\n", "srun within a step"),
    ("srun python train.py", "launch: {with: torchrun}\n", "under launch.with: torchrun"),
    ("mpirun -np 4 python a.py", WIDE, r"\{with: mpi\} and command: python a.py"),
    ("mpirun -np 4 python a.py", TWO, "mpirun would start on each of 2 nodes"),
    ("mpirun --hostfile hosts python a.py", TWO, "mpirun would start on each of 2 nodes"),
    ("torchrun --nnodes 2 --master_addr $MASTER_ADDR a.py", TWO, "torchrun would start on each of 2 nodes"),
    ("deepspeed a.py", WIDE, r"\{with: deepspeed, nproc_per_node: 4\}"),
    ("torchrun --nproc_per_node 4 a.py", TWO, "torchrun would start on each of 2 nodes"),
    ("torchrun a.py", "slurm: {nodes: 1, ntasks: 4}\n", "each of 4 tasks"),
    ("torchrun a.py", "slurm: {nodes: 2, gpus: 8}\n", "each of 4 tasks"),
    ("ray start --head", "launch: {with: ray}\nslurm: {nodes: 2}\n", "launch.with: ray, which starts Ray"),
    ("python a.py", "setup: srun hostname\nslurm: {nodes: 2}\n", "setup: srun within a step"),
    ("horovodrun -np 4 python a.py", WIDE, r"\{with: mpi\}"),
    ("NPROC_PER_NODE=4 swift sft --model a", WIDE, r"each of 4 tasks .*\{with: none\}, which starts it once"),
    ("swift sft --model a", f"env: {{NPROC_PER_NODE: 4}}\n{WIDE}", "swift would start once for each of 4 tasks"),
    ("FORCE_TORCHRUN=1 llamafactory-cli train a", TWO, r"each of 2 nodes.* NNODES=.*NODE_RANK="),
    ("tune run --nproc_per_node 4 recipe", WIDE, r"\{with: none\}"),
    ("msrun --worker_num=8 a.py", WIDE, r"\{with: custom, call: \[msrun, …\], nproc_per_node: 4\}"),
    ("python -m oneflow.distributed.launch a.py", WIDE, r"call: \[python3, -m, oneflow.distributed.launch, …\]"),
    ("sbatch job.slurm", "", "sbatch starts another job.*write script: job.slurm instead of command"),
    ("salloc -N 2 python a.py", "", "salloc starts another job.*slurm:"),
    ("python a.py && sbatch next.slurm", WIDE, "sbatch starts another job"),
])
def test_a_launcher_that_would_start_several_times_is_refused(command: str, rest: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(command, rest)


@each(("command", "rest"), [
    ("torchrun --standalone --nproc_per_node 4 train.py", ""),
    ("torchrun --standalone --nproc_per_node 4 train.py", "launch: {with: none}\nslurm: {gpus_per_node: 4}\n"),
    ("torchrun --nproc_per_node 4 train.py", "slurm: {nodes: 1, gpus_per_node: 4, ntasks_per_node: 1}\n"),
    ("torchrun --nnodes $SLURM_NNODES --node_rank $SLURM_NODEID a.py", f"launch: {{with: srun}}\n{TWO}"),
    ("torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:1 a.py", TWO),
    ("accelerate launch --machine_rank $SLURM_NODEID a.py", TWO),
    ("mpirun -np 4 python a.py", "launch: {with: none}\nslurm: {gpus_per_node: 4}\n"),
    ("set -e\n[[ $SLURM_LOCALID != 0 ]] || torchrun a.py", WIDE),
    ("if [ $SLURM_LOCALID == 0 ]; then torchrun a.py; fi", WIDE),
    ("if [ $SLURM_NODEID == 0 ]; then ray start --head --block; else ray start --address x --block; fi", TWO),
    ("ray job submit -- python a.py", "launch: {with: ray}\nslurm: {nodes: 2}\n"),
    ("srun --overlap -n1 nvidia-smi", "launch: {with: none}\n"),
    ("python tools/torchrun_helper.py", WIDE),
    ("NPROC_PER_NODE=4 swift sft a", "launch: {with: none}\nslurm: {gpus_per_node: 4}\n"),
    ("NNODES=2 NODE_RANK=$SLURM_NODEID NPROC_PER_NODE=4 swift sft a", TWO),
    ("FORCE_TORCHRUN=1 llamafactory-cli train a", f"env: {{NODE_RANK: $SLURM_NODEID}}\n{TWO}"),
    ("python a.py && sbatch evaluate.slurm", "launch: {with: none}\n"),
    ("python a.py", f"setup: module load srun mpirun\n{WIDE}"),
])
def test_one_launcher_a_node_is_legal(command: str, rest: str) -> None:
    assert read(command, rest).config["command"]
