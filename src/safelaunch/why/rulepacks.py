"""Rules of a site or a framework, checked: plain values (of a YAML file or an entry point) → rules.

A pack is a mapping {"version": 1, "rules": [{"id": …, "category": …, "anchor": […], "pattern": …, …}]}. Its keys are
the fields of findings.Rule; its "sample" and "counter_sample", if it has them, are tried at once.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, get_args

from safelaunch.base.nearest import nearest_word
from safelaunch.base.yaml.yamlnodes import ListNode, MappingNode, Node
from safelaunch.base.yaml.yamltext import parse_document
from safelaunch.errors import ConfigError, Problem
from safelaunch.why.categories import TABLE
from safelaunch.why.causes.category import ADVICE
from safelaunch.why.findings import Blames, Role, Rule
from safelaunch.why.rulebook import BY_ID

VERSION = 1
Places = dict[tuple[Any, ...], tuple[int, int]]   # path → line and column, 1-based
LEAST_ANCHOR = 4          # bytes; a shorter literal is in every other line, and the prefilter lets all of them through
MOST_RULES = 500
MAX_ORDER = 5             # noise has 8: a pack outranks it only where it says so by a higher one
_KEYS = frozenset(field.name for field in fields(Rule))
_NEEDED = ("id", "category", "anchor", "pattern")
_ID = re.compile(r"[a-z0-9][a-z0-9_-]*(?:\.[a-z0-9][a-z0-9_-]*)+")
# A repeat of a group that itself repeats, or that has branches which may match the same: (a+)+, (a*b?)*, (a|a)+. Such
# patterns can take for ever on one line.
_NESTED = re.compile(r"\((?!\?[=!<])[^()]{0,1000}[+*][^()]{0,1000}\)(?:[+*]|\{\d{0,9},\d{0,9}\})")
_BRANCHED = re.compile(r"\((?:\?:|\?P<\w{1,64}>)?([^()]{0,1000}\|[^()]{0,1000})\)(?:[+*]|\{\d{0,9},\d{0,9}\})")


def read_pack(file: str, text: str) -> tuple[Rule, ...]:
    """The rules of a pack's YAML text; raises ConfigError with every problem and its place."""
    node, problems = parse_document(text, layer="site", file=file)
    if node is None or problems:
        raise ConfigError(problems)
    places: Places = {}
    return parse_pack(file, _plain(node, (), places), places)


def parse_pack(source: str, raw: object, places: Places | None = None) -> tuple[Rule, ...]:
    """The rules of a pack of plain values; raises ConfigError with every problem found. `source` names it in them."""
    known = places or {}
    if not isinstance(raw, Mapping) or raw.get("version") != VERSION or not isinstance(raw.get("rules"), list):
        raise ConfigError([Problem(source, 0, 0, "", f'expected "version: {VERSION}" and a list "rules"')])
    listed: list[object] = raw["rules"]
    found: list[tuple[tuple[str | int, ...], str]] = [
        ((key,), "unknown key") for key in raw if key not in ("version", "rules")]
    if len(listed) > MOST_RULES:
        found.append((("rules",), f"more than {MOST_RULES} rules"))
    rules: list[Rule] = []
    seen: set[str] = set()
    for number, item in enumerate(listed[:MOST_RULES]):
        faults = [*_faults(item, seen)]
        if isinstance(item, Mapping) and not faults:
            rules.append(_make(item))
            seen.add(rules[-1].id)
            faults = [*_tried(rules[-1])]
        for key, text in faults:
            found.append((("rules", number, key) if key else ("rules", number), text))
    if found:
        raise ConfigError([_place(source, path, text, known) for path, text in found])
    return tuple(rules)


def _place(source: str, path: tuple[Any, ...], text: str, places: Places) -> Problem:
    """The problem at the nearest place that is known: a key that is missing stands where its rule does."""
    at = next((places[path[:end]] for end in range(len(path), 0, -1) if path[:end] in places), (0, 0))
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    return Problem(source, *at, name, text)


def _plain(node: Node, path: tuple[Any, ...], places: Places) -> object:
    """The node's plain value; where it stands goes to `places`."""
    places[path] = (node.origin.line, node.origin.column)
    if isinstance(node, MappingNode):
        return {key: _plain(value, (*path, key), places) for key, value in node.entries.items()}
    if isinstance(node, ListNode):
        return [_plain(value, (*path, number), places) for number, value in enumerate(node.items)]
    return node.value


