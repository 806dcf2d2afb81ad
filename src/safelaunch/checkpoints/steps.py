"""Which number of a name is its step, told by the names beside it.

A number counts as a step behind a word that says so (step, epoch); or behind a word for a checkpoint (model, ckpt) with
no other word in front; or where it differs among the names of one pattern. So the 50 of "resnet50_best" and the 16 of
"vit_b_16_last" are none, and neither are ranks, world sizes, shards, metrics, sizes, dates. What counts what:
`unit` is "step", "epoch", or "" where no word says it. Numbers of different units do not compare.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from safelaunch.checkpoints.words import (
    BATCH_WORDS,
    CHECKPOINT_WORDS,
    EPOCH_WORDS,
    GAN_WORDS,
    IDENTITY_WORDS,
    MARKS,
    STEP_WORDS,
    is_copy,
    words_of,
)

STEP, EPOCH = "step", "epoch"
# Of one checkpoint: these are numbered, and so are the values that it is named after. Taken out of a name.
_PART = re.compile(
    r"[-_.]?\d{1,18}[-_]of[-_]\d{1,18}"
    r"|[-_.]?(?<![a-z])(?:(?:zero_)?[a-z]p_|local_|global_|of_)?(?:rank|world_?size|shard|part|worker|node|gpu)"
    r"[-_=]?\d+(?:_\d{3}(?!\d))*"
    r"|[-_.]?(?<![a-z])(?:tp|pp|dp|mp|ws)[-_=]?\d+|consolidated[-_.]\d+|(?:rng|random)_states?_\d+", re.IGNORECASE)
_OF_TOTAL = re.compile(   # step_100_of_500
    r"((?:step|iter|iteration|epoch|ep|checkpoint|ckpt)s?[-_=]?\d{1,18})[-_]of[-_]\d{1,18}", re.IGNORECASE)
_METRIC = re.compile(
    r"(?<![a-z])(?:loss|acc|accuracy|rew|reward|score|psnr|ssim|fid|map|iou|miou|bleu|wer|cer|f1|auc|ppl|mae|mse|lr|bs)"
    r"[-_=]?-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)
_DECIMAL = re.compile(
    r"\d{1,64}\.\d{1,64}(?:e[-+]?\d{1,3})?|(?<![a-z\d])\d{1,9}e[-+]?\d{1,3}(?![a-z\d])", re.IGNORECASE)
_HASH = re.compile(r"(?<=[-_.])(?=[0-9a-f]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,64}(?![0-9A-Za-z])")   # resnet50-0676ba61
_DATE = re.compile(
    r"(?<!\d)20[12]\d[-_.]?(?:0[1-9]|1[0-2])[-_.]?(?:0[1-9]|[12]\d|3[01])"
    r"(?:[-_T. +]{0,2}[0-2]\d[-_.:h]?[0-5]\d(?:[-_.:m]?[0-5]\d)?(?:\+\d\d)?)?(?!\d)"
    r"|^[0-2]\d[-_][0-5]\d[-_][0-5]\d$"
    r"|(?<!\d)1[4-9]\d{8}(?:\d{3})?(?!\d)")   # or seconds, or milliseconds, since 1970
# RVC writes this where only the latest is kept; source: its train.py.
_NO_STEPS = frozenset({2333333})
# 10_000, 10,000; checkpoint_1_500 is of epoch 1.
_THOUSANDS = re.compile(
    r"(?<![\d.])(?<!epoch[-_])(?<!(?<![A-Za-z])ep[-_])(?<!fold[-_])"
    r"[1-9]\d{0,2}(?:(?:,\d{3})+|(?:_\d{3})*_000)(?!\d)")
# 200k, 2M, 10Msteps; a model has 70m parameters.
_SHORT = re.compile(r"(?<!\d)(\d{1,9})([kKM])(?=(?:step|iter|it|update)s?(?![A-Za-z])|(?![A-Za-z]))")
_TIMES = {"k": 1000, "K": 1000, "M": 1000000}
_DIGIT = re.compile(r"\d")
_BEFORE = re.compile(r"(?<![A-Za-z])([A-Za-z]+)([-_=.: ]*)$")
_AFTER = re.compile(r"([-_ ]?)([A-Za-z]+)")
_FEWEST_PADDED = 3
_MOST_DIGITS = 18
_MOST_KEPT = 4096   # a search reads a name several times


class NumberedName(NamedTuple):
    """What a name tells. `series`: the name with its step and its rank taken out; `order` sorts within it."""

    name: str
    step: int | None
    unit: str
    series: str
    order: tuple[int, ...] = ()
    is_guess: bool = False   # its step shows by its neighbours only
    whole: str = ""          # the name of all ranks' files together


class _Number(NamedTuple):
    at: int        # its place in the parts of the name
    value: int
    kind: str      # STEP, EPOCH, "batch", "checkpoint", "plain"
    is_padded: bool


class _Cut(NamedTuple):
    """A name taken apart: texts at even places, digits at odd ones. `whole`: without the ranks."""

    name: str
    whole: str
    parts: tuple[str, ...]
    numbers: tuple[_Number, ...]

    @property
    def shape(self) -> tuple[str, ...]:
        places = {number.at for number in self.numbers}
        return tuple("#" if at in places else part for at, part in enumerate(self.parts))


@lru_cache(_MOST_KEPT)
def read_name(name: str) -> NumberedName:
    """What a name tells by itself.

    >>> read_name("epoch=3-step=1200-v1.ckpt").step, read_name("model_0000100.pt").step, read_name("resnet50.pt").step
    (1200, 100, None)
    """
    return _choose(_cut(name), ())


def read_names(names: Iterable[str]) -> dict[str, NumberedName]:
    """What the names of one folder tell, each beside the others."""
    by_shape: dict[tuple[str, ...], list[_Cut]] = {}
    for name in names:
        cut = _cut(name)
        by_shape.setdefault(cut.shape, []).append(cut)
    found: dict[str, NumberedName] = {}
    for siblings in by_shape.values():
        differ = _differing(siblings)
        read = [_choose(cut, differ) for cut in siblings]
        found.update((one.name, one) for one in (_counted_anew(read) or read))
    return found


def _differing(siblings: Sequence[_Cut]) -> frozenset[int]:
    """The places whose numbers are not the same in all of them."""
    columns = zip(*([number.value for number in cut.numbers] for cut in siblings), strict=True)
    return frozenset(number.at for number, values in zip(siblings[0].numbers, columns, strict=False)
                     if len(set(values)) > 1)


def _choose(cut: _Cut, differ: Iterable[int]) -> NumberedName:
    """The name's step: behind a word for steps, else for epochs, else for a checkpoint, else the one that differs."""
    differing = set(differ)
    said = [number for number in cut.numbers if number.kind == STEP] or [
        number for number in cut.numbers if number.kind == EPOCH]
    is_guess = False
    if not said and not is_copy(cut.name):
        said = [number for number in cut.numbers if number.kind == "checkpoint"]
        said = [number for number in said if number.at in differing] or (
            said if not differing or len(said) == len(cut.numbers) else [])
        if not said:
            plain = [number for number in cut.numbers if number.kind == "plain"]
            said = [number for number in plain if number.at in differing] or [
                number for number in plain if number.is_padded and not differing]
            is_guess = any(not number.is_padded for number in said)
    chosen = said[-1] if said and said[-1].value not in _NO_STEPS else None
    if chosen is None:
        return NumberedName(cut.name, None, "", "".join(cut.parts), whole=cut.whole)
    taken = {number.at for number in cut.numbers
             if number.kind in (STEP, EPOCH, "batch", "checkpoint") or number.at in differing or number is chosen}
    series = "".join("#" if at in taken else part for at, part in enumerate(cut.parts))
    unit = chosen.kind if chosen.kind in (STEP, EPOCH) else ""
    batches = [number.value for number in cut.numbers if number.kind == "batch" and unit == EPOCH]
    epochs = [number.value for number in cut.numbers if number.kind == EPOCH and unit == STEP]
    order = (*epochs[-1:], chosen.value, *batches[-1:])
    return NumberedName(cut.name, chosen.value, unit, series, order, is_guess, cut.whole)


