"""A launcher in a shell file that the command calls: said with its line, never refused."""

from __future__ import annotations

from safelaunch.config.resolve import ConfigLayer, resolve
from safelaunch.config.shell.calledfiles import called_files, hidden_launchers
from tests.tables import each

WIDE = "slurm: {nodes: 1, gpus_per_node: 4}\n"
TORCHRUN = "#!/usr/bin/env bash\nset -e\ntorchrun --nproc_per_node $1 train.py ${@:2}\n"


@each(("command", "names"), [
    ("bash tools/dist_train.sh 2", ["tools/dist_train.sh"]), ("./run.sh", ["./run.sh"]), ("./train 2", ["./train"]),
    ("sh -e scripts/train.sh a", ["scripts/train.sh"]), ("A=1 bash \"run.sh\" cfg", ["run.sh"]),
    ("cd x && exec bash -x run.sh", ["x/run.sh"]), (". env.sh\nbash run.sh; bash run.sh", ["env.sh", "run.sh"]),
    ("PORT=29500 ./tools/dist_train.sh cfg.py 2", ["./tools/dist_train.sh"]),
    ("/opt/run.sh", ["/opt/run.sh"]), ("bash train", ["train"]), ("exec python a.py", []),
    ("python train.py run.sh", []), ("echo run.sh", []), ("bash -c 'torchrun a.py'", []), ("# ./run.sh\npython a", []),
    ("cd tools && ./run.sh", ["tools/run.sh"]),
    ("cd $SLURM_SUBMIT_DIR; bash run.sh", ["run.sh"]), ("cd $X && bash run.sh", []), ("cd x; /a/run.sh", ["/a/run.sh"]),
    ("apptainer exec --nv a.sif bash tools/run.sh 2", ["tools/run.sh"]),
    ("bash -lc 'cd x; ./run.sh 2'", ["x/run.sh"]),
    ("bash run.sh 2>&1 | tee log", ["run.sh"]),
    ("make train", []), ("bash $RUN", []),
])
def test_shell_files_that_a_command_calls_are_found(command: str, names: list[str]) -> None:
    assert called_files(command) == names


def hidden(text: str, rest: str, name: str = "run.sh") -> list[str]:
    layer = ConfigLayer("file", "train.yaml", f"command: bash {name}\n{rest}")
    return hidden_launchers(resolve([layer], ["cluster=slurm"], {"HOME": "/h"}, (), "/w").settings, {name: text})


@each(("text", "rest", "said"), [
    (TORCHRUN, WIDE, "run.sh:3: torchrun would start once for each of 4 tasks of a node"),
    (TORCHRUN, "slurm: {nodes: 2, ntasks_per_node: 1}\n", "run.sh:3: torchrun would start on each of 2 nodes"),
    (TORCHRUN, "launch: {with: torchrun}\n", "run.sh:3: torchrun under launch.with: torchrun"),
    ("PORT=1\nif [ $A ]; then\n  PYTHONPATH=. \\\n  python -m torch.distributed.launch a.py\nfi\n", WIDE,
     "run.sh:3: torch.distributed.launch would"),
    ("srun python a.py\n", WIDE, "run.sh:1: srun within a step of the job"),
])
def test_a_launcher_in_a_called_file_is_said_with_its_line(text: str, rest: str, said: str) -> None:
    (found,) = hidden(text, rest)
    assert found.startswith(said) and "if the file comes to this line; write launch: {" in found


@each(("text", "rest", "name"), [
    (TORCHRUN, "launch: {with: none}\nslurm: {gpus_per_node: 4}\n", "run.sh"), (TORCHRUN, "", "run.sh"),
    ("torchrun --node_rank $SLURM_NODEID a\n", "slurm: {nodes: 2, ntasks_per_node: 1}\n", "run.sh"),
    ("if [ $SLURM_LOCALID == 0 ]; then torchrun a.py; fi\n", WIDE, "run.sh"), ("python a.py\n", WIDE, "run.sh"),
    ("#!/usr/bin/env python3\nimport torchrun\ntorchrun a\n", WIDE, "./train"), ("torchrun 'a\n", WIDE, "run.sh"),
])
def test_one_launcher_a_node_and_what_cannot_be_read_are_not_spoken_of(text: str, rest: str, name: str) -> None:
    assert hidden(text, rest, name) == []
