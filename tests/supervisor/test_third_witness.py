"""Slurm as the third witness of a node that hears nobody."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from safelaunch.slurm.io.slurm import Result
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.observe import ask_third_witness
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
    lead = SimpleNamespace(
        here=SimpleNamespace(world=SimpleNamespace(command=lambda *words: words), job=SimpleNamespace(id="11", env={})),
        next=SimpleNamespace(successor=SimpleNamespace(state_of=lambda result, job: "RUNNING")), clock=None, say=None,
        course=SimpleNamespace(end_act=None, term_s=None, ending=None), reach=SimpleNamespace(note_answer=told.append),
        standbys=SimpleNamespace(doubt=lambda: None))
    asking: Any = ask_third_witness(cast(Leader, lead))
    next(asking)
    with pytest.raises(StopIteration):
        for answer in answers:
            asking.send(answer)
    assert told == [expected]
