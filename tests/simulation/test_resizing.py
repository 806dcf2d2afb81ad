"""A run of four nodes that may have two: how it goes on when two die, with and without a hook that works."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet (pip install .[dev])")

from safelaunch.decide.nodes import resize
from safelaunch.run.fold.state import Resize
from tests.simulation.golden import GOLDEN
from tests.simulation.run import run
from tests.simulation.scenario import Fault, Scenario

# There are no other nodes; the two come back after two minutes, and the job's limit ends it after four.
SMALLER = replace(GOLDEN["nothing goes wrong"], nodes=4, pool=4, min_nodes=2, before_resize="works", steps=300,
                  step_s=1.0, save_every=10, limit_min=4,
                  faults=(Fault("worker_crashes", 25.0, 120.0), Fault("worker_crashes", 26.0, 120.0, 1)))
HOOK = 0


@pytest.mark.parametrize(("changes", "sizes"), [
    ({}, [4, HOOK, 2, HOOK, 4]),
    ({"before_resize": ""}, [4, 2, 4]),
    ({"min_nodes": 3}, [4, 4]),
    ({"before_resize": "fails"}, [4, HOOK, 4]),
    ({"before_resize": "hangs"}, [4, HOOK, 4]),
    ({"before_resize": "dies"}, [4, HOOK, 4]),
    ({"pool": 6}, [4, 4]),
], ids=["through the hook, and back", "as it is, and back", "too few are left", "the hook fails", "the hook hangs",
        "the hook is killed", "other nodes are free"])
def test_run_whose_nodes_die_goes_on_as_it_may(changes: dict[str, Any], sizes: list[int]) -> None:
    outcome = run(replace(SMALLER, **changes))
    assert (outcome.how, outcome.violations) == ("completed", [])
    # An attempt whose nodes have just come back is ended once more by their slurmd.
    seen = [size for size, before in zip(outcome.sizes, [None, *outcome.sizes], strict=False) if size != before]
    assert seen[:len(sizes)] == [size for size, before in zip(sizes, [None, *sizes], strict=False) if size != before]


@pytest.mark.parametrize(("watchers", "before_resize"), [(1, ""), (2, "works"), (0, "")])
def test_next_job_that_lacks_a_node_in_the_queue_is_made_smaller_by_a_watch(watchers: int, before_resize: str) -> None:
    """A node dies for an hour, there is no other one, and the job's limit ends it after four minutes."""
    outcome = run(replace(SMALLER, min_nodes=3, before_resize=before_resize, watchers=watchers,
                          faults=(Fault("worker_crashes", 25.0, 3600.0),)))
    assert (outcome.how, outcome.violations) == ("completed", [])
    assert (outcome.sizes[-1], outcome.virtual_s < 3600.0) == ((3, True) if watchers else (4, False))


def test_job_that_was_made_smaller_and_cannot_be_used_so_is_not_requeued_for_ever() -> None:
    """Its hook dies, and sbatch works on the login node only. Slurm lets a requeued job keep its size."""
    outcome = run(replace(
        SMALLER, nodes=2, pool=2, min_nodes=1, before_resize="dies", site="refuses_sbatch", watchers=2, standby=True,
        steps=132, save_every=5, limit_min=20, slurmd_timeout_s=30.0, faults=(
            Fault("worker_silent", 9.98, 637.0, 95), Fault("batch_crashes", 32.83, 141.9, 69))))
    assert (outcome.how, outcome.violations) == ("completed", [])


@pytest.mark.parametrize("at_s", [52.0, 58.0, 64.0])
@pytest.mark.parametrize("kind", ["batch_crashes", "batch_silent", "leader_dies", "preempt", "worker_crashes"])
def test_hook_that_is_disturbed_begins_anew_or_is_left(kind: str, at_s: float) -> None:
    """It runs from 51 s to 71 s."""
    outcome = run(replace(SMALLER, min_nodes=1, limit_min=10, standby=True,
                          faults=(Fault("worker_crashes", 25.0, 300.0), Fault(kind, at_s, 300.0))))
    assert (outcome.how, outcome.violations) == ("completed", [])
    assert HOOK in outcome.sizes


Patch = tuple[Any, str, Any]


def _no_least(plan: Any, count: int) -> int:
    return min(count, int(plan.nodes))


MUTATIONS: dict[str, tuple[Scenario, list[Patch], str]] = {
    "no least number of nodes": (
        replace(SMALLER, min_nodes=3, before_resize=""), [(resize, "most_nodes", _no_least)], "and the least is"),
    "a checkpoint goes to any number of nodes": (
        SMALLER, [(resize, "size_of", lambda state, plan, resume: 2)], "from a checkpoint that is for"),
    "what a failed hook has written is used": (
        replace(SMALLER, before_resize="fails"),
        [("safelaunch.supervisor.attempt.attempts", "output_of", lambda state, plan, resume, size: next(
            (one.resize.output for one in state.attempts if one.resize), None)),
         (resize, "is_barred", lambda *words: False),
         (resize, "why_convert", lambda state, plan, resume, size: None if any(
             one.resize for one in state.attempts) else Resize(4, 2) if size == 2 else None)],
        "half converted"),
    "a failed hook is tried again and again": (
        replace(SMALLER, before_resize="fails"), [(resize, "is_barred", lambda *words: False)], "again and again"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutation_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, patches, expected = MUTATIONS[name]
    for where, what, instead in patches:
        if isinstance(where, str):
            monkeypatch.setattr(f"{where}.{what}", instead)
        else:
            monkeypatch.setattr(where, what, instead)
    assert any(expected in line for line in run(scenario, until=expected).violations)
