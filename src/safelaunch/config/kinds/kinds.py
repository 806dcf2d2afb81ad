"""The kinds of value a key can have: each reads one node, or says in plain words what it expected.

`schema` is the JSON Schema of the same values, for editors. It sees a number's value and not how it is written. So it
can let pass what only `read` knows to be wrong; a test lists what that is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

from safelaunch.base.yaml.yamlnodes import ListNode, MappingNode, Node, Scalar, show
from safelaunch.config.handed import MAX_VALUE_BYTES, SCRIPT_MAX_BYTES, unfit
from safelaunch.config.values import DURATION_MAX_S, DURATION_PATTERN, parse_duration_s
from safelaunch.errors import ParseError
from safelaunch.extensions.plugins import NAME_PATTERN
from safelaunch.slurm.sbatchoptions import owned_srun_flag

# Line breaks of any kind would end an #SBATCH line; surrogates are bytes of the environment that are not UTF-8.
_NOT_IN_A_LINE = "[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"
_INTEGER_MAX = (1 << 31) - 1

Schema = dict[str, object]
# A text with ${VAR} in it may stand for any single value.
REFERENCE: Schema = {"type": "string", "pattern": r"\$\{"}
_TEXT = ["string", "number"]   # a number counts as its text


class WrongValue(Exception):
    """What is wrong with a value, in words that follow "key: "."""


class ValueKind(Protocol):
    """Reads one node as the value that the resolved config holds; raises WrongValue."""

    @property
    def schema(self) -> Schema: ...

    def read(self, node: Node) -> Any: ...  # noqa: D102


def expected(what: str, node: Node) -> WrongValue:
    """The complaint `expected an integer ≥ 1, got "four"`."""
    return WrongValue(f"expected {what}, got {show(node)}")


def read_line(node: Node, what: str = "text") -> str:
    """One line of text as it was written; a number counts as its text, a boolean does not."""
    if not isinstance(node, Scalar) or isinstance(node.value, bool) or node.value is None:
        hint = "; put it in quotes if you mean the word" if isinstance(node, Scalar) and node.value is not None else ""
        raise WrongValue(f"{expected(what, node)}{hint}")
    if not node.text.isprintable() and (found := re.search(_NOT_IN_A_LINE, node.text)):
        raise WrongValue(
            f"holds a character that a line of text cannot (U+{ord(found[0]):04X}); expected {what} in one line"
        )
    return handed(node.text)


def handed(text: str, name: str = "", most_bytes: int = MAX_VALUE_BYTES) -> str:
    """The text, which a process can be given, behind the name of its variable if it has one."""
    if fault := unfit(f"{name}={text}" if name else text, most_bytes):
        raise WrongValue(fault)
    return text


class Text(NamedTuple):
    """One line of text, if need be of a pattern."""

    what: str = "text"
    pattern: str | None = None
    may_be_empty: bool = False

    @property
    def schema(self) -> Schema:
        """Text or a number; no pattern here takes a sign."""
        if self.pattern is not None:
            return {"type": _TEXT, "pattern": f"^({self.pattern})$", "minimum": 0}
        return {"type": _TEXT, "minLength": 0 if self.may_be_empty else 1}

    def read(self, node: Node) -> str:
        """The text."""
        text = read_line(node, self.what)
        if not text and not self.may_be_empty:
            raise expected(self.what, node)
        if self.pattern is not None and re.fullmatch(self.pattern, text) is None:
            raise expected(self.what, node)
        return text


class Path:
    """A path; `$HOME/x` would be a folder named "$HOME", and is refused."""

    schema: ClassVar[Schema] = {"type": _TEXT, "minLength": 1, "pattern": r"^(?!~[^/])(?!.*\$[A-Za-z_])"}

    def read(self, node: Node) -> str:
        """The path as written."""
        text = Text("a path").read(node)
        if "$" in text and (found := re.search(r"\$([A-Za-z_][A-Za-z0-9_]*)", text)):
            raise WrongValue(f"write ${{{found[1]}}}, with braces, for the variable {found[1]}")
        if text.startswith("~") and text != "~" and not text.startswith("~/"):
            raise WrongValue(f"expected ~/… or the full path, got {show(node)}")
        return text


class Shell:
    """Shell code for bash on the nodes: any text that a process can be given."""

    schema: ClassVar[Schema] = {"type": "string"}

    def read(self, node: Node) -> str:
        """The code, untouched."""
        if isinstance(node, ListNode):
            raise WrongValue("expected one text, as you would type it in a shell, got a list")
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            raise expected("text, as you would type it in a shell", node)
        return handed(node.text, most_bytes=SCRIPT_MAX_BYTES if node.text.startswith("#!") else MAX_VALUE_BYTES)


class OneOf(NamedTuple):
    """One of some words."""

    words: tuple[str, ...]

    @property
    def schema(self) -> Schema:
        return {"enum": [*self.words, *(word == "true" for word in self.words if word in ("true", "false"))]}

    def read(self, node: Node) -> str:
        """The word."""
        if not isinstance(node, Scalar) or node.text not in self.words:
            raise expected(one_of(self.words), node)
        return node.text


class NameOf(OneOf):
    """One of some words, or the name of a plugin, which config.rules looks up."""

    @property
    def schema(self) -> Schema:
        return {"anyOf": [super().schema, {"type": "string", "pattern": f"^{NAME_PATTERN}$"}]}

    def read(self, node: Node) -> str:
        """The word."""
        if isinstance(node, Scalar) and isinstance(node.value, str) and re.fullmatch(NAME_PATTERN, node.text):
            return node.text
        return super().read(node)


class Integer(NamedTuple):
    """A whole number within bounds."""

    min: int
    max: int = _INTEGER_MAX

    @property
    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.min, "maximum": self.max}

    def read(self, node: Node) -> int:
        """The number."""
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, bool) or not isinstance(value, int) or not self.min <= value <= self.max:
            raise expected(self._what(), node)
        return value

    def _what(self) -> str:
        if self.min == self.max:
            return f"{self.min}"
        return f"an integer ≥ {self.min}" if self.max == _INTEGER_MAX else f"an integer from {self.min} to {self.max}"


class Duration(NamedTuple):
    """A length of time: seconds as a number, or `15m`; if need be also `auto`."""

    may_be_auto: bool = False

    @property
    def schema(self) -> Schema:
        duration = {"type": _TEXT, "minimum": 0, "maximum": DURATION_MAX_S, "pattern": f"^({DURATION_PATTERN})$"}
        return {"anyOf": [{"const": "auto"}, duration]} if self.may_be_auto else duration

    def read(self, node: Node) -> float | str:
        """Seconds, or "auto"."""
        text = node.text if isinstance(node, Scalar) else ""
        if self.may_be_auto and text == "auto":
            return text
        try:
            return parse_duration_s(text)
        except ParseError as error:
            raise WrongValue(f"{error.message}, got {show(node)}") from error


class TextLines(NamedTuple):
    """A list of lines of text, if need be out of some words, or out of them and names of plugins. `all_words` gives all
    where that takes time; `words` are then those that most configs have.
    """

    words: tuple[str, ...] = ()
    or_names: bool = False
    all_words: Callable[[], tuple[str, ...]] | None = None

    @property
    def schema(self) -> Schema:
        return {"type": "array", "items": {"anyOf": [self._item.schema, REFERENCE]}}

    @property
    def _item(self) -> ValueKind:
        kind = NameOf if self.or_names else OneOf
        words = self.words if self.all_words is None else self.all_words()
        return kind(words) if words else Text()

    def read(self, node: Node) -> list[str]:
        """The list."""
        if not isinstance(node, ListNode):
            raise expected("a list, such as [a, b]", node)
        texts = [item.text for item in node.items if isinstance(item, Scalar)]
        if self.all_words is not None and len(texts) == len(node.items) and set(texts) <= set(self.words):
            return texts
        item_kind = self._item
        return [item_kind.read(item) for item in node.items]


class SrunFlags(TextLines):
    """A list of srun's flags, without those that safelaunch sets itself."""

    def read(self, node: Node) -> list[str]:
        """The flags."""
        flags = super().read(node)
        for flag in flags:
            if reason := owned_srun_flag(flag):
                raise WrongValue(f"{flag}: {reason}")
        return flags


