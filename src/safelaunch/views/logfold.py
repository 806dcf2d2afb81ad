"""`logs --fold`: lines that several ranks print alike, once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from safelaunch.core.logview.rankfold import RankFold
from safelaunch.views.attemptlogs import LogPart
from safelaunch.views.logparts import MOST_LINE_BYTES

HOLD_S = 0.5            # a line of `-f --fold` waits so long for its equals


def folded(parts: Iterable[LogPart], is_live: bool) -> Iterator[LogPart]:
    """The same with lines that several ranks print alike shown once. `is_live`: the parts come as they are written."""
    hold_s = HOLD_S if is_live else float("inf")
    fold, log, rest = RankFold(hold_s), None, b""
    for new, data in parts:
        now_s = time.monotonic() if is_live else 0.0
        if log is not None and new.number != log.number:
            yield log, b"".join([*(fold.add(rest, now_s) if rest else ()), *fold.rest()])
            fold, rest = RankFold(hold_s), b""
        log = new
        *whole, rest = (rest + data).split(b"\n")
        ready = [line for text in whole for line in fold.add(text + b"\n", now_s)]
        while len(rest) > MOST_LINE_BYTES:
            ready += fold.add(rest[:MOST_LINE_BYTES], now_s)
            rest = rest[MOST_LINE_BYTES:]
        yield log, b"".join([*ready, *fold.due(now_s)])
    if log is not None:
        yield log, b"".join([*(fold.add(rest, 0.0) if rest else ()), *fold.rest()])
