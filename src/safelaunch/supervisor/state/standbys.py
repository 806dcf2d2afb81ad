"""The leader's standby, and whether one may suspect that this leader is dead."""

from __future__ import annotations

from safelaunch.slurm.io.slurm import Command
from safelaunch.supervisor.state.heartbeat import ShownHeartbeat

AFTER_S = 5.0     # a standby of the earlier leader has called by then
FIRST_S = 1.0     # where there was none: the attempt's own start comes first


class Standbys:
    """The one standby: where it runs or was asked for, and until when it is waited for (monotonic seconds)."""

    def __init__(self, now_s: float) -> None:
        self.process: Command | None = None
        self.node: str | None = None
        self.asked = ""
        self.until_s = now_s
        self.next_s = now_s + AFTER_S
        self.tried: set[str] = set()
        self.has_said_none = False
        self.is_contested = False       # a standby may not hear this leader
        self.confirmed_s = now_s        # when folder or standby last showed that nobody else leads this run
        self.heartbeat = ShownHeartbeat()

    def allow_start_by(self, at_s: float) -> None:
        """A standby need not wait for longer than `at_s`."""
        self.next_s = min(self.next_s, at_s)

    def start(self, process: Command, node: str, until_s: float) -> None:
        """It has been started there, and must have called by then."""
        self.process, self.asked, self.until_s = process, node, until_s

    def wait_until(self, until_s: float) -> None:
        """The standby's script lies on a frozen folder: it gets more time."""
        self.until_s = until_s

    def keep(self, node: str, until_s: float) -> None:
        """The standby has called."""
        self.node, self.until_s = node, until_s

    def note_lost(self, next_s: float) -> str:
        """The node on which the lost standby ran, or was to run."""
        node = self.node or self.asked
        self.process = self.node = None
        self.next_s = next_s
        self.tried.add(node)
        return node

    def note_no_node(self, next_s: float) -> bool:
        """No node is left for a standby; True where that is new."""
        is_new, self.has_said_none, self.next_s = not self.has_said_none, True, next_s
        return is_new

    def try_all_again(self) -> None:
        """Each node has had its turn."""
        self.tried.clear()

    def doubt(self, is_contested: bool = True) -> None:
        """Whether a standby may not hear this leader."""
        self.is_contested = is_contested

    def confirm(self, at_s: float) -> None:
        """Nobody else led this run at `at_s`."""
        self.confirmed_s = at_s
