"""Golden scenarios: the ladder's rungs one by one, without bad luck on top. test_pairs.py adds that at every call."""

from __future__ import annotations

from tests.simulation.scenario import Fault, Scenario

_SHORT = Scenario(steps=30, save_every=10, load_s=0.5, save_s=0.2, pool=5, watchers=1, slurmd_timeout_s=300.0)


def _with(seed: int, *faults: Fault, **changes: object) -> Scenario:
    from dataclasses import replace

    return replace(_SHORT, seed=seed, faults=faults, **changes)  # type: ignore[arg-type]


GOLDEN: dict[str, Scenario] = {
    "nothing goes wrong": _with(1),
    "a rank dies": _with(2, Fault("rank_dies", 15.0)),
    "a worker dies, with a spare": _with(3, Fault("worker_crashes", 15.0, 900.0), spare_nodes=1),
    "a worker dies, without a spare": _with(4, Fault("worker_crashes", 15.0, 900.0)),
    "the batch host dies": _with(5, Fault("batch_crashes", 15.0, 900.0), spare_nodes=1),
    "the batch host falls silent": _with(6, Fault("batch_silent", 15.0, 900.0), spare_nodes=1),
    "the batch host is cut off": _with(7, Fault("batch_cut", 15.0, 120.0), spare_nodes=1),
    "the time limit comes": _with(8, steps=300, limit_min=4, save_every=50),
    "a teammate touches the kill switch": _with(9, Fault("kill", 15.0)),
    "a person cancels the job": _with(10, Fault("scancel", 15.0)),
    "the job is preempted": _with(11, Fault("preempt", 15.0)),
    "the leader dies": _with(12, Fault("leader_dies", 15.0)),
    "a node on which the program fails at its start, with a spare": _with(14, spare_nodes=1, bad_node="n1"),
    "a node on which the program fails later, with a spare": _with(15, spare_nodes=1, bad_node="n1", bad_step=15),
    "a teammate wants it to stop at its next checkpoint": _with(
        13, Fault("checkpoint", 5.0), steps=90, save_every=20, handles_signal=False),
}
