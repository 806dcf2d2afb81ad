"""A seed is one run: it goes the same way every time, and a failing one shrinks without changing what fails."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet (pip install .[dev])")

from tests.simulation.run import run_seed
from tests.simulation.scenario import Fault, Scenario, from_json, make
from tests.simulation.shrink import shrink

SEEDS = ("3", "54")
PRINT = ("import sys; from tests.simulation.run import run_seed\n"
         "for seed in sys.argv[1:]: print(seed, *run_seed(int(seed), True).timeline, sep='\\n')")


def _timelines() -> str:
    return "\n".join(line for seed in SEEDS for line in (seed, *run_seed(int(seed), is_verbose=True).timeline))


def test_seeds_go_the_same_way_in_other_processes_with_other_hashes() -> None:
    here = _timelines()
    for hashes in "12":
        done = subprocess.run([sys.executable, "-c", PRINT, *SEEDS], capture_output=True, text=True, timeout=120,
                              env={"PYTHONHASHSEED": hashes, "PYTHONPATH": ":".join(filter(None, sys.path))})
        assert _bare(done.stdout) == _bare(here), (hashes, done.stderr)


def _bare(timelines: str) -> list[str]:
    """Without the names of folders."""
    return re.sub(r"safelaunch-sim-\w+", "X", timelines).splitlines()


def test_scenario_survives_json() -> None:
    assert from_json(make(17).to_json()) == make(17)


def test_shrinking_drops_what_does_not_matter_and_keeps_what_does() -> None:
    faults = tuple(Fault(kind, 10.0 * index, 40.0) for index, kind in enumerate(("freeze", "wall_jump", "preempt")))
    scenario = replace(Scenario(seed=5), faults=faults, step_s=2.0)

    def fails(one: Scenario) -> str:
        return "lost" if any(fault.kind == "wall_jump" and fault.length_s > 10.0 for fault in one.faults) else ""

    small = shrink(scenario, fails)
    assert [fault.kind for fault in small.faults] == ["wall_jump"]
    assert 10.0 < small.faults[0].length_s < 40.0
    assert small.step_s == Scenario().step_s
