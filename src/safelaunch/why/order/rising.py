"""Signs of life of programs that no rule knows: the same line again and again, with a count of work that rises."""

from __future__ import annotations

import re
from collections.abc import Sequence

from safelaunch.why.findings import Line, Progress

LEAST = 3           # different counts of one kind of line
ALIKE = 30          # characters by which lines are known as one kind, numbers aside
_COUNT = re.compile(r"(?i)(?:\b|_)(?:(?:time ?)?step|iter(?:ation)?|epoch|batch|shard|block|chunk|frame|cycle|it|sample"
                    r"|round|update|time)s?\b[ '\"#:=\[]{0,4}(\d{1,12})\b|(?<![\w.:/])(\d{1,12}) ?/ ?\d{1,12}\b(?!/)")
_NO_WORK = re.compile(r"(?i)retry|attempt|wait|try|(?:fail|error)(?!\w{0,3}[:= ]{1,2}0\b)|abort|kill|exit|lost|expired"
                      r"|remaining|time ?out|frame #")


def signs_of(last: Sequence[Line]) -> tuple[Progress, ...]:
    """The lines among the last ones that count up."""
    kinds: dict[tuple[int, str], list[Progress]] = {}
    for line in last:
        found = _COUNT.search(line.text)
        if found is not None and line.level not in ("E", "W") and not _NO_WORK.search(line.text):
            kind = (line.file, re.sub(r"\d+", "0", line.text)[:ALIKE])
            sign = Progress(line.file, line.offset, int(found[1] or found[2]), line.rank, line.host, line.t)
            kinds.setdefault(kind, []).append(sign)
    return tuple(sign for signs in kinds.values() if _rise([sign.step or 0 for sign in signs]) for sign in signs)


def _rise(steps: Sequence[int]) -> bool:
    return len(set(steps)) >= LEAST and sorted(steps) == list(steps)
