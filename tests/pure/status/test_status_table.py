"""Many runs, a line each: what stands in it, and that it fits."""

from __future__ import annotations

from typing import Any

from safelaunch.status.overview import Brief
from safelaunch.status.silence import LateStep
from safelaunch.status.speech import Speech
from safelaunch.status.table import names_of, render
from safelaunch.verbs.common import talk
from tests.tables import each

SPEECH = Speech(lambda t: f"<{t:.0f}>", talk.span, lambda names: "+".join(names))


def brief(name: str = "bloom", **changes: Any) -> Brief:
    """A run that makes steps."""
    return Brief(
        name=name, run_id="1a2b3c4d", run_dir="/r", owner="alice", cluster_name=None, state="running",
        sentence="attempt 1 is running on n[0-3] (job 12)", silence=None, since_t=-200.0, now_t=7300.0, ended_t=None,
        job="12", job_ends_t=10900.0, attempts=1, step=205, step_total=4000, loss=None, eta_t=18100.0, restarts=2,
        max_restarts=30, is_stale=False, values={})._replace(**changes)


def lines(*briefs: Brief, width: int | None = None, with_owner: bool = False) -> list[str]:
    return [line for line, _ in render(briefs, SPEECH, width, with_owner)]


def test_a_run_that_goes_on_says_how_far_it_is_and_when_it_and_its_job_end() -> None:
    assert lines(brief()) == [
        "RUN    STATE    FOR    STEP      DONE IN  JOB  ENDS IN  RETRY",
        "bloom  running  2h 5m  205/4000  3h       12   1h       2/30   attempt 1 is running on n[0-3] (job 12)"]


def test_columns_that_say_nothing_are_left_out() -> None:
    queued = brief(state="queued", since_t=None, step=None, step_total=None, eta_t=None, job_ends_t=None, restarts=0)
    assert lines(queued)[0] == "RUN    STATE   JOB"


def test_whose_a_run_is_stands_in_the_teams_table() -> None:
    assert lines(brief(), with_owner=True)[0].startswith("RUN    OWNER  STATE")


@each("width", [60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal_and_none_is_lost(width: int) -> None:
    told = lines(brief(), brief("a-name-that-somebody-has-found-too-long-to-type", state="on_hold"), width=width)
    assert max(map(len, told)) <= width
    assert any(line.startswith("bloom") for line in told) and any("…" in line for line in told)
    assert any("on hold" in line for line in told)


@each(("width", "head"), [
    (66, "RUN    STATE    FOR    STEP      DONE IN  JOB  ENDS IN  RETRY"),
    (60, "RUN    STATE    FOR    STEP      DONE IN  JOB  RETRY"),
    (44, "RUN    STATE    FOR    STEP      DONE IN"),
    (34, "RUN    STATE    STEP      DONE IN"),
    (24, "RUN    STATE    STEP"),
    (16, "RUN    STATE"),
])
def test_a_narrow_terminal_has_fewer_columns_and_cuts_none(width: int, head: str) -> None:
    told = lines(brief(), width=width)
    assert told[0] == head and len(told) == 3
    assert told[1].split()[:2] == ["bloom", "running"] and "…" not in told[1]


@each("width", [60, 200])
def test_a_small_screen_has_the_runs_that_go_on_and_how_many_are_left_out(width: int) -> None:
    briefs = [*(brief(f"over{number}", state="completed") for number in range(90)), brief("goes-on")]
    told = [line for line, _ in render(briefs, SPEECH, width, False, most_lines=24)]
    assert len(told) in (23, 24) and "goes-on" in told[-2 if width == 200 else -3]
    assert told[-1] == f"and {91 - (len(told) - 2) // (1 if width == 200 else 2)} more: a larger window shows them"
    assert len(render(briefs, SPEECH, 200, False, most_lines=200)) == 92


def test_a_narrow_terminal_has_the_sentence_on_a_line_of_its_own() -> None:
    assert lines(brief(), width=70)[2] == "  attempt 1 is running on n[0-3] (job 12)"


def test_a_run_without_a_sign_of_life_is_red_whatever_its_state() -> None:
    (_, (_, style)) = render([brief(is_stale=True)], SPEECH, None, False)
    assert style == "red"


def test_no_run_has_no_line() -> None:
    assert lines() == []


def test_runs_of_one_name_are_told_apart_by_their_folders() -> None:
    places = ("/a/runs/budget", "/a/runs/budget-2", "/b/runs/llama", "/c/runs/llama", "/c/runs/t5")
    names = ("budget", "budget", "llama", "llama", "t5")
    found = names_of([brief(name, run_dir=place) for name, place in zip(names, places, strict=True)])
    assert found == ["budget", "budget-2", "b/runs/llama", "c/runs/llama", "t5"]


def test_a_point_of_a_sweep_says_its_values() -> None:
    assert "lr=1e-4 seed=2; attempt 1 is running" in lines(brief(values={"lr": "1e-4", "seed": "2"}))[1]


def test_a_silent_run_says_so_and_since_when() -> None:
    silent = LateStep(7180.0, 7200.0, 205, 0.2, "step")
    (head, row) = render([brief(silence=silent, eta_t=None)], SPEECH, None, False)
    assert row[0].split()[:4] == ["bloom", "silent", "2m", "205/4000"] and row[1] == "yellow", head
