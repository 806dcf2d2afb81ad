"""The two clocks as this tick has read them, the sleep between two ticks, and what is due when."""

from __future__ import annotations

from collections.abc import Sequence
from selectors import SelectorKey

from safelaunch.adapters.world import World


class Clock:
    """`now` is epoch seconds, `now_s` monotonic; both are read once a tick, after the sleep."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.now = world.now()
        self.now_s = self.born_s = world.now_s()
        self.has_news = False           # something other than an answer to a ping has come
        self.due: dict[str, float] = {}

    def sleep(self, timeout_s: float) -> Sequence[tuple[SelectorKey, int]]:
        """The sockets with something to read; the clocks are read when the sleep ends."""
        ready = self.world.selector.select(timeout_s)
        self.now, self.now_s = self.world.now(), self.world.now_s()
        return ready

    def has_no_news(self) -> None:
        """A sleep begins."""
        self.has_news = False

    def takes_news(self) -> None:
        """Something has happened that ends the sleep."""
        self.has_news = True

    def is_due(self, what: str, every_s: float) -> bool:
        """True once in `every_s`."""
        if self.now_s < self.due.get(what, 0.0):
            return False
        self.due[what] = self.now_s + every_s
        return True

    def hurries(self, what: str) -> None:
        """It is due at the next question."""
        self.due.pop(what, None)

    def starts_with(self, what: str, after_s: float) -> None:
        """It is due for the first time so many seconds after the first call of this."""
        self.due.setdefault(what, self.now_s + after_s)
