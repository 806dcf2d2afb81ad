"""Numbers that sbatch counts over the whole job (ntasks, gpus): those of each node, or why there are none.

Slurm spreads such numbers as it likes: 4 GPUs or 4 tasks on 2 nodes can be 3 and 1 (22.05, measured). An attempt may
run on any nodes of a job with spares, so each node must have room for its part. A step with --overlap cannot even start
where a job's --gpus are spread unevenly ("Insufficient GRES available in allocation"), and a restart takes one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.launch.launchers import LAUNCHERS
from safelaunch.launch.settings import LaunchPlan, SbatchValue, Settings, SlurmOptions
from safelaunch.slurm.gpus import gpus_per_node

if TYPE_CHECKING:
    from safelaunch.base.yaml.yamlnodes import Origin

Fault = tuple[str, tuple[str, ...], str]   # as in rules.py


class OwnNumbers(NamedTuple):
    """What a script sees of its tasks, as sbatch would give it for its own numbers; the job may ask for others."""

    tasks: int | None = None
    layout: str = ""                   # SLURM_TASKS_PER_NODE, such as "2(x3),1"
    variables: tuple[str, ...] = ()    # NAME=value, or a NAME that is to be unset


def has_even_tasks(settings: Settings) -> bool:
    """Whether each node must have room for as many tasks: always, but for a script that has all nodes of its job."""
    return not settings.is_script or settings.spare_nodes > 0 or settings.min_nodes is not None


def spread(slurm: SlurmOptions, has_even: bool) -> dict[str, SbatchValue]:
    """sbatch's options with the GPUs of each node in place of the job's, where that goes; `has_even`: tasks, too."""
    nodes, ntasks = slurm.get("nodes"), slurm.get("ntasks")
    turned: dict[str, SbatchValue] = {}
    for name, value in slurm.items():
        if name == "ntasks" and has_even and isinstance(nodes, int) and isinstance(ntasks, int):
            turned.setdefault("ntasks-per-node", slurm.get("ntasks-per-node") or math.ceil(ntasks / nodes))
        elif name == "gpus" and "gpus-per-node" in slurm:
            continue
        elif name == "gpus" and (has_even or nodes != 1) and (each := _gpus_each(value, nodes)) is not None:
            turned["gpus-per-node"] = each
        else:
            turned[name] = value
    return turned


def tasks_per_node(slurm: SlurmOptions, launch: LaunchPlan) -> int:
    """Tasks a node, at most: one launcher, or the user's own number, or what the launcher takes by default."""
    launcher = LAUNCHERS[launch.by]
    if launcher.starts_ranks or launcher.is_one_a_node:
        return 1
    given = _whole(slurm.get("ntasks-per-node"))
    if given:
        return given
    ntasks, per_gpu, gpus = _whole(slurm.get("ntasks")), _whole(slurm.get("ntasks-per-gpu")), gpus_per_node(slurm)
    if ntasks:
        return -(-ntasks // (_whole(slurm.get("nodes")) or 1))
    if per_gpu:
        return per_gpu * (gpus or 1)
    return launch.nproc_per_node or gpus or 1 if launcher.fills_gpus else 1


def own_numbers(slurm: SlurmOptions, tasks_per_node: int, has_even: bool) -> OwnNumbers:
    """What a script with these options is to see; `tasks_per_node`: at most, on each node. SLURM_GPUS_PER_NODE stays
    beside SLURM_GPUS: without it a step with --overlap gets fewer.
    """
    ntasks, nodes = slurm.get("ntasks"), slurm.get("nodes")
    nodes = nodes if isinstance(nodes, int) else 1
    tasks = ntasks if isinstance(ntasks, int) else nodes * tasks_per_node
    turned, variables = spread(slurm, has_even), []
    if "gpus" in slurm and "gpus" not in turned:
        variables.append(f"SLURM_GPUS={slurm['gpus']}")
    elif "gpus" in slurm and nodes > 1:
        variables.append("SAFELAUNCH_OVERLAP=no")
    if "ntasks-per-node" in turned and "ntasks-per-node" not in slurm:
        variables.append("SLURM_NTASKS_PER_NODE")
    each = _whole(slurm.get("ntasks-per-node"))   # sbatch gives it of each node, also where there are fewer tasks
    return OwnNumbers(tasks, layout(each * nodes or tasks, nodes), tuple(variables))


def layout(tasks: int, nodes: int) -> str:
    """SLURM_TASKS_PER_NODE (sbatch(1)) of tasks in blocks."""
    each, more = divmod(tasks, nodes)
    parts = [(count, times) for count, times in ((each + 1, more), (each, nodes - more)) if times]
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in parts)


def number_faults(settings: Settings) -> list[Fault]:
    """Numbers for the whole job that no node has an even part of."""
    nodes = _nodes_of(settings)
    return [*_task_faults(settings, nodes), *_gpu_faults(settings, nodes)] if nodes else []


def _nodes_of(settings: Settings) -> int:
    """The nodes that sbatch gives, which is no more than tasks (22.05, measured); 0 = not known."""
    nodes, ntasks = settings.slurm.get("nodes"), settings.slurm.get("ntasks")
    if not isinstance(nodes, int):
        return 0
    return min(nodes, ntasks) if isinstance(ntasks, int) and settings.is_script else nodes


