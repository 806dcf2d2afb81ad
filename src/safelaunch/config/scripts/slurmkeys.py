"""`slurm:` and the flags after `--`, both read by sbatch's own table of options.

A layer's keys are brought to one spelling (dashes) before layers are merged, so that a site's `gpus_per_node` and a
user's `gpus-per-node` are one option. What sbatch gets is the text as written: an account `0123` stays "0123".
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress

from safelaunch.base.nearest import nearest_word
from safelaunch.base.yaml.yamlnodes import ListNode, MappingNode, Node, Origin, Scalar, is_null, quoted, with_entries
from safelaunch.config.kinds.kinds import WrongValue, expected, handed, read_line
from safelaunch.errors import Problem
from safelaunch.slurm.sbatchoptions import ALIASES, LETTERS, OPTIONS, Option, why_refused

SlurmValue = str | int | bool

UNKNOWN = "{} is no option that safelaunch knows: it goes to sbatch as it is"
_OPTION_NAME = r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*"
# sbatch(1), --time: [[hours:]minutes[:seconds]] or days-hours[:minutes[:seconds]].
_TIME = r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|(?i:infinite|unlimited)"
# Nearer than this to a known option, an unknown one is a slip of the keys ("gpu-per-node"), not a newer Slurm.
_SLIP = 0.82   # pyxis' container-env and container-id have 0.8


def canonical_slurm(root: MappingNode) -> tuple[MappingNode, list[Problem]]:
    """One layer with sbatch's spelling under `slurm`, and the options in it that cannot be passed."""
    section = root.entries.get("slurm")
    if not isinstance(section, MappingNode):
        return root, []
    entries: dict[str, Node] = {}
    places: dict[str, Origin] = {}
    problems: list[Problem] = []
    for written, node in section.entries.items():
        place = section.key_origins.get(written, node.origin)
        name = _canonical_name(written)
        fault = f"given twice, the first time in line {places[name].line}" if name in entries else refuse_option(name)
        if fault:
            problems.append(Problem(place.file, place.line, place.column, f"slurm.{written}", fault))
        entries[name], places[name] = _taken_back(node), place
    slurm = MappingNode(entries, section.origin, places)
    return with_entries(root, {**root.entries, "slurm": slurm}), problems


def refuse_option(name: str) -> str | None:
    """Why this option cannot be passed to sbatch, or None. `--name` is one that the user vouches for."""
    bare = name.removeprefix("--")
    if refusal := why_refused(bare if bare not in OPTIONS else name):
        return refusal
    if name in OPTIONS:
        return None
    if not re.fullmatch(_OPTION_NAME, bare):
        return "not the name of an sbatch option"
    if name != bare:   # sbatch takes a unique beginning for the option: `--outp` is `--output`
        meant = next((option for option in (*OPTIONS, *ALIASES) if option.startswith(bare)), None)
        return None if meant is None else f'sbatch reads it as the beginning of an option; write "{meant}" or its like'
    near = nearest_word(name, OPTIONS, cutoff=_SLIP)
    if near is None:
        return None
    return f'unknown option; did you mean "{near}"? (if your Slurm is newer and has it, write "--{name}")'


def read_slurm(section: MappingNode) -> tuple[dict[str, SlurmValue], list[Problem]]:
    """Each option as sbatch takes it: a text, a whole number, or True for a bare flag."""
    values: dict[str, SlurmValue] = {}
    problems = []
    for name, node in section.entries.items():
        try:
            values[name.removeprefix("--")] = _read_option(name, node)
        except WrongValue as fault:
            place = node.origin
            problems.append(Problem(place.file, place.line, place.column, f"slurm.{name}", str(fault)))
    return values, problems


def parse_flags(tokens: Sequence[str], origin: Origin) -> tuple[MappingNode, list[Problem]]:
    """A layer of the options that sbatch would read from these arguments (`--qos=high`, `-p gpu`, `-N4`, `-HO`)."""
    flags, faults = split_flags(tokens)
    entries = {key_of(name): node_of(text, origin) for name, text in flags}
    problems = [Problem(origin.file, origin.line, origin.column, flag, text) for flag, text in faults]
    slurm = MappingNode(entries, origin, dict.fromkeys(entries, origin))
    return MappingNode({"slurm": slurm} if entries else {}, origin), problems


def told_unknown(layer: MappingNode) -> list[str]:
    """What is to be said of flags that only the site's Slurm may know."""
    slurm = layer.entries.get("slurm")
    return [UNKNOWN.format(name) for name in slurm.entries if name.startswith("--")] if isinstance(
        slurm, MappingNode) else []


def key_of(name: str) -> str:
    """An option's key under slurm:. One that is not known is written with its dashes, and passes as it is."""
    return name if name in OPTIONS or why_refused(name) else f"--{name}"


def node_of(text: str | None, origin: Origin) -> Node:
    """An option's value as it stands: sbatch fills in no ${VAR}."""
    return Scalar(True, "true", True, origin) if text is None else literal(text, origin)


def literal(text: str, origin: Origin) -> Scalar:
    """A text in which nothing is filled in (config/values.py)."""
    return quoted(text.replace("${", "$${"), origin)


def split_flags(tokens: Sequence[str]) -> tuple[list[tuple[str, str | None]], list[tuple[str, str]]]:
    """Long names with their values (None: none), in order; and each argument that is no flag, with the reason."""
    flags: list[tuple[str, str | None]] = []
    faults: list[tuple[str, str]] = []
    rest = deque(tokens)
    while rest:
        token = rest.popleft()
        try:
            flags.extend(_split_flag(token, rest))
        except WrongValue as fault:
            faults.append((token, str(fault)))
    return flags, faults


