"""The training's progress, read from its log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from safelaunch.core.records import NamedTuple

# Lines of common trainers; the number is the step. Sources: Megatron-LM training_log ("iteration  100/ 1000 |"),
# DeepSpeed engine ("step=100, skipped=0", "micro_step=8/global_step=4,") and PipelineEngine ("steps: 10 loss:"),
# torchtitan ("step: 100"), nanoGPT ("iter 100: loss"), NeMo ("iteration 7/9 | … global_step: 7", "global_step=794.0"
# in a bar), MaxText ("completed step: 9,"), fairseq and metaseq ("num_updates=445", '"num_updates": "445"', "epoch 010
#  2000 / 8223"), PyTorch's examples and mmcv ("Step [100/600]", "Epoch: [0][  10/5005]"),
# mmengine ("Iter(train) [  100/40000]"), composer ("[batch=100/1000]:"), and plain "step 100".
# slurmstepd's "*** STEP 42.0 ON n1 FAILED" is none (seen in a drill: step 42).
# Thousands are parted as Python's format does it (1,000 and 1_000), or in Switzerland (1'000). A blank parts them only
# where the total behind has one, too: "step 1 000/10 000".
_BLANKS = rb"\d{1,3}(?: \d{3}){1,3}(?!\d)"
_GROUPS = rb"\d{1,3}(?:[,_']\d{3}){1,3}(?!\d)|" + _BLANKS + rb"(?= ?/ ?" + _BLANKS + rb")"
COUNT = rb"(" + _GROUPS + rb"|\d{1,12})"
STEP_LINE = re.compile(
    rb"(?:^|(?<!\*\*\*)[\s|\[\](:,{'\"])(?:iteration|iter(?:\(train\))?|global_step|step|num_updates)['\"]?"
    rb"[ \t]{0,24}[:=#|]?[ \t]{0,8}(?:\[[ \t]{0,8}|['\"(])?" + COUNT + rb"(?:\.0)?"
    rb"(?=['\"]?(?:[/|,:}\])\s]|$))"
    rb"|\bsteps: (\d{1,12})(?= loss:)|/global_step=(\d{1,12})(?=,)"
    rb"|\bepoch \d{1,9}:?[ \t]{1,8}(\d{1,12})(?= / \d(?![^\r\n]{0,300}num_updates))"
    rb"|\bepoch(?:\(train\))?:?[ \t]{1,8}\[\d{1,9}\]\[[ \t]{0,8}(\d{1,12})(?=/[ \t]{0,8}\d)"
    rb"|\[batch=(\d{1,12})(?=/\d{1,12}\])",
    re.IGNORECASE | re.MULTILINE,
)
# tqdm's bars (Transformers, axolotl, Lightning, torchtune): "Epoch 0:  10%|#   | 10/100 [00:01<00:11,  8.10it/s". Many
# stand in one line, parted by carriage returns; in a pipe some writers leave the bar itself out.
BAR_LINE = re.compile(rb"(?:^|[\r\n])(?P<what>[^\r\n%]{0,80}?)[ \t]{0,8}\d{1,3}%[^\r\n\[]{0,300}?\b(?P<step>\d{1,12})/"
                  rb"(?P<of>\d{1,12}) \[(?:\d{1,4}:){1,3}\d\d<")
# Of a bar's own words: those of a training's. Bars of downloads, shards, validation and tokenising have others.
_TRAINING = re.compile(rb"(?i)\b(?:epoch|train(?:ing)?|iter(?:ation)?s?|steps?|loss)\b")
_EVALUATION = re.compile(rb"(?i)valid|eval|test|sanity|predict")
_PREFIX = re.compile(rb"^\s{0,64}(?:\[[^\]]{1,60}\]:?\s{0,64}|\d{1,9}:\s{1,64}){1,8}")   # torchrun's, srun's --label


_PARTS = re.compile(rb"[,_' ]")
_DIGITS = re.compile(rb"\d{1,12}|" + _GROUPS)
_COLOURS = re.compile(rb"\x1b\[[0-?]{0,40}[ -/]{0,4}[@-~]")   # and cursor moves (ECMA-48, CSI)
_TOLD = re.compile(rb"\bsafelaunch: step (\d{1,12})\b")           # safelaunch.progress
_END_BYTES = 8 << 10    # of a log, in which its last steps are looked for first: 64 ranks' lines of one step
MOST_LINE_BYTES = 4 << 10   # of a line that are read
AUTO = "auto"           # progress.step: the lines of common trainers
MOST_LAST = 64          # ranks that lag behind repeat older steps


def count_of(digits: bytes) -> int:
    """The number of digits that may be parted in thousands."""
    return int(digits if digits.isdigit() else _PARTS.sub(b"", digits))


def cut_lines(text: bytes) -> bytes:
    """The text as it is read: without colours, and with no line longer than is read. What takes longer with a line's
    length then takes no longer at all.
    """
    if b"\x1b" in text:   # "\x1b[32mstep\x1b[0m \x1b[1m100\x1b[0m/5000"
        text = _COLOURS.sub(b"", text)
    if len(text) <= MOST_LINE_BYTES:
        return text
    lines = text.split(b"\n")
    if max(map(len, lines)) <= MOST_LINE_BYTES:
        return text
    return b"\n".join(line if len(line) <= MOST_LINE_BYTES else b"\r".join(
        bar[:MOST_LINE_BYTES] for bar in line.split(b"\r")) for line in lines)


class Named(NamedTuple):
    """A step that a log names: where its match begins, and the number."""

    start: int
    step: int


def named_steps(text: bytes, pattern: str = "auto") -> list[Named]:
    """All steps that a piece of a log names, in order; `pattern` as in train.yaml's progress.step."""
    found = _in_lines(text, pattern, 0)
    if pattern != "auto":
        return list(found) or [Named(match.start(), int(match[1])) for match in _TOLD.finditer(text)]
    return list(found) or (list(_bar_steps(text)) if b"%" in text else [])


