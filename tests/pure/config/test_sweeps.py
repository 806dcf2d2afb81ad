"""`sweep:` ▸ points, their names, and the config of each."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safelaunch.base.secretmask import hide_values
from safelaunch.config import sweeps
from safelaunch.config.keys import NAME_PATTERN
from safelaunch.config.resolve import ConfigLayer, Resolved, resolve_each
from safelaunch.errors import ConfigError
from safelaunch.run import plan as plans
from tests.tables import each


def read(text: str, *overrides: str) -> list[Resolved]:
    source = ConfigLayer("file", "base.yaml", f"command: train $lr\n{text}")
    return list(resolve_each([source], overrides, {"HOME": "/home/bob"}, base_dir="/work"))


def test_a_table_is_every_combination_and_the_last_name_varies_first() -> None:
    found = read("sweep: {lr: [1e-4, 3e-4], seed: 0-2}")
    assert [one.config["env"] for one in found] == [
        {"lr": lr, "seed": seed} for lr in ("1e-4", "3e-4") for seed in "012"]
    assert [one.config["name"] for one in found][:2] == ["base-lr1e-4-seed0", "base-lr1e-4-seed1"]
    assert found[1].config["run_dir"] == "/work/runs/base-lr1e-4-seed1"
    assert found[1].config["sweep"] == {"lr": "1e-4", "seed": "1"}


def test_a_list_is_its_points() -> None:
    found = read("sweep: [{lr: 1, seed: 2}, {lr: 5, seed: 7}]")
    assert [one.config["env"] for one in found] == [{"lr": "1", "seed": "2"}, {"lr": "5", "seed": "7"}]


def test_a_name_with_a_dot_or_of_a_key_is_a_key_of_train_yaml() -> None:
    found = read("sweep: {slurm.nodes: [1, 2], slurm.gpus_per_node: 8, spare_nodes: 1, tag: a}")
    assert [one.config["slurm"]["nodes"] for one in found] == [1, 2]
    assert {one.config["slurm"]["gpus-per-node"] for one in found} == {8}
    assert {one.config["spare_nodes"] for one in found} == {1}
    assert found[0].config["env"] == {"tag": "a"}
    assert [one.config["name"] for one in found] == ["base-nodes1", "base-nodes2"], "only what differs"


def test_other_values_can_use_a_point() -> None:
    found = read('env: {OUT: "out/${lr}"}\nresume: {dir: "ckpt/${name}", by: training}\nsweep: {lr: [1, "${HOME}"]}')
    assert [one.config["env"]["OUT"] for one in found] == ["out/1", "out/${HOME}"]
    assert [one.config["env"]["lr"] for one in found] == ["1", "/home/bob"]
    assert found[0].config["resume"]["dir"] == "ckpt/base-lr1"


def test_text_is_handed_over_as_it_was_written_and_never_run() -> None:
    value = "$(touch /tmp/x); 'a b' `c`"
    found = read(f'sweep: {{lr: ["{value}", true, 1.10]}}')
    assert [one.config["env"]["lr"] for one in found] == [value, "true", "1.10"]
    assert found[0].config["command"] == "train $lr"


def test_the_command_line_can_change_a_sweep_or_take_it_away() -> None:
    assert len(read("sweep: {lr: [1, 2], seed: 0-4}", "sweep.seed=0-1")) == 4
    found = read("sweep: {lr: [1, 2]}", "sweep=null")
    assert len(found) == 1
    assert found[0].point is None


@each(("text", "said"), [
    ("sweep: 3", "expected names and their values"),
    ("sweep: []", "expected 1 to 1000 points, got 0"),
    ("sweep: {lr: []}", "lr: expected at least one value"),
    ("sweep: {lr: {a: b}}", "lr: expected a value, a list of values, or a range such as 0-4, got a mapping"),
    ("sweep: {seed: 4-0}", "the range ends below its start"),
    ("sweep: {seed: 0-999999}", "expected 1 to 1000 points, got 1000000"),
    ("sweep: {a: 0-99, b: 0-99}", "expected 1 to 1000 points, got 10000"),
    ("sweep: {lr: [1, 1]}", "points 1 and 2 are the same"),
    ("sweep: [{lr: 1}, {seed: 1}]", "point 2 has not the names of point 1 (lr)"),
    ("sweep: {name: [a, b]}", "name: cannot be varied"),
    ('sweep: {"a b": [1, 2]}', "neither a key of train.yaml nor a name that a variable can have"),
    ("sweep: {SAFELAUNCH_X: [1, 2]}", "env.SAFELAUNCH_X: safelaunch sets this variable"),
    ("sweep: {IFS: [1, 2]}", "env.IFS: bash sets this variable itself"),
    ("sweep: {slurm.nodes: [1, four]}", 'slurm.nodes: expected an integer ≥ 1, got "four"'),
    ("sweep: {slurm.nods: [1, 2]}", "slurm.nods: unknown option; did you mean"),
    ("sweep: {retsart.via: [auto, watch]}", "retsart: unknown key"),
    ("max_parallel: 2", "max_parallel: needs sweep"),
    ("sweep: {lr: [1, 2]}\nmax_parallel: 0", "max_parallel: expected an integer ≥ 1"),
])
def test_a_sweep_that_cannot_be_is_an_error_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(text)
    assert said in str(error.value)
    assert f"base.yaml:{2 + text.count(chr(10))}:" in str(error.value)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=80), min_size=1, max_size=12,
                unique=True), st.integers(1, 23))
def test_every_point_has_a_safe_name_of_its_own(values: list[str], length: int) -> None:
    from safelaunch.base.yaml.yamlnodes import DEFAULT, ListNode, MappingNode, quoted

    tree = MappingNode({"name": quoted("b" * length, DEFAULT), "sweep": MappingNode(
        {"v": ListNode(tuple(quoted(value, DEFAULT) for value in values), DEFAULT)}, DEFAULT)}, DEFAULT)
    names = [f"{'b' * length}-{point.suffix}" for point in sweeps.sweep_points(tree, frozenset())]
    assert len(set(names)) == len(values)
    assert all(re.fullmatch(NAME_PATTERN, name) for name in names)


# Of each kind of value that points share: lists, tables, and keys that others follow from.
SHARED = """
env: {A: "${name}"}
slurm: {nodes: 2, gpus_per_node: 4, exclude: [n1, n2], time: 90}
launch: {with: torchrun, args: [--max-restarts=0], tee: 3}
srun: {extra: [--hint=nomultithread]}
checks: {boot: true, disk: [/scratch], skip: [gpu_nvlink]}
container: {runtime: apptainer, image: /i.sif, mounts: [/data], env: {B: "1"}, extra: [--nv]}
restart: {policy: {cuda_oom: stop}, backoff: 60s}
preserve_site: {for: 60s, when: [hang]}
notify: {to: [mailto:me@example.org], when: [gave_up]}
resume: {dir: "ckpt/${name}", by: training}
"""
VARIED: dict[str, tuple[str, ...]] = {
    "lr": ("1e-4", "3e-4"), "slurm.nodes": ("3", "4"), "slurm.exclude": ("n3", "n4"), "spare_nodes": ("0", "1"),
    "restart.policy.cuda_oom": ("restart", "stop"), "restart.policy.unknown": ("stop", "once"),
    "launch.tee": ("1", "2"), "container.env.B": ("2", "3"), "kill_switch.grace": ("1m", "2m"),
}


def without_sweep(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key != "sweep"}


@settings(max_examples=40)
@given(st.lists(st.sampled_from(sorted(VARIED)), min_size=1, max_size=3, unique=True))
def test_no_point_changes_the_config_of_another(names: list[str]) -> None:
    """They share what they have in common, which nothing may change then: neither another point nor its submission."""
    rows = ", ".join(f"{name}: [{', '.join(VARIED[name])}]" for name in names)
    source = ConfigLayer("file", "base.yaml", f"command: train $lr\n{SHARED}sweep: {{{rows}}}")
    points, as_it_was = [], []
    for point in resolve_each([source], (), {}, base_dir="/work"):
        points.append(point)
        as_it_was.append(copy.deepcopy(point.config))
    for point, config in zip(points, as_it_was, strict=True):
        assert point.config == config
        plans.of_config(point.config, "1a2b3c4d")
        hide_values(point.config)
    for point, config in zip(points, as_it_was, strict=True):
        assert point.point is not None
        alone = [f"name={config['name']}", "sweep=null", *(
            f"{name if '.' in name or name in config else f'env.{name}'}={text}"
            for name, text in point.point.texts.items())]
        [again] = resolve_each([source], alone, {}, base_dir="/work")
        assert without_sweep(again.config) == without_sweep(config)
