"""Ends of jobs in the words of several releases of Slurm, and in words that nobody knows yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet (pip install .[dev])")

from safelaunch.decide.ends import refusal
from tests.simulation import slurm
from tests.simulation.golden import GOLDEN
from tests.simulation.run import run
from tests.simulation.scenario import Fault, Scenario

_PLAIN = GOLDEN["nothing goes wrong"]
ENDS: dict[str, tuple[Scenario, str, int]] = {   # how it must end, and in how many attempts at most
    "a person cancels the job": (GOLDEN["a person cancels the job"], "stopped", 1),
    "the job is preempted": (GOLDEN["the job is preempted"], "completed", 2),
    "the time limit comes": (GOLDEN["the time limit comes"], "completed", 3),
    "the time limit comes to a training that does not hear the warning": (
        replace(GOLDEN["the time limit comes"], handles_signal=False), "completed", 3),
    "a person cancels a job that would be requeued": (
        replace(GOLDEN["a person cancels the job"], via="requeue"), "stopped", 1),
    "a person cancels a job that would be submitted again": (
        replace(GOLDEN["a person cancels the job"], via="resubmit"), "stopped", 1),
    "a person cancels a job whose batch host is dead": (
        replace(_PLAIN, spare_nodes=1, steps=80, faults=(Fault("batch_crashes", 20.0, 600.0), Fault("scancel", 45.0))),
        "stopped", 2),
}


@pytest.mark.parametrize("words", ["22.05", "26.05", "later"])
@pytest.mark.parametrize("what", ENDS)
def test_an_end_means_the_same_in_the_words_of_every_release(what: str, words: str) -> None:
    scenario, ended, attempts = ENDS[what]
    outcome = run(replace(scenario, words=words), is_verbose=True)
    story = "\n".join(outcome.timeline[-60:])
    assert outcome.violations == [], story
    assert outcome.how == ended and outcome.attempts <= attempts, story
    if what != "a person cancels a job whose batch host is dead":
        assert not any('"failure"' in line for line in outcome.timeline), story


@pytest.mark.parametrize(("words", "failures"), [("22.05", 2), ("26.05", 2), ("later", 0)])
def test_a_step_that_slurm_ended_in_unknown_words_counts_as_no_failure(words: str, failures: int) -> None:
    """A person's scancel of a step fails an attempt as ever; a reason that nobody can read may be anything."""
    faults = (Fault("step_ended", 12.0), Fault("step_ended", 40.0))
    outcome = run(replace(_PLAIN, words=words, steps=60, faults=faults), is_verbose=True)
    story = "\n".join(outcome.timeline[-80:])
    assert (outcome.violations, outcome.how, outcome.attempts) == ([], "completed", 3), story
    assert sum('"event":"failure"' in line for line in outcome.timeline) == failures, story
    if words == "later":
        assert sum('"event":"unknown_words"' in line for line in outcome.timeline) == 1, story
        assert not any('"event":"node_suspected"' in line for line in outcome.timeline), story


def test_steps_that_end_in_unknown_words_again_and_again_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not counted for ever, a bug that a later Slurm words anew would hold nodes until the time limit."""
    monkeypatch.setattr(refusal, "MOST_REFUSALS", 2)
    faults = tuple(Fault("step_ended", t) for t in range(12, 1500, 4))
    outcome = run(replace(_PLAIN, words="later", steps=600, save_every=1000, faults=faults), is_verbose=True)
    assert outcome.how == "gave_up", "\n".join(outcome.timeline[-80:])


def test_a_cancel_in_unknown_words_that_slurm_has_forgotten_holds_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Going on would undo a person's word, and stopping lose a run that was preempted: a person decides."""
    monkeypatch.setattr(slurm, "MIN_JOB_AGE_S", 0.01)
    scenario = replace(GOLDEN["a person cancels the job"], words="later", watchers=0, has_sacct=False)
    outcome = run(scenario, is_verbose=True)
    story = "\n".join(outcome.timeline[-80:])
    assert outcome.attempts == 1, story
    said = next((line for line in outcome.timeline if "the run is put on hold" in line), "")
    assert "safelaunch resume " in said and "safelaunch stop " in said and "release" not in said, story
