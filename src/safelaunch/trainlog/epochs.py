"""Counters that begin anew in each epoch, combined with it: "Epoch 5 | Batch 9/10" is step 59.

Epochs are counted from one where their total stands beside them ("Epoch 3/3" is the last) or where a trainer is known
to do so, else from zero. "step 400/600" beside an epoch may be of the epoch or of the whole training. That shows where
the epoch changes, or by a number that cannot be of the whole. Until then the number counts as it stands: it is the same
in the first epoch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

# "Epoch [1/5]", "Epoch: [0]" (PyTorch's ImageNet, torchvision), "epoch 003:" (fairseq), "Epoch(train) [1]" (mmengine),
# "[epoch=1/3]" (composer), "Train Epoch: 1 [" (PyTorch's MNIST), "Train: 3 [" (timm), "[0/5][" (PyTorch's DCGAN),
# "      1/100      2.14G" (Ultralytics).
_EPOCH = re.compile(
    rb"(?i)(?:(?<![a-z_])(?:(?P<one>train epoch|epoch(?=\(train\)| 0\d\d| \[\d{1,7}\]\[))|epochs?)(?:\(train\))?"
    rb"['\"]?[ \t]{0,8}[:=#|]?[ \t]{0,8}[\[(]{0,2}[ \t]{0,4}|\btrain: {1,4}(?=\d{1,7} \[)"
    rb"|(?:^|[\]:] ?)(?:\[(?=\d{1,7}/\d{1,7}\]\[)| {3,10}(?=\d{1,7}/\d{1,7} {3})))"
    rb"(?P<epoch>\d{1,7})(?!\d|\.\d)(?:[ \t]{0,4}(?:/|of\b)[ \t]{0,4}(?P<of>\d{1,7})(?!\d|\.\d))?")
HINTS = (b"poch", b"POCH", b"rain: ", b"][", b"%|")   # one of them stands where an epoch does
# Keras: "Epoch 3/10" on a line of its own, above "120/500 [====".
_HEADER = re.compile(rb"(?im)^(?:\[[^\]\n]{1,60}\]:?\s{0,8}|\d{1,9}: ){0,3}"
                     rb"epoch[: ]{1,2}\d{1,7}(?:/\d{1,7})?:?[ \t\r]{0,8}$")
_LINE_BYTES = 512   # of a line that is carried on


class Epoch(NamedTuple):
    """Of a line: the epoch, and how many there are, if it says so."""

    number: int
    of: int | None
    is_from_one: bool
    start: int
    end: int


class Named(NamedTuple):
    """A step that a log names: where its match begins, and the step.

    Within an epoch also the number as it stands there. `total` is known only beside an epoch that is known with its
    own total. `is_whole`: the number needs no epoch.
    """

    start: int
    step: int
    number: int | None = None
    total: int | None = None


class LineCount(NamedTuple):
    """A number of a line before its epoch is looked at: where its match begins, and where it stands. `is_inner`: it
    surely counts within an epoch, None = perhaps.
    """

    start: int
    at: int
    number: int
    of: int | None
    is_inner: bool | None = False
    may_have_header: bool = False
    is_epoch: bool = False


def epoch_before(text: bytes) -> Epoch | None:
    """The last epoch that a part of a line names."""
    found = next(reversed(list(_EPOCH.finditer(text))), None)
    if found is None:
        return None
    of = int(found["of"]) if found["of"] else None
    return Epoch(int(found["epoch"]), of, of is not None or found["one"] is not None, found.start(), found.end())


class _InEpoch(NamedTuple):
    """A counter beside an epoch, and where its line begins."""

    counted: LineCount
    epoch: Epoch
    begin: int


def combine(text: bytes, counts: Sequence[LineCount]) -> list[Named]:
    """The steps that these numbers of a text, in its order, stand for."""
    if not any(word in text for word in HINTS):
        return [Named(one.start, one.number) for one in counts]
    beside = _beside(text, counts)
    is_inner = _judge_inner(list(beside.values()))
    from_zero = any(one.epoch.number == 0 for one in beside.values())
    steps = []
    for number, one in enumerate(counts):
        at = beside.get(number)
        if one.is_epoch:
            steps.append(Named(one.start, one.number, one.number, one.of))
        elif at is None or one.of is None:
            steps.append(Named(one.start, one.number))
        elif not (one.is_inner or is_inner):
            steps.append(Named(one.start, one.number, one.number, one.of if is_inner is False else None))
        else:
            before = max(0, at.epoch.number - (at.epoch.is_from_one and not from_zero))
            total = at.epoch.of * one.of if at.epoch.of is not None else None
            steps.append(Named(one.start, before * one.of + one.number, one.number, total))
    return steps


def carry(text: bytes, counts: Sequence[LineCount]) -> bytes:
    """The lines of a text that the steps of what follows it are read with: those that tell how epochs are counted, and
    the last one that counts.
    """
    begins = {line_begin(text, counts[-1].start)} if counts else set()
    beside = _beside(text, counts)
    in_order = list(beside.values())
    begins.update(one.begin for one in in_order if one.epoch.number == 0 and one.epoch.of is not None
                  and one is in_order[0])
    change = next((pair for pair in reversed(list(pairwise(in_order))) if _changes(*pair)), None)
    begins.update(one.begin for one in change or ())
    begins.update([one.begin for one in in_order if change is None and _is_outside(one)][-1:])
    header = next(reversed(list(_HEADER.finditer(text))), None) if b"poch" in text or b"POCH" in text else None
    if header is not None:
        begins.add(line_begin(text, header.start()))
    return b"".join(line_at(text, begin)[:_LINE_BYTES] + b"\n" for begin in sorted(begins))


def _beside(text: bytes, counts: Sequence[LineCount]) -> dict[int, _InEpoch]:
    """The counters that stand beside an epoch, or below one, by their place in `counts`."""
    headers = list(_HEADER.finditer(text)) if any(one.may_have_header for one in counts) else []
    beside = {}
    for number, one in enumerate(counts):
        begin = line_begin(text, one.start)
        epoch = epoch_before(text[begin:one.at]) if one.is_inner is not False else None
        if epoch is None and one.may_have_header:
            above = next((match for match in reversed(headers) if match.start() < one.start), None)
            epoch = epoch_before(above[0]) if above is not None else None
        if epoch is not None:
            beside[number] = _InEpoch(one, epoch, begin)
    return beside


def _judge_inner(beside: Sequence[_InEpoch]) -> bool | None:
    """Whether numbers of which that is unknown count within an epoch; None = it is still unknown."""
    unsure = [one for one in beside if one.counted.is_inner is None and one.counted.of is not None]
    for first, second in reversed(list(pairwise(unsure))):
        if _changes(first, second):
            early, late = sorted((first, second), key=lambda one: one.epoch.number)
            return late.counted.number <= early.counted.number
    return True if any(_is_outside(one) for one in unsure) else None


def _changes(first: _InEpoch, second: _InEpoch) -> bool:
    return first.epoch.number != second.epoch.number


def _is_outside(one: _InEpoch) -> bool:
    """Whether a number cannot be of the whole training: in epoch 3 of 5 that is between two and three fifths."""
    of, epochs = one.counted.of, one.epoch.of
    if not of or epochs is None or epochs < 2:
        return False
    return not one.epoch.number - 1 <= one.counted.number * epochs / of <= one.epoch.number


def line_begin(text: bytes, start: int) -> int:
    """Where the line, or the bar within it, begins; a match may begin with the end of the one before."""
    begin = text.rfind(b"\n", 0, start + 1) + 1
    return max(begin, text.rfind(b"\r", begin, start + 1) + 1)


def line_at(text: bytes, begin: int) -> bytes:
    """The line, or the bar within it, that begins there."""
    end = text.find(b"\n", begin)
    return text[begin:end if end >= 0 else len(text)].partition(b"\r")[0]
