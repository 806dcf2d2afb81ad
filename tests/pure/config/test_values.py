"""Durations, and what ${VAR} becomes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.base.yaml.yamlnodes import DEFAULT, MappingNode, Scalar, quoted
from safelaunch.base.yaml.yamltext import parse_document
from safelaunch.config.values import expand, parse_duration_s
from safelaunch.errors import ParseError
from tests.tables import each


@each(
    ("text", "seconds"),
    [("0", 0), ("90", 90), ("90s", 90), ("15m", 900), ("1h30m", 5400), ("7d", 604800), ("1.5h", 5400), ("500ms", 0.5),
     ("1e3", 1000), ("2w", 1209600)],
)  # fmt: skip
def test_a_duration_is_its_seconds(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@each(
    "text",
    [
        "",
        "15:00",
        "1-00:00:00",
        "-1",
        "-5m",
        "five",
        "5 m",
        "5M",
        ".inf",
        ".nan",
        "true",
        "367d",
        "9" * 30,
        "m",
        "1m" * 99,
    ],
)
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ParseError):
        parse_duration_s(text)


@given(st.integers(0, 86400))
def test_hours_minutes_and_seconds_add_up(total_s: int) -> None:
    text = f"{total_s // 3600}h{total_s // 60 % 60}m{total_s % 60}s"
    assert parse_duration_s(text) == total_s


def expanded(text: str, environ: Mapping[str, str]) -> tuple[dict[str, object], list[str]]:
    tree, _ = parse_document(text, layer="file", file="t")
    assert tree is not None
    result, problems = expand(tree, environ)
    return _flat(result, ""), [problem.text for problem in problems]


def _flat(node: MappingNode, prefix: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in node.entries.items():
        if isinstance(value, MappingNode):
            found |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, Scalar):
            found[prefix + key] = value.value
    return found


def one(value: str, **environ: str) -> object:
    found, problems = expanded(f"x: {value}\n", environ)
    assert not problems
    return found["x"]


def test_a_variable_of_the_environment_is_filled_in() -> None:
    assert one("${A}/runs", A="/scratch") == "/scratch/runs"


def test_a_config_key_comes_before_the_environment() -> None:
    found, _ = expanded("name: n\nrun_dir: ${name}\n", {"name": "wrong"})
    assert found["run_dir"] == "n"


def test_a_key_of_a_section_is_named_with_dots_and_in_either_spelling() -> None:
    text = 'slurm: {gpus-per-node: 8}\nrun_dir: "${slurm.gpus_per_node}-${slurm.gpus-per-node}"\n'
    assert expanded(text, {})[0]["run_dir"] == "8-8"


def test_keys_may_refer_to_keys_that_refer_to_keys() -> None:
    assert expanded("a: ${b}\nb: ${c}\nc: x\n", {})[0]["a"] == "x"


def test_a_default_stands_in_for_an_unset_or_empty_variable() -> None:
    assert one("${A:-y}") == one("${A:-y}", A="") == "y"
    assert one("${A:-}") == ""


def test_an_empty_variable_is_empty() -> None:
    assert one('"${A}"', A="") == ""


def test_two_dollars_are_one_and_are_not_expanded() -> None:
    assert one("$${A} $A ${B}", B="b") == "${A} $A b"


@given(st.text(max_size=30).filter(lambda text: "\0" not in text))
def test_what_a_variable_holds_is_never_expanded_again(held: str) -> None:
    assert one('"${A}"', A=held + "${B}") == held + "${B}"


def test_command_and_setup_are_left_to_the_shell_on_the_nodes() -> None:
    text = "command: run ${UNSET}\nsetup: cd ${ALSO}\nname: ${command}\n"
    found, problems = expanded(text, {})
    assert found == {"command": "run ${UNSET}", "setup": "cd ${ALSO}", "name": "run ${UNSET}"}
    assert not problems


@each(
    ("value", "meant"),
    [("${N}", 4), ('"${N}"', "4"), ("${N}0", 40), ("${T}", "true"), ("${E}", "")],
)
def test_an_unquoted_value_may_become_a_number_but_nothing_else(value: str, meant: object) -> None:
    assert one(value, N="4", T="true", E="") == meant


@each(
    ("text", "said"),
    [
        ("x: ${UNSET}", "${UNSET} is not set"),
        ("x: ${x}", "refers to itself: x → x"),
        ("x: ${y}\ny: ${x}", "refers to itself: x → y → x"),
        ("x: ${A", "without a closing }"),
        ('x: "${}"', "expected ${NAME}"),
        ('x: "${a b}"', "expected ${NAME}"),
        ('x: "${A:-${B}}"', "expected ${NAME}"),
        ("x: ${l}\nl: [a]", "${l} is a list"),
        ("x: ${m}\nm: {a: 1}", "${m} is a mapping"),
    ],
)
def test_what_cannot_be_filled_in_is_a_problem(text: str, said: str) -> None:
    assert said in expanded(text, {"A": "a"})[1][0]


def test_values_that_double_each_other_are_bounded() -> None:
    lines = ["v0: xxxxxxxxxx", *(f'v{i}: "${{v{i - 1}}}${{v{i - 1}}}"' for i in range(1, 60))]
    assert any("grows beyond" in problem for problem in expanded("\n".join(lines), {})[1])


@given(st.text("${}:-aA.b ", max_size=40))
def test_no_text_makes_the_expansion_do_anything_but_expand_or_refuse(text: str) -> None:
    expand(MappingNode({"x": quoted(text, DEFAULT)}, DEFAULT), {"A": "1"})
