"""The training's progress, read from its log."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from safelaunch.trainlog import shapes
from safelaunch.trainlog.epochs import HINTS, LineCount, Named, carry, combine, line_begin
from safelaunch.trainlog.shapes import BAR_LINE, COUNT, GROUPS, SHORT, count_of

_DIGITS = re.compile(rb"\d{1,12}|" + GROUPS + rb"|" + SHORT)
_COLOURS = re.compile(rb"\x1b\[[0-?]{0,40}[ -/]{0,4}[@-~]")   # and cursor moves (ECMA-48, CSI)
_TOLD = re.compile(rb"\bsafelaunch: step (\d{1,12})\b")           # safelaunch.progress
_END_BYTES = 8 << 10    # of a log, in which its last steps are looked for first: 64 ranks' lines of one step
MOST_LINE_BYTES = 4 << 10   # of a line that are read
AUTO = "auto"           # progress.step: the lines of common trainers
MOST_LAST = 64          # ranks that lag behind repeat older steps


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


def named_steps(text: bytes, pattern: str = "auto") -> list[Named]:
    """All steps that a piece of a log names, in order; `pattern` as in train.yaml's progress.step."""
    if pattern == AUTO:
        return combine(text, _counted(text))
    return list(_of_own(text, pattern)) or [Named(match.start(), int(match[1])) for match in _TOLD.finditer(text)]


def last_steps(
    text: bytes, pattern: str = "auto", most: int = MOST_LAST, is_wanted: Callable[[Named], bool] = lambda named: True
) -> list[Named]:
    """The last `most` wanted ones of `named_steps`, read from the text's end, where lines name so many there.

    Bars are told by the whole text: the longest is the training's.
    """
    found: list[Named] = []
    if pattern == AUTO:
        found = [named for named in combine(text, _counted_at_end(text)) if is_wanted(named)]
    if len(found) < most:
        found = [named for named in named_steps(text, pattern) if is_wanted(named)]
    return found[-most:]


def carry_on(text: bytes, pattern: str) -> bytes:
    """The lines of a piece of a log that the next piece is read behind, so that its steps are read alike."""
    if pattern != AUTO:
        return b""
    if not any(hint in text for hint in HINTS):   # without epochs the last line that counts is all
        return carry(text, _counted_at_end(text) or _counted(text))
    return carry(text, _counted(text))


@lru_cache(maxsize=2)   # three readers search each piece of a live log
def _counted_at_end(text: bytes) -> tuple[LineCount, ...]:
    """Of its last lines alone; () where the text is short, they name none, or it has epochs, which all of it tells."""
    start = text.rfind(b"\n", 0, max(0, len(text) - _END_BYTES)) + 1
    return tuple(shapes.words(text, start)) if start and b"poch" not in text else ()


@lru_cache(maxsize=2)
def _counted(text: bytes) -> tuple[LineCount, ...]:
    return tuple(shapes.words(text) or (b"%" in text and shapes.bars(text)) or shapes.figures(text))


@lru_cache(maxsize=2)
def _of_own(text: bytes, pattern: str) -> tuple[Named, ...]:
    return tuple(Named(match.start(), count_of(match[1])) for match in re.compile(
        pattern.encode(), re.MULTILINE).finditer(text) if match[1] is not None and _DIGITS.fullmatch(match[1]))


def latest_step(tail: bytes, pattern: str) -> int | None:
    """The last step named in the log's tail; `pattern` is "auto" or a regex with one group; None = none is named."""
    found = last_steps(tail, pattern, most=1)
    return found[-1].step if found else None


_NUMBER = re.compile(rb"(?<!\d)0*(" + GROUPS + rb"|" + SHORT + rb"|\d+)")


def end_of_number(text: bytes, number: int, start: int) -> int | None:
    """Behind the first place from `start` on where this number stands; None = nowhere."""
    digits = b"%d" % number   # a pattern made for each number took a third of the leader's CPU
    return next((match.end() for match in _NUMBER.finditer(text, start)
                 if match[1] == digits or (not match[1].isdigit() and count_of(match[1]) == number)), None)


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
    if named.number is not None:
        return named.total if named.total is not None and named.total >= named.step else None
    start, step = named.start, named.step
    bar = BAR_LINE.match(tail, start)
    text = tail[line_begin(tail, start):bar.start("step") if bar else start]
    if b"epoch" in (text + tail[start:start + 12]).lower():
        return None
    number_end = end_of_number(tail, step, start)
    total = count_of(bar["of"]) if bar else None
    if total is None and number_end is not None and (of := _OF.match(tail, number_end)) is not None:
        total = count_of(of[1])
    return total if total is not None and total >= step else None
