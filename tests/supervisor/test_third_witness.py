"""Slurm as the third witness of a node that hears nobody."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from safelaunch.slurm.io.slurm import Result
from safelaunch.supervisor.observe import ask_third_witness
from safelaunch.supervisor.state.course import Course
from safelaunch.supervisor.state.standbys import Standbys
from tests.tables import each

RUNS = Result(("squeue",), 0, "11|train|RUNNING|...", "")
NO_ANSWER, BROKEN_OFF = Result(("squeue",), None, "", ""), Result(("squeue",), -15, "", "")


@each(("answers", "expected"), [
    ([RUNS], False), ([NO_ANSWER], True), ([BROKEN_OFF, RUNS], False), ([BROKEN_OFF, BROKEN_OFF], True),
], ids=["it answers", "it does not", "a TERM for all of the job has ended squeue", "... twice"])
def test_a_node_is_cut_off_where_slurm_does_not_answer_and_not_where_a_signal_has_ended_squeue(
    answers: list[Result], expected: bool
) -> None:
    told: list[bool] = []
    here: Any = SimpleNamespace(world=SimpleNamespace(command=lambda *words: words),
                                job=SimpleNamespace(id="11", env={}))
    next_job: Any = SimpleNamespace(successor=SimpleNamespace(state_of=lambda result, job: "RUNNING"))
    clock: Any = None
    say: Any = None
    reach: Any = SimpleNamespace(note_answer=told.append)
    asking: Any = ask_third_witness(here, clock, Course(), next_job, reach, Standbys(0.0), say)
    next(asking)
    with pytest.raises(StopIteration):
        for answer in answers:
            asking.send(answer)
    assert told == [expected]
