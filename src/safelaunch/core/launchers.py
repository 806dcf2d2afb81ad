"""What starts the ranks (`launch.with`), one row each.

A new one is a row here and its arm in templates/slurm/job.sbatch. If it starts ranks itself, its processes' names are
also in node/guard/processes.py and node/proctable.py; tests/core/test_launchers.py compares them with this table.
"""

from __future__ import annotations

from typing import NamedTuple


class Launcher(NamedTuple):
    """One way to start the ranks of a node."""

    doc: str
    label: str                          # in a line about a config
    starts_ranks: bool = False          # one task a node, which starts nproc_per_node ranks and numbers them by itself
    fills_gpus: bool = False            # by default a task for each GPU of a node, else one
    is_script: bool = False             # the command is an sbatch script, which runs once and calls srun by itself
    programs: tuple[str, ...] = ()      # names of its own processes, which are no ranks
    modules: tuple[str, ...] = ()       # the same as modules of Python
    valued: frozenset[str] = frozenset()   # its options that take a value


LAUNCHERS: dict[str, Launcher] = {
    "torchrun": Launcher(
        "one launcher a node", "torchrun", starts_ranks=True, programs=("torchrun",),
        modules=("torch.distributed.run", "torch.distributed.launch"),
        valued=frozenset((   # torch.distributed.run, PyTorch 2.x
            "nnodes", "nproc-per-node", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "max-restarts",
            "monitor-interval", "start-method", "role", "log-dir", "redirects", "tee", "local-ranks-filter",
            "node-rank", "master-addr", "master-port", "local-addr", "event-log-handler", "logs-specs",
            "numa-binding"))),
    "srun": Launcher("a task for each GPU", "srun", fills_gpus=True),
    "none": Launcher("the command once a node", "no launcher"),
    "script": Launcher("an sbatch script as it is, once on the first node", "your script", is_script=True),
}

# Documented, and refused until they are built.
NOT_BUILT = {
    "accelerate": "starting by accelerate; command: accelerate launch … with launch.with: none works",
    "deepspeed": "starting by deepspeed; torchrun starts DeepSpeed trainings too",
}


def default_launcher(has_nproc: bool, is_wide: bool) -> str:
    """The launcher of a config that names none; `is_wide` = several nodes, tasks or GPUs."""
    return "torchrun" if has_nproc else "srun" if is_wide else "none"


def find_launcher(words: list[str]) -> tuple[str, list[str]] | None:
    """The launcher of a command line, and the words after it; None = no known one."""
    for name, row in LAUNCHERS.items():
        if words[:1] and words[0] in row.programs:
            return name, words[1:]
        if words[1:2] == ["-m"] and words[2:3] and words[2] in row.modules:
            return name, words[3:]
    return None
