"""Which nodes a failed attempt is evidence against, and how strong.

No node is blamed for what a person, the program or the whole cluster did, nor when most nodes failed alike. A node at
which attempts die early is a black hole once the run went on without it (decide.budget.alone): a bug of one rank looks
the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from safelaunch.decide.facts.seen import Live
from safelaunch.nodehealth.ledger import NodeEvidence
from safelaunch.why.categories import TABLE
from safelaunch.why.causes.category import Blame
from safelaunch.why.fingerprint import UNEXPLAINED_SIGNALS

CONFIDENT = 0.6
# Rules of `why` about what another process holds. The node is healthy, and of use again when that process has ended.
HELD = frozenset({"gpu.memory_held", "gpu.held_at_start", "gpu.busy", "gpu.in_use"})
# A name that does not resolve: its server, or the name, is as likely the cause as the node that has asked.
NAMES = frozenset({"network.dns", "network.dns_name"})
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
    culprits: tuple[str, ...] = ()           # where it began (`culprits_of`)
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
    lost = {node: why for name, why in failure.lost for node in of_attempt([name], failure.nodes)}
    if lost:
        return _witnesses(failure, "lost", lost) if _is_minority(lost, failure) else ()
    if failure.category == "unknown" and len(failure.nodes) == 1:   # nothing to compare with, and no sign of hardware
        return ()
    if _rule_of(failure.fingerprint) in NAMES:
        return ()
    if failure.fingerprint in UNEXPLAINED_SIGNALS:   # a lack of memory, a person, the site: no node's fault, mostly
        return ()
    culprits = of_attempt(failure.culprits, failure.nodes)
    if not culprits or not _is_minority(culprits, failure):
        return ()
    return _witnesses(failure, _kind(failure, against), dict.fromkeys(culprits, failure.why))


def is_held(fingerprint: str) -> bool:
    """Whether the cause of that mark is what another process holds on the node."""
    return _rule_of(fingerprint) in HELD


def _rule_of(fingerprint: str) -> str:
    return fingerprint.partition(":")[2].partition(":")[0]   # why.fingerprint


class Culprits(NamedTuple):
    """The nodes at which a failure began. `is_first_only`: no line tells that, they are those whose tasks ended first.
    """

    nodes: tuple[str, ...] = ()
    is_first_only: bool = False


def culprits_of(spoken_by: Iterable[str], echoed_by: Iterable[str], live: Live) -> Culprits:
    """By the hosts of the cause's own lines; without any by the tasks that ended first. A node whose lines only tell
    that others have gone ends by itself, too, and perhaps before them.
    """
    if spoken := of_attempt(spoken_by, live.nodes):
        return Culprits(spoken)
    echoed = of_attempt(echoed_by, live.nodes)
    return Culprits(ended_first(live, echoed) or ended_first(live)[:1], is_first_only=True)


def ended_first(live: Live, but: Collection[str] = ()) -> tuple[str, ...]:
    """Nodes whose tasks ended by themselves as the first one did, in order, `but` left out. Later ends say nothing."""
    bad = [one for one in live.exits if one.code and one.node and one.node not in but]
    if not bad:
        return ()
    own = [one for one in bad if (one.code, one.signal) == (bad[0].code, bad[0].signal)]
    if live.killed_t is not None and bad[0].signal in (9, 15):
        own = own[:1]   # the supervisor ends the others in the same way
    return tuple(dict.fromkeys(one.node for one in own))


def confirm(failure: Failure) -> tuple[NodeEvidence, ...]:
    """The evidence of a black hole, when the run goes on without the one node at which an attempt died at its start."""
    is_early = failure.lived_s is not None and failure.lived_s <= SHORT_CYCLE_S and not failure.steps
    if not is_early or len(failure.culprits) != 1 or len(failure.nodes) < 2:
        return ()
    return tuple(replace(one, kind="short_cycle") for one in blame(failure) if one.kind == "first_to_fail")


def _kind(failure: Failure, against: Blame) -> str:
    if is_held(failure.fingerprint):
        return "held"
    return against.sure if failure.confidence >= CONFIDENT else against.doubtful


def _is_minority(nodes: Iterable[str], failure: Failure) -> bool:
    """At most half of the attempt's nodes. A node that sees most others gone is itself cut off; what fails on most
    nodes is not their fault.
    """
    return len(set(nodes)) <= max(1, len(failure.nodes) // 2)


def of_attempt(names: Iterable[str], nodes: Sequence[str]) -> tuple[str, ...]:
    """Those that are nodes of the attempt; a log may name "n1.cluster", and other hosts."""
    short = {node.split(".")[0]: node for node in nodes}
    meant = (name if name in nodes else short.get(name.split(".")[0]) for name in names)
    return tuple(dict.fromkeys(node for node in meant if node is not None))


def _witnesses(failure: Failure, kind: str, why_of: dict[str, str]) -> tuple[NodeEvidence, ...]:
    return tuple(NodeEvidence(node, kind, failure.t, why, failure.owner, failure.run, failure.attempt,
                              failure.fingerprint,
                              failure.cluster) for node, why in why_of.items())
