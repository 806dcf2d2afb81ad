"""The pattern of a rule pack, each search of which has a limit of processor time."""

from __future__ import annotations

import re
import sys
from typing import ClassVar

from safelaunch.base.io.cputime import TookTooLong, within

SEARCH_S = 0.2   # of a line of 8 KiB; a sound pattern takes microseconds
MOST_SLOW = 3    # rules; then those of packs take no more time


class LimitedPattern:
    """After a search that takes too long it matches nothing any more, and people are told: a pack, which a group may
    write, keeps nobody from what the other rules find.
    """

    slow: ClassVar[list[str]] = []   # ids, in this process

    def __init__(self, rule: str, pattern: re.Pattern[bytes]) -> None:
        self._rule, self._pattern = rule, pattern

    def search(self, text: bytes, /) -> re.Match[bytes] | None:
        """As that of re.Pattern."""
        if self._rule in self.slow or len(self.slow) == MOST_SLOW:
            return None
        try:
            return within(SEARCH_S, lambda: self._pattern.search(text))
        except TookTooLong:
            self.slow.append(self._rule)
            rules = "all rules of rule packs are" if len(self.slow) == MOST_SLOW else f"the rule {self._rule} is"
            sys.stderr.write(f"warning: {rules} left out from here on: the pattern of {self._rule} takes more than "
                             f"{SEARCH_S:g} s on a line\n")
            return None
