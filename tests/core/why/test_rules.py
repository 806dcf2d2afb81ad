"""The rules of `why`: each knows its sample, leaves its counter-sample alone, and is cheap on any line."""

from __future__ import annotations

import re
import string
import time

import pytest

from safelaunch.core.categories import ADVICE, TABLE
from safelaunch.core.why.findings import Finding, Rule
from safelaunch.core.why.prefilter import Shapes
from safelaunch.core.why.rulebook import BY_ID, RULES
from safelaunch.core.why.scan import Compiled, Scanner
from safelaunch.core.why.weighing import fill
from tests.core.why.rule_samples import SAMPLES

COMPILED = Compiled(RULES)
IDS = [rule.id for rule in RULES]
# Lines made to make a backtracking matcher suffer: runs of what patterns repeat.
HOSTILE = tuple(piece * (8192 // len(piece)) for piece in (
    b"a", b" ", b"1", b"a.", b"Error ", b"loss ", b"1/1 ", b"node-1 ", b"::", b"'", b"[1] ", b"failed error ", b"/a",
    b"step 1 ", b"a_b ", b"-", b"NET/IB : ", b"UCX  ERROR ", b"must be ", b"Exception "))


def read(text: str) -> list[tuple[str, Finding | None]]:
    """Rules that have lines of the text, with their findings where one is kept."""
    block = text.encode() + b"\n"
    scanner = Scanner(COMPILED, 0, Shapes(COMPILED.literals, words=COMPILED.words))
    scanner.feed(block, 0, 1)
    part = scanner.finish()
    kept = {finding.rule: finding for finding in part.findings}
    return [(rule, kept.get(rule)) for rule in part.counts]


def test_every_rule_has_a_sample_and_a_counter_sample() -> None:
    assert set(SAMPLES) == set(IDS)
    assert len(IDS) == len(set(IDS))


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_a_rule_has_its_sample(rule: Rule) -> None:
    found = [name for name, _ in read(SAMPLES[rule.id][0])]
    assert rule.id in found


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_a_rule_leaves_its_counter_sample_alone(rule: Rule) -> None:
    assert rule.id not in [name for name, _ in read(SAMPLES[rule.id][1])]


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_a_rule_is_complete(rule: Rule) -> None:
    assert rule.category in TABLE
    assert rule.action in {*ADVICE, ""}
    assert rule.explain
    assert rule.source
    assert 0 <= rule.weight <= 1
    assert rule.anchor
    assert all(len(literal) >= 4 for literal in rule.anchor)
    named = set(re.compile(rule.pattern).groupindex)
    wanted = {name for _, name, _, _ in string.Formatter().parse(rule.summary) if name} - {"line"}
    assert wanted <= named
    assert {rule.host_group, rule.rank_group} - {""} <= named
    assert rule.summary or rule.role in ("progress", "done", "launch", "noise")


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.summary], ids=lambda rule: rule.id)
def test_a_summary_says_something_without_holes(rule: Rule) -> None:
    finding = dict(read(SAMPLES[rule.id][0]))[rule.id]
    assert finding is not None
    said = fill(rule, finding)
    assert said
    assert "{" not in said
    assert "None" not in said


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_no_line_makes_a_pattern_slow(rule: Rule) -> None:
    pattern = re.compile(rule.pattern)
    for line in HOSTILE:
        start_s = time.process_time()
        pattern.search(rule.anchor[0] + line)
        assert time.process_time() - start_s < 0.25, line[:20]   # a pattern that is not linear takes a second


def test_every_rule_is_found_by_its_id() -> None:
    assert set(BY_ID) == set(IDS)
