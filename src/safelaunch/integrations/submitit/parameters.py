"""submitit's parameters as keys of train.yaml: those of its slurm executor under their own names, and safelaunch's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from safelaunch.slurm.sbatchoptions import OPTIONS, REFUSED

NAME, MINUTES = "submitit", 5   # submitit's own defaults: a job's name, and its minutes

# Keys of train.yaml that the executor sets, or that a function cannot have.
NOT_FOR_FUNCTIONS = frozenset((
    "version", "name", "run_dir", "command", "setup", "launch", "slurm", "script", "args", "sweep", "max_parallel"))
# All others, in words: every program that uses submitit reads them, and the table of keys takes 20 ms to import.
SECTIONS = frozenset((
    "before_resize", "checks", "cluster", "container", "env", "hang", "kill_switch", "min_nodes", "nodes_multiple_of",
    "notify", "on_nan", "preserve_site", "progress", "restart", "resume", "slow", "spare_nodes", "srun", "standby",
    "suspects"))
OTHERS = frozenset(("array_parallelism", "job_name", "setup", "srun_args", "additional_parameters", "stderr_to_stdout"))
# What submitit's slurm executor takes and this one does not, with what to do.
NOT_TAKEN = {
    "teardown": "put it behind the function's own work, in try … finally",
    "signal_delay_s": "safelaunch has its own warning before the time limit: kill_switch={'grace': '15m'}",
    "use_srun": "safelaunch starts each attempt by srun",
    "num_gpus": "use gpus_per_node",
    "ntasks": "use nodes and tasks_per_node: submitit gives each task a result",
}
SBATCH = frozenset(name.replace("-", "_") for name in OPTIONS if name not in REFUSED).difference(NOT_TAKEN)
VALID = SECTIONS | SBATCH | OTHERS


def read_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given parameters, with a time limit in minutes as submitit counts it; raises ValueError for what is not
    taken.
    """
    unknown = sorted(set(given) - VALID)
    if unknown:
        reasons = [f"{name}: {NOT_TAKEN.get(name, 'no parameter of this executor')}" for name in unknown]
        raise ValueError("\n".join([*reasons, f"Valid parameters are: {', '.join(sorted(VALID))}"]))
    at_once = given.get("array_parallelism", 1)
    if not isinstance(at_once, int) or at_once < 1:
        raise ValueError(f"array_parallelism: expected a whole number from 1, got {at_once!r}")
    from safelaunch.script.script import time_limit_s

    read = dict(given)
    limit_s = time_limit_s(str(given.get("time", MINUTES)))
    if limit_s is None:
        raise ValueError(f"time: expected minutes, or a text such as 20:00:00, got {given['time']!r}")
    if "time" in given:
        read["time"] = -(-limit_s // 60)
    return read


def config_of(given: Mapping[str, Any], command: str, run_dir: str) -> dict[str, Any]:
    """The keys of train.yaml for one function, whose tasks `command` starts."""
    slurm: dict[str, Any] = {name: value for name, value in given.items() if name in SBATCH}
    slurm = {"nodes": 1, "ntasks_per_node": 1, "time": MINUTES, **slurm, **(given.get("additional_parameters") or {})}
    config: dict[str, Any] = {
        **{name: given[name] for name in SECTIONS if name in given},
        "name": given.get("job_name", NAME), "run_dir": run_dir, "command": command, "slurm": slurm,
        # Not srun: it would set RANK, and submitit's TorchDistributedEnvironment refuses to export over it.
        "launch": {"with": "none"},
        "env": {**given.get("env", {}), "SUBMITIT_EXECUTOR": "safelaunch"},
    }
    if given.get("setup"):
        setup: str | Sequence[str] = given["setup"]
        config["setup"] = setup if isinstance(setup, str) else "\n".join(setup)
    if given.get("srun_args"):
        srun = config.get("srun", {})
        config["srun"] = {**srun, "extra": [*srun.get("extra", ()), *given["srun_args"]]}
    return config


def count_tasks(given: Mapping[str, Any]) -> int:
    """How many processes call the function."""
    return int(given.get("nodes", 1)) * max(1, int(given.get("ntasks_per_node", 1)))
