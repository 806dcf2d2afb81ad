"""Which nodes this leader can reach, and whether it is cut off itself."""

from __future__ import annotations

from collections.abc import Callable

from safelaunch.decide.facts.seen import Live

ALONE_S = 5.0
MAX_ALONE_S = 300.0     # bounds the questions to Slurm while a site refuses a handover


class Reach:
    """`lost`: nodes, with why. `alone`: Slurm does not answer either. `resigned`: and nothing is left here."""

    def __init__(self, tell: Callable[[str, str], None]) -> None:
        self._tell = tell               # journal and people that this node is lost, and why
        self.lost: dict[str, str] = {}
        self.alone = self.resigned = False
        self.ask_every_s = ALONE_S      # between two questions to the third witness (supervisor.observe)

    def lost_of(self, live: Live | None) -> list[tuple[str, str]]:
        """Lost nodes of the live attempt, with why."""
        return [(node, why) for node, why in self.lost.items() if live and node in live.nodes]

    def lose(self, node: str, why: str) -> None:
        """Count a node as lost."""
        if node not in self.lost:
            self.lost[node] = why
            self._tell(node, why)

    def mark_not_alone(self) -> None:
        """Another host answers: the lost nodes are gone, not this one."""
        self.alone = self.resigned = False
        self.ask_every_s = ALONE_S

    def note_answer(self, is_alone: bool) -> None:
        """The third witness has answered, or not."""
        self.alone = is_alone
        self.ask_every_s = ALONE_S if is_alone else min(MAX_ALONE_S, 2 * self.ask_every_s)

    def note_left_here(self, is_gone: bool) -> None:
        """Whether nothing of the attempt runs on this host any more."""
        self.resigned = self.alone and is_gone
