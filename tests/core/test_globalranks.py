"""Ranks of a node become ranks of the training where the layout is known."""

from __future__ import annotations

import pytest

from safelaunch.core.why.findings import Finding, Line, Log, Progress
from safelaunch.core.why.globalranks import to_global

NODES = ("n4", "n7", "n9")


@pytest.mark.parametrize(
    ("host", "rank", "number"),
    [("n4", 3, 3), ("n7", 3, 11), ("n9", 0, 16), ("n7", 11, 11), ("n9", 23, 23), ("n8", 3, 3), (None, 3, 3),
     ("n7", None, None)],
    ids=["of the first node", "of the second", "the first one of the third", "one of the training already",
         "the last one of the training", "of a node that is not in it", "of nobody knows which", "no rank"])
def test_a_rank_has_its_number_in_the_training(host: str | None, rank: int | None, number: int | None) -> None:
    log = Log(findings=(Finding("a.b", 0, 0, 1, "x", host, rank),), progress=(Progress(0, 0, 1, rank, host),),
              last=(Line(0, 0, 1, "x", host, rank),))
    found = to_global(log, NODES, 8)
    assert (found.findings[0].rank, found.progress[0].rank, found.last[0].rank) == (number, number, number)