class ZeroOrOne:
    """srun's own 0 or 1, also as true or false."""

    schema: ClassVar[Schema] = {"enum": [0, 1, False, True]}

    def read(self, node: Node) -> int:
        """0 or 1."""
        if not isinstance(node, Scalar) or node.value not in (0, 1) or isinstance(node.value, float):
            raise expected("0 or 1", node)
        return int(bool(node.value))


class Flag:
    """true or false."""

    schema: ClassVar[Schema] = {"type": "boolean"}

    def read(self, node: Node) -> bool:
        """Whether it is true."""
        if not isinstance(node, Scalar) or not isinstance(node.value, bool):
            raise expected("true or false", node)
        return node.value


class Share:
    """A share of a number of nodes, such as 10%, or a number of them."""

    what = "a share such as 10%, or a number of nodes"
    pattern = r"[0-9]{1,2}(\.[0-9]+)?%|100%|[0-9]{1,6}"
    schema: ClassVar[Schema] = {
        "type": ["string", "integer"], "pattern": f"^({pattern})$", "minimum": 0, "maximum": 999_999,
    }

    def read(self, node: Node) -> str:
        """The text as written."""
        text = node.text if isinstance(node, Scalar) else ""
        if re.fullmatch(self.pattern, text) is None:
            raise expected(self.what, node)
        return text


