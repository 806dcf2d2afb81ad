from __future__ import annotations

import random
from functools import cache

import pytest

from safelaunch.why.read import literals, prefilter
from safelaunch.why.read.prefilter import Shapes

LITERALS = (b"Traceback (most recent call last)", b"CUDA error", b"loss", b"step", b"Xid (", b"iteration ")
BLOCK = 100 << 10
LETTERS = (b"abcdefghijkmnopqruvwxyz" * 12)[:256]   # of any byte


@pytest.fixture(params=["plain", "ahocorasick_rs"], name="shapes")
def flooded_shapes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Shapes:
    """Shapes amid a flood of lines no two of which are alike."""
    if request.param == "plain":
        monkeypatch.setattr(literals, "make_engine", lambda words, is_fast: None)
    shapes = Shapes(LITERALS)
    for block in unlike(20):
        shapes.select(block)
    return shapes


@cache
def unlike(count: int, words: tuple[bytes, ...] = ()) -> tuple[bytes, ...]:
    """Blocks of random words, one of `words` in each line."""
    source = random.Random(count)
    blocks = []
    for _ in range(count):
        lines, size = [], 0
        while size < BLOCK:
            said = source.randbytes(source.randrange(20, 120)).translate(LETTERS)   # a tenth of what `choices` takes
            lines.append(b"%s %s\n" % (source.choice(words), said) if words else said + b"\n")
            size += len(lines[-1])
        blocks.append(b"".join(lines))
    return tuple(blocks)


def selected(shapes: Shapes, block: bytes) -> list[bytes]:
    return [block[hit.start:hit.end] for hit in shapes.select(block)]


def test_a_rare_line_is_seen_in_every_block_of_a_flood(shapes: Shapes) -> None:
    for number, block in enumerate(unlike(40)):
        line = b"%d: [default3]:CUDA error: gone" % number
        cut = block.index(b"\n", BLOCK // 2) + 1
        assert selected(shapes, block[:cut] + line + b"\n" + block[cut:]) == [line]


def test_a_line_is_told_by_its_ends(shapes: Shapes) -> None:
    text = b"first Xid (1\rCUDA error: x\r\nqwe Xid (2 CUDA error\n\nXid (3"
    assert selected(shapes, text) == [b"first Xid (1", b"CUDA error: x", b"qwe Xid (2 CUDA error", b"Xid (3"]
    assert shapes.newlines == 3


def test_literals_are_named_as_the_rules_know_them(shapes: Shapes) -> None:
    assert [hit.literals for hit in shapes.select(b"at step 3 CUDA error\nXid (7\n")] == [(1, 3), (4,)]


def test_words_that_are_in_every_line_are_soon_passed_over(shapes: Shapes) -> None:
    looked = [len(selected(shapes, block)) for block in unlike(80, (b"loss", b"step"))]
    assert sum(looked[40:]) < 10 * prefilter.QUOTA


def test_a_rare_literal_beside_a_common_one_is_seen(shapes: Shapes) -> None:
    for block in unlike(60, (b"loss", b"step")):
        shapes.select(block)
    blocks = list(unlike(8, (b"loss", b"step")))
    line = b"step loss Xid (79"
    assert all(line in selected(shapes, block + line + b"\n") for block in blocks)


def test_each_rank_of_a_flood_is_heard(shapes: Shapes) -> None:
    seen: set[bytes] = set()
    for block in unlike(60, tuple(b"%3d: [default%d]:CUDA error" % (rank, rank % 8) for rank in range(384))):
        seen.update(line[:4] for line in selected(shapes, block))
    assert len(seen) == 384


def test_after_a_renewal_common_words_are_looked_at_again(shapes: Shapes) -> None:
    for block in unlike(60, (b"loss",)):
        shapes.select(block)
    shapes.renew(600)
    assert len(selected(shapes, unlike(1, (b"loss",))[0])) >= prefilter.QUOTA_DULL


def test_the_last_sign_of_life_of_each_block_is_seen(shapes: Shapes) -> None:
    for number, block in enumerate(unlike(40, (b"iteration 7", *30 * (b"q",)))):
        seen = selected(shapes, block)
        assert number == 0 or seen[-1] == [line for line in block.splitlines() if b"iteration" in line][-1]
        for line in seen:
            shapes.learn(line, "progress", is_progress=True)
            shapes.learn(prefilter.fold(line), "progress", is_progress=True)


def test_lines_that_were_passed_over_are_counted(shapes: Shapes) -> None:
    counted = 0
    for block in unlike(10, (b"CUDA error",)):
        for hit in shapes.select(block):
            shapes.learn(hit.shape, "gpu")
            counted += 1
        counted += shapes.unseen.counts.get("gpu", 0)
    assert counted > 2 * prefilter.QUOTA


def test_a_flood_that_is_over_leaves_the_lines_to_the_shapes(shapes: Shapes) -> None:
    block = b"".join(b"rank %d did well\n" % number for number in range(6000))
    for _ in range(100):
        shapes.select(block)
    assert shapes._flood_blocks == 0 and shapes.select(block) == []
