from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.adapters.logs import logengine
from safelaunch.core.why.literals import ENGINE_FROM, Place, Search, Words

LITERALS = (b"Traceback (most recent call last)", b"CUDA error", b"NCCL WARN", b"Xid (", b": nan", b"=nan", b"ENOSPC",
            b"out of memory", b"it/s", b"efa_", b"Killed", b"errno: 98", b"No space left on device", b"rror: ")
PIECES = st.sampled_from([*LITERALS, b"x", b"CUDA erro", b"Trace", b"  ", b"node 17", b"0x7f", b"\xff\x00", b"1e-05"])
TEXTS = st.lists(st.one_of(PIECES, st.binary(max_size=9)), max_size=30).map(b"".join)
ENGINES = {"hyperscan": logengine.make_hyperscan, "ahocorasick_rs": logengine.make_aho_corasick}


def indices(found: Sequence[tuple[bytes, list[int]]]) -> set[int]:
    return {index for _, places in found for index in places}


@given(TEXTS)
def test_words_find_exactly_the_literals_that_are_there(text: bytes) -> None:
    assert indices(Words(LITERALS).present(text)) == {
        index for index, literal in enumerate(LITERALS) if literal in text}


@given(st.lists(st.binary(min_size=1, max_size=24), min_size=1, max_size=30, unique=True), st.binary(max_size=200),
       st.data())
def test_words_find_any_literals_at_any_place(literals: list[bytes], text: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    text = text[:at] + data.draw(st.sampled_from(literals)) + text[at:]
    assert indices(Words(literals).present(text)) == {
        index for index, literal in enumerate(literals) if literal in text}


@given(TEXTS)
def test_places_are_where_the_literals_are(text: bytes) -> None:
    found = list(Words(LITERALS).find(text))
    assert all(text[start:end] == LITERALS[index] for index, start, end in found)
    assert {index for index, _, _ in found} == indices(Words(LITERALS).present(text))


@pytest.mark.parametrize("name", ENGINES)
@given(text=TEXTS)
def test_an_engine_finds_what_the_plain_search_finds(name: str, text: bytes) -> None:
    search = ENGINES[name](LITERALS)
    if search is None:
        pytest.skip(f"{name} is not installed")
    places = set(search(text))
    assert set(Words(LITERALS).find(text)) <= places
    assert all(text[start:end] == LITERALS[index] for index, start, end in places)


def test_literals_that_repeat_are_found_by_each_of_their_indices() -> None:
    assert Words((b"CUDA error", b"x" * 9, b"CUDA error")).present(b"a CUDA error") == [(b"CUDA error", [0, 2])]


def test_an_engine_is_made_once_enough_was_searched_without() -> None:
    made: list[Sequence[bytes]] = []

    def make(literals: Sequence[bytes]) -> Search:
        made.append(literals)
        return search

    def search(text: bytes) -> list[Place]:
        return [(1, 0, 9)]

    words = Words((b"CUDA error", b"NCCL WARN"), make)
    assert words.present(b"x" * 1000) == [] and not made
    assert words.present(b"x" * ENGINE_FROM) == words.present(b"x" * 1000) == [(b"NCCL WARN", [1])]
    assert made == [(b"CUDA error", b"NCCL WARN")]
    assert words.present(b"CUDA error") == [(b"CUDA error", [0])]   # too short for it


def test_where_no_engine_can_be_made_the_plain_search_goes_on() -> None:
    words = Words((b"CUDA error",), lambda literals: None)
    text = b"x" * ENGINE_FROM + b"CUDA error"
    assert words.present(text) == words.present(text) == [(b"CUDA error", [0])]
