"""Numbers for the whole job: those of each node where an attempt may run on any of them, or a refusal."""

from __future__ import annotations

import pytest

from safelaunch.config.resolve import ConfigLayer, Resolved, resolve
from safelaunch.errors import ConfigError
from safelaunch.launch.jobnumbers import layout
from safelaunch.run import plan as plans
from safelaunch.script.script import directives
from tests.tables import each


def read(text: str, *overrides: str, file: str = "job.slurm") -> Resolved:
    return resolve([ConfigLayer("file", file, text)], ["cluster=slurm", *overrides], {"HOME": "/home/a"}, (), "/work")


def of_script(lines: str, *overrides: str) -> Resolved:
    return read("#!/bin/bash\n" + "".join(f"#SBATCH {line}\n" for line in lines.split("; ")) + "srun a\n", *overrides)


def of_yaml(slurm: str, *overrides: str) -> Resolved:
    return read(f"command: train\nslurm: {{{slurm}}}\n", *overrides, file="train.yaml")


def asked(found: Resolved) -> str:
    """Numbers that the job asks for."""
    lines = (line.removeprefix("#SBATCH --") for line in directives(plans.of_config(found.config, "r")))
    return " ".join(line for line in lines if line.startswith(("nodes", "ntasks", "gpus", "gres")))


@each(("lines", "spares", "expected", "tasks", "places", "variables"), [
    ("-N 2 -n 3", 1, "nodes=3 ntasks-per-node=2", 3, "2,1", ("SLURM_NTASKS_PER_NODE",)),
    ("-N 3 -n 8", 2, "nodes=5 ntasks-per-node=3", 8, "3(x2),2", ("SLURM_NTASKS_PER_NODE",)),
    ("-N 2 -n 4", 1, "nodes=3 ntasks-per-node=2", 4, "2(x2)", ("SLURM_NTASKS_PER_NODE",)),
    ("-N 2 -n 4 --ntasks-per-node=2", 1, "nodes=3 ntasks-per-node=2", 4, "2(x2)", ()),
    ("-N 2 -n 3 --ntasks-per-node=2", 1, "nodes=3 ntasks-per-node=2", 3, "2(x2)", ()),
    ("-N 1 -n 4", 1, "nodes=2 ntasks-per-node=4", 4, "4", ("SLURM_NTASKS_PER_NODE",)),
    ("-N 2 --gpus=4", 1, "nodes=3 gpus-per-node=2", 2, "1(x2)", ("SLURM_GPUS=4",)),
    ("-N 2 --gpus=a100:4", 1, "nodes=3 gpus-per-node=a100:2", 2, "1(x2)", ("SLURM_GPUS=a100:4",)),
    ("-N 2 --gpus=4 --gpus-per-node=2", 1, "nodes=3 gpus-per-node=2", 2, "1(x2)", ("SLURM_GPUS=4",)),
    ("-N 2 --gpus=4 --ntasks-per-gpu=1", 1, "nodes=3 gpus-per-node=2 ntasks-per-gpu=1", 4, "2(x2)",
     ("SLURM_GPUS=4",)),
    ("--gpus=a100:8 --gpus-per-node=a100:4", 1, "nodes=3 gpus-per-node=a100:4", 2, "1(x2)", ("SLURM_GPUS=a100:8",)),
    ("-N 2 --gres=gpu:2", 1, "nodes=3 gres=gpu:2", 2, "1(x2)", ()),
    ("-N 2 -n 3 --gpus=5", 0, "nodes=2 ntasks=3 gpus=5", 3, "2,1", ("SAFELAUNCH_OVERLAP=no",)),
    ("-N 2 -n 3 --gpus=4", 0, "nodes=2 ntasks=3 gpus-per-node=2", 3, "2,1", ("SLURM_GPUS=4",)),
    ("-N 1 --gpus=4", 0, "nodes=1 gpus=4", 1, "1", ()),
    ("-N 4 -n 2", 0, "nodes=2 ntasks=2", 2, "1(x2)", ()),
], ids=["tasks that do not divide", "8 on 3", "tasks that divide", "both", "both, uneven", "one node", "GPUs", "a type",
        "both of GPUs", "tasks by GPU", "nodes by GPUs", "gres",
        "GPUs that do not divide", "no spare", "GPUs of one node", "fewer"])
def test_a_script_has_its_own_numbers_on_any_nodes_of_the_job(
    lines: str, spares: int, expected: str, tasks: int, places: str, variables: tuple[str, ...]
) -> None:
    found = of_script(lines, f"spare_nodes={spares}")
    own = plans.of_config(found.config, "r").numbers
    assert asked(found) == expected
    assert (own.tasks, own.layout) == (tasks, places)
    assert own.variables == variables


