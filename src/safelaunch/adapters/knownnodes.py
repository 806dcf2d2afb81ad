"""A command that names nodes, tried once more without the names that Slurm does not know."""

from __future__ import annotations

from collections.abc import Callable, Generator

from safelaunch.adapters.slurm import Command, Result
from safelaunch.core import slurmtext

Nodes = tuple[str, ...]


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


def _once(start: Callable[[], Command | None]) -> Generator[Command, Result | None, Result | None]:
    command = start()
    return (yield command) if command is not None else None
