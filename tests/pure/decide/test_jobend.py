"""Why a job ends: the sources are asked in order, and silence explains nothing."""

from __future__ import annotations

import itertools

from safelaunch.base.endings import JobEnd
from safelaunch.decide.ends.jobend import (
    EVIDENCE_S,
    Explain,
    ending_by_scontrol,
    ending_without_line,
    explain,
    has_missed_term,
)
from tests.tables import each


@each(("line", "waited_s", "expected"), [
    (None, 0.0, Explain.WAIT), (None, EVIDENCE_S, Explain.WAIT), (None, EVIDENCE_S + 0.1, Explain.ASK_SQUEUE),
    (JobEnd.UNKNOWN, 0.0, Explain.ASK_SCONTROL), (JobEnd.UNKNOWN, 60.0, Explain.ASK_SCONTROL),
    (JobEnd.CANCELLED, 0.0, Explain.LINE), (JobEnd.PREEMPTED, 60.0, Explain.LINE),
])
def test_slurmstepds_line_is_waited_for_before_anybody_is_asked(
        line: str | None, waited_s: float, expected: Explain) -> None:
    assert explain(line, waited_s) is expected


def test_a_term_without_a_line_is_nothing_only_while_slurm_runs_the_job() -> None:
    assert ending_without_line(is_running=True) is None
    assert ending_without_line(is_running=False) is JobEnd.UNKNOWN


def test_no_answer_of_scontrol_is_no_reason() -> None:
    assert ending_by_scontrol(None) == JobEnd.UNKNOWN
    assert ending_by_scontrol(JobEnd.PREEMPTED) == JobEnd.PREEMPTED


def test_a_term_is_missed_only_where_slurm_ends_the_job_and_nothing_here_explains_it() -> None:
    missed = [facts for facts in itertools.product((False, True), (False, True), (None, *JobEnd), (False, True))
              if has_missed_term(is_ending=facts[0], has_term=facts[1], ending=facts[2], ends_itself=facts[3])]
    assert missed == [(True, False, None, False)]
