"""How a user's own script has ended: of its own exit code, or of a rank's in one of its sruns.

Most scripts go on behind their training (`srun … | tee log`, `srun …; echo done`) and end with 0 whatever became of it.
And the code of a script names no rank: the node of its shell would be blamed for each failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from safelaunch.core.model import Exit
from safelaunch.core.records import NamedTuple
from safelaunch.core.slurmoutput import parse_task_ends


class TaskEnd(NamedTuple):
    """How a task ended, as its guard says; `step` 0: the script itself, else which of its sruns has started it."""

    step: int
    ended_s: float   # monotonic
    exit: Exit


def exits_of(own: tuple[Exit, ...], ends: Iterable[TaskEnd], hides: Callable[[], bool], nodes: Sequence[str],
             words: Callable[[], str]) -> tuple[Exit, ...]:
    """The bad ends in the srun that ended last before the script, the first one first; `own`, the script's, if none.

    `hides`: whether the script lets failures of its sruns pass; asked where it has ended with 0 all the same. `words`:
    the log, in which srun tells of ranks without guards.
    """
    told = sorted(ends, key=lambda end: end.ended_s)
    script_s = next((end.ended_s for end in told if end.step == 0), None)
    before = [end for end in told if end.step and script_s is not None and end.ended_s <= script_s]
    bad = tuple(end.exit for end in before if end.step == before[-1].step and end.exit.code)
    if bad and (any(exit.code for exit in own) or hides()):
        return bad
    return _told(own, nodes, words) if any(exit.code for exit in own) and len(nodes) > 1 else own


def _told(own: tuple[Exit, ...], nodes: Sequence[str], words: Callable[[], str]) -> tuple[Exit, ...]:
    """The ranks that srun names with the script's exit code, or all on the only node that it names. Else the script's
    own end without a node: the failed process may have run on any.
    """
    named = tuple(exit for exit in parse_task_ends(words()) if exit.node in nodes)
    alike = tuple(exit for exit in named if exit.code in {one.code for one in own})
    if alike or len({exit.node for exit in named}) == 1:
        return alike or named
    return tuple(exit._replace(node="") for exit in own)
