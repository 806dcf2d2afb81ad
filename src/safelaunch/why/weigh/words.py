"""What the words of a text make of it that no rule knows: a small linear model, trained by benchmarks/whymodel.py.

Its features are words, pairs of neighbours and pieces of five letters, each hashed to a row of `words.bin`. A row holds
a signed byte for each class: the categories of failures, and what is none (an echo of a failure elsewhere, the end of a
launcher's work, a harmless line). Integers are added up, so that the answer is the same anywhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

from safelaunch.why.read.fields import read_fields
from safelaunch.why.read.messages import list_causes
from safelaunch.why.weigh.errnos import category_of_errno

MAX_TEXT = 600     # characters of a message that are weighed: its end repeats values, shapes and paths
MAX_WORDS = 120
BUCKETS = 12288
PIECE = 5
SHORT = 10         # features that are added to a text's own: few words tell little
POINTS = 6.0       # what a certain text is worth beside an exception's type and place
LEAST = 0.3        # a share below that tells no category: of held-out lines above, 63 of 68 were right
LEAST_LEAD = 0.1
LEAST_BOTH = 0.6   # of two that lead by nothing: then the first is told, and the second beside it
LEAST_OTHER = 0.05 # of a second reading
OWN_WORD = 0.4     # an errno, or the signal by which a process ended: the system's own word
NO_FAILURE = ("echo", "teardown", "none")   # classes that are no category of a failure
FILE = "words.bin"

_PATH = re.compile(r"(?<![\w.@+=~/-])(?:[\w.@+=~-]{0,255}/){1,64}[\w.@+=-]{0,255}|\b[\w-]{1,255}\.[a-z]\w{1,11}\b")
# What a text only names: the command that a shell was running, addresses, modules, the operation that failed.
_NAMED = re.compile(r"(?<=\bKilled )\s*\S.*|(?<=\(core dumped\) )\S.*|'[\w-]+(?:[.:]+[\w-]+)+'"
                    r"|https?://\S+|\[enforce fail at [^\]]{1,300}\]|\b[a-z_]\w*(?:\.\w+){2,}")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[A-Za-z]+|\d+")
# Of a path its parts of these names count, and the end of its name.
_PLACE = re.compile(r"(?:ckpt|checkpoint|data|dataset|config|conf|tmp|shm|dev|proc|lib|bin|hub|cache)s?(?=[/_.-]|\b)")
_MARK = "zk"       # begins a word that stands for a part of a path


class Model(NamedTuple):
    """The weights: of each bucket one for each class, in units of `unit`."""

    classes: tuple[str, ...]
    unit: float
    weights: memoryview


def pack(classes: tuple[str, ...], unit: float, weights: bytes) -> bytes:
    """The model's file."""
    return f"{unit!r} {' '.join(classes)}\n".encode() + weights


@lru_cache(maxsize=1)
def load() -> Model:
    """The model of the package; read when the first text is weighed."""
    data: bytes = globals()["__loader__"].get_data(__file__.replace("words.py", FILE))   # as the import system reads
    head, _, weights = data.partition(b"\n")
    unit, *classes = head.decode().split()
    return Model(tuple(classes), float(unit), memoryview(weights).cast("b"))


def words_of(text: str) -> list[str]:
    """The words of a text in small letters, without names; a path is its kind, and a long number is 0."""
    text = _PATH.sub(_kind_of, _NAMED.sub(" ", text[:MAX_TEXT]))
    words = _WORD.findall(_CAMEL.sub(" ", text))
    return ["0" if word.isdigit() and len(word) > 3 else word.lower()[:20] for word in words[:MAX_WORDS]]


def without_paths(text: str) -> str:
    """The text without names of files."""
    return _PATH.sub(" ", text)


def _kind_of(path: re.Match[str]) -> str:
    name = path[0].lower()
    end = name.rpartition("/")[2].rstrip(".0123456789").rpartition(".")   # libx.so.8
    parts = (*_PLACE.findall(name)[:4], *((end[2][:8],) if end[1] else ()))
    return f" {_MARK}path {' '.join(_MARK + part for part in parts)} "


