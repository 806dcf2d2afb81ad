"""A run's figures for Prometheus."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.base.model import Event
from safelaunch.base.plaintext import clean
from safelaunch.run.fold.folding import fold
from safelaunch.status import metrics
from safelaunch.status.metrics import FAMILIES, STATES, MeteredRun, MetricSample
from safelaunch.status.shares import Books, settle
from tests import promtext


def event(t: float, kind: str, **data: Any) -> Event:
    return Event(t, 1, int(t), "n0", kind, data)


STORY = (
    event(0, "submitted", job="12", name="bloom"),
    event(10, "job_started", job="12", nodes=["n0", "n1"], batch_host="n0", restart_count=0),
    event(20, "attempt_started", attempt=1, job="12", nodes=["n0", "n1"], port=1, resume_step=None),
    event(120, "progress", attempt=1, step=10), event(220, "progress", attempt=1, step=20),
    event(230, "failure", attempt=1, exit_code=1, exits=[]),
    event(231, "verdict", attempt=1, category="gpu_hardware", summary="Xid 79", confidence=0.9, action="restart"),
    event(232, "attempt_ended", attempt=1, how="failed", exit_code=1),
    event(240, "attempt_started", attempt=2, job="12", nodes=["n1"], port=1, resume_step=10),
    event(340, "progress", attempt=2, step=20), event(440, "progress", attempt=2, step=30),
)


def run(*more: Event, name: str = "bloom", now: float = 450.0) -> MeteredRun:
    events = (*STORY, *more)
    return MeteredRun(name, "1a2b3c4d", "/scratch/runs/bloom", "alps", 30, fold(events),
                      settle(events, fold(events), now), now)


def values(*runs: MeteredRun) -> dict[str, dict[promtext.Labels, float]]:
    return promtext.parse(metrics.render(sample for one in runs for sample in metrics.samples(one)))


def one(found: dict[str, dict[promtext.Labels, float]], family: str, **labels: str) -> float:
    return found[f"safelaunch_run_{family}"][frozenset({"run": "bloom", "run_id": "1a2b3c4d", **labels}.items())]


def test_the_figures_of_a_run_are_those_of_its_journal() -> None:
    found = values(run())
    assert one(found, "restarts_total", cause="gpu_hardware") == 1 and one(found, "attempts_total") == 2
    assert one(found, "lost_steps") == 10 and one(found, "lost_seconds") == 120 and one(found, "step") == 30
    assert one(found, "restart_overhead_ratio") == round(120 / 430, 4) and one(found, "step_duration_seconds") == 10
    assert one(found, "nodes") == 1 and one(found, "updated_timestamp_seconds") == 450
    states = {dict(labels)["state"]: value for labels, value in found["safelaunch_run_state"].items()}
    assert states == {**dict.fromkeys(STATES, 0.0), "running": 1.0}
    assert "safelaunch_run_exit_code" not in found, "a run that goes on has none"


def test_a_step_that_no_float_holds_has_no_value() -> None:
    """The leader makes these figures: it must not die of a log."""
    found = values(run(event(441, "progress", attempt=2, step=10**400)))
    assert "safelaunch_run_step" not in found and one(found, "attempts_total") == 2


def test_an_ended_run_has_its_exit_code_and_no_nodes() -> None:
    found = values(run(event(460, "attempt_ended", attempt=2, how="completed", exit_code=0),
                       event(461, "completed", exit_code=0, why="done"), now=9999.0))
    assert one(found, "exit_code") == 0 and one(found, "ended_timestamp_seconds") == 461
    assert one(found, "state", state="completed") == 1 and one(found, "nodes") == 0
    assert one(found, "restart_overhead_ratio") == round(120 / 441, 4), "no time is lost after the end"


def test_a_run_that_has_not_started_has_what_is_known() -> None:
    state = fold(STORY[:1])
    found = values(MeteredRun("bloom", "1a2b3c4d", "/r", "", 3, state, settle(STORY[:1], state, 5.0), 5.0))
    assert one(found, "state", state="queued") == 1 and one(found, "restart_budget") == 3
    assert not {"safelaunch_run_step", "safelaunch_run_goodput_ratio"} & set(found)


def test_the_values_of_many_runs_stand_together_in_each_family() -> None:
    found = values(run(), run(name="llama"))
    assert len(found["safelaunch_run_step"]) == 2 and set(found) <= set(FAMILIES)


@given(st.text())
def test_any_text_is_a_label_that_is_read_back(text: str) -> None:
    found = promtext.parse(metrics.render([MetricSample("safelaunch_run_step", {"run": text}, 1.5)]))
    assert found == {"safelaunch_run_step": {frozenset({("run", clean(text)[:metrics.MOST_LABEL])}): 1.5}}


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_clock_that_is_no_number_has_no_value_and_breaks_nothing(now: float) -> None:
    account = settle(STORY, fold(STORY), 450.0)
    assert values(MeteredRun("bloom", "1a2b3c4d", "/r", "", 3, fold(STORY), account, now))


def test_a_journal_that_grows_gives_the_same_account_as_one_that_is_read_at_once() -> None:
    books = Books()
    for single in STORY:
        books.add([single])
    assert books.until(fold(STORY), 450.0, 35) == settle(STORY, fold(STORY), 450.0, 35)
