"""Clocks of nodes against each other: who stands apart for sure is named, and nobody else."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.nodehealth.checks.clocks import MOST_APART_S, ClockBounds, bounds, compare
from tests.tables import each


def clocks(*ends: tuple[float, float]) -> dict[str, ClockBounds]:
    return {f"n{number}": ClockBounds(*one) for number, one in enumerate(ends)}


@each(("node_t", "took_s", "asked_t", "answered_t", "expected"), [
    (101.0, 1.0, 100.0, 103.0, (-1.0, 1.0)), (108.0, 1.0, 100.0, 103.0, (6.0, 8.0)),
    (92.0, 3.0, 100.0, 103.0, (-8, -8)), (0.0, 1.0, 100.0, 103.0, None),
    (101.0, 9.0, 100.0, 103.0, None), (101.0, 1.0, 100.0, 40.0, None),
], ids=["alike", "ahead", "behind", "not told", "took longer than all of it", "the asker's clock was set back"])
def test_an_answer_bounds_a_clock(
    node_t: float, took_s: float, asked_t: float, answered_t: float, expected: tuple[float, float] | None
) -> None:
    assert bounds(node_t, took_s, asked_t, answered_t) == expected


@each(("ends", "expected"), [
    ((), ({}, None)),
    (((7.0, 7.1),), ({}, None)),
    (((0.0, 0.2), (0.1, 0.2), (1.9, 2.0)), ({}, None)),
    (((0.0, 0.2), (0.1, 0.3), (7.5, 7.7)), ({"n2": "clock: at least 7.2 s ahead of 2 nodes"}, None)),
    (((0.0, 0.2), (0.1, 0.3), (-9.0, -3.0)), ({"n2": "clock: at least 3.0 s behind 2 nodes"}, None)),
    (((-7.1, -7.0), (-7.2, -7.0), (0.0, 0.0)), ({"n2": "clock: at least 7.0 s ahead of 2 nodes"}, None)),
    (((0.0, 9.0), (0.1, 0.3), (8.9, 9.0)), ({}, None)),
    (((0.0, 0.2), (5.0, 5.1)), ({}, "clocks: n1 is at least 4.8 s ahead of n0: which is right is unknown")),
    (((0.0, 0.2), (5.0, 5.1), (9.0, 9.5)), ({}, "clocks: n2 is at least 8.8 s ahead of n0: which is right is unknown")),
], ids=["none", "one", "within 2 s", "ahead", "behind", "the asker's own is wrong", "a slow answer", "two",
        "no majority"])
def test_clocks_are_compared(ends: tuple[tuple[float, float], ...], expected: object) -> None:
    assert compare(clocks(*ends)) == expected


ANSWERS = st.lists(st.tuples(st.floats(-20, 20), st.floats(0, 5), st.floats(0, 5)), min_size=1, max_size=9)


@given(ANSWERS)
def test_who_is_named_differs_from_most_others_for_sure(answers: list[tuple[float, float, float]]) -> None:
    real = {f"n{number}": offset for number, (offset, _, _) in enumerate(answers)}
    apart, tie = compare(clocks(*((offset - before, offset + after) for offset, before, after in answers)))
    if max(real.values()) - min(real.values()) <= MOST_APART_S:
        assert (apart, tie) == ({}, None)
    for node, why in apart.items():
        told = re.search(r"at least (\S+) s .* (\d) nodes", why)
        far = sum(abs(other - real[node]) >= MOST_APART_S for other in real.values())
        assert told and 2 * int(told[2]) > len(real) and far >= int(told[2]), why
    assert 2 * len(apart) < len(real)
    if tie is not None:
        told = re.search(r"(n\d) is at least (\S+) s ahead of (n\d)", tie)
        assert told and real[told[1]] - real[told[3]] >= float(told[2]) - 0.05 > MOST_APART_S - 0.1, tie