def split_arguments(tokens: Sequence[str]) -> tuple[list[str], list[str]]:
    """The flags of sbatch that these words begin with, their values included, and the arguments behind them; a `--`
    ends the flags.
    """
    tokens = list(tokens)
    rest = deque(tokens)
    while rest and rest[0] != "--" and len(rest[0]) > 1 and rest[0].startswith("-"):
        with suppress(WrongValue):
            list(_split_flag(rest.popleft(), rest))
    count = len(tokens) - len(rest)
    return tokens[:count], tokens[count + 1:] if tokens[count:count + 1] == ["--"] else tokens[count:]


def count_flag(words: Sequence[str]) -> int:
    """How many of the words are sbatch's flag that they begin with, and its value; 0 = none that is known."""
    rest = deque(words)
    try:
        flags = list(_split_flag(rest.popleft(), rest))
    except WrongValue:
        return 0
    return len(words) - len(rest) if all(name in OPTIONS for name, _ in flags) else 0


def _canonical_name(written: str) -> str:
    if written.startswith("--"):
        bare = written[2:].replace("_", "-")
        return bare if bare in OPTIONS else f"--{bare}"
    return written.replace("_", "-")


def _taken_back(node: Node) -> Node:
    """`false` unsets an option as null does: sbatch's flags have no "no"."""
    if isinstance(node, Scalar) and node.value is False:
        return Scalar(None, node.text, node.plain, node.origin)
    return node


def _read_option(name: str, node: Node) -> SlurmValue:
    option = OPTIONS.get(name, Option("optional", "", True))
    if isinstance(node, Scalar) and node.value is True:
        if option.takes in ("required", "count"):
            raise WrongValue("needs a value")
        return True
    if option.takes == "none":
        raise expected("true or false (it takes no value)", node)
    text = handed(_joined(node)) if isinstance(node, ListNode) and option.is_list else read_line(node)
    if not text:
        raise WrongValue("expected a value, got an empty text; null takes back what a lower layer set")
    if name == "nodes" and (same := re.fullmatch(r"(\d+)-\1", text)):
        text = same[1]
    if option.takes == "count":
        _check_count(name, text, node)
    if name in ("time", "time-min") and not (_whole_number(text) is not None or re.fullmatch(_TIME, text, re.ASCII)):
        raise expected("a time as sbatch takes it, such as 20:00:00, 1-12:00:00 or minutes", node)
    if name == "dependency" and "?" in text:   # one list takes one separator: sbatch(1), --dependency
        raise WrongValue("expected dependencies joined by commas: all must hold, as safelaunch adds one of its own")
    number = _whole_number(text)
    return text if number is None else number


def _whole_number(text: str) -> int | None:
    """The number, if it is written just as it would be printed (`0123` is a text)."""
    number = int(text) if len(text) < 19 and text.isascii() and text.removeprefix("-").isdigit() else None
    return number if str(number) == text else None


def _joined(node: ListNode) -> str:
    if not node.items or any(is_null(item) for item in node.items):
        raise WrongValue("expected at least one value, and no empty ones")
    return ",".join(read_line(item) for item in node.items)


def _check_count(name: str, text: str, node: Node) -> None:
    if name == "nodes" and not text.isdecimal() and re.fullmatch(r"\d+[-,].*|.*[:,].*", text):
        raise WrongValue(f'"{text}": a range of nodes is not supported; a run has a fixed number of them')
    if (_whole_number(text) or 0) < 1:
        raise expected("an integer ≥ 1", node)


def _split_flag(token: str, rest: deque[str]) -> Iterator[tuple[str, str | None]]:
    if token.startswith("--") and len(token) > 2:
        yield _long_flag(token, rest)
    elif token.startswith("-") and len(token) > 1 and token[1:] != "-":
        yield from _short_flags(token, rest)
    else:
        raise WrongValue("not a flag of sbatch; a value with blanks needs quotes, overrides such as slurm.nodes=4 "
                         "stand before the --")


def _long_flag(token: str, rest: deque[str]) -> tuple[str, str | None]:
    name, equals, text = token[2:].partition("=")
    name = _full_name(name)
    option = OPTIONS.get(name)
    if option is None:
        if not why_refused(name) and (near := nearest_word(name, OPTIONS, cutoff=_SLIP)):
            raise WrongValue(f'unknown option of sbatch; did you mean "--{near}"? (if your Slurm has it, leave it out '
                             f'here, and write slurm.--{name}=VALUE behind the file)')
        return name, text if equals else rest.popleft() if rest and not rest[0].startswith("-") else None
    if option.takes == "none" and equals:
        raise WrongValue("takes no value")
    if equals or option.takes in ("none", "optional"):
        return name, text if equals else None
    return name, _next_value(rest)


def _full_name(name: str) -> str:
    """The option that a unique beginning stands for, as sbatch takes it (getopt_long(3)): `--err` is `--error`."""
    if name in OPTIONS or name in ALIASES:
        return ALIASES.get(name, name)
    found = sorted(option for option in (*OPTIONS, *ALIASES) if name and option.startswith(name))
    if len(found) > 1:
        raise WrongValue(f"could be {' or '.join(f'--{option}' for option in found)}")
    return ALIASES.get(found[0], found[0]) if found else name


def _short_flags(token: str, rest: deque[str]) -> Iterator[tuple[str, str | None]]:
    letters = token[1:]
    while letters:
        name = LETTERS.get(letters[0])
        letters, attached = letters[1:], letters[1:]
        if name is None:
            raise WrongValue("unknown option of sbatch")
        if OPTIONS[name].takes == "none":
            yield name, None
            continue
        needs_value = OPTIONS[name].takes != "optional"
        yield name, attached or (_next_value(rest) if needs_value else None)
        return


def _next_value(rest: deque[str]) -> str:
    if not rest:
        raise WrongValue("needs a value")
    return rest.popleft()
