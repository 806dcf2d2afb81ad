"""The variables that sbatch reads as options: they count more than a script's lines, and less than the command line.

Source: sbatch(1), INPUT ENVIRONMENT VARIABLES, and the names in sbatch itself: 22.05 has some more than its page.
Those of later releases are from their pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from safelaunch.base.yaml.yamlnodes import MappingNode, Node, Origin, Scalar
from safelaunch.config.scripts.slurmkeys import node_of
from safelaunch.errors import Problem
from safelaunch.slurm.sbatchoptions import OPTIONS, REFUSED, GivenOption

ENVIRONMENT = "environment"   # the layer's name

# Of most the option's name is the variable's: SBATCH_GPUS_PER_NODE is --gpus-per-node.
_LIKE_ITS_OPTION = (
    "account", "acctg-freq", "batch", "cluster-constraint", "clusters", "constraint", "container", "container-id",
    "core-spec", "cpus-per-gpu", "delay-boot", "distribution", "error", "exclusive", "export", "get-user-env",
    "gpu-bind", "gpu-freq", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres", "gres-flags", "hint",
    "ignore-pbs", "input", "job-name", "mem-bind", "mem-per-cpu", "mem-per-gpu", "network", "no-kill", "no-requeue",
    "oom-kill-step", "open-mode", "output", "overcommit", "partition", "power", "profile", "qos", "requeue",
    "reservation", "resv-ports", "signal", "spread-job", "stepmgr", "thread-spec", "threads-per-core", "tres-bind",
    "tres-per-task", "use-min-nodes", "wait", "wait-all-nodes", "wckey",
)
_OTHERS = {
    "SBATCH_ARRAY_INX": "array", "SBATCH_BURST_BUFFER": "bb", "SBATCH_CPU_FREQ_REQ": "cpu-freq",
    "SBATCH_DEBUG": "verbose", "SBATCH_MEM_PER_NODE": "mem", "SBATCH_REQ_SWITCH": "switches",
    "SBATCH_SEGMENT_SIZE": "segment", "SBATCH_TIMELIMIT": "time", "SLURM_CLUSTERS": "clusters", "SLURM_HINT": "hint",
}
VARIABLES: dict[str, str] = {f"SBATCH_{name.upper().replace('-', '_')}": name for name in _LIKE_ITS_OPTION} | _OTHERS
_CLUSTERS = "clusters"    # is asked for at submit, where this cluster's name is known (verbs/submit/submitting.py)
_WAIT_FOR_SWITCH = "SBATCH_WAIT4SWITCH"   # the time behind SBATCH_REQ_SWITCH=2: --switches=2@5:00

# Of srun's and sbatch's variables those that a login shell may set for what a script runs (srun(1), INPUT ENVIRONMENT
# VARIABLES); Slurm itself sets most others anew in each job.
_FOR_SRUN = frozenset(f"SLURM_{name}" for name in (
    "ACCEL_BIND", "BCAST", "COMPRESS", "CPU_BIND", "DEBUG", "EXACT", "EXCLUSIVE", "GPU_BIND", "KILL_BAD_EXIT",
    "LABELIO", "MEM_BIND", "MPI_TYPE", "NETWORK",
    "OVERLAP", "PMIXP_TIMEOUT", "SRUN_REDUCE_TASK_EXIT_MSG", "TASK_EPILOG",
    "TASK_PROLOG", "TIME_FORMAT", "UNBUFFEREDIO", "WAIT", "WHOLE"))


def kept_for_script(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of sbatch and srun that a script would see under sbatch. The job itself is sent without them
    (slurm/io/slurm.py, outside_job): there sbatch and each srun of safelaunch's would take them for options.
    """
    is_inside = "SLURM_JOB_ID" in environ   # those of the job around would be taken for a person's
    return {name: value for name, value in environ.items() if name.startswith("SBATCH_") or (
        not is_inside and (name in _FOR_SRUN or name.startswith(("SRUN_", "PMI_", "PMIX_"))))}


def read_variables(environ: Mapping[str, str]) -> Iterator[GivenOption]:
    """The options that sbatch would take from this environment. A job's own SLURM_ variables are nobody's wish."""
    for variable, name in VARIABLES.items():
        value = environ.get(variable)
        if value is None or name == _CLUSTERS or (variable.startswith("SLURM_") and "SLURM_JOB_ID" in environ):
            continue
        if OPTIONS[name].takes == "none":   # sbatch(1): empty, "yes", or a number other than zero
            if value and value.lower() != "yes" and not _is_number_above_zero(value):
                continue
            yield _given(variable, name, None)
        elif value:
            wait = environ.get(_WAIT_FOR_SWITCH, "") if variable == "SBATCH_REQ_SWITCH" else ""
            yield _given(variable, name, f"{value}@{wait}" if wait else value)
        elif OPTIONS[name].takes == "optional":
            yield _given(variable, name, None)


def read_environment(environ: Mapping[str, str]) -> tuple[MappingNode, list[Problem], list[str]]:
    """The layer of a train.yaml that these variables are, what in it cannot be, and what of it is left out."""
    slurm: dict[str, Node] = {}
    problems: list[Problem] = []
    notes = []
    for one in read_variables(environ):
        if one.name in ("container", "container-id"):
            problems.append(Problem(one.shown, 0, 0, "", REFUSED[one.name]))
        elif one.name == "export" and one.value == "ALL":
            pass   # what safelaunch does anyhow
        elif one.name in REFUSED:
            notes.append(f"{one.shown} in your environment is left out: {REFUSED[one.name]}")
        else:
            slurm[one.name] = node_of(one.value, one.place)
    place = Origin(ENVIRONMENT, "", 0, 0)
    layer = MappingNode(slurm, place, {name: node.origin for name, node in slurm.items()})
    return MappingNode({"slurm": layer} if slurm else {}, place), problems, notes


def told_variables(layers: Sequence[MappingNode], merged: MappingNode, environ: Mapping[str, str]) -> list[str]:
    """One sentence for each variable that counts: what it sets, and what it counts more than."""
    told = []
    for name, node in _slurm(merged).items():
        if node.origin.layer == ENVIRONMENT:
            lower = [one for one in (_slurm(tree).get(name) for tree in layers)
                     if isinstance(one, Scalar) and one.origin.line]
            below = lower[-1] if lower else None
            instead = f", in place of {below.text} ({below.origin.file}:{below.origin.line})" if below else ""
            variable = node.origin.file
            told.append(f"{variable}={environ.get(variable, '')} in your environment: slurm.{name}{instead}")
    return told


def _slurm(tree: MappingNode) -> Mapping[str, Node]:
    section = tree.entries.get("slurm")
    return section.entries if isinstance(section, MappingNode) else {}


def _given(variable: str, name: str, value: str | None) -> GivenOption:
    return GivenOption(Origin(ENVIRONMENT, variable, 0, 0), variable, name, value)


def _is_number_above_zero(text: str) -> bool:
    found = re.match(r"\s*[-+]?0*[1-9]", text)   # strtol(3)
    return found is not None
