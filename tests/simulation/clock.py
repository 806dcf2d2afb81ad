"""Virtual time: a queue of events, and processes that live in it. Nothing in here waits for real.

A process runs real code in a greenlet of its own until that code sleeps; the clock then jumps to the next event. An
event happens at an instant, so that a process can be killed, or paused for seconds, wherever its code waits.
"""

from __future__ import annotations

import heapq
import itertools
import traceback
from collections.abc import Callable

from greenlet import GreenletExit, getcurrent, greenlet  # type: ignore[import-untyped,unused-ignore]

SPIN_LIMIT = 20_000   # events within a second: somebody waits without letting time pass
SWITCH_S = 0.0003     # a context switch


class Spinning(Exception):
    """Time stands still: code that loops without sleeping."""


class Timer:
    """An event to come; `cancel` takes it back."""

    __slots__ = ("act",)

    def __init__(self, act: Callable[[], object] | None) -> None:
        self.act = act

    def cancel(self) -> None:
        """Never act."""
        self.act = None


class Clock:
    """Seconds since the scenario's beginning, and what happens next."""

    def __init__(self) -> None:
        self.t = 0.0
        self.events = 0
        self.is_over = False
        self._queue: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()

    def at(self, t: float, act: Callable[[], object]) -> Timer:
        """`act` at time `t`; events of one instant happen in the order in which they were made."""
        timer = Timer(act)
        heapq.heappush(self._queue, (t if t > self.t else self.t, next(self._numbers), timer))
        return timer

    def after(self, delay_s: float, act: Callable[[], object]) -> Timer:
        """`act` in `delay_s` seconds."""
        return self.at(self.t + delay_s, act)

    def run(self, until_t: float) -> None:
        """Let everything happen that is to happen before `until_t`, or before somebody sets `is_over`."""
        queue, pop, since_t, since = self._queue, heapq.heappop, self.t, self.events
        while queue and not self.is_over:
            t, _, timer = pop(queue)
            act = timer.act
            if act is None:
                continue
            if t > until_t:
                break
            if t > since_t + 1.0:
                since_t, since = t, self.events
            elif self.events - since > SPIN_LIMIT:
                raise Spinning(f"{SPIN_LIMIT} events at {t:.3f} s")
            self.t = t
            self.events += 1
            timer.act = None
            act()
        self.t = max(self.t, until_t) if not self.is_over else self.t


class Process:
    """Real code under virtual time; `on_end(code, error)` hears how it ended, unless it was killed."""

    def __init__(self, clock: Clock, name: str, main: Callable[[], int],
                 on_end: Callable[[int | None, str], None]) -> None:
        self.clock, self.name = clock, name
        self.dead = False
        self.is_held = False          # stopped as SIGSTOP does it, alone or with its whole host
        self._on_end = on_end
        self.last_t = 0.0
        self._asleep = False
        self._due_missed = False
        self._until_t = 0.0
        self._timer: Timer | None = None
        self._hub = getcurrent()
        self._greenlet = greenlet(lambda: self._run(main))
        clock.after(0.0, self._start)

    def _start(self) -> None:
        if self.is_held:
            self._due_missed = True
        elif not self.dead:
            self._greenlet.switch()

    def _run(self, main: Callable[[], int]) -> None:
        code: int | None = None
        error = ""
        try:
            code = main()
        except GreenletExit:
            return
        except Spinning:
            raise
        except Exception:  # noqa: BLE001 - a crash of the code under test is a finding, not the end of the simulation
            error = traceback.format_exc()
        self.dead = True
        self._on_end(code, error)

    def is_current(self, one: object) -> bool:
        """Whether it is this process whose code runs (`one`: the greenlet that runs)."""
        return one is self._greenlet

    def sleep(self, timeout_s: float) -> None:
        """Called by the process itself: let `timeout_s` pass, or less when somebody calls `wake`."""
        if self.dead:
            raise GreenletExit
        self._asleep = True
        self._until_t = self.clock.t + max(1e-6, timeout_s)   # no sleep is shorter
        self._timer = self.clock.at(self._until_t, self._due)
        self._hub.switch()
        if self.dead:
            raise GreenletExit

    def wake(self, delay_s: float = SWITCH_S) -> None:
        """Something has happened that it waits for: run again within `delay_s`."""
        t = self.clock.t + delay_s
        if self._asleep and not self.dead and t < self._until_t:
            if self._timer is not None:
                self._timer.cancel()
            self._until_t, self._timer = t, self.clock.at(t, self._due)

    def _due(self) -> None:
        self._asleep = False
        if self.dead:
            return
        if self.is_held:
            self._due_missed = True
            return
        self.last_t = self.clock.t
        self._greenlet.switch()

    def hold(self) -> None:
        """SIGSTOP."""
        self.is_held = True

    def let_go(self) -> None:
        """SIGCONT."""
        self.is_held = False
        if self._due_missed and not self.dead:
            self._due_missed = False
            self.clock.after(0.0, self._due)

    def kill(self) -> None:
        """SIGKILL: not another line of it runs."""
        if self.dead:
            return
        self.dead = True
        if self._greenlet and getcurrent() is not self._greenlet:
            self._greenlet.throw(GreenletExit)