def features_of(words: list[str]) -> Iterator[tuple[int, int]]:
    """The features of a text: a word's place and a bucket."""
    for at, word in enumerate(words):
        yield at, _bucket(f"w{word}")
        if at + 1 < len(words):
            yield at, _bucket(f"b{word} {words[at + 1]}")
        if len(word) >= PIECE and not word.startswith(_MARK):
            edged = f"^{word}$"
            for start in range(len(edged) - PIECE + 1):
                yield at, _bucket(f"c{edged[start:start + PIECE]}")


def _bucket(feature: str) -> int:
    return crc32(feature.encode()) % BUCKETS


def scale_of(count: int) -> float:
    """What a feature is worth among so many."""
    return 1 / math.sqrt(count + SHORT)


@lru_cache(maxsize=512)
def shares_of(text: str) -> Mapping[str, float]:
    """Class → how likely the text is of it; empty where it has no word."""
    model = load()
    count = len(model.classes)
    buckets = {bucket for _, bucket in features_of(words_of(text))}
    if not buckets:
        return {}
    rows = (model.weights[bucket * count:bucket * count + count] for bucket in buckets)
    scale = model.unit * scale_of(len(buckets))
    sums = [scale * sum(column) for column in zip(*rows, strict=True)]
    highest = max(sums)
    odds = [math.exp(one - highest) for one in sums]
    whole = sum(odds)
    return {name: odd / whole for name, odd in zip(model.classes, odds, strict=True)}


def weigh_words(text: str) -> Mapping[str, float]:
    """Category of a failure → what a text's words are worth for it, of POINTS in all, beside a type and a place."""
    shares = {name: share for name, share in shares_of(text).items() if name not in NO_FAILURE}
    whole = sum(shares.values())
    return {name: POINTS * share / whole for name, share in shares.items()}


def sound_of(text: str, is_failure: bool = False, but: str = "") -> tuple[str, float]:
    """The category that a line speaks for, and its share; empty where none leads, or where the line states nothing.
    Where a rule knows that it is a failure, only the category is asked; `but` is known not to be it.
    """
    shares = {name: share for name, share in shares_of(text).items()
              if name != but and not (is_failure and name in NO_FAILURE)}
    for category in filter(None, (category_of_errno(text), read_fields(text).category)):
        shares[category] = shares.get(category, 0.0) + OWN_WORD * (category != but)
    least = LEAST_OTHER if but else LEAST_LEAD if is_failure else LEAST
    ranked = [*sorted(shares.items(), key=lambda one: -one[1]), ("none", 0.0), ("none", 0.0)]
    (best, share), (other, second) = ranked[:2]
    is_torn = not but and share - second < LEAST_LEAD and (other in NO_FAILURE or share + second < LEAST_BOTH)
    return ("", 0.0) if best in NO_FAILURE or share < least or is_torn else (best, min(1.0, share))


@lru_cache(maxsize=512)
def guesses_of(text: str) -> tuple[str, Mapping[str, str]]:
    """The text without the causes that it only lists, and these, each with its category ("": it tells none). None
    where all of them are of one category.
    """
    said, causes = list_causes(text)
    read = {cause: sound_of(cause, is_failure=True)[0] for cause in causes}
    return (said, read) if len(set(read.values())) > 1 or "" in read.values() else (text, {})


def spoken(text: str, category: str, most: int = 5) -> list[str]:
    """The words of a text that speak most for a category, the strongest first: more than for the mean of the others."""
    model = load()
    if category not in model.classes:
        return []
    count, column, words = len(model.classes), model.classes.index(category), words_of(text)
    worth: dict[str, float] = {}
    for at, bucket in features_of(words):
        row = model.weights[bucket * count:bucket * count + count]
        word = words[at].removeprefix(_MARK)
        worth[word] = worth.get(word, 0.0) + row[column] - sum(row) / count
    told = [word for word in worth if worth[word] > 0 and len(word) > 2]
    return sorted(told, key=lambda word: -worth[word])[:most]
