"""No leader stops listening to its guards for long, whatever its folder does (virtual time, so to the millisecond)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from safelaunch.supervisor import loop, observe
from safelaunch.supervisor.leader import Leader
from tests.simulation.folder import SimFolder
from tests.simulation.link import SimLink
from tests.simulation.run import run
from tests.simulation.scenario import Fault, Scenario

MOST_S = 0.2
CALM = Scenario(seed=7, nodes=2, spare_nodes=1, pool=4, steps=120, step_s=1.0, save_every=20, fs_latency_s=0.02,
                net_latency_s=0.001)
SCENARIOS = {
    "frozen for all beside an attempt": (Fault("freeze", 30.0, 40.0),),
    "frozen as a rank dies": (Fault("rank_dies", 30.0), Fault("freeze", 30.02, 20.0)),
    "frozen for the leader alone": (Fault("freeze_one", 20.0, 30.0, 0),),
    "refusing": (Fault("refuses", 20.0, 30.0), Fault("rank_dies", 25.0)),
    "slow answers and lost ones": (Fault("loses_links", 5.0, 0.0, 3), Fault("rank_dies", 25.0)),
}


@pytest.fixture
def gaps_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each leader was away from its sockets, from its first look at them to its end."""
    left: dict[int, float] = {}
    gaps: list[float] = []
    receive, run_loop = Leader._receive, loop.run

    def note(lead: Leader) -> None:
        now_s = lead.here.world.now_s()
        gaps.append(now_s - left.get(id(lead), now_s))

    def timed(self: Leader, timeout_s: float) -> None:
        note(self)
        receive(self, timeout_s)
        left[id(self)] = self.here.world.now_s()

    def timed_run(lead: Leader) -> int:
        code = run_loop(lead)
        note(lead)
        return code

    monkeypatch.setattr(Leader, "_receive", timed)
    monkeypatch.setattr(loop, "run", timed_run)
    return gaps


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_leader_listens_while_its_folder_does_not_answer(name: str, gaps_s: list[float]) -> None:
    outcome = run(replace(CALM, faults=SCENARIOS[name]))
    assert outcome.violations == [] and outcome.how == "completed"
    assert max(gaps_s) <= MOST_S


def test_a_leader_listens_while_its_last_words_wait(gaps_s: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    publish = observe.publish_heartbeat

    def freeze(lead: Leader, *words: Any, **more: Any) -> None:
        if lead.course.final is not None and isinstance(lead.folder.shared, SimFolder):
            lead.folder.shared._mount.freeze(lead.folder.shared._clock.t + 30.0)
        publish(lead, *words, **more)

    monkeypatch.setattr(observe, "publish_heartbeat", freeze)
    outcome = run(CALM)
    assert outcome.violations == [] and outcome.how == "completed"
    assert max(gaps_s) <= MOST_S


@pytest.mark.parametrize("name_s", [0.9, 5.0, 60.0])
def test_a_leader_listens_while_no_name_server_answers(name_s: float, gaps_s: list[float]) -> None:
    outcome = run(replace(CALM, name_s=name_s, faults=(Fault("rank_dies", 30.0),)))
    assert outcome.violations == [] and outcome.how == "completed"
    assert max(gaps_s) <= MOST_S


TICK_S = 0.5   # a standby answers a ping within it
SILENT = {
    "frozen for all, and its leader cut off": (Fault("freeze", 30.0, 40.0), Fault("batch_cut", 32.0, 20.0)),
    "frozen for it alone": (Fault("freeze_one", 30.0, 20.0, 1), Fault("batch_silent", 31.0, 4.0)),
    "frozen as its leader dies": (Fault("batch_crashes", 30.0, 60.0), Fault("freeze", 33.0, 6.0)),
}


@pytest.mark.parametrize("name", SILENT)
def test_a_standby_answers_while_its_folder_does_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left: dict[SimLink, float] = {}
    gaps: list[tuple[float, float]] = [(0.0, 0.0)]
    messages = SimLink.messages

    def timed(self: SimLink, now: float) -> Any:
        if "role" in self.who and self.who["role"] == "standby":
            gaps.append((now - left.get(self, now), now))
            left[self] = now
        return messages(self, now)

    monkeypatch.setattr(SimLink, "messages", timed)
    outcome = run(replace(CALM, faults=SILENT[name]))
    assert outcome.violations == [] and outcome.how == "completed"
    assert len(gaps) > 100 and max(gaps)[0] <= TICK_S + MOST_S
