"""The kinds of value: what each reads, and that its JSON Schema says the same."""

from __future__ import annotations

from safelaunch.base.yaml.yamltext import parse_value
from safelaunch.config import sweeps
from safelaunch.config.keys import KEYS, NAME_PATTERN
from safelaunch.config.kinds import argumentlist, containerkinds, kinds, notifykinds
from safelaunch.config.kinds.kinds import ValueKind, WrongValue
from tests.pure.config.json_schema import accepts, plain
from tests.tables import each

# A kind ▸ values that it reads ▸ that it refuses, and its schema too ▸ that it alone knows to be wrong.
ROWS: list[tuple[ValueKind, list[str], list[str], list[str]]] = [
    (kinds.Text(), ["a b", "12", "1.5", "'true'"], ["''", "true", "[a]", "{a: b}"], ['"a\\nb"']),
    (kinds.Text(may_be_empty=True), ["a b", "''"], ["true", "[a]"], []),
    (kinds.Text("a name", NAME_PATTERN), ["a.b-c_d", "12", "1.5", "'12'"],
     ["''", "-x", "a b", "-1", "true", "x" * 65, "[a]"], [".5"]),
    (kinds.Path(), ["/a", "a b", "~/x", "'~'", "a$", "${A}/x", "12"],
     ["''", "$HOME/x", "x/$A", "~bob/x", "true", "[a]"], ['"a\\nb"']),
    (kinds.Shell(), ["a b", '"a\\nb"', "''", "'3'"], ["3", "true", "[a]", "{a: b}"], ['"a\\0b"']),
    (kinds.OneOf(("auto", "local")), ["auto", "'local'"], ["other", "''", "1", "true", "[auto]"], []),
    (kinds.NameOf(("auto", "local")), ["auto", "other", "'1x'"], ["''", "1", "true", "[auto]", "-x", "a b"], []),
    (kinds.Integer(0), ["0", "2147483647"], ["-1", "2147483648", "1.5", "'1'", "true", "[1]"], ["1.0"]),
    (kinds.Integer(1, 3), ["1", "3"], ["0", "4"], []),
    (kinds.Duration(), ["0", "90", "1.5", "90s", "15m", "1h30m", "1.5h", "7d", "'90'"],
     ["15:00", "-1", "soon", "''", "1y", "auto", "true", "32000000", "[1]"], ["400d"]),
    (kinds.Duration(may_be_auto=True), ["auto", "15m", "90"], ["soon", "-1", "true", "[auto]"], ["400d"]),
    (kinds.TextLines(), ["[]", "[a b, 1]"], ["a", "[[a]]", "[true]", "['']", "{a: b}"], []),
    (kinds.TextLines(("hang", "data")), ["[]", "[hang, data]"], ["hang", "[other]", "[hang, 1]"], []),
    (kinds.TextLines(("hang",), all_words=lambda: ("hang", "data")), ["[]", "[hang]", "[data, hang]"],
     ["hang", "[other]", "[hang, 1]", "[hang, [hang]]"], []),
    (kinds.SrunFlags(), ["[]", "[--hint=x]"], ["--hint=x", "[true]"], ["[--output=x]"]),
    (kinds.ZeroOrOne(), ["0", "1", "true", "false"], ["2", "'1'", "[1]"], ["1.0"]),
    (kinds.Flag(), ["true", "false"], ["1", "'true'", "yes", "[true]"], []),
    (kinds.Share(), ["10%", "99.5%", "100%", "0", "3", "'3'"],
     ["110%", "-3", "1.5", "1000000", "many", "١٠%", "true", "[1]"], ["3.0"]),
    (kinds.Percentage(), ["5%", "'5%'", "2.5%", "99%"], ["0%", "0.5%", "100%", "5", "05%", "many", "true", "[5%]"], []),
    (kinds.PolicyTable(lambda: ("hang", "data"), lambda: ("restart", "stop")),
     ["{}", "{hang: stop}", "{hang: restart 3, data: stop}"],
     ["{other: stop}", "{hang: perhaps}", "{hang: restart three}", "{hang: 3}", "{hang: [stop]}", "stop", "[hang]"],
     []),
    (sweeps.SweepTable(), ["{lr: [1e-4, x], seed: 0-4, on: true}", "[{lr: 1}, {lr: a b}]", "{slurm.nodes: 1}"],
     ["{}", "[]", "lr", "3", "{lr: []}", "{lr: {a: b}}", "[1]", "[{}]", "{'a b': 1}", "{lr: ~}", "[{lr: [1]}]"],
     ["{seed: 4-0}", "{seed: 0-5000}", "{lr: [1, 1]}", "{name: [a]}", "[{a: 1}, {b: 1}]"]),
    (kinds.SignalName(), ["USR1", "SIGUSR1"], ["SIGKILL", "KILL", "10", "true", "[USR1]"], []),
    (kinds.StepPattern(), ["auto", "step (\\d+)", "(?:a|b) (c)"], ["abc", "''", "3", "true", "['(a)']"],
     ["(", "(a)(b)"]),
    (kinds.ResumeArgs(), ["'--load {path} {step}'", "''", "3"], ["true", "[a]"], ["'{file}'", '"a \'b"']),
    (notifykinds.Targets(), ["[]", "['env:A', 'mailto:a@b']", "['file:~/x']"],
     ["env:A", "['https://x/y']", "[slack]", "['env:']", "[[a]]", "[true]", "{a: b}"], []),
    (notifykinds.Program(), ["[]", "[/bin/x, 1, a b]"], ["/bin/x", "[[a]]", "[true]", "{a: b}"],
     ["[x]", "[/bin/x, --password=abcdef]"]),
    (containerkinds.Mounts(), ["[]", "[/data]", "['/data:/d', '/x:/y:ro']"],
     ["/data", "[data]", "['/a:b']", "['/a,b']", "[[a]]", "{a: b}"], ["['/a:/d', '/b:/d']"]),
    (containerkinds.Variables(), ["{}", "{A: b, C_1: 1, D: true}"], ["a", "[a]", "{1A: b}", "{A: [b]}"],
     ["{SAFELAUNCH_X: b}", "{UID: 1}"]),
    (argumentlist.ArgumentList(), ["[]", "[a, 3, true, '', 'b c']", "[\"x\\ny\"]"],
     ["a", "{a: b}", "[[a]]", "[~]"], []),
    (kinds.CheckpointPattern(), ["step_{step}.pt"], ["step.pt", "''", "3", "['{step}']"], ["'{step}{step}'"]),
]  # fmt: skip
EVERY_VALUE = sorted({value for _, *columns in ROWS for column in columns for value in column})


def _takes(kind: ValueKind, text: str) -> tuple[bool, bool]:
    """Whether the kind reads this value, and whether its schema takes it."""
    node, problems = parse_value(text, layer="file", file="t")
    assert node is not None
    assert not problems
    by_schema = accepts(kind.schema, plain(node))
    try:
        kind.read(node)
    except WrongValue:
        return False, by_schema
    return True, by_schema


@each(
    ("kind", "value", "said"),
    [(kind, value, said)
     for kind, *columns in ROWS
     for column, said in zip(columns, ((True, True), (False, False), (False, True)), strict=True)
     for value in column],
)  # fmt: skip
def test_a_kind_and_its_schema_take_the_same_values(kind: ValueKind, value: str, said: tuple[bool, bool]) -> None:
    assert _takes(kind, value) == said


@each("kind", [row[0] for row in ROWS], ids=lambda kind: type(kind).__name__)
def test_an_editor_never_marks_what_the_check_takes(kind: ValueKind) -> None:
    assert [value for value in EVERY_VALUE if _takes(kind, value) == (True, False)] == []


def test_every_kind_of_the_table_of_keys_has_its_row() -> None:
    assert {type(key.kind) for key in KEYS.values()} <= {type(row[0]) for row in ROWS}
