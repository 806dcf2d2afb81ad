"""Group testing by restarts: which nodes the next job leaves out, and when one is named."""

from __future__ import annotations

import random
from dataclasses import replace

from benchmarks.slow import restarts_needed

from safelaunch.core.slow.grouptest import GroupSearch, Trial, most_restarts, plan_next, probabilities
from tests.tables import each

NODES = tuple(f"n{number}" for number in range(48))
START = GroupSearch(NODES, 3, 105.2, 111.0, 0.005)


def test_the_most_suspected_come_first_and_no_more_than_the_spares() -> None:
    assert plan_next(START).leave_out == ("n0", "n1", "n2")
    assert plan_next(replace(START, spares=24)).leave_out == NODES[:24]
    assert plan_next(replace(START, spares=100)).leave_out == NODES[:25], "0.95 of them are as likely as not"


def test_a_speed_that_comes_back_halves_the_group_and_one_that_does_not_clears_it() -> None:
    back = replace(START, trials=(Trial(("n0", "n1", "n2"), 105.3),))
    assert plan_next(back).left == 3 and len(plan_next(back).leave_out) in (1, 2)
    slow = replace(START, trials=(Trial(("n0", "n1", "n2"), 110.9),))
    assert plan_next(slow).leave_out == ("n3", "n4", "n5") and plan_next(slow).left == 45


def test_one_node_is_named_once_it_is_the_only_one_left() -> None:
    search = replace(START, nodes=("n0", "n1", "n2"), trials=(Trial(("n0",), 111.0), Trial(("n1",), 105.0)))
    found = plan_next(search)
    assert (found.culprit, found.leave_out, found.most_left) == ("n1", (), 0) and found.probability > 0.99


def test_when_no_group_brings_the_speed_back_nobody_is_named() -> None:
    trials = tuple(Trial(NODES[at:at + 3], 111.2) for at in range(0, 48, 3))
    found = plan_next(replace(START, trials=trials))
    assert found.is_nobody and found.culprit is None and not found.leave_out


def test_a_doubtful_result_names_nobody_and_the_group_is_tried_again() -> None:
    between = replace(START, nodes=NODES[:4], spares=2, trials=(Trial(("n0", "n1"), 108.0),))
    known, _ = probabilities(between)
    assert max(known.values()) < 0.5 and plan_next(between).culprit is None and plan_next(between).left == 4


@each(("nodes", "spares", "most"), [
    (48, 3, 14 + 3), (48, 24, 6), (48, 6, 6 + 4), (48, 12, 2 + 5), (2, 1, 1), (3, 1, 2), (1, 3, 0), (48, 1, 46 + 1),
])
def test_how_many_restarts_are_needed_at_most(nodes: int, spares: int, most: int) -> None:
    assert most_restarts(nodes, spares) == most


def test_played_games_find_the_right_node_within_that_many_restarts() -> None:
    rng = random.Random(3)
    for spares in (3, 24):
        for slow in (0, 17, 47):
            took, named = restarts_needed(rng, 48, spares, slow, noise=0.002)
            assert named == NODES[slow] and took <= most_restarts(48, spares) + 2   # those that rule out "nobody"
