"""Lines that several ranks print alike."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.verbs.logs.rankfold import LINES_A_RANK, LONGEST_BYTES, MOST_BYTES, RankFold
from tests.tables import each

FOREVER_S = float("inf")


def folded(lines: list[bytes]) -> list[bytes]:
    fold = RankFold(FOREVER_S)
    return [*(shown for line in lines for shown in fold.add(line, 0.0)), *fold.rest()]


def by(ranks: list[tuple[int, int]], texts: list[bytes]) -> list[bytes]:
    """Each rank's lines, one rank behind the other."""
    return [b"[n%d:%d]:%s\n" % (node, rank, text) for node, rank in ranks for text in texts]


FOUR = [(0, 0), (0, 1), (1, 2), (1, 3)]


@each(("lines", "shown"), [
    (by(FOUR, [b"a", b"b"]), [b"[n[0-1]: 4 ranks] a\n", b"[n[0-1]: 4 ranks] b\n"]),
    (by(FOUR[:2], [b"a", b"b", b"a"]), [b"[n0: 2 ranks] a\n", b"[n0: 2 ranks] b\n", b"[n0: 2 ranks] a\n"]),
    ([b"[n0:0]:a\n", b"srun: x\n", b"[n0:1]:a\n", b"srun: x\n"], [b"[n0: 2 ranks] a\n", b"srun: x\n", b"srun: x\n"]),
    ([b"[n0:0]:a\n", b"[n0:0]:a\n"], [b"[n0:0]:a\n", b"[n0:0]:a\n"]),
    ([b"[n0:0]:2026-11-25 09:00:01,100 loaded\n", b"[n1:1]:2026-11-25 09:00:01,900 loaded\n"],
     [b"[n[0-1]: 2 ranks] 2026-11-25 09:00:01,100 loaded\n"]),
    ([b"[n0:0]:2026-11-25 09:00:01 loaded\n", b"[n1:1]:2026-11-25 09:10:01 loaded\n"],
     [b"[n0:0]:2026-11-25 09:00:01 loaded\n", b"[n1:1]:2026-11-25 09:10:01 loaded\n"]),
    ([b"[n0:0]:\x1b[31ma\n", b"[n1:1]:torn"], [b"[n0:0]:\x1b[31ma\n", b"[n1:1]:torn"]),
], ids=["tracebacks", "the same line twice", "without a rank", "one rank twice", "milliseconds apart", "minutes apart",
        "bytes of one rank"])
def test_a_line_of_several_ranks_is_shown_once_where_it_came_first(lines: list[bytes], shown: list[bytes]) -> None:
    assert folded(lines) == shown


def test_lines_far_from_each_other_stay_apart() -> None:
    between = [b"[n0:0]:step %d\n" % step for step in range(2 * LINES_A_RANK)]
    assert folded([b"[n0:0]:saved\n", *between, b"[n1:1]:saved\n"]) == [
        b"[n0:0]:saved\n", *between, b"[n1:1]:saved\n"]


def test_a_live_line_waits_no_longer_than_it_is_held() -> None:
    fold = RankFold(0.5)
    assert fold.add(b"[n0:0]:a\n", 10.0) == [] and fold.due(10.4) == []
    assert fold.due(10.5) == [b"[n0:0]:a\n"]


def test_what_waits_is_bounded_in_bytes_and_very_long_lines_pass_as_they_are() -> None:
    fold = RankFold(FOREVER_S)
    shown = sum(len(line) for number in range(2000) for line in fold.add(b"[n0:%d]:%d%s\n" % (
        number, number, b"x" * (LONGEST_BYTES - 20)), 0.0))
    assert shown > 0 and sum(map(len, fold.rest())) <= MOST_BYTES + LONGEST_BYTES
    huge = [b"[n0:%d]:%s\n" % (rank, b"x" * 10_000_000) for rank in (0, 1)]
    assert folded(huge) == huge


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([b"a", b"b", b"2026-11-25 09:00:01 c"]), st.booleans())))
def test_no_line_is_lost_and_none_is_counted_twice(said: list[tuple[int, bytes, bool]]) -> None:
    lines = [(b"[n%d:%d]:" % (rank, rank) if has_rank else b"") + text + b"\n" for rank, text, has_rank in said]
    count = 0
    for line in folded(lines):
        count += int(line.split(b" ranks]")[0].rsplit(b" ", 1)[1]) if b" ranks]" in line else 1
    assert count == len(lines)
