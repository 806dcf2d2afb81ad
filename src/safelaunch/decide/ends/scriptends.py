"""How a user's own script has ended: of its own exit code, or of a rank's in one of its sruns.

Most scripts go on behind their training (`srun … | tee log`, `srun …; echo done`) and end with 0 whatever became of it.
And the code of a script names no rank: the node of its shell would be blamed for each failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from safelaunch.base.model import Exit
from safelaunch.decide.ends.fence import GUARDED
from safelaunch.slurm.slurmoutput import parse_task_ends

_SIGNALS = 128   # above it a shell tells of a signal


class TaskEnd(NamedTuple):
    """How a task ended, as its guard says; `step` 0: the script itself, else which of its sruns has started it."""

    step: int
    ended_s: float   # monotonic
    exit: Exit


class ScriptWords(NamedTuple):
    """What tells of ranks without guards: the attempt's nodes, a word for each srun that the wrapper has seen, and the
    log, in which srun tells how they ended.
    """

    nodes: Sequence[str]
    sruns: Sequence[str]
    log: Callable[[], str]


def exits_of(own: tuple[Exit, ...], ends: Iterable[TaskEnd], hides: Callable[[], bool],
             words: ScriptWords) -> tuple[Exit, ...]:
    """The bad ends in the srun that ended last before the script, the first one first; `own`, the script's, if none.

    `hides`: whether the script lets failures of its sruns pass; asked where it has ended with 0 all the same. What was
    not needed by the others is then its own affair, as under sbatch.
    """
    told = sorted(ends, key=lambda end: end.ended_s)
    last = _last_srun(told)
    bad = tuple(exit for exit in last if exit.code)
    has_failed = any(exit.code for exit in own)
    if bad and (has_failed or (not _not_needed(last) and hides())):
        return bad
    if has_failed:
        return _told(own, words)
    # Only where srun's words can be of no other srun. A guard whose rank dies while no leader lives tells nobody.
    is_last_alone = [word for word in words.sruns if word != GUARDED] == list(words.sruns[-1:])
    is_clear = bool(words.sruns) and (is_last_alone or len(words.sruns) == 1)
    if not is_clear or any(end.step and end.exit.code for end in told) or not hides():
        return own
    known = {(end.exit.node, end.exit.task) for end in told if end.step}
    missing = tuple(exit for exit in _named(words) if is_last_alone or (exit.node, exit.task) not in known)
    return own if not missing or _not_needed((*missing, *last)) else missing


def let_pass(own: tuple[Exit, ...], ends: Iterable[TaskEnd]) -> tuple[Exit, ...]:
    """The ranks that failed in the last srun of a script that ended well, where the other ranks did not need them."""
    last = _last_srun(sorted(ends, key=lambda end: end.ended_s))
    return () if any(exit.code for exit in own) else _not_needed(last)


def _last_srun(told: Sequence[TaskEnd]) -> tuple[Exit, ...]:
    """The ends in the srun that ended last before the script, in their order."""
    script_s = next((end.ended_s for end in told if end.step == 0), None)
    before = [end for end in told if end.step and script_s is not None and end.ended_s <= script_s]
    return tuple(end.exit for end in before if end.step == before[-1].step)


def _not_needed(ends: Sequence[Exit]) -> tuple[Exit, ...]:
    """Those that failed by an exit code of their own, where another rank ended well after the first of them: shards of
    a sweep. In a training the others fail, too, or are ended.
    """
    bad = tuple(exit for exit in ends if exit.code)
    if not bad or any(exit.signal or exit.code > _SIGNALS for exit in bad):
        return ()
    return bad if any(exit.code == 0 for exit in ends[ends.index(bad[0]):]) else ()


def _told(own: tuple[Exit, ...], words: ScriptWords) -> tuple[Exit, ...]:
    """The ranks that srun names with the script's exit code, or all on the only node that it names. Else the script's
    own end without a node, also where it has one only: a file that is not there excluded a healthy node for two days.
    """
    named = _named(words)
    alike = tuple(exit for exit in named if exit.code in {one.code for one in own})
    if alike or len({exit.node for exit in named}) == 1:
        return alike or named
    return tuple(exit._replace(node="") for exit in own)


def _named(words: ScriptWords) -> tuple[Exit, ...]:
    return tuple(exit for exit in parse_task_ends(words.log()) if exit.node in words.nodes)
