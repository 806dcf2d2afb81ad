"""A run folder that is removed or renamed under the training: nothing is lost, and no node is held for nothing."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet (pip install .[dev])")

from tests.simulation.clients import writes_reach_the_server
from tests.simulation.golden import GOLDEN
from tests.simulation.person import behind_keyboards
from tests.simulation.scenario import Fault, Scenario
from tests.simulation.sim import Sim

_PLAIN = replace(GOLDEN["nothing goes wrong"], watchers=0)   # a watch finds no such run on the list
WITHIN_S = 300.0


class End(NamedTuple):
    """How it went."""

    trained: bool
    after_s: float              # from the training's last checkpoint to the end of the last job
    live: list[str]             # jobs that are left
    codes: list[str]            # how the jobs ended
    attempts: int
    left: str                   # what stands in the folder of the submission
    is_recreated: bool          # something is there under the name of the run folder
    commands: list[str]
    ended: str | None           # in the journal


def _end(scenario: Scenario) -> End:
    folder = Path(tempfile.mkdtemp(prefix="safelaunch-sim-", dir="/dev/shm"))
    sim = Sim(scenario, folder)
    sim.is_plain = True   # what the invariants say of a journal that ends in the middle
    try:
        with behind_keyboards(), writes_reach_the_server():
            sim.run()
        last_t = max((t for t, _ in sim.saves), default=0.0)
        state = sim.state()
        # A supervisor that is not born yet has nobody to tell: its error stands in the job's output, and the job ends.
        wrong = [said for said in sim.violations if "OSError: the run folder: FileNotFoundError" not in said]
        assert not wrong, wrong
        return End(
            any(step >= scenario.steps for _, step in sim.saves), max(job.ended_t for job in sim.all_jobs) - last_t,
            [job.id for job in sim.all_jobs if job.is_live], [job.end for job in sim.all_jobs], len(sim.attempts),
            "".join(line for _, line in sim.left), (folder / "server" / "run").exists() and sim.run_dir.name != "run",
            sim.outside_calls, state.ended.how if state.ended else None)
    finally:
        sim.remove()


@pytest.mark.parametrize("scenario", [
    replace(_PLAIN, nodes=1, steps=300), replace(_PLAIN, nodes=2, steps=300), replace(_PLAIN, nodes=2, steps=20),
    replace(_PLAIN, nodes=3, steps=300, via="resubmit"), replace(_PLAIN, nodes=2, steps=300, via="requeue"),
], ids=["one node", "two nodes", "gone at the end", "resubmit", "requeue"])
def test_training_goes_on_and_the_job_ends_within_five_minutes_after_it(scenario: Scenario) -> None:
    end = _end(replace(scenario, faults=(Fault("removed", 6.0),)))
    assert end.trained
    assert (end.live, end.attempts) == ([], 1)
    assert end.after_s < WITHIN_S
    assert not end.is_recreated
    assert "is gone" in end.left
    assert "the run has ended: completed" in end.left


def test_failure_after_that_ends_the_run_with_its_code_and_takes_the_next_job_out_of_the_queue() -> None:
    end = _end(replace(_PLAIN, steps=900, faults=(Fault("removed", 6.0), Fault("rank_dies", 200.0))))
    assert not end.trained
    assert (end.live, end.attempts) == ([], 1)
    assert end.codes == ["FAILED", "CANCELLED"]
    assert "RuntimeError: injected" in end.left   # the end of its log
    assert "the run has ended: gave_up" in end.left


def test_folder_that_another_node_sees_is_not_gone_for_three_minutes() -> None:
    end = _end(replace(_PLAIN, steps=400, faults=(Fault("removed", 6.0, 130.0, 0, ("n0", "n1", "n2", "n3")),)))
    assert end.trained
    assert end.ended == "completed"
    assert "is gone" not in end.left


def test_folder_that_is_put_back_has_all_of_the_run() -> None:
    end = _end(replace(_PLAIN, steps=600, faults=(Fault("removed", 6.0, 200.0), Fault("rank_dies", 300.0))))
    assert end.trained
    assert (end.ended, end.attempts) == ("completed", 2)
    assert "is gone" in end.left


@pytest.mark.parametrize("kind", ["unreadable", "away"])
def test_folder_that_does_not_answer_is_waited_for(kind: str) -> None:
    end = _end(replace(_PLAIN, steps=600, faults=(Fault(kind, 6.0, 200.0),)))
    assert end.trained
    assert (end.ended, end.left) == ("completed", "")


def test_removed_folder_makes_nobody_spin() -> None:
    end = _end(replace(_PLAIN, steps=1200, limit_min=120, faults=(Fault("removed", 6.0),)))
    assert end.trained
    asked = [call for call in end.commands if call.startswith(("squeue", "sbatch", "scontrol", "srun"))]
    assert len(asked) < 40, asked


@pytest.mark.parametrize("t", [1.6 + 0.1 * number for number in range(12)])
def test_folder_that_goes_while_its_supervisor_starts_holds_no_job(t: float) -> None:
    """Between any two questions of its start: the claim of the lead was tried for ever, and a folder that went right
    after the first question was not missed.
    """
    end = _end(replace(_PLAIN, steps=60, fs_latency_s=0.05, standby=False, faults=(Fault("removed", t),)))
    assert end.live == [] and end.attempts <= 1
    assert end.after_s < WITHIN_S, (end.codes, end.left[-300:])
    assert not end.is_recreated
