"""Every (outside call, kind of fault) pair of the golden scenarios: `python -m tests.simulation --pairs` runs them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.simulation.faults import AT_CALL
from tests.simulation.golden import GOLDEN
from tests.simulation.run import run
from tests.simulation.scenario import MANNERS, Scenario

ASKING = ("sbatch", "squeue", "scontrol", "scancel", "sinfo", "sacct")


def pairs(name: str, is_brief: bool = False) -> Iterator[tuple[str, Scenario]]:
    """A golden scenario with each kind of fault at each of its outside calls, with a name for people.

    `is_brief`: of looks at the folder and of writes, nine calls in ten, only each seventh pair: they repeat.
    """
    golden = GOLDEN[name]
    for number, what in enumerate(run(golden).outside_calls, start=1):
        for place, kind in enumerate(AT_CALL):
            is_left_out = is_brief and what.split()[0] in ("ask", "write") and (number + place) % 7
            if _is_possible(what, kind) and not is_left_out:
                yield f"{name}; {kind} at call {number} ({what})", replace(golden, at_calls=((number, kind),))


def _is_possible(what: str, kind: str) -> bool:
    if kind in MANNERS:
        return what.split()[0] in ASKING
    return kind != "loses_links" or what.startswith("publish")
