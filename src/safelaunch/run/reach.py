"""How far a training came by its own words: its last step or epoch, against the total that its log names.

A wrong total is worse than none. So a total counts only where it is the training's own and never changes. What counts
within an epoch, an evaluation, a start or files is left out, and so is a counter that has begun anew. Where epochs are
counted, only they tell how far the whole has come.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from safelaunch.run.fold.state import TrainingReach
from safelaunch.trainlog.counters import NO_TRAINING, is_anew
from safelaunch.trainlog.shapes import BAR_LINE, COUNT, count_of, is_training
from safelaunch.trainlog.steps import AUTO, named_steps, total_behind

HEAD_BYTES, TAIL_BYTES = 16 << 10, 64 << 10   # of a log, in which that is looked for: 40 ms
EARLY = 0.9       # of the total: up to there an end is far from it, beyond it may be an interval of the log
GAPS = 16         # of the last figures: their usual distance is the log's interval
LINE_CHARS = 200

_OF = rb"[ \t]{0,8}(?:/|of\b)[ \t]{0,8}"
_STEPS = re.compile(
    rb"(?i)(?<![a-z])(?:(?:train|global|optim(?:izer)?)[_ ])?(?:steps?|iterations?|iters?(?:\(train\))?|updates?)['\"]?"
    rb"[ \t]{0,8}[:=#|]?[ \t]{0,8}(?:\[[ \t]{0,8}|\()?" + COUNT + _OF + COUNT + rb"(?!\d|\.\d)"
    rb"|(?<![\w./,'-])" + COUNT + _OF + COUNT + rb"\]? {0,2}(?:steps|iterations|iters|updates)\b")
_EPOCHS = re.compile(rb"(?i)(?<![a-z])epochs?['\"]?[ \t]{0,8}[:=#|]?[ \t]{0,8}[\[(]?(\d{1,7})" + _OF
                     + rb"(\d{1,7})(?!\d|\.\d)")
# "Epoch: [3/5]  [ 20/600]" of torchvision and MAE, "Epoch 3/5 batch 20/600", Keras' "Epoch 3/5\n20/600 [===".
_INNER = re.compile(rb"(?<![\w./,'-])" + COUNT + _OF + COUNT + rb"(?!\d|\.\d|/)")
# tqdm(range(epochs), desc="Epochs")
_EPOCH_BAR = re.compile(rb"(?i)^\W{0,8}(?:train\w{0,8}[ :]{1,3})?epochs?\W{0,4}$")
_EPOCH = re.compile(rb"(?i)(?<![a-z_])epoch(?:\(train\))?['\"]?[ \t]{0,8}[:=#|]?[ \t]{0,8}[\[(]?(\d{1,7})(?![\d.])")
# "max_steps: 400", Megatron-LM's "train_iters ......... 400", Transformers' "Total optimization steps = 1,200".
_PLANNED = re.compile(
    rb"(?i)(?<![a-z_])(?:max[_ ]?(?:train(?:ing)?[_ ])?(?:steps|iters|iterations|updates)"
    rb"|total[_ ](?:(?:optimization|train(?:ing)?)[_ ])?(?:steps|iterations|updates)|train[_ ](?:steps|iters)"
    rb"|num[_ ](?:train(?:ing)?[_ ])?(?:steps|iterations))['\"]?[ \t.:=]{1,80}" + COUNT + rb"(?![\d.])"
    rb"|\btraining for " + COUNT + rb" (?:steps|iterations|updates)\b")
_PLANNED_EPOCHS = re.compile(rb"(?i)(?<![a-z_])(?:(?:num|max|total)[_ ])?(?:train[_ ])?epochs['\"]?[ \t.:=]{1,80}"
                             rb"([1-9]\d{0,6})(?![\d.])")
# Transformers without a bar: "{'loss': 0.5, 'epoch': 0.09}", behind its "Num Epochs = 3".
_FRACTION = re.compile(rb"['\"]epoch['\"]: ['\"]?(\d{1,7}\.\d{1,18})(?![\d.])")
_EXAMPLES = re.compile(rb"\bNum examples = " + COUNT + rb"\s")
_BATCH = re.compile(rb"\bTotal train batch size[^=\n]{0,80}= " + COUNT + rb"\s")
# A training that ends before its total on purpose says so: Lightning ("`Trainer.fit` stopped: `max_time=…` reached"),
# Keras and Ultralytics ("early stopping"), solvers ("converged").
_MEANT = re.compile(
    rb"(?i)early[ _-]?stop|\bconverged\b|convergence (?:was |is )?reached|max_?time\b.{0,40}reached"
    rb"|`Trainer\.fit` stopped|patience (?:of \d{1,6} )?(?:is |was |has been )?(?:exhausted|exceeded|reached|ran out)"
    rb"|target .{0,40}reached|reached (?:the )?target|no improvement (?:for|in|since)"
    rb"|stop(?:ped|ping)? (?:the )?training (?:early|because|since|as)|time budget")
# The words of Transformers, Lightning, Megatron-LM, Ultralytics, torchvision (DETR, MAE), and of most people's own.
_DONE = re.compile(
    rb"Training completed\. Do not forget|['\"]train_runtime['\"]|`Trainer\.fit` stopped: `max_(?:steps|epochs)"
    rb"|\[after training is done\]|\d epochs completed in [\d.]{1,12} hours"
    rb"|(?m:^Training time:? \d)|(?i:\ball (?:\d{1,7} )?epochs (?:are |were )?(?:done|complete|finished))"
    rb"|(?i:training (?:is |has |was )?(?:complete|finish|done)|finished training|done training)")
_PART = re.compile(
    rb"(?i)\b(?:fold|phase|stage|round|epoch|member|trial|seed|tokeni[sz]er|warm-?up|pre)[ -]?\w{0,8}\W{0,4}$")


_RANK = re.compile(rb"^\[[\w.-]{1,60}:\d{1,9}\]:")   # [n0:3]:


class _Pair(NamedTuple):
    start: int
    number: float
    total: int


def read_reach(text: bytes, pattern: str = AUTO) -> TrainingReach | None:
    """How far the training of a log came; None = it does not say. `text`: all of the log or its begin and its end, cut
    by `cut_lines`; `pattern` as in train.yaml's progress.step.
    """
    epochs = _of_epochs(text)
    pairs = [] if epochs else _of_steps(text, pattern)
    if not epochs and _EPOCH.search(text):   # its totals may be of one epoch each
        return _by_plan(text, _plain_epochs(text), _PLANNED_EPOCHS, "epoch") or _by_words(
            text, [*pairs, *_plain_steps(text, pattern)])
    found = epochs or pairs
    if not found:
        steps = list(_plain_steps(text, pattern))
        if not steps and (parts := _of_fractions(text)) is not None:
            return parts
        is_mixed = bool(steps) and _PLANNED_EPOCHS.search(text, 0, steps[0].start) is not None
        return (None if is_mixed else _by_plan(text, steps, _PLANNED, "step")) or _by_words(text, steps)
    unit = "epoch" if epochs else "step"
    if _has_changed(found) or (not epochs and _counts_on(text, found[-1].start, pattern)):
        return None
    last, gap = found[-1], _gap(found)
    number = max(one.number for one in found)
    is_near = number >= last.total or number + gap >= last.total
    has_said = is_near and _said_done(text, last.start) is not None
    is_counted = number >= last.total or (gap == 1 and number == last.total - 1 and found[0].number == 0)
    # A bar may be of one epoch, and "Epoch 3/3" of one that has just begun.
    is_sure = _ends_epoch(text, last.start) if epochs else not BAR_LINE.match(text, last.start)
    is_all = has_said or (is_counted and is_sure)
    is_early = _is_early(text, found, gap, last.total)
    return TrainingReach(unit, number, last.total, is_all, is_early, (_line(text, last.start),))


def _is_early(text: bytes, found: Sequence[_Pair], gap: float, total: int) -> bool:
    number = max(one.number for one in found)
    return number + 2 * gap < total and number <= EARLY * total and not _MEANT.search(text, found[0].start)


def _of_epochs(text: bytes) -> list[_Pair]:
    found = [_Pair(match.start(), int(match[1]), int(match[2])) for match in _EPOCHS.finditer(text)
             if not NO_TRAINING.search(_before(text, match.start()))]
    if not found:
        found = [_Pair(match.start(), count_of(match["step"]), count_of(match["of"]))
                 for match in BAR_LINE.finditer(text) if _EPOCH_BAR.match(match["what"])]
    return found if all(one.number <= one.total for one in found) else []


def _of_steps(text: bytes, pattern: str) -> list[_Pair]:
    """Steps with a total beside them, of lines or else of bars."""
    if pattern != AUTO:
        return _of_named(text, pattern)
    lines = [_Pair(match.start(), *_numbers(match)) for match in _STEPS.finditer(text)
             if not NO_TRAINING.search(_before(text, match.start()))
             and not NO_TRAINING.search(text[match.end():match.end() + 16].partition(b"\n")[0])]
    lines = [one for one in lines if one.number <= one.total]
    if lines:
        return lines
    bars = [match for match in BAR_LINE.finditer(text) if is_training(match["what"])]
    if not bars and not BAR_LINE.search(text):   # 8/400 [00:08<06:32, 1.0s/it]; a word in front counts what it names
        return [one for one in _of_named(text, pattern) if not re.search(
            rb"[A-Za-z]", _RANK.sub(b"", _before(text, one.start + 1)))]
    longest = max((int(match["of"]) for match in bars), default=0)
    return [_Pair(match.start(), int(match["step"]), longest) for match in bars if int(match["of"]) == longest]


def _of_named(text: bytes, pattern: str) -> list[_Pair]:
    own = [(one, total_behind(text, one)) for one in named_steps(text, pattern)]
    return [_Pair(one.start, one.step, total) for one, total in own if total is not None]


def _of_fractions(text: bytes) -> TrainingReach | None:
    """Epochs with a fraction, and their number before them. `max_steps` may end the last one anywhere: so only an end
    before it is early, unless the log says how many steps an epoch has.
    """
    found = [_Pair(text.rfind(b"\n", 0, match.start()) + 1, float(match[1]), 0) for match in _FRACTION.finditer(text)]
    reach = _by_plan(text, found, _PLANNED_EPOCHS, "epoch")
    if reach is None or reach.total is None or not reach.is_early:
        return reach
    examples, batch, steps = (pattern.search(text) for pattern in (_EXAMPLES, _BATCH, _PLANNED))
    end = reach.total - 1.0
    if examples and batch and steps:
        end = count_of(steps[1] or steps[2]) * count_of(batch[1]) / max(1, count_of(examples[1]))
    number = max(one.number for one in found)
    return reach._replace(is_early=number + 2 * _gap(found) < end and number <= EARLY * end)


def _has_changed(found: Sequence[_Pair]) -> bool:
    """Whether their total differs, or they have begun anew: they are not of the whole training."""
    highest = 0.0
    for one in found:
        if is_anew(highest, one.number):
            return True
        highest = max(highest, one.number)
    return len({one.total for one in found}) > 1


def _counts_on(text: bytes, start: int, pattern: str) -> bool:
    """Whether something else counts steps behind the last one: a second stage."""
    if pattern != AUTO:
        return False
    line_end = text.find(b"\n", start)
    return line_end >= 0 and bool(list(_plain_steps(text[line_end:], pattern)))


def last_epoch(text: bytes) -> float | None:
    """The last epoch that a piece of a log names, a fraction where it names one; None = it names none."""
    if b"poch" not in text:
        return None
    found = [(match.start(), float(match[1])) for pattern in (_EPOCH, _EPOCHS, _FRACTION)
             for match in pattern.finditer(text) if not NO_TRAINING.search(_before(text, match.start()))]
    return max(found)[1] if found else None


def _plain_epochs(text: bytes) -> list[_Pair]:
    return [_Pair(match.start(), int(match[1]), 0) for match in _EPOCH.finditer(text)
            if not NO_TRAINING.search(_before(text, match.start()))]


def _plain_steps(text: bytes, pattern: str) -> Iterator[_Pair]:
    for one in named_steps(text, pattern):
        begin = max(text.rfind(b"\n", 0, one.start + 1), text.rfind(b"\r", 0, one.start + 1)) + 1
        if not NO_TRAINING.search(text[begin:one.start + 24].partition(b"\n")[0]):
            yield _Pair(one.start, one.step, 0)


def _gap(found: Sequence[_Pair]) -> float:
    """The log's interval; of one figure alone the figure itself, which may be the first of its interval."""
    numbers = sorted({one.number for one in found})[-GAPS:]
    gaps = sorted(later - before for before, later in pairwise(numbers))
    return gaps[len(gaps) // 2] if gaps else max(1, numbers[-1])


def _ends_epoch(text: bytes, start: int) -> bool:
    """Whether the line, or the next one, names the last step of its epoch, too: "Epoch [3/3], Step [600/600]"."""
    inner = _inner(text, start)
    if inner is None or inner[0] == inner[1]:
        return inner is not None
    return inner[0] == inner[1] - 1 and any(   # counted from zero
        _inner(text, match.start()) == (0, inner[1]) for match in _EPOCHS.finditer(text, 0, start))


def _inner(text: bytes, start: int) -> tuple[int, int] | None:
    """The step within the epoch, and how many it has."""
    epoch = _EPOCHS.search(text, start)
    if epoch is None:
        return None
    end = text.find(b"\n", epoch.end())
    end = len(text) if end < 0 else end
    found = _INNER.search(text, epoch.end(), end) or _INNER.match(text, end + 1)
    return None if found is None else _numbers(found)


def _numbers(match: re.Match[bytes]) -> tuple[int, int]:
    number, total = filter(None, match.groups())
    return count_of(number), count_of(total)


def _by_plan(text: bytes, found: Sequence[_Pair], planned: re.Pattern[bytes], unit: str) -> TrainingReach | None:
    """Steps or epochs without a total beside them, and one total that was printed before them."""
    plans: dict[int, int] = {}
    line_end = text.find(b"\n", found[0].start + 1) if found else 0   # what comes later is of something else
    for match in planned.finditer(text, 0, line_end if line_end >= 0 else len(text)):
        plans.setdefault(count_of(next(filter(None, match.groups()))), match.start())
    plans.pop(0, None)
    if len(plans) != 1 or not found or _has_changed(found):
        return None
    ((total, start),) = plans.items()
    number, gap = max(one.number for one in found), _gap(found)
    is_all = (number >= total and unit == "step") or (
        number + gap >= total and _said_done(text, found[-1].start) is not None)
    return TrainingReach(unit, number, total, is_all, _is_early(text, found, gap, total),
                 (_line(text, found[-1].start), _line(text, start)))


def _by_words(text: bytes, steps: Sequence[_Pair]) -> TrainingReach | None:
    """A training that says that it is done, behind its last step, where no total contradicts it."""
    last = max(steps, key=lambda one: one.start, default=None)
    said = _said_done(text, last.start) if last is not None else None
    if last is None or said is None:
        return None
    return TrainingReach("step", last.number, None, True, False, (_line(text, said),))


def _said_done(text: bytes, start: int) -> int | None:
    """Where the whole training is said to be done, behind `start`; None = nowhere."""
    return next((match.start() for match in _DONE.finditer(text, start)
                 if not _PART.search(_before(text, match.start()))), None)


def _before(text: bytes, start: int) -> bytes:
    return text[max(text.rfind(b"\n", 0, start + 1), text.rfind(b"\r", 0, start + 1)) + 1:start]


def _line(text: bytes, start: int) -> str:
    start += text[start:start + 1] in (b"\n", b"\r")
    begin = max(text.rfind(b"\n", 0, start), text.rfind(b"\r", 0, start)) + 1
    ends = [end for end in (text.find(b"\n", start), text.find(b"\r", start)) if end >= 0]
    return text[begin:min(ends, default=len(text))].decode(errors="replace").strip()[:LINE_CHARS]
