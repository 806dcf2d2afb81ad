from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.why.read.literals import LiteralSet, make_engine, make_plain

LITERALS = (b"Traceback (most recent call last)", b"CUDA error", b"NCCL WARN", b"Xid (", b": nan", b"=nan", b"ENOSPC",
            b"out of memory", b"it/s", b"efa_", b"Killed", b"errno: 98", b"No space left on device", b"rror: ")
PIECES = st.sampled_from([*LITERALS, b"x", b"CUDA erro", b"Trace", b"  ", b"node 17", b"0x7f", b"\xff\x00", b"1e-05"])
TEXTS = st.lists(st.one_of(PIECES, st.binary(max_size=9)), max_size=30).map(b"".join)


@given(TEXTS)
def test_words_find_exactly_the_literals_that_are_there(text: bytes) -> None:
    assert LiteralSet(LITERALS).present(text) == {
        index for index, literal in enumerate(LITERALS) if literal in text}


@given(st.lists(st.binary(min_size=1, max_size=24), min_size=1, max_size=30, unique=True), st.binary(max_size=200),
       st.data())
def test_words_find_any_literals_at_any_place(literals: list[bytes], text: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    text = text[:at] + data.draw(st.sampled_from(literals)) + text[at:]
    assert LiteralSet(literals).present(text) == {
        index for index, literal in enumerate(literals) if literal in text}


@given(TEXTS)
def test_places_are_where_the_literals_are(text: bytes) -> None:
    found = list(LiteralSet(LITERALS).find(text))
    assert all(text[start:end] == LITERALS[index] for index, start, end in found)
    assert {index for index, _, _ in found} == LiteralSet(LITERALS).present(text)


@pytest.mark.parametrize("is_fast", [False, True])
@given(text=TEXTS)
def test_the_engine_finds_what_the_plain_search_finds(is_fast: bool, text: bytes) -> None:
    search = make_engine(LITERALS, is_fast=is_fast)
    if search is None:
        pytest.skip("ahocorasick_rs is not installed")
    places = set(search(text))
    assert set(make_plain(LITERALS)(text)) <= places
    assert all(text[start:end] == LITERALS[index] for index, start, end in places)


def test_literals_that_repeat_are_found_by_each_of_their_indices() -> None:
    assert LiteralSet((b"CUDA error", b"x" * 9, b"CUDA error")).present(b"a CUDA error") == {0, 2}


def test_an_empty_literal_is_everywhere() -> None:
    assert LiteralSet((b"CUDA error", b"")).present(b"a CUDA error") == {0, 1}
