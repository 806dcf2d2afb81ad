from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safelaunch.why.read import prefilter
from safelaunch.why.read.prefilter import Shapes, fold

LITERALS = (b"Traceback (most recent call last)", b"CUDA error", b"NCCL WARN", b"Xid (", b": nan", b"=nan", b"ENOSPC",
            b"out of memory", b"it/s", b"efa_", b"Killed", b"errno: 98", b"No space left on device", b"rror: ")
WORDS = st.sampled_from([*LITERALS, b"x", b"CUDA erro", b"Trace", b"  ", b"node 17", b"0x7f", b"\xff\x00", b"1e-05"])
TEXTS = st.lists(st.one_of(WORDS, st.binary(max_size=9)), max_size=30).map(b"".join)


def lines_of(block: bytes) -> list[bytes]:
    return block.replace(b"\r", b"\n").split(b"\n")


@given(st.lists(TEXTS, max_size=12).map(b"\n".join))
def test_every_line_that_holds_a_literal_is_selected(block: bytes) -> None:
    hits = Shapes(LITERALS).select(block)
    selected = {block[hit.start:hit.end] for hit in hits}
    wanted = {line for line in lines_of(block) if any(literal in line for literal in LITERALS)}
    assert wanted <= selected <= set(lines_of(block))


@given(st.lists(TEXTS, max_size=12).map(b"\n".join))
def test_what_is_selected_once_is_selected_again(block: bytes) -> None:
    shapes = Shapes(LITERALS)
    assert shapes.select(block) == shapes.select(block)


@given(st.lists(TEXTS, max_size=12).map(b"\n".join))
def test_newlines_are_counted(block: bytes) -> None:
    shapes = Shapes(LITERALS)
    shapes.select(block)
    assert shapes.newlines == block.count(b"\n")


def test_a_line_is_told_by_its_place_between_carriage_returns() -> None:
    block = b" 1%\r 2%\rCUDA error: x\r\nnext\n"
    assert [block[hit.start:hit.end] for hit in Shapes(LITERALS).select(block)] == [b"CUDA error: x"]


def test_lines_that_differ_in_numbers_and_punctuation_have_one_shape() -> None:
    assert fold(b"[rank 17]: step 3, loss=2.50") == fold(b"[rank 4]: step 12345 loss = 1")


def block_of(pattern: bytes, count: int, start: int = 0) -> bytes:
    return b"".join(pattern % (start + number) for number in range(count))


def test_a_flood_of_one_shape_is_looked_at_up_to_a_quota_and_counted() -> None:
    shapes = Shapes(LITERALS)
    selected = counted = 0
    for number in range(200):
        hits = shapes.select(block_of(b"%d: CUDA error: x\n", 500, number * 500))
        selected += len(hits)
        counted += len(hits) + sum(shapes.unseen.counts.values())
        for hit in hits:
            shapes.learn(hit.shape, "gpu.error")
    assert selected < 2 * prefilter.QUOTA
    assert counted == pytest.approx(100_000, rel=0.7)   # an estimate from every 64th block


def test_a_shape_that_no_rule_matches_is_soon_passed_over() -> None:
    shapes = Shapes(LITERALS)
    selected = [len(shapes.select(block_of(b"%d: CUDA error: x\n", 100, number * 100))) for number in range(20)]
    assert selected[0] == 100
    assert sum(selected[1:]) < prefilter.QUOTA_DULL


def test_each_rank_of_a_flood_is_seen() -> None:
    shapes = Shapes(LITERALS)
    seen: set[bytes] = set()
    source = random.Random(1)
    for _ in range(40):
        ranks = [source.randrange(384) for _ in range(500)]
        block = b"".join(b"[rank%d]: CUDA error: x\n" % rank for rank in ranks)
        for hit in shapes.select(block):
            seen.add(block[hit.start:hit.end].split(b":")[0])
            shapes.learn(hit.shape, "gpu.error")
    assert len(seen) > 370


def test_the_last_sign_of_life_of_each_block_is_seen() -> None:
    shapes = Shapes(LITERALS)
    for number in range(50):
        block = block_of(b"step %d 3.5it/s\n", 100, number * 100)
        hits = shapes.select(block)
        assert block[hits[-1].start:hits[-1].end] == b"step %d 3.5it/s" % (number * 100 + 99)
        for hit in hits:
            shapes.learn(hit.shape, "progress.bar", is_progress=True)
    assert len(hits) == 1
    assert sum(shape in shapes.unseen.progress for shape in shapes.unseen.shapes) == 100


def test_a_new_shape_is_seen_among_a_flood() -> None:
    shapes = Shapes(LITERALS)
    for number in range(30):
        for hit in shapes.select(block_of(b"%d: CUDA error: x\n", 500, number * 500)):
            shapes.learn(hit.shape, "gpu.error")
    flood = block_of(b"%d: CUDA error: x\n", 100)
    block = flood + b"GPU 3: CUDA error: out of memory\n" + flood
    assert [block[hit.start:hit.end] for hit in shapes.select(block)] == [b"GPU 3: CUDA error: out of memory"]


def test_only_lines_that_hold_one_of_the_wanted_literals_are_selected_with_all_that_they_hold() -> None:
    steps, errors = LITERALS.index(b"it/s"), LITERALS.index(b"CUDA error")
    shapes = Shapes(LITERALS, only=frozenset({steps}))
    hits = shapes.select(b"CUDA error: x\n3.5it/s\n3.5it/s CUDA error\nKilled\n")
    assert [steps in hit.literals for hit in hits] == [True, True]
    assert errors in hits[1].literals


def test_new_shapes_of_a_kind_that_is_spent_are_looked_at_in_sampled_blocks_only() -> None:
    """Stack frames: an address in each makes a shape of its own of each line."""
    shapes = Shapes(LITERALS)
    source = random.Random(1)
    counts = []
    for _ in range(4 * prefilter.SAMPLED_BLOCK):
        frames = (bytes(source.choices(b"abcd", k=12)) for _ in range(100))
        counts.append(len(shapes.select(b"".join(b"frame 0x%s CUDA error\n" % frame for frame in frames))))
    spent = counts[-prefilter.SAMPLED_BLOCK:]
    assert sum(counts) < prefilter.QUOTA_ALIKE_MOST + len(counts)
    assert max(spent[:-1]) == 0 and spent[-1] == 1   # the last of each set of literals is


def test_memory_stays_bounded_when_no_two_lines_are_alike() -> None:
    shapes = Shapes(LITERALS)
    source = random.Random(1)
    for _ in range(400):
        shapes.select(b"".join(b"%s CUDA error\n" % bytes(source.choices(b"abcdefghijkl", k=12)) for _ in range(200)))
    assert len(shapes._dull) + len(shapes._known) <= prefilter.MAX_SHAPES + 200


def test_lines_longer_than_any_are_not_remembered() -> None:
    shapes = Shapes(LITERALS)
    shapes.select(b"x" * 50_000 + b" CUDA error\n" + b"y" * 50_000 + b"\n")
    assert not shapes._dull - {b""} and not shapes._known


@settings(deadline=None)
@given(st.lists(st.sampled_from(LITERALS), min_size=60, max_size=300), st.integers(0, 99))
def test_many_literals_on_many_unlike_lines_are_told_apart(literals: list[bytes], seed: int) -> None:
    source = random.Random(seed)
    lines = [bytes(source.choices(b"qwzjk", k=8)) + literal for literal in literals]
    hits = Shapes(LITERALS).select(b"\n".join(lines))
    assert all(LITERALS.index(literal) in hit.literals for literal, hit in zip(literals, hits, strict=True))
