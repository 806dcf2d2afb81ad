"""What people are to be told, and what they were told: a part of the run's state, so that it outlives a supervisor."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

MOST_WAITING = 200    # of one run: a newer one then takes the place of the oldest
MOST_KNOWN = 1000     # keys
MOST_AN_HOUR = 10     # messages; the run's end is told in any case
HOUR_S = 3600.0


class Notice(NamedTuple):
    """One thing to tell: a word of run.noticewords, and a key; what has the key of an earlier one is not told."""

    word: str
    key: str
    t: float
    why: str = ""
    attempt: int | None = None


class Notices(NamedTuple):
    """Of one run. `known`: the keys of all that was ever to be told; `sent_t`: when the last messages were sent."""

    waiting: tuple[Notice, ...] = ()
    known: tuple[str, ...] = ()
    sent_t: tuple[float, ...] = ()
    failing: tuple[str, ...] = ()   # targets that the last message did not reach

    def adds(self, notice: Notice) -> Notices:
        """With one more to tell, unless its key is known."""
        if notice.key in self.known:
            return self
        return self._replace(waiting=(*self.waiting, notice)[-MOST_WAITING:],
                             known=(*self.known, notice.key)[-MOST_KNOWN:])

    def were_told(self, keys: Collection[str], t: float, failing: tuple[str, ...]) -> Notices:
        """Without those that a message has told."""
        is_new = not self.sent_t or t > self.sent_t[-1]
        return self._replace(waiting=tuple(one for one in self.waiting if one.key not in keys),
                             sent_t=(*self.sent_t, t)[-MOST_AN_HOUR:] if is_new else self.sent_t,
                             failing=failing if is_new else self.failing)
