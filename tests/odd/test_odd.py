"""All verbs on odd input, in short; `python -m tests.odd` is the long form."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.odd import place as places
from tests.odd.call import Said, call, import_verbs
from tests.odd.oddities import CKPT, CONFIG, LOG, RUN, SURROUNDINGS, WORDS, Make
from tests.odd.place import make_place


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    import_verbs()


def check(said: Sequence[Said]) -> None:
    wrong = [f"{', '.join(one.faults())}: {one}" for one in said if one.faults()]
    assert not wrong, "\n".join(wrong)


def turn(table: dict[str, Make], verbs: Sequence[tuple[str, ...]], each: int) -> Iterator[object]:
    """Every oddity with some of the verbs, in turn: each verb meets many, within seconds."""
    for number, (name, make) in enumerate(table.items()):
        chosen = [verbs[(number * each + n) % len(verbs)] for n in range(each)]
        yield pytest.param(make, chosen, id=name)


def test_odd_words_are_refused_in_plain_text(tmp_path: Path) -> None:
    odd = make_place(tmp_path / "place")
    os.mkfifo(odd.folder / "pipe")
    check([call(argv, odd.folder, odd.env) for argv in WORDS])


@pytest.mark.parametrize("around", SURROUNDINGS)
def test_odd_surroundings_are_no_reason_for_a_traceback(around: str, tmp_path: Path) -> None:
    odd = make_place(tmp_path / "place")
    chosen = [argv for number, argv in enumerate(places.ALL) if number % 5 == sorted(SURROUNDINGS).index(around) % 5]
    check([call(argv, odd.folder, odd.env, SURROUNDINGS[around]) for argv in chosen if argv[0] != "wait"])


@pytest.mark.parametrize(("make", "verbs"), [
    *turn({name: make for name, make in RUN.items() if "million" not in name}, places.OF_A_RUN, 1),
    *turn(LOG, places.OF_A_LOG, 1), *turn(CKPT, places.OF_CHECKPOINTS, 1), *turn(CONFIG, places.OF_A_CONFIG, 1),
])
def test_no_verb_ends_in_a_traceback_or_never(make: Make, verbs: Sequence[tuple[str, ...]], tmp_path: Path) -> None:
    odd = make_place(tmp_path / "place")
    make(odd)
    check([call(argv, odd.folder, odd.env) for argv in verbs])
