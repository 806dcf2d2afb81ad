"""Messages to people in the simulation: recorded, and sometimes failing or late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from safelaunch.notify.io.notify import DEADLINE_S, Delivery
from safelaunch.notify.message import Message
from safelaunch.notify.targets import NotifyTarget

if TYPE_CHECKING:
    from tests.simulation.sim import Sim


class SimDelivery(Delivery):
    """By the scenario's `notify`: "works", "fails", "hangs" until the deadline, or one of them by chance ("mixed")."""

    def __init__(self, sim: Sim, targets: Sequence[NotifyTarget], message: Message) -> None:
        self._sim, self._targets, self._message = sim, targets, message
        how = sim.scenario.notify
        self._how = sim.rng.choice(("works", "fails", "hangs")) if how == "mixed" else how
        self._until_t = sim.clock.t + (DEADLINE_S if self._how == "hangs" else 0.3)

    def poll(self) -> dict[str, str] | None:
        """What became of it."""
        if self._sim.clock.t < self._until_t:
            return None
        trouble = {"works": "", "fails": "the server answers 500", "hangs": "no end within 20 s"}[self._how]
        if not trouble:
            self._sim.told += self._message.events
        return dict.fromkeys((target.label for target in self._targets), trouble)