def _faults(item: object, seen: set[str]) -> Iterable[tuple[str, str]]:
    """(key, what is wrong) of one rule."""
    if not isinstance(item, Mapping):
        yield "", "expected a mapping"
        return
    for key in item:
        if key not in _KEYS:
            near = nearest_word(str(key), _KEYS)
            yield str(key), f"unknown key{f'; did you mean {near}?' if near else ''}"
    for key in _NEEDED:
        if key not in item:
            yield key, "is missing"
    yield from _word_faults(item, seen)
    yield from _anchor_faults(item.get("anchor", ["enough"]))
    yield from _pattern_faults(item)


def _word_faults(item: Mapping[str, Any], seen: set[str]) -> Iterable[tuple[str, str]]:
    name = item.get("id", "site.rule")
    if not isinstance(name, str) or not _ID.fullmatch(name):
        yield "id", 'expected lower-case words joined by dots, as in "site.bad_disk"'
    elif name in seen or name in BY_ID:
        yield "id", "is taken by another rule"
    for key, known in (("category", set(TABLE)), ("role", set(get_args(Role))), ("blames", set(get_args(Blames))),
                       ("action", {*ADVICE, ""})):
        value = item.get(key, next(iter(known)))
        if value not in known:
            yield key, f"expected one of {', '.join(sorted(word for word in known if word))}"
    weight, order = item.get("weight", 0.5), item.get("order", 0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= 1:
        yield "weight", "expected a number from 0 to 1"
    if isinstance(order, bool) or not isinstance(order, int) or not -MAX_ORDER <= order <= 2 * MAX_ORDER:
        yield "order", f"expected a whole number from {-MAX_ORDER} to {2 * MAX_ORDER}"
    for key in ("summary", "explain", "do", "source", "host_group", "rank_group"):
        if not isinstance(item.get(key, ""), str):
            yield key, "expected text"


def _anchor_faults(anchor: object) -> Iterable[tuple[str, str]]:
    if not isinstance(anchor, list) or not anchor or not all(isinstance(literal, str) for literal in anchor):
        yield "anchor", "expected a list of literals, one of which is in every line that the pattern matches"
    elif any(len(literal.encode()) < LEAST_ANCHOR for literal in anchor):
        yield "anchor", f"a literal needs at least {LEAST_ANCHOR} bytes: a shorter one is in too many lines"


def _pattern_faults(item: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    pattern = item.get("pattern", "")
    if not isinstance(pattern, str):
        yield "pattern", "expected text"
        return
    try:
        compiled = re.compile(pattern.encode())
    except (re.error, RecursionError, OverflowError) as error:
        yield "pattern", f"is no regular expression: {error}"
        return
    if _NESTED.search(pattern) or any(map(_may_match_alike, _BRANCHED.findall(pattern))):
        yield "pattern", ("repeats a group that repeats inside, or whose branches begin alike: it may take for ever on "
                          "one line")
    summary = item.get("summary", "")
    try:
        names = {name for _, name, _, _ in string.Formatter().parse(str(summary)) if name is not None}
    except ValueError as error:
        yield "summary", f"is no template: {error}"
        return
    for name in names - {"line", "speaker"} - set(compiled.groupindex):
        yield "summary", f"names the group {{{name}}}, which the pattern does not have"
    for key in ("host_group", "rank_group"):
        if item.get(key) and item[key] not in compiled.groupindex:
            yield key, f"the pattern has no group {item[key]}"


def _may_match_alike(branches: str) -> bool:
    """Whether two of the branches can begin with the same character, as far as single ones tell."""
    heads = [re.compile(head[0], re.DOTALL) for branch in branches.split("|")
             if (head := re.match(r"\\.|\[\^?\]?[^\]]{0,200}\]|[^\\\[]", branch)) and head[0] not in "^$*+?{"]
    if len(heads) < branches.count("|") + 1:
        return True   # an empty branch, or one that cannot be told
    return any(sum(head.fullmatch(chr(code)) is not None for head in heads) > 1 for code in range(128))


def _make(item: Mapping[str, Any]) -> Rule:
    known = {key: value for key, value in item.items() if key in _KEYS}
    known["anchor"] = tuple(literal.encode() for literal in item["anchor"])
    known["pattern"] = item["pattern"].encode()
    for key in ("sample", "counter_sample"):
        known[key] = str(item.get(key) or "")
    return Rule(**known)


def _tried(rule: Rule) -> Iterable[tuple[str, str]]:
    """What the rule's own samples show to be wrong."""
    pattern = re.compile(rule.pattern)
    if rule.sample:
        line = rule.sample.encode()
        if not pattern.search(line):
            yield "sample", "is not matched by the pattern"
        elif not any(literal in line for literal in rule.anchor):
            yield "sample", "holds none of the anchors, so the rule would never be tried on it"
    if rule.counter_sample and pattern.search(rule.counter_sample.encode()):
        yield "counter_sample", "is matched by the pattern"