def _task_faults(settings: Settings, nodes: int) -> list[Fault]:
    slurm = settings.slurm
    ntasks, each = slurm.get("ntasks"), slurm.get("ntasks-per-node")
    if not isinstance(ntasks, int) or not has_even_tasks(settings):
        return []
    if isinstance(each, int) and (ntasks > nodes * each or (ntasks != nodes * each and not settings.is_script)):
        text = f"{ntasks} tasks are not {_nodes(nodes)} × {each} of ntasks-per-node; leave ntasks out"
        return [("slurm.ntasks", (), text)]
    if not settings.is_script and ntasks % nodes:
        return [("slurm.ntasks", (), f"{ntasks} tasks on {_nodes(nodes)} are not the same number on each; write "
                 "slurm.ntasks_per_node instead")]
    if "ntasks-per-gpu" in slurm:
        return [("slurm.ntasks", (), "with ntasks-per-gpu it does not say how many GPUs a node has, and an attempt may "
                 f"run on any nodes of the job; write {_word(settings, 'gpus-per-node')} instead")]
    return []


def _gpu_faults(settings: Settings, nodes: int) -> list[Fault]:
    slurm, why = settings.slurm, _why_even(settings)
    if "gpus" not in slurm or "gpus-per-node" in slurm or not why or _gpus_each(slurm["gpus"], nodes) is not None:
        return []
    several = ", of several types," if "," in str(slurm["gpus"]) else ""
    return [("slurm.gpus", (), f"{slurm['gpus']}{several} on {_nodes(nodes)} is no even number on each, and {why}; "
             f"write {_word(settings, 'gpus-per-node')} instead")]


def _why_even(settings: Settings) -> str:
    """Why each node must have as many GPUs as the others; "" = it need not."""
    if settings.spare_nodes:
        return "with spare_nodes an attempt may run on any nodes of the job"
    if settings.min_nodes is not None:
        return "with min_nodes an attempt may run on fewer nodes"
    launcher = settings.launcher
    if launcher.fills_gpus and not {"ntasks", "ntasks-per-node"} & set(settings.slurm):
        return f"launch.with: {settings.launch.by} starts as many tasks on each"
    return "the launcher starts as many ranks on each" if launcher.starts_ranks else ""


def settle_numbers(settings: Settings, origins: Mapping[str, Origin]) -> tuple[Settings, list[str]]:
    """The settings with the number of nodes that sbatch would make of it; what is to be said of numbers that are
    turned.
    """
    slurm, nodes, spares = settings.slurm, _nodes_of(settings), settings.spare_nodes
    ntasks, notes = slurm.get("ntasks"), []
    place, gpus = origins.get("slurm.nodes"), _whole(str(slurm.get("gpus")).split(":")[-1])
    if place and place.layer == "default" and settings.is_script and gpus > 1:
        notes.append(("gpus", f"--gpus={slurm['gpus']} without --nodes: one node is asked for, where Slurm might take "
                      "several; write --nodes, too"))
    if nodes and nodes != slurm["nodes"]:
        notes.append(("ntasks", f"{slurm['nodes']} nodes for {ntasks} tasks are {nodes}, as under sbatch"))
        slurm = {**slurm, "nodes": nodes}
    if nodes:
        each = None if "gpus-per-node" in slurm else _gpus_each(slurm.get("gpus"), nodes)
        why = (f" on {nodes + spares} nodes: an attempt may run on any of them" if spares else
               ": Slurm may spread GPUs unevenly")
        if each is not None and nodes + spares > 1:
            notes.append(("gpus", f"--gpus={slurm['gpus']} becomes --gpus-per-node={each}{why}"))
        if each is None and nodes > 1 and "gpus" in slurm and "gpus-per-node" not in slurm:
            notes.append(("gpus", f"{slurm['gpus']} GPUs on {nodes} nodes are no even number on each: Slurm spreads "
                          "them as it likes, and a step beside another one (--overlap) may get none; write "
                          f"{_word(settings, 'gpus-per-node')} instead"))
        if isinstance(ntasks, int) and ntasks % nodes and has_even_tasks(settings):
            notes.append(("ntasks", f"{ntasks} tasks on {nodes} nodes: each of {nodes + spares} nodes gets room "
                          f"for {math.ceil(ntasks / nodes)}, because an attempt may run on any of them"))
    return settings.with_(slurm=slurm), _placed(notes, origins)


def _placed(notes: list[tuple[str, str]], origins: Mapping[str, Origin]) -> list[str]:
    """Each with its file and line, where it has one."""
    placed = [(origins.get(f"slurm.{name}"), text) for name, text in notes]
    return [f"{place.file}:{place.line}: {text}" if place and place.line else text for place, text in placed]


def _gpus_each(value: object, nodes: object) -> str | int | None:
    """Of `4` or `a100:4` the part of each node; None = there is no even one."""
    head, colon, count = str(value).rpartition(":")
    if not isinstance(nodes, int) or not (count.isascii() and count.isdigit()) or "," in head:
        return None
    each, rest = divmod(int(count), nodes)
    return None if rest or not each else f"{head}{colon}{each}" if colon else each


def _word(settings: Settings, option: str) -> str:
    """An option as it is written where the config stands."""
    return f"--{option}" if settings.is_script else f"slurm.{option.replace('-', '_')}"


def _whole(value: object) -> int:
    """A whole number; 0 where it is missing or of another form, which sbatch judges."""
    return int(str(value)) if not isinstance(value, bool) and str(value).isdigit() else 0


def _nodes(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"
