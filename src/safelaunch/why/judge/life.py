"""A log in which nothing has failed: it ended well, it is alive, or nobody can tell. Each needs its own evidence."""

from __future__ import annotations

import re

from safelaunch.why.findings import Cited, Finding, Log
from safelaunch.why.judge.lastlines import HARMLESS, cite_line, sounds_bad
from safelaunch.why.order.episodes import Episode, order_of
from safelaunch.why.read.fields import is_report
from safelaunch.why.read.messages import MORE
from safelaunch.why.verdict import Verdict
from safelaunch.why.weigh.counterevidence import SURE_END

READY_LINES = 40    # a server that nobody asks prints its last word at its start
AGAIN, KIND = 2, 40 # lines of kinds known from before an error; characters that make a kind, numbers aside
END_LINES = 3       # with words, in one of which a program says that it is done
ALIVE, STEPPED = 0.8, 0.7   # steps in the last lines, or before: of the first 18 of 18 were healthy, read unseen
NOT_SEEN = 0.3      # nothing speaks of a failure, and nothing of life
# What servers say once they can be asked, and that they have answered.
_READY = re.compile(r"(?i)\bstart-?up (?:is )?complete|\blistening (?:on|at)\b"
                    r"|\b(?:running|serving|available) (?:on|at) \S{0,20}(?:://|:\d)"
                    r"|\bready to (?:serve|accept|roll)|\bserver (?:is )?(?:ready|up|started)\b"
                    r"|HTTP/\d\S{0,4}\"? 2\d\d\b")
# A last line that says of the whole program that it is done.
_DONE = re.compile(r"(?i)^\W*(?:all |job )?(?:done|finished|completed?|success)\W*$"
                   r"|\b\d+ passed\b(?!.*\b(?:failed|error))|\b(?:training|job|run|script|program"
                   r"|evaluation|benchmark|trial|simulation|all (?:checks|tests))\b.{0,30}"
                   r"(?<!not )\b(?:finished|completed?|done|succeeded|passed)\b")


_WARNED = re.compile(r"\s+(?:\w+\.)*warn\(")   # the source of a warning, below its text, which may quote a traceback
# All of so many have been done, in which no script says so in any case.
_COUNTED = re.compile(r"(?i)\b([1-9]\d{0,9}) ?(?:of|/) ?\1\b.{0,60}\b(?:done|completed?|finished|passed|uploaded"
                      r"|succeeded)|\b0 failed\b")


def good_end(episode: Episode) -> Finding | None:
    """The line with which the program last said that it had finished."""
    return next((found for found in reversed(episode.findings) if episode.role(found) == "done"), None)


def went_on(found: Finding, log: Log) -> bool:
    """Whether somebody caught an error: of what its only speaker says behind it all is ordinary, and it goes on as
    before the error, or counts its work as done.
    """
    lines = [line for line in log.last if line.file == found.file and line.text[:1].strip()]
    more = found.groups.get(MORE, "")
    behind = [line for line in lines if line.offset > found.offset and line.text.strip() not in more]
    bad = [line.offset for line in behind if is_report(line.text) or line.text.startswith("Traceback (most") or (
        sounds_bad(line.text) and not HARMLESS.search(line.text))][-1:] or [found.offset]
    if any(line.offset > bad[0] and _COUNTED.search(line.text) for line in behind[-END_LINES:]):
        return True
    below = next((line.text for line in log.last if line.file == found.file and line.offset > found.offset), "")
    if _WARNED.match(below):
        return True
    before = {_kind_of(line.text) for line in lines if line.offset < found.offset}
    again = sum(_kind_of(line.text) in before for line in behind)
    return again >= AGAIN and bad == [found.offset] and len({(line.host, line.rank) for line in lines}) < 2


def _kind_of(text: str) -> str:
    return re.sub(r"\d+", "0", text)[:KIND]


def says_well(log: Log) -> bool:
    """Whether one of the last lines says of the whole program that it is done, or alive."""
    worded = [line.text for line in log.last if any(map(str.isalpha, line.text))]
    return any(_DONE.search(text) or _READY.search(text) for text in worded[-END_LINES:])


def judge_life(episode: Episode, log: Log, candidates: tuple[Cited, ...] = ()) -> Verdict:
    """What speaks for health, with the last step, the last line and their times."""
    last = max(log.last, key=lambda line: (line.t or 0.0 if episode.is_timed else 0.0, line.file, line.offset),
               default=None)
    shown = () if last is None else (cite_line(last, log),)
    said = _last_step(episode)
    end = good_end(episode)
    ready = next((line for line in reversed(log.last[-READY_LINES:]) if _READY.search(line.text)), None)
    if end is not None:
        sure = any(episode.role(found) == "done" and episode.rules[found.rule].weight >= SURE_END
                   for found in episode.findings)
        return _none(f"the program says that it has finished{said}", 0.85 if sure else 0.75, shown, candidates)
    if episode.progress:
        ends = [line.offset for line in log.last if last is not None and line.file == last.file][-END_LINES:]
        is_alive = any(last and sign.file == last.file and sign.offset >= ends[0] for sign in episode.progress)
        return _none(f"steps were made up to the end{said}", ALIVE if is_alive else STEPPED, shown, candidates)
    if ready is not None:
        lines = (cite_line(ready, log), *(shown if last != ready else ()))
        return _none("it says that it is ready, or answers", 0.6, lines, candidates)
    if says_well(log):
        return _none("its last line is one of a good end", 0.6, shown, candidates)
    return Verdict("none", "no failure seen, and no sign of life: is its last line one to end with?", NOT_SEEN, "look",
                    candidates=candidates, cited=shown)


def _none(why: str, sure: float, shown: tuple[Cited, ...], candidates: tuple[Cited, ...]) -> Verdict:
    return Verdict("none", f"no failure: {why}", sure, "none", candidates=candidates, cited=shown)


def _last_step(episode: Episode) -> str:
    steps = [sign for sign in episode.progress if sign.step is not None]
    if not steps:
        return ""
    return f"; its last step or epoch is {max(steps, key=lambda sign: order_of(sign, episode.is_timed)).step}"
