"""What an attempt's log counts: counters of steps, told apart by who prints them and by the words around the number.

A log can have several: stages of a start ("step 2/5: building the model"), evaluations, ranks, epochs that start at 0.
Only a counter that has reached a checkpoint's step before can be compared with it (run.lost).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from safelaunch.trainlog.epochs import Named, line_begin
from safelaunch.trainlog.steps import end_of_number, last_steps, named_steps

MOST_FORMS, MOST_SOURCES = 16, 2   # ranks count alike: two of each form tell all; stages of a start crowd nobody out
BEGUN = 20
BAR = "bar "        # a progress bar's; some start anew in a resumed epoch, or run through the data that is skipped
_NEAR_BYTES = 400   # around a step, of a line that may name hundreds
_LAG = 3            # ranks that share a prefix print a few older steps

_PREFIX = re.compile(rb"^\s{0,64}((?:\[[^\]\n]{1,80}\]:?\s{0,64}){1,8})")
_WORD = re.compile(rb"[A-Za-z_]{3,}")
_AFTER = re.compile(rb"\s{0,8}(/\s{0,8}\d{1,12})|[\s,:|]{0,16}([A-Za-z_]{3,})")
_BAR_OF = re.compile(rb"\b\d{1,12}/(\d{1,12}) \[")
# Steps that are not the training's: of an evaluation, a start, a search for the resume point.
NO_TRAINING = re.compile(
    rb"(?i)valid|eval|\btest|sanity|predict|load|resum|restor|\bskipping\b|fast.?forward|replay|warm.?up|warming|compil"
    rb"|profil|dummy|dry.?run|benchmark|calibrat|download|prepar|build|init|setup|\btotal\b|\bmax")


class Step(NamedTuple):
    """A step that a line counts: who prints it, and how; "" = within epochs: no checkpoint's name has to count so."""

    source: str
    form: str
    number: int


class Counter(NamedTuple):
    """One counter: the first step that it named, the highest, and how often it has grown."""

    source: str
    form: str
    first: int
    last: int
    grown: int = 1
    below: int = 0        # how many different steps below the one that the attempt was to go on from
    fell: bool = False    # it has begun anew: an epoch's


def count(known: tuple[Counter, ...], text: bytes, pattern: str, resume_step: int | None) -> tuple[Counter, ...]:
    """The counters after more of the log: of all its text while they begin, of its end from then on."""
    named = last_steps(text, pattern) if has_begun(known) else named_steps(text, pattern)
    counters = {(one.source, one.form): one for one in known}
    for step in _steps(text, named, pattern):
        key = (step.source, step.form)
        before = counters.get(key)
        if before is not None:
            counters[key] = _go_on(before, step.number, resume_step)
        elif _has_room([form for _, form in counters], step.form):
            below = int(resume_step is not None and bool(step.form) and step.number < resume_step)
            counters[key] = Counter(*key, step.number, step.number, 1, below)
    return tuple(counters.values())


def has_begun(counters: Sequence[Counter]) -> bool:
    """Whether one has grown so often that its start has been seen; reading all text takes twenty times as long."""
    return any(one.grown >= BEGUN for one in counters)


def main_counter(counters: Sequence[Counter]) -> Counter | None:
    """The one that has grown most: the training's own."""
    return max(counters, key=lambda one: (one.grown, one.last), default=None)


def _has_room(forms: Sequence[str], form: str) -> bool:
    return forms.count(form) < MOST_SOURCES if form in forms else len(set(forms)) < MOST_FORMS


def _go_on(before: Counter, number: int, resume_step: int | None) -> Counter:
    if number > before.last:
        below = before.below + (resume_step is not None and bool(before.form) and number < resume_step)
        return before._replace(last=number, grown=before.grown + 1, below=below)
    return before._replace(fell=True) if is_anew(before.last, number) else before


def is_anew(highest: float, number: float) -> bool:
    """Whether a counter that has been so high begins again: not one of ranks that lag behind."""
    return highest - number > _LAG and number < highest / 2


def _steps(text: bytes, named: Sequence[Named], pattern: str) -> Iterator[Step]:
    for one in named:
        begin = line_begin(text, one.start)
        end = text.find(b"\n", one.start + 1)
        line = text[begin:end if end >= 0 else len(text)]
        prefix = _PREFIX.match(line)
        if prefix is not None and one.start - begin < prefix.end() - 1:
            prefix = None   # "[step 100/400] loss": the step itself
        source = prefix[1].strip().decode(errors="replace") if prefix else ""
        words = line[prefix.end() if prefix else 0:]
        shown = one.step if one.number is None else one.number
        at = _place(words, shown, max(0, one.start - begin - (len(line) - len(words))))
        before, after = words[max(0, at - _NEAR_BYTES):at], words[at + len(str(shown)):][:_NEAR_BYTES]
        if NO_TRAINING.search(before) or NO_TRAINING.search(after[:24]):
            continue
        form = _form(before, after, words, pattern)
        yield Step(source, form if one.number is None or form.startswith(BAR) else "", one.step)


def _place(words: bytes, step: int, start: int) -> int:
    """Where the number is, at `start` or after it."""
    end = end_of_number(words, step, start)
    return start if end is None else end - len(str(step))


def _form(before: bytes, after: bytes, words: bytes, pattern: str) -> str:
    if pattern != "auto":
        return "own"
    bar = _BAR_OF.search(words)
    if bar and b"%" in words:
        return f"{BAR}/{bar[1].decode()}"
    near = b" ".join(_WORD.findall(before)[-2:]).lower().decode()
    follows = _AFTER.match(after)
    behind = (follows[1] or follows[2]).replace(b" ", b"").lower().decode() if follows else ""
    return f"{near} # {behind}".strip()
