"""slurm: and the flags after --: what sbatch gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.config.resolve import ConfigLayer, Origin, resolve
from safelaunch.config.scripts.slurmkeys import SlurmValue, refuse_option, split_flags
from safelaunch.errors import ConfigError
from safelaunch.slurm.sbatchoptions import FIRST_JOB_ONLY, LETTERS, OPTIONS, REFUSED
from tests.tables import each

COMMAND = "command: x\n"


def slurm(written: str, *flags: str) -> dict[str, SlurmValue]:
    source = ConfigLayer("file", "t.yaml", f"{COMMAND}slurm: {written}\n")
    options: dict[str, SlurmValue] = resolve([source], [], {}, flags).config["slurm"]
    return options


def problem(written: str, *flags: str) -> str:
    with pytest.raises(ConfigError) as caught:
        slurm(written, *flags)
    assert len(caught.value.problems) == 1
    return str(caught.value.problems[0])


@each(
    ("written", "name", "value"),
    [
        ("account: 0123", "account", "0123"),
        ("account: 123", "account", 123),
        ("time: 24:00:00", "time", "24:00:00"),
        ("time: '24:00:00'", "time", "24:00:00"),
        ("time: 1-12", "time", "1-12"),
        ("time: 90", "time", 90),
        ("time: UNLIMITED", "time", "UNLIMITED"),
        ("nodes: 16", "nodes", 16),
        ("nodes: '16'", "nodes", 16),
        ("gpus_per_node: a100:8", "gpus-per-node", "a100:8"),
        ("mem: 0", "mem", 0),
        ("mem: 1e3", "mem", "1e3"),
        ("nice: -5", "nice", -5),
        ("nice: true", "nice", True),
        ("exclusive: true", "exclusive", True),
        ("exclusive: user", "exclusive", "user"),
        ("exclude: [a1, 'b[2-3]']", "exclude", "a1,b[2-3]"),
        ("mail-type: [END, FAIL]", "mail-type", "END,FAIL"),
        ("comment: 'a \"b\" # $c'", "comment", 'a "b" # $c'),
        ("qos: on", "qos", "on"),
        ("extra: 'a=b'", "extra", "a=b"),
        ("hold: true", "hold", True),
        ("chdir: /x", "chdir", "/x"),
    ],
)
def test_an_option_reaches_sbatch_as_it_was_written(written: str, name: str, value: SlurmValue) -> None:
    got = slurm(f"{{{written}}}")
    assert got[name] == value
    assert type(got[name]) is type(value)


@each(("name", "option"), OPTIONS.items())
def test_every_option_is_known_in_both_spellings_or_refused_with_a_reason(name: str, option: object) -> None:
    value = "true" if OPTIONS[name].takes in ("none", "optional") else "1"
    for spelling in (name, name.replace("-", "_")):
        if name in REFUSED:
            assert problem(f"{{{spelling}: {value}}}") == f"t.yaml:2:9: slurm.{spelling}: {REFUSED[name]}"
        else:
            # ntasks, nodelist and nodefile need nodes beside them
            assert name in slurm(f"{{nodes: 1, {spelling}: {value}}}" if name != "nodes" else "{nodes: 1}")


@each(
    ("written", "said"),
    [
        ("{nodes: 2-4}", 'slurm.nodes: "2-4": a range of nodes is not supported'),
        ("{nodes: '1,2,4'}", "a range of nodes is not supported"),
        ("{nodes: 0}", "slurm.nodes: expected an integer ≥ 1, got 0"),
        ("{nodes: true}", "slurm.nodes: needs a value"),
        ("{cpus_per_task: four}", 'slurm.cpus-per-task: expected an integer ≥ 1, got "four"'),
        ("{time: 20h}", "slurm.time: expected a time as sbatch takes it"),
        ("{partition: true}", "slurm.partition: needs a value"),
        ("{partition: ''}", "slurm.partition: expected a value, got an empty text"),
        ("{contiguous: 1}", "slurm.contiguous: expected true or false (it takes no value), got 1"),
        ("{constraint: [a, b]}", "slurm.constraint: expected text, got a list"),
        ("{exclude: []}", "slurm.exclude: expected at least one value"),
        ("{exclude: [~]}", "slurm.exclude: expected at least one value"),
        ("{exclude: {a: b}}", "slurm.exclude: expected text, got a mapping"),
        ('{comment: "a\\nb"}', "slurm.comment: holds a character that a line of text cannot (U+000A)"),
        ('{comment: "a\\0b"}', "slurm.comment: holds a character that a line of text cannot (U+0000)"),
        ("{ntasks: 4}", "slurm.ntasks: needs slurm.nodes beside it"),
        ("{nodelist: a}", "slurm.nodelist: needs slurm.nodes beside it"),
        ("{Nodes: 4}", "slurm.Nodes: not the name of an sbatch option"),
        ("{'a b': 4}", "slurm.a b: not the name of an sbatch option"),
        ("{'--wrap': x}", "slurm.--wrap: use command:"),
        ("{dependency: 'afterok:1?afterok:2'}",
         "slurm.dependency: expected dependencies joined by commas: all must hold, as safelaunch adds one of its own"),
        ("{gpu_per_node: 4}", 'slurm.gpu_per_node: unknown option; did you mean "gpus-per-node"?'),
        ("{partiton: x}", 'slurm.partiton: unknown option; did you mean "partition"?'),
        ("{mem: 1, --mem: 2}", "slurm.--mem: given twice, the first time in line 2"),
    ],
)
def test_an_option_that_cannot_be_passed_says_why(written: str, said: str) -> None:
    assert said in problem(written)


def test_an_option_of_a_newer_slurm_passes_as_it_is() -> None:
    assert slurm("{brand_new: 1}")["brand-new"] == 1


def test_an_option_written_with_its_dashes_passes_although_it_is_near_a_known_one() -> None:
    assert slurm('{"--gpus-per-nodes": 4}')["gpus-per-nodes"] == 4


@each(("beginning", "whole"), [
    ("outp", "output"), ("no-requ", "no-requeue"), ("gpus-per-nod", "gpus-per-node")])
def test_the_beginning_of_a_known_option_is_refused_with_dashes_as_sbatch_takes_it_for_the_option(
    beginning: str, whole: str) -> None:
    assert f'write "{whole}"' in problem(f'{{"--{beginning}": 4}}')


def test_flags_after_the_dashes_override_the_file() -> None:
    source = ConfigLayer("file", "t.yaml", f"{COMMAND}slurm: {{partition: slow, nodes: 2}}\n")
    got = resolve([source], ["slurm.nodes=3"], {}, ["-p", "fast", "-N4"])
    assert (got.config["slurm"]["partition"], got.config["slurm"]["nodes"]) == ("fast", 4)
    assert got.origins["slurm.nodes"] == Origin("command line", "command line", 0, 0)


@each(
    ("tokens", "flags"),
    [
        (["--qos=high"], [("qos", "high")]),
        (["--qos", "high"], [("qos", "high")]),
        (["--qos="], [("qos", "")]),
        (["-p", "gpu"], [("partition", "gpu")]),
        (["-pgpu"], [("partition", "gpu")]),
        (["-N4", "-n", "8"], [("nodes", "4"), ("ntasks", "8")]),
        (["--exclusive"], [("exclusive", None)]),
        (["--exclusive=user"], [("exclusive", "user")]),
        (["-HO"], [("hold", None), ("overcommit", None)]),
        (["-HN2"], [("hold", None), ("nodes", "2")]),
        (["--comment", "-x"], [("comment", "-x")]),
        (["--comment=a=b c"], [("comment", "a=b c")]),
        (["--tasks-per-node=2", "--cluster", "x"], [("ntasks-per-node", "2"), ("clusters", "x")]),
        (["--task=3", "--ntasks-per-t=1", "--exclus"],
         [("ntasks-per-node", "3"), ("ntasks-per-tres", "1"), ("exclusive", None)]),
        (["--image=docker:a/b", "--uenv", "x", "--view", "-N2"],
         [("image", "docker:a/b"), ("uenv", "x"), ("view", None), ("nodes", "2")]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_flags_are_read_as_sbatchs_getopt_reads_them(tokens: list[str], flags: list[tuple[str, str | None]]) -> None:
    assert split_flags(tokens) == (flags, [])


@each(
    ("token", "said"),
    [
        ("--parition=x", 'did you mean "--partition"?'),
        ("-Z", "unknown option of sbatch"),
        ("--qos", "needs a value"),
        ("-p", "needs a value"),
        ("--contiguous=1", "takes no value"),
        ("gpu", "not a flag of sbatch"),
        ("--", "not a flag of sbatch"),
        ("-", "not a flag of sbatch"),
        ("", "not a flag of sbatch"),
    ],
)
def test_a_flag_that_sbatch_would_not_read_is_refused(token: str, said: str) -> None:
    flags, faults = split_flags([token])
    assert not flags
    assert said in faults[0][1]


def test_a_flag_that_safelaunch_owns_is_refused_with_its_reason() -> None:
    assert problem("{}", "--output=x").startswith("command line: slurm.output: safelaunch keeps the log")


# YAML folds line breaks, so only texts of one line can be the same; ${NAME} is filled in there, in a flag by the shell.
one_line = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters="$"), min_size=1)


@given(st.dictionaries(st.sampled_from(["comment", "qos", "account", "constraint"]), one_line))
def test_a_flag_and_a_line_of_the_file_mean_the_same(options: dict[str, str]) -> None:
    flags = [f"--{name}={value}" for name, value in options.items()]
    overrides = [f"slurm.{name}='{value.replace(chr(39), chr(39) * 2)}'" for name, value in options.items()]
    assert _outcome(flags=flags) == _outcome(overrides=overrides)


def _outcome(flags: list[str] | None = None, overrides: list[str] | None = None) -> object:
    """The options, or which of them are refused."""
    try:
        return resolve([ConfigLayer("file", "t", COMMAND)], overrides or [], {}, flags or []).config["slurm"]
    except ConfigError as error:
        return {problem.key for problem in error.problems}


def test_no_two_options_share_a_letter() -> None:
    assert len(LETTERS) == sum(1 for option in OPTIONS.values() if option.letter)


def test_options_of_the_first_job_are_options_that_may_be_given() -> None:
    assert all(name in OPTIONS and refuse_option(name) is None for name in FIRST_JOB_ONLY)
