"""How often a node has failed in how many days of use, beside the other nodes of its cluster.

A run adds a line to the ledger when an attempt has ended: its nodes and how long it ran. Failures count only of
attempts with such a line: evidence that is older than these lines accuses nobody. What is expected of a node is the
rate of the *other* nodes: in a fleet of four, a bad node would otherwise hide behind its own failures.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from safelaunch.base.numbers import count, days, figure
from safelaunch.errors import ParseError
from safelaunch.nodehealth.ledger import RATE, SKEW_S, NodeEvidence, blaming, last_cleared
from safelaunch.nodehealth.ledgerlines import MAX_LINE_BYTES, VERSION, is_word
from safelaunch.run.journal import MAX_T_S
from safelaunch.slurm import nodefold, nodeset

DAY_S = 86400.0
WINDOW_S = 90 * DAY_S   # what is older says little: hardware is repaired
OWNER = "safelaunch"
# A node is bad from LEAST failures on, where at TIMES the others' rate so many would have a probability below 1 - SURE.
LEAST, TIMES, SURE = 6, 10.0, 0.99
HALF = 0.5              # failures added to those of the others (Jeffreys): a fleet without any still has a rate
_LEAST_DAYS = 1e-9      # of the others: a difference of sums can be 0


class NodeDays(NamedTuple):
    """How often a node has failed in how many days of use."""

    node: str
    failures: int
    days: float


class NodeRate(NamedTuple):
    """`expected`: the failures at the rate of the others. `probability`: of fewer failures at TIMES that rate."""

    node: str
    failures: int
    days: float
    expected: float
    probability: float

    @property
    def is_bad(self) -> bool:
        """Whether to exclude it."""
        return self.failures >= LEAST and self.probability > SURE


@dataclass(frozen=True)
class NodeUse:
    """An attempt that has ended at `t`, after `used_s` on these nodes."""

    nodes: tuple[str, ...]
    t: float
    used_s: float
    run: str
    attempt: int
    cluster: str = ""


def render_use(use: NodeUse) -> bytes:
    """Its lines for the ledger, each with a part of the nodes. Names that Slurm does not have are left out."""
    parts, lines = [use.nodes], []
    while parts:
        part = parts.pop()
        line = json.dumps({"v": VERSION, "t": round(use.t, 3), "used": nodefold.fold(part),
                           "used_s": round(use.used_s, 3), "run": use.run, "attempt": use.attempt,
                           "cluster": use.cluster}, separators=(",", ":")).encode() + b"\n"
        if len(line) <= MAX_LINE_BYTES:
            lines.append(line)
        elif len(part) > 1:
            parts += [part[:len(part) // 2], part[len(part) // 2:]]
    return b"".join(lines)


def parse_use(line: bytes) -> NodeUse | None:
    """The use of a line of the ledger; None of any other line, and of one that is torn or odd."""
    start = line.rfind(b'{"v":')
    if start < 0 or b'"used":' not in line or len(line) - start > 2 * MAX_LINE_BYTES:
        return None
    try:
        raw: Any = json.loads(line[start:])
        nodes = _expand(raw["used"]) if raw["v"] == VERSION and isinstance(raw["used"], str) else ()
        use = NodeUse(nodes, float(raw["t"]), float(raw["used_s"]), raw["run"], int(raw["attempt"]), raw["cluster"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, ParseError):
        return None
    is_sane = abs(use.t) < MAX_T_S and 0 < use.used_s < MAX_T_S
    return use if nodes and is_sane and is_word(use.run) and use.run and is_word(use.cluster) else None


_expand = lru_cache(256)(nodeset.expand)   # a run's attempts use the same nodes, mostly


def judge_fleet(evidences: Sequence[NodeEvidence], uses: Iterable[NodeUse], cluster: str, now: float) -> list[NodeRate]:
    """The rates of all nodes with known days of use, the worst first. `evidences` are of that cluster alone."""
    known = [use for use in dict.fromkeys(uses) if use.cluster == cluster and now - WINDOW_S < use.t <= now + SKEW_S]
    days = _days(known, last_cleared(evidences), now)
    counts = {node: len(found) for node, found in _failures(evidences, known, now).items()}
    return judge_rates([NodeDays(node, counts.get(node, 0), used) for node, used in days.items()])


def judge_rates(fleet: Sequence[NodeDays]) -> list[NodeRate]:
    """All nodes with days of use, the worst first; [] of fewer than two: nothing to compare with."""
    used = [one for one in fleet if one.days > 0]
    failures, days = sum(one.failures for one in used), math.fsum(one.days for one in used)
    rates = []
    for one in used if len(used) > 1 else ():
        expected = (failures - one.failures + HALF) / max(_LEAST_DAYS, days - one.days) * one.days
        rates.append(NodeRate(*one, expected, _fewer(one.failures, TIMES * expected)))
    return sorted(rates, key=lambda rate: (-rate.probability, -rate.failures, rate.node))


@lru_cache(4096)   # most nodes have failed and were used alike
def _fewer(failures: int, mean: float) -> float:
    """P(N < failures) of a Poisson with that mean; a term at a time, since exp(-mean) alone can be 0."""
    terms = (math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(failures) if mean > 0)
    return min(1.0, math.fsum(terms))


def rate_evidence(evidences: Sequence[NodeEvidence], uses: Sequence[NodeUse], rates: Iterable[NodeRate],
                  now: float) -> tuple[NodeEvidence, ...]:
    """A witness against each node that fails too often, as old as its last failure; it is in no file."""
    bad = [rate for rate in rates if rate.is_bad]
    found = _failures(evidences, uses, now) if bad else {}
    return tuple(NodeEvidence(rate.node, RATE, max(found[rate.node]), tell_rate(rate), OWNER)
                 for rate in bad if rate.node in found)


def tell_rate(rate: NodeRate) -> str:
    """For people: "10 failures in 30 d of use, at the rate of the other nodes 0.3"."""
    return (f"{count(rate.failures, 'failure')} in {days(rate.days)} of use, "
            f"at the rate of the other nodes {figure(rate.expected, 2)}")


def _days(uses: Iterable[NodeUse], cleared: Mapping[str, float], now: float) -> dict[str, float]:
    """node → days of use since it was cleared, within the window, of which no node has more than the window's."""
    used_s: dict[str, float] = defaultdict(float)
    for use in uses:
        end_t = min(use.t, now)
        for node in use.nodes:
            from_t = max(use.t - use.used_s, now - WINDOW_S, cleared.get(node, now - WINDOW_S))
            used_s[node] += max(0.0, end_t - from_t)
    return {node: min(seconds, WINDOW_S) / DAY_S for node, seconds in used_s.items() if seconds > 0}


def _failures(evidences: Sequence[NodeEvidence], uses: Iterable[NodeUse], now: float) -> dict[str, tuple[float, ...]]:
    """node → when it has failed. A failed attempt counts once, whatever its verdict and the checks after it say of the
    node. One cause in a run counts once a day: a run that restarts on a broken node all day has met one fault.
    """
    of_attempt: dict[tuple[str, int], set[str]] = defaultdict(set)
    for use in uses:
        of_attempt[use.run, use.attempt].update(use.nodes)
    found: dict[str, dict[tuple[str, str, int], float]] = defaultdict(dict)
    met: set[tuple[str, str, int]] = set()
    for one in blaming(evidences, now):
        if one.attempt is None or one.t <= now - WINDOW_S or (one.node, one.run, one.attempt) in met:
            continue
        if one.node in of_attempt.get((one.run, one.attempt), ()):
            met.add((one.node, one.run, one.attempt))
            found[one.node][one.run, one.fingerprint or one.kind, int(one.t // DAY_S)] = one.t
    return {node: tuple(times.values()) for node, times in found.items()}
