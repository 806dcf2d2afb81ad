"""`status`, its table and `why` agree on which run is silent, since when, and at which step."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safelaunch.status.overview import Brief, Overview, word_of
from safelaunch.status.speech import SchedulerAnswer
from safelaunch.verbs.overview.overview import brief, overview
from safelaunch.verbs.why.whyrun import present_of
from tests.handmade import Made, make_run

FOLDERS = itertools.count()
AGES_S = st.sampled_from([-30.0, 0.0, 5.0, 19.0, 25.0, 70.0, 4000.0])   # of a clock that is ahead, too
STEPS = st.one_of(st.none(), st.integers(86, 92))


def pages(made: Made) -> tuple[list[object], list[str], bool]:
    """What each page says of the silence, the words of the two tables, and whether `why` calls it silent."""
    word = SchedulerAnswer(None)
    seen: list[Overview | Brief] = [overview(made.run, word, made.now), brief(made.run, word, made.now)]
    present = present_of(made.run, made.run.state(), made.run.journal().events, made.now)
    late = None if present is None else present.late
    told: list[object] = [one.silence and tuple(one.silence) for one in seen]
    told.append(None if late is None else (round(late.since_t, 1), round(late.late_t, 1), *late[2:]))
    return told, [word_of(one) for one in seen], present is not None and present.is_silent


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(told=STEPS, named=st.lists(st.integers(80, 95), max_size=4), journal_step=STEPS,
       words=st.sampled_from([0, 9000]),
       step_age_s=AGES_S, late_in_s=st.sampled_from([20.0, 60.0, None]), grew_age_s=AGES_S,
       pulse_of=st.sampled_from([1, 2]), is_ended=st.booleans(), hung=st.booleans())
def test_no_page_calls_a_run_silent_that_another_calls_well(
    tmp_path: Path, told: int | None, named: list[int], journal_step: int | None, words: int, step_age_s: float,
    late_in_s: float | None, grew_age_s: float, pulse_of: int, is_ended: bool, hung: bool,
) -> None:
    made = make_run(tmp_path / f"run{next(FOLDERS)}")
    made.running()
    if journal_step is not None:
        made.event("progress", attempt=1, step=journal_step)
    if hung:
        made.event("hang_suspected", attempt=1, silent_s=55.0, phase="step", step=told, usual_s=0.2)
    if is_ended:
        made.failed()
    step_t = made.now - step_age_s
    made.pulse(age_s=5, attempt=pulse_of, step=told, phase="step", step_t=None if late_in_s is None else step_t,
               late_t=None if late_in_s is None else step_t + late_in_s)
    path = made.log(1, b"".join(b"step %d/400 loss 0.5\n" % step for step in named) + b"words\n" * words)
    os.utime(path, (made.now - grew_age_s,) * 2)
    told_by, states, is_silent = pages(made)
    assert told_by[0] == told_by[1] == told_by[2], told_by
    assert (states[0] == "silent", states[1] == "silent") == (is_silent, is_silent), states


def test_what_a_longer_end_of_the_log_names_counts_in_the_table(tmp_path: Path) -> None:
    made = make_run(tmp_path / "far")
    made.running()
    made.pulse(age_s=5, attempt=1, step=89, step_t=made.now - 120, late_t=made.now - 100, phase="step")
    made.log(1, b"step 95/400 loss 0.5\n" + b"words without any\n" * 1000)
    assert pages(made) == ([None, None, None], ["running", "running"], False)
    made.log(1, b"words without any\n" * 4000)
    told, words, is_silent = pages(made)
    assert told[0] is not None and (words, is_silent) == (["silent", "silent"], True), "behind what anybody reads"


def test_a_run_that_somebody_ends_is_told_so_with_its_silence(tmp_path: Path) -> None:
    made = make_run(tmp_path / "asked")
    made.running()
    made.pulse(age_s=5, attempt=1, step=89, step_t=made.now - 120, late_t=made.now - 100, phase="step")
    (made.dir / "control" / "kill").touch()
    told, words, is_silent = pages(made)
    assert told[0] == told[1] == told[2] is not None and (words, is_silent) == (["stopping"] * 2, True)
