"""What is the same about two failures: their text without ranks, nodes, times, addresses and numbers."""

from __future__ import annotations

import re

MAX_LETTERS = 160

# In this order: the longer forms first, so that no number is taken out of the middle of one.
_FORMS = (
    (re.compile(r"\x1b\[[0-9;]*[A-Za-z]"), ""),
    (re.compile(r"https?://\S+"), "URL"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?(?:Z|[+-]\d\d:?\d\d)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?"), "TIME"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "HEX"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+|<\d+>)?"), "ADDR"),
    (re.compile(r"\[?(?:[0-9a-fA-F]{0,4}:){3,7}[0-9a-fA-F]{1,4}\]?(?::\d+|<\d+>)?"), "ADDR"),
    (re.compile(r"(?:/[\w.@+=-]+){2,}/?"), "PATH"),
    (re.compile(r"\b(?=[a-fA-F]{0,64}\d)(?=\d{0,64}[a-fA-F])[0-9a-fA-F]{8,128}\b"), "HEX"),
    # A node's name: letters, then a number, with what follows ("gpu-012", "ip-26-0-147-135", "nid001234.cluster").
    (re.compile(r"\b[A-Za-z]{1,64}(?:-[A-Za-z]{1,64}){0,8}-?\d{1,64}(?:-\d{1,64}){0,8}(?:\.[a-z][\w-]{0,64}){0,8}\b"),
     "NAME"),
    (re.compile(r"[-+]?\b\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"), "N"),
)
_SPACE = re.compile(r"\s+")
_LIST = re.compile(r"N(?:[ ,;x*\-]+N)+")


def make_fingerprint(category: str, rule: str, text: str) -> str:
    """The mark of a failure: equal for the same cause on other nodes, ranks and times."""
    return f"{category}:{rule}:{generalize(text)}"


def exit_fingerprint(code: int, signal: int | None) -> str:
    """The mark of an end that no line of the log explains: its number is all that is known, and is kept."""
    return make_fingerprint("unknown", f"signal={signal}" if signal else f"exit={code}", "")


def generalize(text: str) -> str:
    """The text without what differs from one occurrence to the next."""
    for form, word in _FORMS:
        text = form.sub(word, text)
    return _LIST.sub("N", _SPACE.sub(" ", text)).strip()[:MAX_LETTERS]


UNEXPLAINED_KILL = exit_fingerprint(137, 9)
# Signals that came from outside, nobody knows from whom.
UNEXPLAINED_TERM = exit_fingerprint(143, 15)
USER_SIGNALS = {10: "SIGUSR1", 12: "SIGUSR2"}   # whoever does not handle them dies of them
UNEXPLAINED_USER = frozenset(exit_fingerprint(128 + number, number) for number in USER_SIGNALS)
UNEXPLAINED_SIGNALS = frozenset({UNEXPLAINED_KILL, UNEXPLAINED_TERM, *UNEXPLAINED_USER})
