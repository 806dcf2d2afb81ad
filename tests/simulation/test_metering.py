"""The run's figures for Prometheus, as its leaders write them."""

from __future__ import annotations

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet (pip install .[dev])")

from safelaunch.status import metrics
from safelaunch.status.metrics import MeteredRun, MetricSample
from tests.simulation.golden import GOLDEN
from tests.simulation.run import run


def test_a_run_whose_next_job_waits_is_not_left_as_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """An alert on a leader that writes no more would come for each handover."""
    last: dict[str, str] = {}   # job → the state in the last figures of its leader
    samples = metrics.samples

    def noted(one: MeteredRun) -> list[MetricSample]:
        last[one.state.job.id if one.state.job else ""] = one.state.name
        return samples(one)

    monkeypatch.setattr(metrics, "samples", noted)
    run(GOLDEN["the time limit comes"])
    assert len(last) > 1 and "running" not in last.values(), last
