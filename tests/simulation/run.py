"""Running scenarios: one by one, each in a folder of its own on tmpfs."""

from __future__ import annotations

import gc
import os
import tempfile
import traceback
from pathlib import Path

from tests.simulation.clients import writes_reach_the_server
from tests.simulation.person import behind_keyboards
from tests.simulation.scenario import Scenario, make
from tests.simulation.sim import Outcome, Sim

TMPFS = "/dev/shm"


def run(scenario: Scenario, is_verbose: bool = False, until: str | None = None) -> Outcome:
    """How the scenario went; an exception of the simulation itself is a violation, too.

    `until`: break off at the first violation with these words. A run with a bug in it can take a minute to its end.
    """
    place = TMPFS if os.access(TMPFS, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="safelaunch-sim-", dir=place))
    sim = Sim(scenario, folder, is_verbose, until)
    try:
        with behind_keyboards(), writes_reach_the_server():
            return sim.run()
    except Exception:  # noqa: BLE001 - reported with the seed, as any other finding
        return Outcome(scenario, "(broken)", [*sim.violations, f"the simulation broke: {traceback.format_exc()}"],
                       timeline=sim.timeline)
    finally:
        sim.remove()
        del sim


def run_seed(seed: int, is_verbose: bool = False, until: str | None = None) -> Outcome:
    """How the scenario of a seed went."""
    return run(make(seed), is_verbose, until)


def collect() -> None:
    """Greenlets that ended by an exception hold frames: let go of them now and then."""
    gc.collect()
