"""Each invariant fires: a bug put into the code under test is found by the scenario that is there for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet (pip install .[dev])")

from safelaunch.adapters import control, runfolder, slurm
from safelaunch.adapters.fence import Fencer
from safelaunch.adapters.world import World
from safelaunch.core import decide, takeover
from safelaunch.core.budget import GiveUp
from safelaunch.core.state import State
from safelaunch.lead import attempts, endings, keep_standby, watch
from safelaunch.lead.leader import Leader
from tests.simulation.golden import GOLDEN
from tests.simulation.run import run
from tests.simulation.scenario import Fault, Scenario

ALONE = {"watchers": 0}   # a watch would put right what the mutation breaks
Patch = tuple[Any, str, Any]


def _golden(name: str, **changes: Any) -> Scenario:
    return replace(GOLDEN[name], **changes)


def _nothing(*words: Any) -> None:
    """Do nothing."""


def _no_step(*words: Any) -> Iterator[float]:
    """An act that is over at once."""
    yield from ()


def _give_up_at_once(state: State, plan: Any) -> GiveUp | None:
    return GiveUp("mutation", 10, "enough") if any(one.ended == "failed" for one in state.attempts) else None


def _fail(*words: Any) -> None:
    raise RuntimeError("mutation")


def _no_dependency(script: str, options: tuple[str, ...] = ()) -> tuple[str, ...]:
    return ("sbatch", "--parsable", script)


MUTATIONS: dict[str, tuple[Scenario, list[Patch], str]] = {
    "an attempt starts before the last one is fenced": (
        _golden("a rank dies", ignores_term=True),
        [(Fencer, "is_done", lambda *words: True), (decide, "is_over", lambda live, seen: live.killed_t is not None)],
        "write at once"),
    "the kill switch is never looked at": (
        _golden("a teammate touches the kill switch", steps=200), [(runfolder, "read_requests", lambda *words: [])],
        "a person said kill"),
    "a person's cancel is taken for a preemption": (
        _golden("a person cancels the job", **ALONE), [(watch, "ending_of", lambda *words: "preempted")],
        "a person said scancel"),
    "nothing is ever launched": (
        _golden("nothing goes wrong"), [(attempts, "launch", _nothing)], "the run is lost"),
    "the end is not written down": (
        _golden("nothing goes wrong"), [(endings, "finish", _no_step)], "the run is lost"),
    "the next job does not wait for this one": (
        _golden("nothing goes wrong"), [(slurm, "sbatch", _no_dependency)], "starts while"),
    "a lost node is excluded whatever that costs": (
        _golden("a worker dies, without a spare", pool=3, **ALONE),
        [(endings, "_affordable", lambda lead, exclude: lead.job.nodes)], "waits for ever"),
    "commands are not paced": (
        _golden("the batch host dies"), [(World, "_wait_s", lambda *words: 0.0)], "calls to Slurm within a second"),
    "the time left is asked for all the time": (
        _golden("the batch host dies", steps=150), [(watch, "LIMIT_S", 0.5)], "calls to Slurm in"),
    "the first failure ends the run": (
        _golden("a rank dies"), [(decide, "reason_to_give_up", _give_up_at_once)], "though nothing stood in its way"),
    "an attempt that was told to end counts as complete": (
        _golden("the time limit comes"), [(decide, "how_it_ended", lambda live, seen: "completed")], "complete"),
    "checkpoints are not found": (
        _golden("a rank dies", save_every=5), [(Leader, "find_resume", _nothing)], "is whole"),
    "a supervisor dies of a bug": (
        _golden("nothing goes wrong"), [(watch, "publish_pulse", _fail)], "died of an exception"),
    "a supervisor waits without sleeping": (
        _golden("nothing goes wrong"), [(Leader, "timeout_s", lambda self: 0.0)], "time stands still"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutation_breaks_the_invariant_that_is_there_for_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, patches, expected = MUTATIONS[name]
    assert not run(scenario).violations, "the scenario itself is fine"
    for owner, attribute, value in patches:
        monkeypatch.setattr(owner, attribute, value)
    violations = run(scenario).violations
    assert any(expected in one for one in violations), violations


def test_supervisors_that_take_the_run_from_each_other_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was before pulses carried a promise (seed 834 of those days)."""
    scenario = _golden("the batch host is cut off", faults=(Fault("batch_cut", 11.0, 45.0),), steps=120, step_s=1.5)
    assert not run(scenario).violations
    is_dead = takeover.is_dead
    monkeypatch.setattr(takeover, "is_dead", lambda signs, now_s: is_dead(
        replace(signs, promise_s=1.0, is_known=True), now_s))
    monkeypatch.setattr(control.ControlServer, "_standby", lambda self, node: None if node in self._shunned else (
        self.standbys.setdefault(node, control.Guard(node, control.STANDBY_TASK, 0))))
    monkeypatch.setattr(keep_standby, "_may_be_watched_unheard", lambda lead: False)
    assert any("false takeover" in one for one in run(scenario).violations)