def _counted_anew(read: Sequence[NumberedName]) -> list[NumberedName] | None:
    """The same by their epochs, where each epoch counts its steps anew: epoch_1_iter_900, epoch_2_iter_100."""
    both = sorted((one for one in read if len(one.order) > 1 and one.unit == STEP), key=lambda one: one.order)
    if not both or all(one.order[-1] <= later.order[-1] for one, later in pairwise(both)):
        return None if not both else [one._replace(order=one.order[-1:]) if one in both else one for one in read]
    return [one._replace(step=one.order[0], unit=EPOCH) if one in both else one for one in read]


@lru_cache(_MOST_KEPT)
def _cut(name: str) -> _Cut:
    if not _DIGIT.search(name):
        return _Cut(name, name, (name,), ())
    text = whole = _PART.sub("", _OF_TOTAL.sub(r"\1", name))
    for pattern, stand_in in ((_DATE, "@"), (_HASH, "?"), (_METRIC, "?"), (_DECIMAL, "?")):
        text = pattern.sub(stand_in, text)
    text = _SHORT.sub(_written_out, text)
    text = _THOUSANDS.sub(lambda found: re.sub("[_,]", "", found.group()), text)
    parts = tuple(re.split(r"(\d+)", text))
    numbers: list[_Number] = []
    for at in range(1, len(parts), 2):
        before = numbers[-1].kind if numbers and numbers[-1].at == at - 2 else ""
        kind = _kind_of(parts, at, before)
        if kind and len(parts[at]) <= _MOST_DIGITS:
            numbers.append(_Number(at, int(parts[at]), kind, _is_padded(parts[at])))
    return _Cut(name, whole, parts, tuple(numbers))