@each(("slurm", "overrides", "expected"), [
    ("nodes: 2, ntasks: 4", (), "nodes=2 ntasks-per-node=2"),
    ("nodes: 2, ntasks: 4", ("spare_nodes=1",), "nodes=3 ntasks-per-node=2"),
    ("nodes: 2, gpus: 4", (), "nodes=2 gpus-per-node=2 ntasks-per-node=2"),
    ("nodes: 4, gpus: 8", ("min_nodes=2",), "nodes=4 gpus-per-node=2 ntasks-per-node=2"),
    ("nodes: 2, gpus: 5, ntasks_per_node: 1", (), "nodes=2 gpus=5 ntasks-per-node=1"),
    ("nodes: 2, gpus_per_node: 2, ntasks_per_gpu: 2", (), "nodes=2 gpus-per-node=2 ntasks-per-gpu=2"),
], ids=["tasks", "and a spare", "GPUs", "fewer nodes", "uneven GPUs that nothing counts", "tasks by GPU"])
def test_each_node_of_a_train_yaml_gets_its_part(slurm: str, overrides: tuple[str, ...], expected: str) -> None:
    assert asked(of_yaml(slurm, *overrides)) == expected


@each(("found", "said"), [
    (lambda: of_script("-N 2; --gpus=5", "spare_nodes=1"), "job.slurm:3:1: slurm.gpus: 5 on 2 nodes .*--gpus-per-node"),
    (lambda: of_script("-N 2; --gpus=a100:2,h100:2", "spare_nodes=1"), ":3:1: slurm.gpus: .*of several types"),
    (lambda: of_script("-N 2; -n 5 --ntasks-per-node=2", "spare_nodes=1"), ":3:1: slurm.ntasks: 5 .*2 nodes × 2"),
    (lambda: of_script("-N 2; -n 4 --ntasks-per-gpu=1", "spare_nodes=1"), ":3:1: slurm.ntasks: .*--gpus-per-node"),
    (lambda: of_yaml("nodes: 2, ntasks: 5"), "train.yaml:2:.*slurm.ntasks: 5 tasks on 2 nodes .*slurm.ntasks_per_node"),
    (lambda: of_yaml("nodes: 4, ntasks: 2"), "slurm.ntasks: 2 tasks on 4 nodes"),
    (lambda: of_yaml("nodes: 2, ntasks: 5", "launch.with=torchrun"), "slurm.ntasks: 5 tasks on 2 nodes"),
    (lambda: of_yaml("nodes: 2, ntasks: 2, ntasks_per_node: 2"), "slurm.ntasks: 2 tasks are not 2 nodes × 2"),
    (lambda: of_yaml("nodes: 2, gpus: 5"), "slurm.gpus: 5 on 2 nodes .*launch.with: srun.*slurm.gpus_per_node"),
    (lambda: of_yaml("nodes: 2, gpus: 5", "launch.with=torchrun"), "slurm.gpus: 5 on 2 nodes .*launcher"),
    (lambda: of_yaml("nodes: 4, gpus: 6", "min_nodes=2"), "slurm.gpus: 6 on 4 nodes .*min_nodes"),
])
def test_what_does_not_divide_is_refused_with_what_to_write(found: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        found()   # type: ignore[operator]


def test_what_is_turned_is_said_with_its_line() -> None:
    notes = of_script("-N 2; -n 3; --gpus=4", "spare_nodes=1").notes
    assert any(note.startswith("job.slurm:4: --gpus=4 becomes --gpus-per-node=2 on 3 nodes") for note in notes)
    assert any(note.startswith("job.slurm:3: 3 tasks on 2 nodes: each of 3 nodes") for note in notes)
    assert any("job.slurm:2: 4 nodes for 2 tasks are 2" in note for note in of_script("-N 4 -n 2").notes)
    notes = of_script("-N 2 -n 3 --gpus=4 --gpus-per-node=2").notes
    assert not any("tasks" in note or "gpus" in note for note in notes)
    notes = of_script("-N 3 --gpus=4").notes
    assert any("4 GPUs on 3 nodes are no even number on each" in note for note in notes)


@each(("tasks", "nodes", "expected"), [(3, 2, "2,1"), (4, 2, "2(x2)"), (5, 1, "5"), (5, 3, "2(x2),1")])
def test_the_layout_is_slurms_own_form(tasks: int, nodes: int, expected: str) -> None:
    assert layout(tasks, nodes) == expected
