"""Every (outside call, kind of fault) pair of the golden scenarios: `python -m tests.simulation --pairs` runs them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.simulation.faults import AT_CALL
from tests.simulation.golden import GOLDEN
from tests.simulation.run import run
from tests.simulation.scenario import MANNERS, Scenario

ASKING = ("sbatch", "squeue", "scontrol", "scancel", "sinfo", "sacct")


def pairs(name: str) -> Iterator[tuple[str, Scenario]]:
    """A golden scenario with each kind of fault at each of its outside calls, with a name for people."""
    golden = GOLDEN[name]
    for number, what in enumerate(run(golden).outside_calls, start=1):
        for kind in AT_CALL:
            if _is_possible(what, kind):
                yield f"{name}; {kind} at call {number} ({what})", replace(golden, at_calls=((number, kind),))


def _is_possible(what: str, kind: str) -> bool:
    if kind in MANNERS:
        return what.split()[0] in ASKING
    return kind != "loses_links" or what.startswith("publish")
