"""What an exception means whose text no rule knows: by its type, its words, its errno, and where it was raised.

Each of these speaks for categories with some weight; the heaviest category has it. Nothing of it is sure: a reading
that rests on more than the type stays below what a policy acts on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from safelaunch.why.read.fields import is_report
from safelaunch.why.read.messages import stated
from safelaunch.why.read.tracebacks import parse_frames
from safelaunch.why.weigh.errnos import category_of_errno, category_of_os_error
from safelaunch.why.weigh.packages import weigh_frames, weigh_module
from safelaunch.why.weigh.words import guesses_of, weigh_words

MOST_WEIGHT = 0.74       # of a reading by words and places: never sure (0.8)
LEAST_WEIGHT = 0.48      # above what a clear cause needs
POINT_WEIGHT = 0.04      # what a point ahead of the next category adds
FIRM_WEIGHT = 0.7        # a type that holds so often is taken at its word
PRIOR_POINTS = 2.0       # what a type's own weight of 1 would be worth in points
ERRNO_POINTS = 5.0       # the system's own word
ERRNO_WEIGHT = 0.7       # … and all that is said
CHECK_POINTS = 3.0       # a failed check of two sizes: what the program gave does not fit
COMPARED = re.compile(r"\b\d+ vs\.? \d+\b")
DEVICE = re.compile(r"(?i)gpu|cuda|\bhip|torch|jax|xla|tensorflow|device|\b[hnx]pu\b|hbm|vram|\bcl_")
WRAPPER_COST = 0.15      # "Caught … in DataLoader worker": the one that it wraps stands below it, with the reason
_WRAPPER = re.compile(r"Caught \w+ in |(?:The )?(?:worker|task|actor|process|child)\b.{0,40}(?:raised|died|failed)")
STACK_WEIGHT = 0.4       # of a traceback that is cut off: where it was, but not what went wrong
STACK_POINTS = 1.5
ABSENT = re.compile(r"(?i)not (?:be )?found|does(?: not|n't) exist|can(?:'|no)t find|no such|is empty|missing")
_NAME = re.compile(r"\W*\w+\W*|'[^']*'")   # a key or a name alone states nothing (KeyError: 'labels')


class Reading(NamedTuple):
    """What an exception means."""

    category: str
    weight: float
    action: str = ""


GUESS = Reading("unknown", 0.2)   # of a message that lists several causes, or only tells that a process ended

# The exception's last name → what it means when nothing else speaks; the weights are how often that holds.
_TYPES = {
    "AssertionError": Reading("user_code", 0.62),
    "AttributeError": Reading("user_code", 0.74),
    "NameError": Reading("user_code", 0.86),
    "UnboundLocalError": Reading("user_code", 0.86),
    "TypeError": Reading("user_code", 0.76),
    "IndexError": Reading("user_code", 0.74),
    "KeyError": Reading("user_code", 0.66),
    "ValueError": Reading("user_code", 0.64),
    "ZeroDivisionError": Reading("user_code", 0.78),
    "RecursionError": Reading("user_code", 0.8),
    "NotImplementedError": Reading("user_code", 0.62),
    "SyntaxError": Reading("user_code", 0.82),
    "IndentationError": Reading("user_code", 0.85),
    "TabError": Reading("user_code", 0.85),
    "StopIteration": Reading("data", 0.5),
    "EOFError": Reading("data", 0.45),
    "OverflowError": Reading("user_code", 0.6),
    "FileExistsError": Reading("user_code", 0.6),
    "FileNotFoundError": Reading("config", 0.62),
    "NotADirectoryError": Reading("config", 0.6),
    "IsADirectoryError": Reading("config", 0.6),
    "PermissionError": Reading("config", 0.55),
    "ModuleNotFoundError": Reading("environment", 0.88),
    "ImportError": Reading("environment", 0.72),
    "MemoryError": Reading("host_oom", 0.8),
    "OutOfMemoryError": Reading("cuda_oom", 0.82),
    "OSError": Reading("storage", 0.42),
    "BlockingIOError": Reading("storage", 0.45),
    "TimeoutError": Reading("hang", 0.42),
    "ConnectionError": Reading("network", 0.42),
    "ConnectionRefusedError": Reading("network", 0.5),
    "ConnectionResetError": Reading("network", 0.35),
    "BrokenPipeError": Reading("network", 0.25),
    "UnicodeDecodeError": Reading("data", 0.6),
    "JSONDecodeError": Reading("data", 0.55),
    "KeyboardInterrupt": Reading("cancelled", 0.7),
    "SystemExit": Reading("user_code", 0.2),
    "CalledProcessError": Reading("user_code", 0.2),
    "JaxRuntimeError": Reading("user_code", 0.4),
    "XlaRuntimeError": Reading("user_code", 0.4),
    "RuntimeError": Reading("user_code", 0.56),
}
_OTHER = Reading("user_code", 0.5)
KIN_WEIGHT = 0.5         # of a type that is named after one of these
_OTHER_POINTS = 1.0      # a type of somebody's own says next to nothing by itself


def read_exception(kind: str, message: str, block: Sequence[str]) -> Reading:
    """The category of an exception that no rule knows by its text, from its type, message and frames."""
    if not kind:   # the log ends before it
        return _read_stack(block)
    module, _, name = kind.rpartition(".")
    known = _TYPES.get(name)
    if known is not None and known.weight >= FIRM_WEIGHT:
        return known
    if guesses_of(message)[1] or is_report(message):
        return GUESS
    if (category := category_of_os_error(message)) is not None:
        return Reading(category, ERRNO_WEIGHT)
    prior = known or _kin_of(name) or _OTHER
    points = {prior.category: _OTHER_POINTS if prior is _OTHER else PRIOR_POINTS * prior.weight}
    if not _NAME.fullmatch(message):   # a type of somebody's own says in its name what has happened
        _add(points, weigh_words(stated(message) if known else f"{name}: {stated(message)}"))
    _add(points, weigh_frames(parse_frames(block)))
    if (origin := weigh_module(module)) is not None:
        _add(points, {origin[0]: origin[1]})
    if COMPARED.search(message):
        _add(points, {"user_code": CHECK_POINTS})
    if (category := category_of_errno(message)) is not None:
        _add(points, {category: ERRNO_POINTS})
    if "cuda_oom" in points and not DEVICE.search(f"{kind} {message} {' '.join(block)}"):   # whose memory?
        points["host_oom"] = points.get("host_oom", 0.0) + points.pop("cuda_oom")
    reading = _decide(points, prior, message)
    return reading._replace(weight=reading.weight - WRAPPER_COST) if _WRAPPER.match(message) else reading


def _kin_of(name: str) -> Reading | None:
    """What a type of somebody's own has from the one whose name it ends with: GetTimeoutError is a TimeoutError."""
    known = max((own for own in _TYPES if name.endswith(own)), key=len, default="")
    return _TYPES[known]._replace(weight=min(_TYPES[known].weight, KIN_WEIGHT)) if known else None


def _read_stack(block: Sequence[str]) -> Reading:
    """What the frames of a traceback without its exception are about; where they do not tell, it is an end only."""
    points = weigh_frames(parse_frames(block))
    best = max(points, key=lambda category: points[category], default="unknown")
    return Reading(best, STACK_WEIGHT) if points.get(best, 0.0) >= STACK_POINTS else Reading("unknown", 0.0)


def _decide(points: Mapping[str, float], prior: Reading, message: str) -> Reading:
    """The heaviest category; the type's own where nothing weighs more."""
    best = max(points, key=lambda category: points[category])
    if best == prior.category:
        return prior
    next_points = max((value for category, value in points.items() if category != best), default=0.0)
    weight = min(MOST_WEIGHT, LEAST_WEIGHT + POINT_WEIGHT * (points[best] - next_points))
    action = "fix_config" if best == "data" and ABSENT.search(message) else ""
    return Reading(best, round(weight, 2), action)


def _add(points: dict[str, float], more: Mapping[str, float]) -> None:
    for category, weight in more.items():
        points[category] = points.get(category, 0.0) + weight
