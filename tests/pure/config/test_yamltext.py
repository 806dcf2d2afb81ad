"""The strict loader: YAML 1.2 scalars, places, and everything it refuses."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.base.yaml.yamlnodes import ListNode, MappingNode, Node, Origin, Scalar
from safelaunch.base.yaml.yamltext import parse_document, parse_json, parse_value
from safelaunch.errors import Problem
from tests.tables import each


def load(text: str) -> tuple[MappingNode | None, list[Problem]]:
    return parse_document(text, layer="file", file="t.yaml")


def values(text: str) -> dict[str, object]:
    node, problems = load(text)
    assert not problems
    assert node is not None
    return {key: plain_object(value) for key, value in node.entries.items()}


def plain_object(node: Node) -> object:
    if isinstance(node, MappingNode):
        return {key: plain_object(value) for key, value in node.entries.items()}
    if isinstance(node, ListNode):
        return [plain_object(item) for item in node.items]
    return node.value


def only_problem(text: str) -> str:
    _, problems = load(text)
    assert len(problems) == 1
    return str(problems[0])


@each(
    ("written", "meant"),
    [
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("No", "No"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("tRUE", "tRUE"),
        ("12:30:00", "12:30:00"),
        ("24:00:00", "24:00:00"),
        ("190:20:30.15", "190:20:30.15"),
        ("1_000", "1_000"),
        ("1e3", 1000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        ("0o17", 15),
        ("017", 17),
        ("0x1F", 31),
        ("0b11", "0b11"),
        ("+12", 12),
        ("2024-01-02", "2024-01-02"),
        ("~", None),
        ("", None),
        ("Null", None),
        ("nULL", "nULL"),
        ("=", "="),
        ("'12'", "12"),
        ('"true"', "true"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_a_scalar_means_what_yaml_1_2_says(written: str, meant: object) -> None:
    assert values(f"key: {written}\n")["key"] == meant
    assert type(values(f"key: {written}\n")["key"]) is type(meant)


def test_a_number_keeps_the_text_it_was_written_as() -> None:
    node, _ = load("account: 0123\n")
    assert node is not None
    account = node.entries["account"]
    assert isinstance(account, Scalar)
    assert (account.value, account.text) == (123, "0123")


def test_every_value_and_key_knows_its_line_and_column() -> None:
    node, _ = load("# ü\na: 1\nslurm:\n  nodes: [x, yy]\n")
    assert node is not None
    slurm = node.entries["slurm"]
    assert isinstance(slurm, MappingNode)
    nodes = slurm.entries["nodes"]
    assert isinstance(nodes, ListNode)
    places = [(one.line, one.column) for one in (slurm.key_origins["nodes"], nodes.origin, nodes.items[1].origin)]
    assert places == [(4, 3), (4, 10), (4, 14)]


@each(
    ("text", "place", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "3:1", "a: given twice; the first one is in line 1"),
        ("a: {x: 1, x: 2}\n", "1:11", "x: given twice"),
        ("a: b: c\n", "1:5", 'a ":" that cannot stand here'),
        ("a:\n\t- b\n", "2:1", "indent by spaces"),
        ("a: 'x\n", "2:1", "the text ends inside a quote (opened in line 1, column 4)"),
        ("a: [1,\n  2\n", "3:1", "the closing bracket is missing (opened in line 1, column 4)"),
        ("a: !!python/object:os.system x\n", "1:4", "tags"),
        ("a: !x y\n", "1:4", "tags"),
        ("<<: {a: 1}\n", "1:1", "merge keys"),
        ("a: *b\n", "1:4", "*b: no &b before it"),
        ("a: &a [*a]\n", "1:8", "*a: no &a before it"),
        ("a: 1\n---\nb: 2\n", "2:1", "a second document"),
        ("- a\n", "1:1", "expected `key: value` lines"),
        ("just words\n", "1:1", "expected `key: value` lines"),
        ("? [a]\n: b\n", "1:3", "a key must be a word"),
        ("~: b\n", "1:1", "a key must be a word"),
        ("a: @b\n", "1:4", "quote such a text"),
        ("a: \x00\n", "1:4", "U+0000"),
        ("a: \x07\n", "1:4", "U+0007"),
        ("a: \ud800\n", "1:4", "U+D800"),
        ('a: "\\ud800"\n', "1:", "not YAML: an escape that is no character"),
        ("[" * 100_000, "1:33", "nested deeper than 32"),
        ("a: " + "{b: " * 100_000, "1:125", "nested deeper than 32"),
        ("%YAML 3.0\n---\na: 1\n", "1:1", "another YAML version"),
    ],
)
def test_what_is_refused_says_where_and_why(text: str, place: str, said: str) -> None:
    message = only_problem(text)
    assert message.startswith(f"t.yaml:{place}")
    assert said in message


def test_a_duplicate_key_does_not_hide_the_next_problem() -> None:
    _, problems = load("a: 1\na: 2\nb: 1\nb: 2\n")
    assert [problem.line for problem in problems] == [2, 4]


def test_aliases_stand_for_what_they_name() -> None:
    assert values("a: &x [1, 2]\nb: *x\n") == {"a": [1, 2], "b": [1, 2]}


def test_aliases_of_aliases_are_bounded_before_they_fill_the_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
    assert "more than 10000 values" in only_problem("\n".join(lines))


def test_a_text_larger_than_a_mebibyte_is_refused() -> None:
    assert "larger than 1 MiB" in only_problem("a: " + "x" * (1 << 20))


@each("text", ["", "# only a comment\n", "---\n", "~\n", "\ufeff"])
def test_an_empty_document_is_an_empty_mapping(text: str) -> None:
    assert values(text) == {}


def test_a_byte_order_mark_does_not_move_the_columns() -> None:
    assert only_problem("\ufeffa: b: c\n").startswith("t.yaml:1:5")


@each(
    ("text", "meant"),
    [
        ("4", 4),
        ("", None),
        ("a: b # c", "a: b # c"),
        ("[a, 1]", ["a", 1]),
        ("{a: 1}", {"a": 1}),
        ('"4"', "4"),
        ("'[x'", "[x"),
        ("- a", "- a"),
        ("*x", "*x"),
    ],
)
def test_a_value_of_the_command_line_is_text_unless_its_first_sign_says_otherwise(text: str, meant: object) -> None:
    node, problems = parse_value(text, layer="command line", file="command line")
    assert not problems
    assert node is not None
    assert plain_object(node) == meant


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff\ufffe\uffff\u2028\u2029")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abcdef", min_size=1), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(json_values)
def test_every_json_value_comes_back_as_it_was_written(value: object) -> None:
    assert values(json.dumps({"key": value}, ensure_ascii=False)) == {"key": value}


@given(st.text())
def test_no_text_makes_the_loader_do_anything_but_read_or_refuse(text: str) -> None:
    node, problems = load(text)
    assert node is not None or problems


@given(st.text("{}[]:,-?&*!|>%@`'\"# \n\tab1", max_size=60))
def test_no_tangle_of_yaml_signs_makes_the_loader_do_anything_but_read_or_refuse(text: str) -> None:
    node, problems = load(text)
    assert node is not None or problems
    assert all(problem.text for problem in problems)


# In quotes YAML takes these three for line ends, and gives a blank, or a fault, where JSON keeps them.
TEXTS = st.text(st.characters(exclude_characters="\x85\u2028\u2029"))
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | TEXTS, lambda inner: st.lists(inner)
                    | st.dictionaries(TEXTS, inner), max_leaves=20)


def without_places(node: Node) -> object:
    if isinstance(node, MappingNode):
        return {key: without_places(value) for key, value in node.entries.items()}
    if isinstance(node, ListNode):
        return [without_places(item) for item in node.items]
    return repr(node.value), node.text, node.plain


@given(st.dictionaries(TEXTS, JSON))
def test_a_programs_json_means_what_the_yaml_reader_reads_in_it(value: dict[str, object]) -> None:
    text = json.dumps(value, ensure_ascii=False)
    of_yaml, problems = load(text)
    of_json, told = parse_json(text, layer="file", file="t.yaml")
    assert [(one.key, one.text) for one in told] == [(one.key, one.text) for one in problems]
    assert of_json is None if of_yaml is None else of_json is not None and (
        without_places(of_json) == without_places(of_yaml) and of_json.origin == Origin("file", "t.yaml", 0, 0))


@each(("text", "why"), [
    ('{"a": 1, "a": 2}', "given twice"), ("[" * 40 + "]" * 40, "deeper than 32"),
    ('{"a": ' * 40 + "1" + "}" * 40, "deeper"),
    ("[1]", "expected `key: value` lines"),
], ids=["twice", "deep-lists", "deep-mappings", "no-mapping"])
def test_what_json_cannot_say_of_a_fault_the_yaml_reader_says(text: str, why: str) -> None:
    _, problems = parse_json(text, layer="file", file="t.yaml")
    assert why in problems[0].text and problems[0].line == 0
