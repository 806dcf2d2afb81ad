"""Layers, overrides and origins: whose word counts, and who said it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.config.resolve import ConfigLayer, Origin, Resolved, resolve
from safelaunch.errors import ConfigError
from tests.tables import each

SITE = ConfigLayer("site", "/etc/site.yaml", "slurm: {account: site, partition: cpu}\nenv: {A: site, B: site}\n")
USER = ConfigLayer("user", "/home/u/c.yaml", "slurm:\n  partition: gpu\nenv: {B: user}\nrestart: {backoff: 5m}\n")
FILE = ConfigLayer("file", "train.yaml", "command: x\nenv: {C: file}\nslurm: {gpus-per-node: 2}\n")


def stack(*sources: ConfigLayer, overrides: tuple[str, ...] = ()) -> Resolved:
    return resolve(sources, overrides, {})


def test_mappings_merge_and_the_highest_layer_wins() -> None:
    got = stack(SITE, USER, FILE).config
    assert got["slurm"] == {"nodes": 1, "account": "site", "partition": "gpu", "gpus-per-node": 2}
    assert got["env"] == {"A": "site", "B": "user", "C": "file"}
    assert got["restart"]["backoff"] == 300


def test_every_value_says_where_it_came_from() -> None:
    origins = stack(SITE, USER, FILE, overrides=("slurm.nodes=3",)).origins
    assert origins["slurm.account"] == Origin("site", "/etc/site.yaml", 1, 18)
    assert origins["slurm.partition"] == Origin("user", "/home/u/c.yaml", 2, 14)
    assert origins["env.C"] == Origin("file", "train.yaml", 2, 10)
    assert origins["slurm.nodes"].layer == "command line"
    assert origins["srun.wait"].layer == "default"


def test_lists_are_replaced_as_a_whole() -> None:
    low = ConfigLayer("site", "s", "srun: {extra: [--mem=4, --bcast]}")
    high = ConfigLayer("file", "t", "command: x\nsrun: {extra: [--mpi=none]}")
    assert stack(low, high).config["srun"]["extra"] == ["--mpi=none"]


def test_the_two_spellings_of_two_layers_are_one_option() -> None:
    low = ConfigLayer("site", "s", "slurm: {gpus_per_node: 8}")
    assert stack(low, FILE).config["slurm"]["gpus-per-node"] == 2


@each("taken_back", ["null", "~", "false", ""])
def test_an_option_of_a_lower_layer_can_be_taken_back(taken_back: str) -> None:
    high = ConfigLayer("file", "t", f"command: x\nslurm:\n  account: {taken_back}\n")
    got = stack(SITE, high)
    assert "account" not in got.config["slurm"]
    assert "slurm.account" not in got.origins


def test_null_goes_back_to_the_default() -> None:
    got = stack(USER, FILE, overrides=("restart.backoff=",))
    assert got.config["restart"]["backoff"] == 60
    assert got.origins["restart.backoff"].layer == "default"


def test_null_for_a_section_takes_back_all_of_it() -> None:
    high = ConfigLayer("file", "t", "command: x\nslurm:\nenv: ~\n")
    got = stack(SITE, high).config
    assert (got["slurm"], got["env"]) == ({"nodes": 1}, {})


def test_a_variable_may_be_false_without_being_taken_back() -> None:
    high = ConfigLayer("file", "t", "command: x\nenv: {A: false}\n")
    assert stack(SITE, high).config["env"]["A"] == "false"


def test_a_fault_of_the_site_is_shown_at_the_sites_place() -> None:
    with pytest.raises(ConfigError) as caught:
        stack(ConfigLayer("site", "/etc/s.yaml", "slurm: {nodes: x}\n"), ConfigLayer("file", "t", "comand: x\n"))
    assert [str(one).partition(": ")[0] for one in caught.value.problems] == ["/etc/s.yaml:1:16", "t", "t:1:1"]


def test_the_last_override_of_a_key_counts() -> None:
    assert stack(FILE, overrides=("slurm.nodes=2", "slurm.nodes=4")).config["slurm"]["nodes"] == 4


@each(
    ("override", "path", "value"),
    [
        ("command=python x.py --a=b # c", ("command",), "python x.py --a=b # c"),
        ("slurm.gpus_per_node=a100:8", ("slurm", "gpus-per-node"), "a100:8"),
        ("slurm.--new.one=1", None, None),
        ("slurm.time=24:00:00", ("slurm", "time"), "24:00:00"),
        ("env.A=1.10", ("env", "A"), "1.10"),
        ("env.A=a=b", ("env", "A"), "a=b"),
        ("env.A=", None, None),
        ("srun.extra=[--hint=x, -v]", ("srun", "extra"), ["--hint=x", "-v"]),
        ("restart={max_restarts: 3}", ("restart", "max_restarts"), 3),
        ("run_dir=/${name}", ("run_dir",), "/train"),
        ("restart.backoff=2m", ("restart", "backoff"), 120.0),
    ],
)
def test_an_override_obeys_the_rules_of_the_file(override: str, path: tuple[str, ...] | None, value: object) -> None:
    if path is None:
        try:
            assert "A" not in stack(FILE, overrides=(override,)).config["env"]
        except ConfigError as error:
            assert "slurm" in str(error)
        return
    got: Any = stack(FILE, overrides=(override,)).config
    for part in path:
        got = got[part]
    assert got == value


@each(
    ("override", "said"),
    [
        ("slurm.nodes", "command line: slurm.nodes: expected key=value"),
        ("=4", "command line: =4: expected key=value"),
        ("a b=4", "command line: a b=4: expected key=value"),
        (".a=4", "command line: .a=4: expected key=value"),
        ("slurm.nodes=four", 'command line: slurm.nodes: expected an integer ≥ 1, got "four"'),
        ("slurmm.nodes=4", 'command line: slurmm: unknown key; did you mean "slurm"?'),
        ("srun.extra=[a", "command line: srun.extra: not YAML"),
    ],
)
def test_an_override_that_is_wrong_says_so_without_a_line(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        stack(FILE, overrides=(override,))
    assert [said in str(one) for one in caught.value.problems] == [True]


# a lone "-" starts a list in a file
settings = st.fixed_dictionaries({}, optional={
    "slurm.nodes": st.integers(1, 99).map(str), "slurm.partition": st.text("abcxyz0", min_size=1),
    "restart.max_restarts": st.integers(0, 99).map(str), "restart.backoff": st.sampled_from(["1m", "90", "1.5h"]),
    "env.A": st.text("ab01.+-eox", min_size=1).filter(lambda text: text != "-"),
    "name": st.text("abc", min_size=1, max_size=9),
})  # fmt: skip


@given(settings)
def test_an_override_means_what_the_same_line_in_the_file_means(chosen: dict[str, str]) -> None:
    sections: dict[str, list[str]] = {}
    for path, value in chosen.items():
        section, _, key = path.rpartition(".")
        sections.setdefault(section, []).append(f"{key}: {value}")
    text = "command: x\n" + "".join(f"{line}\n" for line in sections.pop("", []))
    text += "".join(f"{section}:\n" + "".join(f"  {line}\n" for line in rows) for section, rows in sections.items())
    by_file = stack(ConfigLayer("file", "t", text))
    by_command_line = stack(
        ConfigLayer("file", "t", "command: x\n"), overrides=tuple(f"{path}={value}" for path, value in chosen.items())
    )
    assert by_file.config == by_command_line.config