def last_steps(
    text: bytes, pattern: str = "auto", most: int = MOST_LAST, is_wanted: Callable[[Named], bool] = lambda named: True
) -> list[Named]:
    """The last `most` wanted ones of `named_steps`, read from the text's end, where lines name so many there.

    Bars are told by the whole text: the longest is the training's.
    """
    start = text.rfind(b"\n", 0, max(0, len(text) - _END_BYTES)) + 1
    found = [named for named in _in_lines(text, pattern, start) if is_wanted(named)]
    if len(found) < most and (start or not found):
        found = [named for named in named_steps(text, pattern) if is_wanted(named)]
    return found[-most:]


@lru_cache(maxsize=2)   # three readers search each piece of a live log: its end, or all of it
def _in_lines(text: bytes, pattern: str, start: int) -> tuple[Named, ...]:
    """What lines name from `start` on, where one begins."""
    if pattern == "auto":
        return tuple(Named(match.start(), count_of(match[match.lastindex or 0]))
                     for match in STEP_LINE.finditer(text, start))
    return tuple(Named(match.start(), count_of(match[1])) for match in re.compile(
        pattern.encode(), re.MULTILINE).finditer(text, start) if match[1] is not None and _DIGITS.fullmatch(match[1]))


def _bar_steps(text: bytes) -> Iterator[Named]:
    """Of bars without words the longest is the training's: Transformers draws its evaluations' bars just so."""
    bars = [match for match in BAR_LINE.finditer(text) if is_training(match["what"])]
    longest = max((int(match["of"]) for match in bars), default=0)
    for match in bars:
        if int(match["of"]) == longest:
            yield Named(match.start(), int(match["step"]))


def is_training(what: bytes) -> bool:
    """Whether a bar's own words are a training's, or none."""
    words = _PREFIX.sub(b"", what).strip()
    return not words or (_TRAINING.search(words) is not None and _EVALUATION.search(words) is None)


def latest_step(tail: bytes, pattern: str) -> int | None:
    """The last step named in the log's tail; `pattern` is "auto" or a regex with one group; None = none is named."""
    found = last_steps(tail, pattern, most=1)
    return found[-1].step if found else None


_NUMBER = re.compile(rb"(?<!\d)0*(" + _GROUPS + rb"|\d+)")


def end_of_number(text: bytes, number: int, start: int) -> int | None:
    """Behind the first place from `start` on where this number stands; None = nowhere."""
    digits = b"%d" % number   # a pattern made for each number took a third of the leader's CPU
    return next((match.end() for match in _NUMBER.finditer(text, start)
                 if match[1] == digits or (not match[1].isdigit() and _PARTS.sub(b"", match[1]) == digits)), None)


# Behind a step its total: "iteration 100/ 1000 |", "step 205/4000", "Step 4 of 10"; a bar has its own.
_OF = re.compile(rb"[ \t]{0,8}(?:/|of\b)[ \t]{0,8}" + COUNT + rb"(?!\d|\.\d)", re.IGNORECASE)


def latest_of(tail: bytes, pattern: str) -> tuple[int | None, int | None]:
    """The last step, and how many the training is to make as it says beside that; None = it does not say."""
    found = last_steps(tail, pattern, most=1)
    return (found[-1].step, total_behind(tail, found[-1])) if found else (None, None)


def total_behind(tail: bytes, named: Named) -> int | None:
    """The totals of lines and bars that count within an epoch are none: "Epoch 3:  10%|#  | 10/100 [", "iteration 7/9"
    of NeMo, fairseq's "epoch 010: 2000 / 8223".
    """
    start, step = named
    begin = max(tail.rfind(b"\n", 0, start + 1), tail.rfind(b"\r", 0, start + 1)) + 1
    bar = BAR_LINE.match(tail, start)
    text = tail[begin:bar.start("step") if bar else start]
    if b"epoch" in (text + tail[start:start + 12]).lower():
        return None
    number_end = end_of_number(tail, step, start)
    total = int(bar["of"]) if bar else None
    if total is None and number_end is not None and (of := _OF.match(tail, number_end)) is not None:
        total = count_of(of[1])
    return total if total is not None and total >= step else None
