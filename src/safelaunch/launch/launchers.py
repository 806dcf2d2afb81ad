"""What starts the ranks (`launch.with`), one row each; docs/launchers.md tells what each one is given.

A new one is a row here and its file in templates/slurm/launch. If it starts ranks itself, its processes' names are
also in node/guard/processes.py and node/proctable.py; tests/pure/launch/test_launchers.py compares them with these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple


class Launcher(NamedTuple):
    """One way to start the ranks of a node."""

    doc: str
    label: str                          # in a line about a config
    starts_ranks: bool = False          # one task a node, which starts nproc_per_node ranks and numbers them by itself
    fills_gpus: bool = False            # by default a task for each GPU of a node, else one
    is_one_a_node: bool = False         # one task a node, whatever slurm.ntasks_per_node says
    is_script: bool = False             # the command is an sbatch script, which runs once and calls srun by itself
    programs: tuple[str, ...] = ()      # names of its own processes, which are no ranks
    modules: tuple[str, ...] = ()       # the same as modules of Python
    valued: frozenset[str] = frozenset()   # its options that take a value, if `init --from` reads its command line
    owned: frozenset[str] = frozenset()    # its options that safelaunch sets, or that would start something else
    is_nameless: bool = False           # it does not print "[host:rank]:" before the lines of its ranks
    has_direct: bool = False            # a node can start its ranks itself (launch.torchrun: direct)
    notice: str = ""                    # the signal that trainings under it take as the notice to save and end


# What torchrun (torch.distributed.run, PyTorch 2.x) and its descendants take.
_ELASTIC_OWNED = frozenset((
    "nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port", "rdzv-backend", "rdzv-endpoint", "rdzv-id",
    "standalone", "role", "tee", "t", "no-python", "module", "m", "run-path"))

CUSTOM = "custom"   # its words stand in launch.call, or come from a plugin (docs/plugins.md)
ARGS = "{args}"
# What launch.call can name: filled in on each node by templates/slurm/launch/custom.sh, ARGS at submit.
PLACES = (ARGS, "{nnodes}", "{node_rank}", "{nproc_per_node}", "{master_addr}", "{master_port}", "{host}", "{tee}")

LAUNCHERS: dict[str, Launcher] = {
    "torchrun": Launcher(
        "one launcher a node", "torchrun", starts_ranks=True, programs=("torchrun",),
        modules=("torch.distributed.run", "torch.distributed.launch"), owned=_ELASTIC_OWNED, has_direct=True,
        valued=frozenset((
            "nnodes", "nproc-per-node", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "max-restarts",
            "monitor-interval", "start-method", "role", "log-dir", "redirects", "tee", "local-ranks-filter",
            "node-rank", "master-addr", "master-port", "local-addr", "event-log-handler", "logs-specs",
            "numa-binding"))),
    "accelerate": Launcher(
        "accelerate launch on each node", "accelerate launch", starts_ranks=True, is_nameless=True,
        programs=("accelerate", "accelerate-launch"), modules=("accelerate.commands.launch",),
        owned=frozenset((   # accelerate 1.15, commands/launch.py
            "num-processes", "num-machines", "machine-rank", "main-process-ip", "main-process-port", "same-network",
            "rdzv-backend", "multi-gpu", "cpu", "use-cpu", "tpu", "tpu-use-cluster", "role", "tee", "t",
            "no-python", "module", "m", "deepspeed-multinode-launcher", "deepspeed-hostfile"))),
    "deepspeed": Launcher(
        "DeepSpeed's launcher on each node, without ssh", "DeepSpeed", starts_ranks=True, is_nameless=True,
        programs=("deepspeed",),
        modules=("deepspeed.launcher.launch", "deepspeed.launcher.runner"),
        owned=frozenset((   # deepspeed 0.19, launcher/launch.py and launcher/runner.py
            "hostfile", "include", "exclude", "num-nodes", "num-gpus", "node-rank", "master-addr", "master-port",
            "launcher", "launcher-args", "world-info", "no-ssh", "no-ssh-check", "force-multi", "ssh-port",
            "autotuning", "elastic-training", "enable-each-rank-log", "save-pid", "no-python", "no-local-rank",
            "module"))),
    "ft_launcher": Launcher(
        "NVRx's ft_launcher on each node", "ft_launcher", starts_ranks=True, programs=("ft_launcher",),
        modules=("nvidia_resiliency_ext.fault_tolerance.launcher",), owned=_ELASTIC_OWNED | {"rdzv-conf"}),
    CUSTOM: Launcher("the words of launch.call on each node", "a launcher of your own", starts_ranks=True,
                     is_nameless=True),
    "srun": Launcher("a task for each GPU", "srun", fills_gpus=True),
    "mpi": Launcher("srun --mpi=pmix, a task for each GPU", "srun --mpi", fills_gpus=True),
    "jax": Launcher("srun, with JAX's coordinator, a task for each GPU", "JAX by srun", fills_gpus=True,
                    notice="SIGTERM"),
    "ray": Launcher("Ray's head and the command on the first node, Ray's workers on the others", "Ray",
                    is_one_a_node=True, owned=frozenset(("head", "address", "port", "block", "num-cpus"))),
    "none": Launcher("the command once a node", "no launcher"),
    "script": Launcher("an sbatch script as it is, once on the first node", "your script", is_script=True),
}


def default_launcher(has_nproc: bool, is_wide: bool) -> str:
    """The launcher of a config that names none; `is_wide` = several nodes, tasks or GPUs."""
    return "torchrun" if has_nproc else "srun" if is_wide else "none"


def find_launcher(argv: list[str]) -> tuple[str, list[str]] | None:
    """The launcher of a command line, and the words after it; None = none whose options are known."""
    for name, row in LAUNCHERS.items():
        if not row.valued:
            continue
        if argv[:1] and argv[0] in row.programs:
            return name, argv[1:]
        if argv[1:2] == ["-m"] and argv[2:3] and argv[2] in row.modules:
            return name, argv[3:]
    return None


def owned_flag(launcher: Launcher, argument: str) -> bool:
    """Whether a word of launch.args is an option that safelaunch sets, or its beginning, or its letter with a value.

    As argparse reads them, where - and _ are the same.
    """
    if argument.startswith("--") and len(argument) > 2:
        name = argument[2:].partition("=")[0].replace("_", "-")
        return any(option.startswith(name) for option in launcher.owned)
    return argument.startswith("-") and argument[1:2] in launcher.owned


def call_fault(call: Iterable[str]) -> str | None:
    """What is wrong with the words of launch.call; None = nothing."""
    words = list(call)
    if not words:
        return "empty; its first word is the launcher's program"
    wrong = next((word for word in words if not word or not word.isprintable()), None)
    if wrong is not None:
        return f"{wrong!r} is no word of one line"
    unknown = [name for word in words for name in re.findall(r"\{\w*\}", word) if name not in PLACES]
    if unknown:
        return f"{unknown[0]}: only {', '.join(PLACES)} are filled in"
    if words.count(ARGS) < sum(ARGS in word for word in words):
        return f"{ARGS} must be a word of its own"
    # The kill switch's signal is for ranks: a launcher is told from them by its name.
    is_python = words[0].rpartition("/")[2].startswith("python")
    if is_python and (words[1:2] != ["-m"] or len(words) < 3):
        return "expected the launcher's own program first, or python3 -m MODULE"
    return None


def fill_args(call: Iterable[str], args: Iterable[str]) -> tuple[str, ...]:
    """The call with launch.args at their place, or at its end."""
    words = list(call)
    words = words if ARGS in words else [*words, ARGS]
    at = words.index(ARGS)
    return (*words[:at], *args, *(word for word in words[at + 1:] if word != ARGS))
