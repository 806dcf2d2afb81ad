"""What one node alone has shown is tried once without it, before anything is proven or given up.

A missing module, an I/O error, a name that does not resolve: on one node of several it is the node's as often as the
program's, and one attempt without that node tells which. What several nodes show at once, first, is the program's.

Laws:
- A node that is idle in this job takes its place at the first failure, which costs nothing: of two nodes that have
  shown one, that of the later failure is left idle. A kill that nobody explains is no node's.
- Elsewhere one failure is enough before the first step. Later it takes the same one twice, on that node alone: a
  restart is cheaper than a wrong suspicion. The next job then does without the node, too.
- Where this job has no spare, the run goes on as ever, and leaves the job for it only where it would be given up
  otherwise, or where the same text has failed twice before the first step; and once. A queue is long: before that the
  node shows it twice. (The first rank to fail often ends the others before they say the same.)
- The same failure on another node acquits it: from then on that cause is the program's, and no node is left out.
- This is of this run only. The ledger, which other runs read, hears of it once the run has gone on without the node.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

from safelaunch.base.endings import AttemptEnd
from safelaunch.run.fold.state import Attempt, State
from safelaunch.run.plan import Plan
from safelaunch.why.categories import ENDS_OF_JOBS
from safelaunch.why.fingerprint import UNEXPLAINED_KILL, UNEXPLAINED_SIGNALS

# The same text runs on every node: with nobody to compare with, an error in it is what it says.
OF_THE_TEXT = ("user_code", "config", "version_mismatch")
SEVERAL = ""   # instead of the one node: others have shown the same


class LeftOut(NamedTuple):
    """A node that the next attempts do without, and the failures that it alone has shown, all alike."""

    node: str
    failures: tuple[Attempt, ...]

    @property
    def since(self) -> Attempt:
        """The failure from which on the run does without it."""
        return self.failures[0] if _is_enough(self.failures[0]) else self.failures[1]

    @property
    def is_proven(self) -> bool:
        """Whether the next job does without it, too."""
        return len(self.failures) > 1 or _is_enough(self.failures[0])

    @property
    def why(self) -> str:
        numbers = " and ".join(str(one.number) for one in self.failures[-2:])
        many, is_early = len(self.failures) > 1, self.failures[-1].step is None
        return (f"{'attempts' if many else 'attempt'} {numbers} failed{' alike' if many else ''} on {self.node} alone"
                f"{', before the first step' if is_early and not many else ''}")


def shown_alone(state: State) -> tuple[LeftOut, ...]:
    """The nodes that alone have shown a failure, that of the latest one last."""
    shown: dict[str, str] = {}                  # fingerprint → the one node, or SEVERAL
    alike: dict[str, tuple[Attempt, ...]] = {}
    for one in state.attempts:
        if not _counts(state, one):
            continue
        node = one.blamed[0] if len(one.blamed) == 1 else SEVERAL
        shown[one.fingerprint] = node if shown.get(one.fingerprint, node) == node else SEVERAL
        alike[one.fingerprint] = (*alike.get(one.fingerprint, ()), one)
    found = (LeftOut(node, alike[mark]) for mark, node in shown.items() if node != SEVERAL)
    counted = (one for one in found if one.is_proven or one.failures[0].fingerprint not in UNEXPLAINED_SIGNALS)
    return tuple(sorted(counted, key=lambda one: one.failures[-1].number))


def left_out(state: State) -> tuple[LeftOut, ...]:
    """The nodes that the run does without, in the next job, too, for what they alone have shown."""
    return tuple({one.node: one for one in shown_alone(state) if one.is_proven}.values())


def doubts(state: State) -> dict[str, float]:
    """Nodes whose place another one takes where this job has one that is idle; that of the highest number first."""
    return {one.node: math.inf if one.is_proven else one.failures[-1].number
            for one in sorted(shown_alone(state), key=lambda one: one.is_proven)}


def names(state: State) -> tuple[str, ...]:
    """Their names."""
    return tuple(one.node for one in left_out(state))


def _counts(state: State, one: Attempt) -> bool:
    """Whether it failed by itself, of a cause that is known by its mark and its nodes. Lost nodes are out as such. A
    checkpoint that did not load gives way to the one before it.
    """
    is_failure = one.ended == AttemptEnd.FAILED and one.category not in ENDS_OF_JOBS and one.resize is None
    return is_failure and bool(one.fingerprint) and bool(one.blamed) and not state.starts_from_rejected(one)


def _is_enough(one: Attempt) -> bool:
    """Whether one failure is: before the first step, and other nodes had the chance to show the same."""
    is_compared = len(one.nodes) > 1 or one.category not in OF_THE_TEXT
    return one.step is None and one.fingerprint != UNEXPLAINED_KILL and is_compared


# --- the way without it ---------------------------------------------------------------------------------------------


def way_without(state: State, plan: Plan, good: Collection[str] | None,
                partition: Collection[str] | None) -> str | None:
    """How to find out whether it was the node that alone has shown the last failure: without it "here", "again" with
    it, or without it in the "next_job". None = it was no such failure, or there is no way. `good`: this job's usable
    nodes; `partition`: all nodes of Slurm's. None = not known.
    """
    last, found = state.attempt, _of_last(state)
    if last is None or found is None or plan.restart.max_without_progress < 2:
        return None
    out = {*names(state), *state.excluded, *dict(state.unfit)}
    here = good if good is not None else state.job.nodes if state.job is not None else ()
    if len(set(here) - out) >= plan.nodes:
        return "here"
    is_first_job = found.since.job == last.job   # else the next job has got the node again: Slurm has no other
    has_others = partition is None or len(set(partition) - out) >= plan.allocated_nodes
    is_movable = plan.cluster != "local" and len(last.nodes) > 1 and state.next_cancelled is None
    if not (is_first_job and has_others and is_movable):
        return None
    return "next_job" if len(found.failures) > 1 else "again"


def _of_last(state: State) -> LeftOut | None:
    """Of the last failure; None = other nodes have shown it too, or it is its first time, behind a step."""
    last = state.attempt
    return next((one for one in left_out(state) if one.failures[-1] is last), None)


def is_same_text(state: State) -> bool:
    """Whether the last failure, before the first step, is of what the program reads, and not the first of its kind."""
    found = _of_last(state)
    return (found is not None and len(found.failures) > 1 and found.failures[-1].step is None
            and found.failures[-1].category in (*OF_THE_TEXT, "environment"))


def tell_no_way(state: State) -> str:
    """What is added to the reason of an end: which node it was, where no other could be tried. "" = it was not one."""
    found = _of_last(state)
    if found is None or len(found.failures[-1].nodes) < 2:
        return ""
    return f"; {found.why}, and no other node could take its place: it may be that node"


def went_on(state: State) -> tuple[Attempt, ...]:
    """The first failures of nodes without which the last attempt made steps."""
    last = state.attempt
    if last is None or not last.made_steps:
        return ()
    return tuple(one.failures[0] for one in left_out(state)
                 if one.node not in last.nodes and one.failures[-1].number < last.number)