class Percentage(Share):
    """A part of something, from 1% to below 100%."""

    what = "a percentage from 1% to 99%, such as 5%"
    pattern = r"[1-9][0-9]?(\.[0-9]{1,6})?%"
    schema: ClassVar[Schema] = {"type": "string", "pattern": f"^({pattern})$"}


class PolicyTable(NamedTuple):
    """Categories of failure, each with what follows: a word, and a budget behind it if need be."""

    all_categories: Callable[[], tuple[str, ...]]
    all_words: Callable[[], tuple[str, ...]]

    @property
    def schema(self) -> Schema:
        """The categories as names, and for each what follows; null is for lower layers."""
        word = {"type": ["string", "null"], "pattern": rf"^({self._pattern})$|\$\{{"}
        return {"type": "object", "propertyNames": {"enum": list(self.all_categories())}, "additionalProperties": word}

    @property
    def _pattern(self) -> str:
        return f"({'|'.join(self.all_words())})( [0-9]{{1,4}})?"

    def read(self, node: Node) -> dict[str, str]:
        """Category → "word" or "word number"."""
        if not isinstance(node, MappingNode):
            raise expected("categories and what follows, such as {cuda_oom: stop}", node)
        for category, value in node.entries.items():
            if category not in self.all_categories():
                raise WrongValue(f"{category}: no such category; known: {', '.join(self.all_categories())}")
            if not isinstance(value, Scalar) or re.fullmatch(self._pattern, value.text) is None:
                what = f"{one_of(self.all_words())}, with a number of restarts behind it if need be"
                raise WrongValue(f"{category}: {expected(what, value)}")
        return {category: value.text for category, value in node.entries.items() if isinstance(value, Scalar)}


class SignalName:
    """A signal that a program can catch and survive."""

    names = ("SIGUSR1", "SIGUSR2", "SIGTERM", "SIGINT", "SIGHUP")
    schema: ClassVar[Schema] = {"enum": [*names, *(name.removeprefix("SIG") for name in names)]}

    def read(self, node: Node) -> str:
        """The name with SIG."""
        text = node.text if isinstance(node, Scalar) else ""
        name = text if text.startswith("SIG") else f"SIG{text}"
        if name not in self.names:
            raise expected(one_of(self.names), node)
        return name


class StepPattern:
    """`auto`, or a regular expression whose one group is the step, the loss or the time of a step."""

    schema: ClassVar[Schema] = {"type": "string", "pattern": r"^auto$|\("}

    def read(self, node: Node) -> str:
        """The pattern's text."""
        text = read_line(node, "auto or a regular expression")
        check_step_pattern(text)
        return text


def check_step_pattern(text: str) -> None:
    """Raise WrongValue where it is neither `auto` nor a regular expression with one group."""
    try:
        groups = 1 if text == "auto" else re.compile(text).groups
    except (re.error, RecursionError, OverflowError) as error:
        raise WrongValue(f"not a regular expression: {error}") from error
    if groups != 1:
        raise WrongValue(f'expected exactly one group, such as "step (\\d+)", got {groups}')


class ResumeArgs:
    """Arguments for the training, with {path} and {step} to be filled in."""

    schema: ClassVar[Schema] = {"type": _TEXT}

    def read(self, node: Node) -> str:
        """The text as written; bash quoting is undone when it is filled in."""
        text = Text(may_be_empty=True).read(node)
        for name in re.findall(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", text) if text else ():
            if name not in ("path", "step"):
                raise WrongValue(f"{{{name}}}: only {{path}} and {{step}} are filled in")
        if "'" in text or '"' in text or "\\" in text:
            import shlex  # not before it is needed: `safelaunch submit` counts its milliseconds

            try:
                shlex.split(text)
            except ValueError as error:
                raise WrongValue(f"bash could not split it: {str(error).lower()}") from error
        return text


class CheckpointPattern:
    """A path pattern whose {step} is the step."""

    schema: ClassVar[Schema] = {"type": "string", "pattern": r"\{step\}"}

    def read(self, node: Node) -> str:
        """The pattern."""
        text = read_line(node, "a path pattern")
        if text.count("{step}") != 1:
            raise expected("a path pattern with {step} in it once, such as step_{step}.pt", node)
        return text


def one_of(choices: tuple[str, ...]) -> str:
    """`a, b or c`."""
    return " or ".join((", ".join(choices[:-1]), choices[-1])) if len(choices) > 1 else choices[0]
