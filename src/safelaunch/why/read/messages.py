"""An error's whole message: it goes on while its lines are indented, numbered or framed, or announce more."""

from __future__ import annotations

import re
from collections.abc import Iterable

from safelaunch.why.findings import Finding

MOST_LINES = 16
MORE = "more"   # a finding's group: the lines below its first one
_GOES_ON = re.compile(r"\s|\||[-*+=]{1,3} |\(?\d{1,3}[.)] |\[\d{1,3}\] ")
# "2 root error(s) found.", "Last error:", "The following …": what counts stands below.
_ANNOUNCES = re.compile(r"(?i)(?::|\b(?:found|follow(?:s|ing)|below|causes?|caused by)[.:]?)\s*$")
_ENDS = re.compile(r"Traceback \(most|During handling|The above exception|\s*File \"|\s*at 0x|\s*#\d+ |frame #\d")
_EXPLAINS = re.compile(r"(?i)\b(?:usually|may|might|possibl[ey]|could be|likely|e\.g\.|please|try"
                       r"|for (?:more )?details)\b")
_FACT = re.compile(r"(?i)error|fail|denied|refused|cannot|unable|not found|no such|invalid|timed? ?out"
                   r"|mismatch|status|code")


def rest(first: str, below: Iterable[str]) -> tuple[str, ...]:
    """The lines that belong to the message that begins with `first`."""
    kept: list[str] = []
    last = first
    for line in below:
        if _ENDS.match(line) or not (_ANNOUNCES.search(last) or (line.strip() and _GOES_ON.match(line))):
            break
        if line.strip():
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
