"""Which nodes a failed attempt is evidence against, and how strong.

No node is blamed for what a person, the program or the whole cluster did, nor when most nodes failed alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from safelaunch.core.categories import TABLE
from safelaunch.core.causes.category import Blame
from safelaunch.core.ledger import NodeEvidence
from safelaunch.core.why.fingerprint import UNEXPLAINED_SIGNALS

CONFIDENT = 0.6
# Rules of `why` about what another process holds. The node is healthy, and of use again when that process has ended.
HELD = frozenset({"gpu.memory_held", "gpu.held_at_start", "gpu.busy", "gpu.in_use"})
# A black hole ends a job at its start: no mount, no driver, no GPU. Imports of 64 nodes from a parallel file system
# take up to a minute; no step was made by then.
SHORT_CYCLE_S = 120.0


class Failure(NamedTuple):
    """What is known of an attempt that did not complete."""

    run: str
    owner: str                               # the user whose run it is
    t: float                                 # when it ended, epoch s
    attempt: int
    nodes: tuple[str, ...]                   # all of the attempt
    category: str                            # the verdict's
    confidence: float = 0.0
    why: str = ""                            # the verdict's summary
    culprits: tuple[str, ...] = ()           # where it began: the verdict's suspects, or the node that failed first
    lost: tuple[tuple[str, str], ...] = ()   # node, why: silent or dead
    lived_s: float | None = None             # from its launch to its first failure
    steps: int | None = None                 # made by this attempt; None = unknown
    fingerprint: str = ""                    # of the cause
    cluster: str = ""                        # on which it ran


def blame(failure: Failure) -> tuple[NodeEvidence, ...]:
    """Evidence against nodes of the attempt; () = it speaks against none."""
    row = TABLE.get(failure.category)
    against = Blame() if row is None else row.blame
    if against is None:
        return ()
    lost = {node: why for name, why in failure.lost for node in _of_attempt([name], failure)}
    if lost:
        return _witnesses(failure, "lost", lost) if _is_minority(lost, failure) else ()
    if failure.category == "unknown" and len(failure.nodes) == 1:   # nothing to compare with, and no sign of hardware
        return ()
    if failure.fingerprint in UNEXPLAINED_SIGNALS:   # a lack of memory, a person, the site: no node's fault, mostly
        return ()
    culprits = _of_attempt(failure.culprits, failure)
    if not culprits or not _is_minority(culprits, failure):
        return ()
    return _witnesses(failure, _kind(failure, against, culprits), dict.fromkeys(culprits, failure.why))


def is_held(fingerprint: str) -> bool:
    """Whether the cause of that mark is what another process holds on the node."""
    return fingerprint.partition(":")[2].partition(":")[0] in HELD   # core.why.fingerprint


def _kind(failure: Failure, against: Blame, culprits: tuple[str, ...]) -> str:
    kind = against.sure if failure.confidence >= CONFIDENT else against.doubtful
    if is_held(failure.fingerprint):
        return "held"
    is_early = failure.lived_s is not None and failure.lived_s <= SHORT_CYCLE_S and not failure.steps
    # On one node alone a bug of the program looks the same.
    if kind == "first_to_fail" and is_early and len(culprits) == 1 and len(failure.nodes) > 1:
        return "short_cycle"
    return kind


def _is_minority(nodes: Iterable[str], failure: Failure) -> bool:
    """At most half of the attempt's nodes. A node that sees most others gone is itself cut off; what fails on most
    nodes is not their fault.
    """
    return len(set(nodes)) <= max(1, len(failure.nodes) // 2)


def _of_attempt(names: Iterable[str], failure: Failure) -> tuple[str, ...]:
    """Those nodes that belong to the attempt; a log may name "n1.cluster", and other hosts."""
    short = {node.split(".")[0]: node for node in failure.nodes}
    meant = (name if name in failure.nodes else short.get(name.split(".")[0]) for name in names)
    return tuple(dict.fromkeys(node for node in meant if node is not None))


def _witnesses(failure: Failure, kind: str, why_of: dict[str, str]) -> tuple[NodeEvidence, ...]:
    return tuple(NodeEvidence(node, kind, failure.t, why, failure.owner, failure.run, failure.attempt,
                              failure.fingerprint,
                              failure.cluster) for node, why in why_of.items())
