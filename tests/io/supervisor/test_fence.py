"""The fence where helper steps cannot run: what srun says of itself is no word against a node."""

from __future__ import annotations

import selectors
from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast

import pytest

from safelaunch.base.timing import FENCE_MARGIN_S
from safelaunch.decide.facts.seen import Live
from safelaunch.guard.io.callers import Guard
from safelaunch.guard.io.control import ControlServer
from safelaunch.guard.io.job import Allocation
from safelaunch.node.guard.protocol import STEP_TASKS
from safelaunch.slurm.io.slurm import Command, Result
from safelaunch.supervisor.io.fence import ALL_NODES, Fencer
from tests.pure.script.test_script import plan_of

REFUSED = "srun: error: cli_filter plugin terminated with error"
DEAD = "srun: error: Unable to create step for job 7: Required node not available (down, drained or reserved)"
LIVE = Live(1, ("n0", "n1"), tasks=2, srun_code=1)


@pytest.fixture
def fencer() -> Iterator[tuple[Fencer, list[tuple[str, ...]]]]:
    """A fence that starts nothing, and what it would have started."""
    begun: list[tuple[str, ...]] = []

    def start(argv: Any, env: Any, deadline_s: float = 0.0, cwd: str = "/") -> Any:
        begun.append(tuple(argv))

    job = Allocation("7", ("n0", "n1"), "n0", "/", False, {})
    with closing(selectors.DefaultSelector()) as selector, closing(ControlServer(selector, "a" * 64)) as server:
        plan = plan_of("name: here\nrun_dir: /nowhere/here\ncommand: 'true'\nslurm: {nodes: 2, time: 30}\n")
        yield Fencer(plan, job, server, start, start), begun


def fence(fencer: Fencer, now_s: float) -> None:
    fencer.advance(LIVE, now_s, {}, lambda: True)


def test_a_helper_that_srun_itself_refuses_loses_no_node_and_the_fence_waits_for_the_lease(
    fencer: tuple[Fencer, list[tuple[str, ...]]]
) -> None:
    made, _ = fencer
    fence(made, 100.0)
    for node in LIVE.nodes:
        made.swept(node, Result(("srun",), 1, "", REFUSED))
    fence(made, 101.0)
    assert made.found_lost() == [] and not made.is_done(LIVE)
    fence(made, 100.0 + 10.0 + FENCE_MARGIN_S + 1.0)
    assert made.found_lost() == [] and made.is_done(LIVE)


def test_a_helper_that_slurm_cannot_start_on_a_node_twice_loses_that_node(
    fencer: tuple[Fencer, list[tuple[str, ...]]]
) -> None:
    made, _ = fencer
    for now_s in (100.0, 101.0):
        fence(made, now_s)
        made.swept("n1", Result(("srun",), 1, "", DEAD))
    assert [node for node, _ in made.found_lost()] == ["n1"]


def test_where_no_helper_can_run_none_is_started(fencer: tuple[Fencer, list[tuple[str, ...]]]) -> None:
    made, begun = fencer
    made.no_helpers = "srun refuses --overlap"
    fence(made, 100.0)
    fence(made, 100.0 + 10.0 + FENCE_MARGIN_S + 1.0)
    fence(made, 100.0 + 10.0 + FENCE_MARGIN_S + 2.0)
    assert begun == [] and made.is_done(LIVE)


def test_nodes_of_a_script_are_asked_unless_all_tasks_of_its_sruns_have_told_their_end() -> None:
    asked: list[str] = []

    def start(argv: Any, env: Any, deadline_s: float = 0.0, cwd: str = "/") -> Any:
        asked.extend(word for word in argv if word.startswith("--nodelist="))

    def ask(argv: Any, env: Any, deadline_s: float = 0.0, cwd: str = "/") -> Any:
        asked.append(argv[2])

    plan = plan_of("name: here\nrun_dir: /nowhere/here\ncommand: '#!/bin/bash'\nlaunch: {with: script}\n"
                   "slurm: {nodes: 2, time: 30}\n")
    with closing(selectors.DefaultSelector()) as selector, closing(ControlServer(selector, "a" * 64)) as server:
        made = Fencer(plan, Allocation("7", ("n0", "n1"), "n0", "/", False, {}), server, start, ask)
        told = [Guard("n0", 0, 1), Guard("n0", STEP_TASKS, 1, tasks=2), Guard("n1", STEP_TASKS + 1, 1, tasks=2)]
        server.guards = {(guard.node, guard.task): guard for guard in told}
        for guard in told:
            made.advance(LIVE, 100.0, {}, lambda: True, sruns=["guarded"])
            assert not made.is_done(LIVE)
            guard.gone = True
        for _ in range(2):
            made.advance(LIVE, 100.0, {}, lambda: True, sruns=["guarded"])
        assert not made.is_done(LIVE) and asked == ["--nodelist=n0", "--nodelist=n1", "--steps"]
        made.swept(ALL_NODES, Result(("squeue",), 0, "7.0|train\n7.1|safelaunch\n7.batch|batch\n", ""))
        made.advance(LIVE, 100.0, {}, lambda: True, sruns=["guarded"])
        assert made.is_done(LIVE)


@pytest.mark.parametrize("said", [
    Result(("squeue",), 0, "7.3|train\n", ""), Result(("squeue",), 1, "", "Socket timed out")], ids=["foreign", "none"])
def test_nodes_of_a_script_are_asked_where_a_step_went_past_the_wrapper_or_nobody_knows(said: Result) -> None:
    plan = plan_of("name: here\nrun_dir: /nowhere/here\ncommand: '#!/bin/bash'\nlaunch: {with: script}\n"
                   "slurm: {nodes: 2, time: 30}\n")
    with closing(selectors.DefaultSelector()) as selector, closing(ControlServer(selector, "a" * 64)) as server:
        made = Fencer(plan, Allocation("7", ("n0", "n1"), "n0", "/", False, {}), server,
                      *[lambda *_, **__: cast(Command, None)] * 2)
        server.guards = {("n0", 0): Guard("n0", 0, 1, gone=True)}
        assert [node for _, node in made.advance(LIVE, 100.0, {}, lambda: True, sruns=[])] == [ALL_NODES]
        made.swept(ALL_NODES, said)
        assert [node for _, node in made.advance(LIVE, 100.0, {}, lambda: True, sruns=[])] == ["n0", "n1"]
        assert not made.is_done(LIVE)
