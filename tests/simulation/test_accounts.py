"""The account of a run against what the simulated training really did: the journal is the real supervisor's."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet (pip install .[dev])")

from safelaunch.run.fold.folding import fold
from safelaunch.run.io import journal
from safelaunch.status import shares
from safelaunch.status.shares import BOOT, DOWN, HANG, KEPT, QUEUE, REDONE, START, UNREAD, USEFUL
from tests.simulation import training
from tests.simulation.clients import writes_reach_the_server
from tests.simulation.golden import GOLDEN
from tests.simulation.person import behind_keyboards
from tests.simulation.run import TMPFS
from tests.simulation.scenario import Fault, Scenario
from tests.simulation.sim import Sim
from tests.tables import each

LONG = replace(GOLDEN["nothing goes wrong"], steps=500, save_every=60, load_s=20.0, save_s=2.0, watchers=0,
               limit_min=20)
TOLERANCE = 0.01    # of the wall clock
GRID_S = 0.25       # the truth is sampled so often
# What nobody outside can tell apart, or the simulation does not: one cause of lost time.
MERGED = {DOWN: "idle", HANG: "idle", KEPT: "idle", QUEUE: "queue", BOOT: "queue", START: START, REDONE: REDONE,
          USEFUL: USEFUL, UNREAD: UNREAD}


def _long(seed: int, *faults: Fault, **changes: object) -> Scenario:
    return replace(LONG, seed=seed, faults=faults, **changes)  # type: ignore[arg-type]


HISTORIES: dict[str, Scenario] = {
    "nothing goes wrong": _long(101),
    "a rank dies": _long(102, Fault("rank_dies", 215.0)),
    "a rank dies right behind a checkpoint": _long(103, Fault("rank_dies", 146.0)),
    "three crashes": _long(104, Fault("rank_dies", 120.0), Fault("all_ranks_fail", 260.0), Fault("rank_dies", 420.0)),
    "a node dies, with a spare": _long(105, Fault("worker_crashes", 215.0, 900.0), spare_nodes=1),
    "a node dies, without a spare": _long(106, Fault("worker_crashes", 215.0, 900.0)),
    "the batch host dies, and its standby goes on": _long(107, Fault("batch_crashes", 215.0, 900.0), spare_nodes=1,
                                                          has_log=True),
    "the batch host dies, and the next job goes on": _long(108, Fault("batch_crashes", 215.0, 900.0), has_log=True),
    "the time limit comes": _long(109, limit_min=5),
    "the job is preempted": _long(110, Fault("preempt", 200.0)),
    "the leader dies": _long(111, Fault("leader_dies", 200.0)),
    "the folder is frozen for a while": _long(112, Fault("freeze", 200.0, 40.0)),
    "the folder is frozen at a checkpoint": _long(113, Fault("freeze", 143.0, 50.0)),
    "one node's mount is frozen": _long(114, Fault("freeze_one", 200.0, 60.0)),
    "a full disk": _long(115, Fault("refuses", 140.0, 40.0)),
}


class Move(NamedTuple):
    """What the training does from `t` on, behind which step."""

    t: float
    is_stepping: bool
    is_saving: bool
    step: int


class Spy:
    """When each attempt began, stepped and ended, by the training itself."""

    def __init__(self) -> None:
        self.begun: list[tuple[float, training.Attempt]] = []
        self.moves: dict[training.Attempt, list[Move]] = {}

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Note what the attempts do from now on."""
        init, update = training.Attempt.__init__, training.Attempt.update

        def noted_init(one: training.Attempt, sim: Sim, *rest: object) -> None:
            self.moves[one] = []
            init(one, sim, *rest)  # type: ignore[arg-type]
            self.begun.append((sim.clock.t, one))

        def noted_update(one: training.Attempt) -> None:
            update(one)
            self.moves[one].append(Move(one.sim.clock.t, one._since_t is not None, one._saving, one.step))

        monkeypatch.setattr(training.Attempt, "__init__", noted_init)
        monkeypatch.setattr(training.Attempt, "update", noted_update)

    def kinds(self, sim: Sim, ends: dict[int, float], how: dict[int, str], until: float) -> Iterator[str]:
        """The kind of each GRID_S from the submission on."""
        high, at = 0, 0.0
        for index, (begun_t, one) in enumerate(self.begun):
            is_same = index > 0 and self.begun[index - 1][1].job == one.job
            yield from _grid(at, begun_t, "idle" if is_same else "queue")
            end_t = min(ends.get(one.number, until), until)
            moves = self.moves[one]
            starts = [move.t for move in moves if move.is_stepping]
            first_t = min(end_t, starts[0] + sim.scenario.step_s) if starts else end_t
            yield from _grid(begun_t, first_t, START)
            stops = [later.t for move, later in pairwise(moves) if move.is_stepping and not later.is_stepping]
            is_whole = how.get(one.number) == "completed" or not stops
            last_t = end_t if is_whole else max(first_t, min(end_t, stops[-1]))
            for low in _times(first_t, last_t):
                step = _at(moves, low, sim.scenario.step_s)
                yield "idle" if step is None else REDONE if step <= high else USEFUL
            yield from _grid(last_t, end_t, "idle")
            high, at = max([high, *(move.step for move in moves)]), end_t
        yield from _grid(at, until, "idle")


def _times(start: float, end: float) -> Iterator[float]:
    t = start
    while t < end - GRID_S / 2:
        yield t
        t += GRID_S


def _grid(start: float, end: float, kind: str) -> Iterator[str]:
    return (kind for _ in _times(start, end))


def _at(moves: list[Move], t: float, step_s: float) -> int | None:
    """The step that is made at `t`, or saved; None = it stands still."""
    last = next((move for move in reversed(moves) if move.t <= t), None)
    if last is None or not (last.is_stepping or last.is_saving):
        return None
    return last.step + 1 + (int((t - last.t) / step_s) if last.is_stepping else 0)


def _play(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, float], dict[str, float], float]:
    spy = Spy()
    with monkeypatch.context() as patched:
        spy.watch(patched)
        folder = Path(tempfile.mkdtemp(prefix="safelaunch-sim-", dir=TMPFS))
        sim = Sim(scenario, folder)
        try:
            with behind_keyboards(), writes_reach_the_server():
                sim.run()
            events = journal.read(sim.folder / "server" / "run").events
        finally:
            sim.remove()
            shutil.rmtree(folder, ignore_errors=True)
    state = fold(events)
    until = state.ended.t if state.ended else events[-1].t
    account = shares.settle(events, state, until)
    told: dict[str, float] = dict.fromkeys(MERGED.values(), 0.0)
    for kind, seconds in account.seconds.items():
        told[MERGED[kind]] += seconds
    epoch_t = account.spans[0].start_t
    ends = {one.number: one.ended_t - epoch_t for one in state.attempts if one.ended_t is not None}
    truth: dict[str, float] = dict.fromkeys(MERGED.values(), 0.0)
    for kind in spy.kinds(sim, ends, {one.number: one.ended or "" for one in state.attempts}, until - epoch_t):
        truth[kind] += GRID_S
    return told, truth, until - epoch_t


@each("scenario", HISTORIES.values(), ids=HISTORIES)
def test_the_account_is_what_the_training_did(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    told, truth, whole_s = _play(scenario, monkeypatch)
    off = {kind: (round(told[kind], 1), round(truth[kind], 1)) for kind in told
           if abs(told[kind] - truth[kind]) > max(TOLERANCE * whole_s, 1.0)}
    assert not off and abs(sum(told.values()) - whole_s) < 0.01, f"of {whole_s:.0f} s, told and true: {off}"