def _written_out(found: re.Match[str]) -> str:
    """The number in digits; millions only where no other word stands in front: opt-350M has parameters."""
    is_count = found.group(2) != "M" or (STEP_WORDS | MARKS).issuperset(words_of(found.string[: found.start()]))
    return str(int(found.group(1)) * _TIMES[found.group(2)]) if is_count else found.group()


def _is_padded(digits: str) -> bool:
    return digits.startswith("0") and len(digits) >= _FEWEST_PADDED


def _kind_of(parts: Sequence[str], at: int, before_it: str) -> str:
    """What a number is, by the words around it; "" for no step at all. `before_it`: what the number before it is."""
    digits, found = parts[at], _BEFORE.search(parts[at - 1])
    word, gap = (words_of(found.group(1))[-1], found.group(2)) if found else ("", "")
    if word in STEP_WORDS or (found and found.group(1).lower() in STEP_WORDS):
        return STEP if word != "ba" or before_it == EPOCH else ""   # ep0-ba100
    if word in EPOCH_WORDS:
        return EPOCH
    if before_it == EPOCH and word in BATCH_WORDS:
        return "batch"
    if word == "checkpoint" and re.match(r"[-_]epoch[-_]?\d", "".join(parts[at + 1 : at + 3])):
        return STEP   # simpletransformers
    if said := _kind_behind(parts, at):
        return said
    if word in IDENTITY_WORDS or (not _is_padded(digits) and parts[at + 1][:1].isalpha()):   # 7b, 224px, 3d
        return ""
    in_front = words_of("".join(parts[:at:2]))
    if not in_front:   # a bare number, or the second of two
        return "checkpoint" if at == 1 or before_it == "checkpoint" else "plain"
    if not word and before_it:   # checkpoint_3_500
        return before_it if before_it in ("checkpoint", "plain") else ""
    if gap and in_front[0] in GAN_WORDS and all(len(one) <= 2 or one in GAN_WORDS for one in in_front):
        return "checkpoint"
    if set(in_front) <= CHECKPOINT_WORDS or (gap and word in MARKS):
        is_letter = len(in_front) == 1 and len(word) == 1
        return "checkpoint" if gap or _is_padded(digits) or (not is_letter and word not in ("net", "unet")) else ""
    if _is_padded(digits):
        return "plain"
    if not word:   # behind a number that is none: exp3_100, net_v2.1-100
        return "plain" if parts[at - 1].endswith(("_", "-", ".")) else ""
    is_tail = found is not None and at > 1 and not found.start()   # unet3d_100
    return "plain" if gap and (len(word) != 1 or is_tail) else ""   # resnet50, vit_b_16


def _kind_behind(parts: Sequence[str], at: int) -> str:
    """STEP, EPOCH by the word behind the number, as in 10000_steps; not where that word has a number of its own."""
    found = _AFTER.match(parts[at + 1])
    if found is None or (at + 2 < len(parts) and re.fullmatch(r"[-_=. ]*[A-Za-z]+[-_=. ]*", parts[at + 1])):
        return ""
    word = found.group(2).lower()
    return STEP if word in STEP_WORDS else EPOCH if word in EPOCH_WORDS and len(word) > 1 else ""
