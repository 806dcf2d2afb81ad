"""A command that names nodes, tried once more without what Slurm refuses. That is names that it does not know, and
exclusions that leave the next job too few nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

from safelaunch.decide.jobs import successor
from safelaunch.slurm import slurmtext
from safelaunch.slurm.io.slurm import Command, Result

Nodes = tuple[str, ...]
S = TypeVar("S")


def try_with_known(
    start: Callable[[], Command | None], ask_nodes: Callable[[], Command], leave_out: Callable[[Nodes | None], bool]
) -> Generator[Command, Result | None, Result | None]:
    """The result of what `start` starts; None where there was nothing to do.

    Where Slurm refuses an unknown name: the result of a second try. `leave_out` is given all nodes that exist (None =
    Slurm does not say), and says whether a second try would name fewer.
    """
    result = yield from _once(start)
    if result is None or not slurmtext.is_unknown_node(result.stderr):
        return result
    looked = yield ask_nodes()
    if not leave_out(slurmtext.all_nodes(looked.stdout) if looked is not None and looked.is_ok else None):
        return result
    return (yield from _once(start))


def try_with_fewer(
    exclude: Nodes, submit: Callable[[Nodes], Generator[Command, S, Result | None]]
) -> Generator[Command, S, tuple[Result, Nodes]]:
    """The result of sbatch of the next job, and the nodes that it is kept from in the end."""
    result = yield from submit(exclude)
    assert result is not None   # sbatch is a command in any case
    fewer = None if result.is_ok else successor.fewer(exclude, result.stderr)
    if fewer is None:
        return result, exclude
    again = yield from submit(fewer)
    assert again is not None
    return again, fewer


def _once(start: Callable[[], Command | None]) -> Generator[Command, Result | None, Result | None]:
    command = start()
    return (yield command) if command is not None else None
