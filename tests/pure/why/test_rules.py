"""The rules of `why`: each knows its sample, leaves its counter-sample alone, and is cheap on any line."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from functools import cache, partial

from safelaunch.why.categories import TABLE
from safelaunch.why.causes.category import ADVICE
from safelaunch.why.findings import Finding, Rule
from safelaunch.why.read.prefilter import Shapes
from safelaunch.why.read.scan import Compiled, Scanner
from safelaunch.why.rulebook import BY_ID, RULES
from safelaunch.why.weigh.groups import fill
from tests.effort import at_rest_s

COMPILED = Compiled(RULES)
# Lines made to make a backtracking matcher suffer: runs of what patterns repeat.
HOSTILE = tuple(piece * (8192 // len(piece)) for piece in (
    b"a", b" ", b"1", b"a.", b"Error ", b"loss ", b"1/1 ", b"node-1 ", b"::", b"'", b"[1] ", b"failed error ", b"/a",
    b"step 1 ", b"a_b ", b"-", b"NET/IB : ", b"UCX  ERROR ", b"must be ", b"Exception "))
HOSTILE_S = 0.25       # of processor time: a pattern that is not linear takes a second


@cache
def read(text: str) -> dict[str, Finding | None]:
    """Rules that have lines of the text, with their findings where one is kept."""
    block = text.encode() + b"\n"
    scanner = Scanner(COMPILED, 0, Shapes(COMPILED.literals, words=COMPILED.words))
    scanner.feed(block, 0, 1)
    part = scanner.finish()
    kept = {finding.rule: finding for finding in part.findings}
    return {rule: kept.get(rule) for rule in part.counts}


def words_of(text: str) -> set[str]:
    """Its words, numbers and names in capitals taken apart."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]{2,}|[A-Z]{3,}", text)}


def test_every_rule_is_found_by_its_id() -> None:
    assert len(RULES) > 380
    assert [BY_ID[rule.id] for rule in RULES] == list(RULES)


def test_every_rule_has_its_sample() -> None:
    assert {rule.id: list(read(rule.sample)) for rule in RULES if rule.id not in read(rule.sample)} == {}


def test_every_rule_leaves_its_counter_sample_alone() -> None:
    assert {rule.id: rule.counter_sample for rule in RULES if rule.id in read(rule.counter_sample)} == {}


def test_every_counter_sample_is_a_near_miss() -> None:
    far = {rule.id: rule.counter_sample for rule in RULES
           if not words_of(rule.counter_sample) & words_of(rule.sample + rule.pattern.decode("latin-1"))}
    assert far == {}


def test_every_rule_is_complete() -> None:
    assert {rule.id: missing for rule in RULES if (missing := [*what_is_missing(rule)])} == {}


def what_is_missing(rule: Rule) -> Iterator[str]:
    named = set(re.compile(rule.pattern).groupindex)
    wanted = {name for _, name, _, _ in string.Formatter().parse(rule.summary) if name} - {"line", "speaker"}
    checks = {
        "category": rule.category in TABLE,
        "action": rule.action in {*ADVICE, ""},
        "explain": rule.explain,
        "source": rule.source,
        "weight": 0 <= rule.weight <= 1,
        "anchor": rule.anchor and all(len(literal) >= 4 for literal in rule.anchor),
        "groups of the summary": wanted <= named,
        "host_group or rank_group": {rule.host_group, rule.rank_group} - {""} <= named,
        "summary": rule.summary or rule.role in ("progress", "done", "launch", "noise"),
        "sample": rule.sample,
        "counter_sample": rule.counter_sample,
    }
    yield from (name for name, holds in checks.items() if not holds)


def test_every_summary_says_something_without_holes() -> None:
    said = {rule.id: summary_of(rule) for rule in RULES if rule.summary}
    assert {name: text for name, text in said.items() if not text or "{" in text or "None" in text} == {}


def summary_of(rule: Rule) -> str:
    finding = read(rule.sample).get(rule.id)
    return fill(rule, finding) if finding is not None else ""


def test_no_line_makes_a_pattern_slow() -> None:
    assert {rule.id: slow for rule in RULES if (slow := [*slow_lines(rule)])} == {}


def slow_lines(rule: Rule) -> Iterator[bytes]:
    pattern = re.compile(rule.pattern)
    for line in HOSTILE:
        if at_rest_s(partial(pattern.search, rule.anchor[0] + line), HOSTILE_S) >= HOSTILE_S:
            yield line[:20]
