"""A run that waits for another one (--after, --after-any), whatever becomes of that one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet (pip install .[dev])")

from safelaunch.decide.facts import after
from safelaunch.decide.facts.after import May
from safelaunch.run.io import runends
from tests.simulation.golden import GOLDEN
from tests.simulation.run import run
from tests.simulation.scenario import BEFORE, Fault, Scenario

WAITS = replace(GOLDEN["nothing goes wrong"], steps=40, step_s=1.0, before="completes", before_s=20.0)
# Where no job of its own can wait, it waits in its nodes. The folder freezes there, not where the other run ends.
FROZEN = replace(WAITS, before="moves_unsaid", via="requeue", faults=(Fault("freeze_one", 105.0, 80.0),))


@pytest.mark.parametrize("is_any", [False, True], ids=["after", "after-any"])
@pytest.mark.parametrize("how", BEFORE)
def test_it_starts_after_the_end_that_was_asked_for_or_gives_up(how: str, is_any: bool) -> None:
    outcome = run(replace(WAITS, before=how, before_any=is_any))
    is_hopeless = how in ("gives_up", "is_stopped", "vanishes") and not is_any
    assert (outcome.how, outcome.violations) == ("gave_up" if is_hopeless else "completed", [])
    assert outcome.attempts == (0 if is_hopeless else 1)


def test_an_end_that_a_frozen_folder_hides_is_waited_for() -> None:
    outcome = run(FROZEN)
    assert (outcome.how, outcome.violations, outcome.attempts) == ("completed", [], 1)


Patch = tuple[Any, str, Any]
MUTATIONS: dict[str, tuple[Scenario, list[Patch], str]] = {
    "no look at the other run": (
        replace(WAITS, before="moves_unsaid"), [(after, "judge", lambda before: May(True))], "starts before the end"),
    "a pause between two jobs is a loss": (
        replace(WAITS, before="returns", before_any=True), [(after, "ABSENT_S", 1.0)], "starts before the end"),
    "a loss is seen late": (replace(WAITS, before="vanishes"), [(after, "ABSENT_S", 900.0)], "waits on"),
    "any end will do": (replace(WAITS, before="gives_up"), [(after, "judge", lambda before: May(True))],
                        "has not ended well"),
    "an unreadable end is none": (
        FROZEN, [(runends, "read_ends", lambda names: {name: {} for name in names})],
        "gives up"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutation_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, patches, expected = MUTATIONS[name]
    for where, what, instead in patches:
        monkeypatch.setattr(where, what, instead)
    assert any(expected in line for line in run(scenario, until=expected).violations)
