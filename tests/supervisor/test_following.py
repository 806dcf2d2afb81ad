"""What a leader makes of the answers on the runs that its own run waits for."""

from __future__ import annotations

from typing import Any

from safelaunch.decide.facts.after import RunBefore
from safelaunch.launch.settings import AfterRun
from safelaunch.slurm.io.slurm import Result
from safelaunch.supervisor.jobs.following import _by_name, _known
from tests.tables import each

JOBS = "12|RUNNING|me|bloom.1a|None|n0\n13|PENDING|me|bloom.1a|Dependency|\n14|RUNNING|me|other.2b|None|n1\n"


@each(("result", "said"), [
    (Result(("squeue",), 0, JOBS, ""), {"bloom.1a": ["12", "13"], "gone.3c": []}),
    (Result(("squeue",), 0, "", ""), {"bloom.1a": [], "gone.3c": []}),
    (Result(("squeue",), 0, "slurm is being updated\n", ""), {"bloom.1a": None, "gone.3c": None}),
    (Result(("squeue",), 1, JOBS, "error"), {"bloom.1a": None, "gone.3c": None}),
    (Result(("squeue",), None, "", ""), {"bloom.1a": None, "gone.3c": None}),
    (None, {"bloom.1a": None, "gone.3c": None}),
], ids=["jobs", "none", "another form", "an error", "late", "not asked"])
def test_an_answer_that_is_not_clear_is_no_absence(result: Result | None, said: dict[str, Any]) -> None:
    assert _by_name(["bloom.1a", "gone.3c"], result) == said


@each(("end", "jobs", "absent", "said"), [
    (None, {}, {}, RunBefore("a", False)),
    ({}, {"a.1": None}, {}, RunBefore("a", False)),
    ({}, {"a.1": ["12"]}, {}, RunBefore("a", False, jobs=("12",))),
    ({"ended": "gave_up", "why": "two failures"}, {}, {}, RunBefore("a", False, "gave_up", "two failures")),
    ({"via": "watch"}, {"a.1": []}, {"a.1": 40.0}, RunBefore("a", False, jobs=(), absent_s=60.0, is_watched=True)),
    ({}, {"a.1": []}, {"a.1": 100.0}, RunBefore("a", False, jobs=())),
    ({}, {"a.1": []}, {"a.1": 130.0}, RunBefore("a", False, jobs=())),
], ids=["nobody could read it", "no clear answer", "a job", "it has ended", "absent for a minute, with a watch",
        "absent in one answer", "since this host stood still"])
def test_what_is_known_of_a_run_before_this_one(
    end: dict[str, Any] | None, jobs: dict[str, list[str] | None], absent: dict[str, float], said: RunBefore
) -> None:
    assert _known(AfterRun("a", "/runs/a", "a.1"), end, jobs, absent, asked_s=100.0) == said
