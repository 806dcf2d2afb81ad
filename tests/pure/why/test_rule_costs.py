"""No line, however it is made, may take a rule long: the time may grow with a line's length, not with its square."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pytest

from safelaunch.why.read.prefilter import fold
from safelaunch.why.read.scan import MAX_LINE
from safelaunch.why.rulebook import RULES
from tests.effort import at_rest_s, least_s, seconds_of, slowness
from tests.pure.pumps import pumps_of

# Few bytes more at first: what doubles with each byte would take a minute where it should be stopped after 0.1 s.
SIZES = (*range(16, 32, 2), *(int(32 * 1.7**power) for power in range(8)), MAX_LINE // 4)
MOST_S = 0.12          # of processor time for a line of MAX_LINE bytes: worst rule 0.03 on a quiet machine (2026-11-22)
FROM_S = 0.003         # less is no measure of growth
MOST_GROWTH = 9.0      # for four times the length: 4 would be linear, 16 quadratic


def complaint_about(pattern: bytes) -> str:
    """The line that takes the pattern too long, or longer and longer; empty = there is none among those made for it."""
    search = re.compile(pattern).search
    for pump in pumps_of(pattern):
        for size in SIZES:
            work = partial(search, pump(size))
            short_s = seconds_of(work)
            if short_s > MOST_S and (short_s := at_rest_s(work, MOST_S)) > MOST_S:
                return f"{short_s:.2f} s for {size} bytes of {pump(80)!r}…"
        if short_s < FROM_S / 16:
            continue
        for tries in (1, 5):   # one try acquits nearly all: more make a time shorter, never longer
            long_s = least_s(partial(search, pump(MAX_LINE)), tries)
            short_s = least_s(partial(search, pump(SIZES[-1])), 2 * tries)
            if long_s <= FROM_S:
                break
            if long_s <= MOST_GROWTH * short_s and (long_s <= MOST_S or long_s / slowness() <= MOST_S):
                break
        else:
            return f"{short_s * 1000:.1f} ms, four times as long: {long_s * 1000:.1f} ms, for {pump(80)!r}…"
    return ""


@pytest.mark.parametrize("start", sorted({rule.id.partition(".")[0] for rule in RULES}))
def test_no_line_takes_a_rule_longer_than_its_length_explains(start: str) -> None:
    rules = [rule for rule in RULES if rule.id.partition(".")[0] == start]
    assert {rule.id: said for rule in rules if (said := complaint_about(rule.pattern))} == {}


def test_no_anchor_is_made_of_hexadecimal_digits_alone() -> None:
    """Else addresses in stack frames hold it, each of which is a shape of its own: "efa_" cost a log half its time."""
    assert [literal for rule in RULES for literal in rule.anchor if re.fullmatch(rb"[a-fx]*", fold(literal))] == []


@pytest.mark.parametrize("pattern", [
    rb"(?:x+)+y", rb"ib\w*\S* .{0,300}?down", rb"open .*: .*: no", rb"took \d+\w* s", rb"(?:a|a)+$", rb"\s+end$",
], ids=repr)
def test_a_pattern_that_grows_with_the_square_is_found(pattern: bytes) -> None:
    assert complaint_about(pattern) != ""


@pytest.mark.parametrize("pattern", [
    rb"CUDA error: (?P<what>.*)", rb"GPU.{0,300}?(?:lost|gone)", rb"took \d+ s", rb"^(?P<type>[\w.]+)(?:: .*)?$",
], ids=repr)
def test_a_pattern_that_is_linear_passes(pattern: bytes) -> None:
    assert complaint_about(pattern) == ""


def test_a_pump_is_made_for_each_repetition() -> None:
    made: list[Callable[[int], bytes]] = list(pumps_of(rb"rank \d{1,7} of [a-c]+"))
    assert any(b"rank 0 of aaaaaaaaaaaaaaa" in pump(60) for pump in made)
    assert all(0 < len(pump(500)) <= 540 for pump in made)
