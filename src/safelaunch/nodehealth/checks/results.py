"""A node's answer to the checks (node.checks.main) as values. What it says may be anything: a node can be broken."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import NamedTuple

from safelaunch.errors import ParseError
from safelaunch.nodehealth.checks.clocks import ClockBounds

OK, FAILED, SKIPPED, UNKNOWN = "ok", "failed", "skipped", "unknown"
OUTCOMES = (OK, FAILED, SKIPPED, UNKNOWN)
MOST_BYTES = 4 << 20     # of a node's line; with 2,000 modules it has 80 kB
MOST_RESULTS = 512
MOST_TEXT = 500
MOST_T = 1e11


class CheckResult(NamedTuple):
    """What one check found; `item`: the path, mount or name that it looked at, "" = the node."""

    name: str
    item: str
    outcome: str
    why: str
    facts: Mapping[str, object]
    took_s: float = 0.0

    @property
    def title(self) -> str:
        """For people: the check and what it looked at."""
        return f"{self.name} {self.item}".rstrip()

    def number(self, key: str) -> float | None:
        """A fact that is a finite number; None = it is not there, or is none."""
        value = self.facts.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        try:
            number = float(value)
        except OverflowError:
            return None
        return number if math.isfinite(number) else None


class CheckReport(NamedTuple):
    """All that a node found; `notes`: what went wrong with the look itself."""

    node: str
    level: str
    results: tuple[CheckResult, ...]
    notes: tuple[str, ...] = ()
    took_s: float = 0.0
    addresses: tuple[str, ...] = ()   # where other nodes reach it, by its own word
    t: float = 0.0                    # what its clock read when it began, epoch seconds; 0 = not told
    clock: ClockBounds | None = None  # against the asker's

    def count(self, outcome: str) -> int:
        """How many checks ended so."""
        return sum(result.outcome == outcome for result in self.results)


def parse_report(line: str, node: str = "") -> CheckReport:
    """A node's answer from its line; raises ParseError. `node`: who was asked, else it says so itself."""
    if len(line) > MOST_BYTES:
        raise ParseError(f"the answer of node {node or '?'} is too long: {len(line)} bytes")
    try:
        told = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"not an answer of node {node or '?'}: {line[:200]!r} ({error})") from error
    if not isinstance(told, dict) or not isinstance(told.get("checks"), list):
        raise ParseError(f"not an answer of node {node or '?'}: {line[:200]!r}")
    notes, there = told.get("notes"), told.get("addresses")
    return CheckReport(node or _text(told.get("node")), _text(told.get("level")),
                       tuple(_result(row) for row in told["checks"][:MOST_RESULTS] if isinstance(row, dict)),
                       tuple(map(_text, notes[:16])) if isinstance(notes, list) else (), _seconds(told.get("took_s")),
                       tuple(filter(None, map(_text, there[:16]))) if isinstance(there, list) else (),
                       _seconds(told.get("t"), MOST_T))


def _result(row: Mapping[str, object]) -> CheckResult:
    outcome, why, facts = _text(row.get("outcome")), _text(row.get("why")), row.get("facts")
    if outcome not in OUTCOMES:
        outcome, why = UNKNOWN, f"the node's word is not understood: {outcome!r}"
    return CheckResult(_text(row.get("name")), _text(row.get("item")), outcome, why,
                       facts if isinstance(facts, dict) else {}, _seconds(row.get("took_s")))


def _text(value: object) -> str:
    return value[:MOST_TEXT] if isinstance(value, str) else ""


def _seconds(value: object, most: float = 1e9) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < most else 0.0   # type: ignore[operator,arg-type]
