"""A command under virtual time: what the project starts goes to the fake Slurm, or to the log pump's stand-in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from safelaunch.slurm.io.slurm import Command, Result

if TYPE_CHECKING:
    from tests.simulation.clock import Clock
    from tests.simulation.process import Actor


class SimCommand(Command):
    """slurm.io.slurm.Command: ends when the world says so, or at its deadline."""

    def __init__(self, clock: Clock, owner: Actor, argv: Sequence[str], env: Mapping[str, str],
                 deadline_s: float) -> None:
        self.argv, self.env = tuple(argv), env
        self.owner = owner
        self.on_term: Callable[[], None] = partial(self.end, 143, "", "")   # a step's srun hands TERM on to it
        self._result: Result | None = None
        self._clock = clock
        self._late = clock.after(deadline_s, lambda: self._set(Result(self.argv, None, "", "")))

    def end(self, code: int, out: str, err: str) -> None:
        """It has ended; the owner gets SIGCHLD."""
        self._set(Result(self.argv, code, out, err))

    def _set(self, result: Result) -> None:
        if self._result is None:
            self._late.cancel()
            self._result = result
            self.owner.child_ended()

    def poll(self) -> Result | None:
        """The result; None while it runs."""
        return self._result

    def terminate(self) -> None:
        """TERM to it."""
        if self._result is None:
            self.on_term()

    def wait(self) -> Result:
        """The result, waited for."""
        while self._result is None:
            self.owner.process.sleep(1.0)
        return self._result
