"""The two clocks as this tick has read them, the sleep between two ticks, and the timers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from selectors import SelectorKey

from safelaunch.supervisor.io.world import World


class Timer(Enum):
    """What a leader does at intervals."""

    REQUESTS = auto()        # read the files in control/
    CLAIMS = auto()          # check whether another supervisor leads
    FOLDERS = auto()         # check whether the run's folders take writes
    TOUCH = auto()           # keep the local folder from a cleaner of /tmp
    HEARTBEAT = auto()           # write the heartbeat
    METRICS = auto()         # write the run's figures for Prometheus
    THIRD_WITNESS = auto()   # ask Slurm whether this node is cut off
    PERMISSIONS = auto()     # close a run folder that others can write
    RULES = auto()           # prepare the rules of `why`
    PROGRESS = auto()        # read the log's new lines
    OVERDUE_LOG = auto()     # the same, when a step is overdue
    STEP_START = auto()      # read whether srun waits for its step
    JOURNAL_STEP = auto()    # write a step to the journal
    STEP_TIME = auto()       # write the level of seconds per step to the journal
    LOST_NODES = auto()      # find silent guards
    UNREADABLE = auto()      # report a folder of checkpoints that cannot be read


class Clock:
    """`now` is epoch seconds, `now_s` monotonic; both are read once a tick, after the sleep."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.now = world.now()
        self.now_s = self.born_s = world.now_s()
        self.stepped_s = 0.0            # by how much the wall clock has gone another way in the last sleep
        self.has_news = False           # something other than an answer to a ping has come
        self._due: dict[Timer, float] = {}

    def sleep(self, timeout_s: float) -> Sequence[tuple[SelectorKey, int]]:
        """The sockets with something to read; the clocks are read when the sleep ends."""
        ready = self.world.selector.select(timeout_s)
        ahead_s, self.now, self.now_s = self.now - self.now_s, self.world.now(), self.world.now_s()
        self.stepped_s = self.now - self.now_s - ahead_s
        return ready

    def forget_news(self) -> None:
        """A sleep begins."""
        self.has_news = False

    def take_news(self) -> None:
        """Something has happened that ends the sleep."""
        self.has_news = True

    def take_turn(self, timer: Timer, every_s: float) -> bool:
        """True once in `every_s`."""
        if self.now_s < self._due.get(timer, 0.0):
            return False
        self._due[timer] = self.now_s + every_s
        return True

    def hurry(self, timer: Timer) -> None:
        """It is due at once."""
        self._due.pop(timer, None)

    def start_with(self, timer: Timer, after_s: float) -> None:
        """It is first due so many seconds after the first call of this."""
        self._due.setdefault(timer, self.now_s + after_s)
