"""An error's whole message: it goes on while its lines are indented, numbered or framed, or announce more."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice

from safelaunch.why.findings import Finding, Line

MOST_LINES = 16
MOST_LISTS, MOST_LIST = 8, 1200   # phrases looked at in a text, and characters of a list
MORE = "more"   # a finding's group: the lines below its first one
_GOES_ON = re.compile(r"\s|\||[-*+=]{1,3} |\(?\d{1,3}[.)] |\[\d{1,3}\] ")
# "2 root error(s) found.", "Last error:", "The following …": what counts stands below.
_ANNOUNCES = re.compile(r"(?i)(?::|\b(?:found|follow(?:s|ing)|below|causes?|caused by)[.:]?"
                        r"|\b(?:error|exception)s? (?:was |were )?(?:encountered|occurred|raised)\b.{0,80})\s*$")
_ENDS = re.compile(r"Traceback \(most|During handling|The above exception|\s*File \"|\s*at 0x|\s*#\d+ |frame #\d")
_EXPLAINS = re.compile(r"(?i)\b(?:usually|may|might|possibl[ey]|could be|likely|e\.g\.|please|try"
                       r"|for (?:more )?details)\b")
_FACT = re.compile(r"(?i)error|fail|denied|refused|cannot|unable|not found|no such|invalid|timed? ?out"
                   r"|mismatch|status|code")
# Of what a message is a sign of, by its own words. What stands behind "either" may be no more than options.
_LISTS = re.compile(
    r"(?i)\b(?:(?:possible|potential|likely|probable|common|some|these) (?:(?:root|possible|common) )?"
    r"(?:cause|reason)s?(?: (?:are|is|include|for this))?|(?:caused by|due to|because|the result of"
    r"|happens? (?:when|if)|(?:may|might|could|can) (?:also )?(?:indicate|mean)|it is possible that)"
    r"(?: (?:a number of|several) \w+, including)?|(?P<either>either))[:.,]*(?=\s)")
_HINTS = ("cause", "reason", "due to", "result of", "happen", "indicate", "mean", "possible", "either")
_ITEM = re.compile(r"(?:^|(?<=[\s.,;]))\s{0,4}(?:a\s{1,4})?(?:\(?\d{1,2}[.)]|[-*•])\s{1,4}(?=\w)")
_OR = tuple(map(re.compile, (r",? (?:and/)?or |, (?=.{0,200} or )", r",? (?:and/)?or ")))
_END = re.compile(r"(?<=[\w)])[.;](?:\s|$)")
_LEAD = re.compile(r"(?i)^(?:(?:either|possibly|because|by|that|due to|an?(?= possible)|possible)\s+)+")
_TAIL = re.compile(r"[,;.]?(?: or)?$")
_TOLD = re.compile(r"(?i)\b(?:last|underlying|original) error: \S")   # what it points to is no guess
_SAID = re.compile(r"(?!(?:an?|the) \S+$)\S+ \S")   # one word is no cause
_HAPPENS = re.compile(r"\b(?:was|were|is|are|has|have|ran|died|failed|crashed|could)\b")
# A stack and its frames, of whatever language: they say where, not what.
_STACK = re.compile(r"(?i).{0,80}\b(?:stack|back) ?trace\W*$|\s*-{3,}.{0,20}\bstack ?trace\b|stack traceback:"
                    r"|(?:.{1,60}: )?\s*(?:@|#\d{1,3}) +0x|\s*\d{1,3}: (?:0x|\S{1,200}::)"
                    r"|\s+at \S{1,300}(?:\(|:\d{1,7}\b|$)|(?:\[\S{1,60}\])?\s*\[ ?\d{1,3}\] \S{1,300}\[0x"
                    r"|\S{0,60}\s{1,20}[0-9A-F]{16} |frame #\d|\s*#\d{1,3}\s{1,4}.{1,300}? (?:at|in) ")
OPEN_MPI = "-" * 74    # frames its errors
_BORDER = re.compile(r"(?![\s^~])\W{20,}$")   # no marks below a line of source


def stated(text: str) -> str:
    """The text without the sentences that explain, or advise."""
    return " ".join(part for part in _END.split(text) if not _EXPLAINS.search(part)) or text


def list_causes(text: str) -> tuple[str, tuple[str, ...]]:
    """The text before the causes that it lists, and these; all of a text that lists no two, or names one behind them.
    """
    for found in islice(_LISTS.finditer(text), MOST_LISTS) if any(map(text.lower().__contains__, _HINTS)) else ():
        below = text[found.end():found.end() + MOST_LIST].strip()
        first = _END.split(below)[0]
        for items in ([_END.split(item)[0] for item in _ITEM.split(below)],) if _ITEM.match(below) else (
                form.split(first) for form in _OR):
            causes = tuple(_LEAD.sub("", _TAIL.sub("", item.strip())) for item in items if item.strip())
            if len(causes) > 1 and not _TOLD.search(below) and all(
                    _SAID.match(cause) and (not found["either"] or _HAPPENS.search(cause)) for cause in causes):
                return text[:found.start()], causes
    return text, ()


def whole(lines: Sequence[Line], judged: Container[tuple[int, int]]) -> Iterator[Line]:
    """The last lines of one file, each message one of them: what a launcher has framed, and a list of causes. A frame
    with a line that a rule has judged stays as it is.
    """
    box: list[Line] | None = None
    lines = [line for line in lines if not _STACK.match(line.text)]
    level, at = "", 0
    while at < len(lines):
        line, at = lines[at], at + 1
        if _BORDER.match(line.text):
            yield from (one._replace(level=one.level or level) for one in _joined(box or [], judged))
            level = "E" if line.text == OPEN_MPI else line.level
            box = [] if box is None else None
        elif box is not None and not line.level:
            box.append(line)
        else:
            yield from box or ()
            box = None
            is_head = _ANNOUNCES.search(line.text) or re.search(r"(?i)cause|reason", line.text)
            more = rest(line.text, (one.text for one in lines[at:])) if is_head else ()
            yield from _joined([line, *lines[at:at + len(more)]], judged)
            at += len(more)
    yield from box or ()


def _joined(lines: Sequence[Line], judged: Container[tuple[int, int]]) -> Iterator[Line]:
    if len(lines) < 2 or any((line.file, line.offset) in judged for line in lines):
        yield from lines
    else:
        yield lines[0]._replace(text=" ".join(line.text.strip(" =|") for line in lines)[:2000])


def rest(first: str, below: Iterable[str]) -> tuple[str, ...]:
    """The lines that belong to the message that begins with `first`."""
    kept: list[str] = []
    last = first
    for line in below:
        if not line.strip():
            continue
        if _ENDS.match(line) or not (_ANNOUNCES.search(last) or _GOES_ON.match(line)):
            break
        kept.append(line.strip())
        last = line
    return tuple(kept)


def fact_of(lines: Iterable[str]) -> str:
    """The line that says what happened: not the one that explains what it may be, nor one that only announces."""
    told = [line for line in lines if not _ANNOUNCES.search(line)]
    sure = [line for line in told if not _EXPLAINS.search(line)]
    return next((line for line in sure if _FACT.search(line)), (sure or told or [""])[0])


def join(found: Finding, more: tuple[str, ...]) -> Finding:
    """The finding with all of its message; its text shows the fact where its own line only announces it."""
    groups = {**found.groups, MORE: " ".join(more)[:1000]}
    if not _ANNOUNCES.search(found.text):
        return found._replace(groups=groups)
    fact = fact_of(more)
    groups |= {"message": f"{groups['message']} {fact}".strip()} if "message" in groups else {}
    return found._replace(groups=groups, text=f"{found.text} {fact}"[:2000])
