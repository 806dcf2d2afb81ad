"""What of a journal people are told: each thing once."""

from __future__ import annotations

from typing import Any

from safelaunch.base.model import Event
from safelaunch.run.story import select
from safelaunch.verbs.common.eventwords import describe

Line = tuple[str, dict[str, Any]]
SILENT = "neither its supervisor nor its node guard answers"
STARTED: Line = ("attempt_started", {"attempt": 1, "nodes": ["n0", "n1"], "resume_step": None, "why": "first attempt"})


def told(*lines: Line, pause_s: float = 0.0) -> list[str]:
    events = [Event(100.0 + pause_s * seq, 2, seq, "n0", kind, data) for seq, (kind, data) in enumerate(lines, 1)]
    return [describe(event) for event in select(events)]


def restart(why: str, step: int | None, *failure: Line) -> list[Line]:
    """A restart as the leader journals it, from the failure on (of a run on Slurm 22.05)."""
    return [
        STARTED, ("progress", {"attempt": 1, "step": 60}),
        ("decision", {"row": "task_failed", "action": "end", "attempt": 1, "why": f"ending the attempt: {why}"}),
        ("progress", {"attempt": 1, "step": 100}), *failure,
        ("fenced", {"attempt": 1}), ("checkpoint", {"attempt": 1, "step": step, "path": "ckpt/80.pt"}),
        ("decision", {"row": "launch", "action": "launch", "attempt": 2, "why": "attempt 1 failed; going on from y"}),
        ("intent", {"claim": 4, "act": "launch"}),
        ("attempt_started", {"attempt": 2, "nodes": ["n0", "n1"], "resume_step": step,
                             "why": "attempt 1 failed (x); going on from the start: no checkpoint yet"}),
        ("outcome", {"claim": 4, "act": "launch", "ok": True})]


FAILED: tuple[Line, ...] = (
    ("failure", {"attempt": 1, "exit_code": 137, "exits": ["task 1 on n1: killed by signal 9"]}),
    ("verdict", {"attempt": 1, "category": "host_oom", "confidence": 0.45, "action": "fix_config",
                 "summary": "task 1 on n1 died of SIGKILL"}),
    ("attempt_ended", {"attempt": 1, "how": "failed", "exit_code": 137}))


def test_a_restart_is_four_lines_at_most_and_each_says_something_new() -> None:
    assert told(*restart("task 1 on n1: killed by signal 9", 80, *FAILED)) == [
        "attempt 1 starts on n[0-1]",
        "attempt 1 failed at step 100, exit code 137: task 1 on n1: killed by signal 9",
        "verdict on attempt 1: host_oom (45% sure): task 1 on n1 died of SIGKILL",
        "attempt 2 starts on n[0-1] from step 80",
    ]


def test_a_restart_from_nothing_says_so() -> None:
    assert told(*restart("x", None, *FAILED))[-1] == (
        "attempt 2 starts on n[0-1]: going on from the start: no checkpoint yet")


def test_a_restart_without_a_node_says_why_beside_its_step() -> None:
    without = "; without n1, as attempt 1 failed on n1 alone"
    data = {"attempt": 2, "nodes": ["n0", "n2"], "resume_step": 40,
            "why": f"attempt 1 failed (x); going on from checkpoint at step 40{without}"}
    assert told(("attempt_started", data)) == [f"attempt 2 starts on n[0,2] from step 40: {without[2:]}"]


def test_lost_progress_is_told_once_and_the_runs_end_says_what_to_do() -> None:
    why = "attempt 1 was to go on from step 20, and its log counts 1 … 3"
    lines = told(
        STARTED, ("lost_progress", {"attempt": 1, "why": why, "sure": True, "then": "stop"}),
        ("decision", {"row": "lost_progress", "action": "end", "why": f"ending the attempt: {why}"}),
        ("failure", {"attempt": 1, "exit_code": 137, "exits": ["task 0 on n0: killed by signal 9"]}),
        ("verdict", {"attempt": 1, "category": "config", "confidence": 0.95, "action": "fix_config", "summary": why}),
        ("attempt_ended", {"attempt": 1, "how": "failed", "exit_code": 137}),
        ("gave_up", {"exit_code": 10, "why": f"a restart would start too low again: {why}. See that it loads it"}))
    assert sum(why in line for line in lines[:-1]) == 1
    assert lines[1].startswith(f"progress is lost: {why}; it is ended before it can overwrite newer checkpoints")
    assert lines[-1].endswith("See that it loads it")


def test_the_reason_of_a_lost_node_is_told_once() -> None:
    lines = told(
        STARTED, ("node_lost", {"node": "n1", "why": SILENT}),
        ("decision", {"row": "node_lost", "action": "end", "why": f"ending the attempt: n1 is lost: {SILENT}"}),
        ("failure", {"attempt": 1, "exit_code": 255, "exits": []}),
        ("verdict", {"attempt": 1, "category": "node_failure", "confidence": 0.9, "summary": f"n1: {SILENT}"}),
        ("node_suspected", {"node": "n1", "why": SILENT}),
        ("node_excluded", {"node": "n1", "until": None, "why": f"went silent or died: {SILENT}"}))
    assert lines[1:] == [f"n1 is lost: {SILENT}", "attempt 1 failed, exit code 255",
                         "verdict on attempt 1: node_failure (90% sure)", "n1 is excluded"]


def test_the_same_reason_is_news_again_when_it_comes_back_later() -> None:
    lost: Line = ("node_lost", {"node": "n1", "why": SILENT})
    assert told(lost, lost, pause_s=600.0) == [f"n1 is lost: {SILENT}"] * 2


def test_a_suspicion_whose_reason_was_told_is_no_line_of_its_own() -> None:
    """The node that failed first is suspected lightly, with the verdict's words."""
    verdict = {"attempt": 1, "category": "unknown", "confidence": 0.45, "summary": "task 0 on n1 was killed"}
    suspected: Line = ("node_suspected", {"node": "n1", "why": "task 0 on n1 was killed"})
    assert told(("verdict", verdict), suspected) == told(("verdict", verdict))


def test_a_suspicion_that_keeps_nobody_out_is_told() -> None:
    assert told(("node_suspected", {"node": "n1", "why": "failed first"})) == ["n1 is suspected: failed first"]


def test_the_end_of_a_run_is_told_once() -> None:
    why = "attempt 1 ended with exit code 0"
    assert told(("attempt_ended", {"attempt": 1, "how": "completed", "exit_code": 0}),
                ("completed", {"exit_code": 0, "why": why}),
                ("decision", {"row": "completed", "why": f"the run has ended: completed: {why}"})) == [
        f"the run has completed: {why}"]


def test_a_step_from_before_the_end_is_not_where_the_attempt_failed() -> None:
    """A supervisor that took over knows the step that its predecessor noted, a minute ago."""
    lines = told(("progress", {"attempt": 1, "step": 85}),
                 ("failure", {"attempt": 1, "exit_code": 255, "exits": []}), pause_s=20.0)
    assert lines == ["attempt 1 failed, exit code 255"]


def test_claims_are_no_news_unless_one_has_failed() -> None:
    assert told(("intent", {"claim": 3, "act": "submit"}),
                ("outcome", {"claim": 3, "act": "submit", "ok": False, "why": "Slurm said no"})) == [
        "submit: it did not work: Slurm said no"]


def test_what_is_tried_again_and_again_is_told_once() -> None:
    """A site without sbatch on its nodes: a line each few minutes, for as long as the job ran (simulated)."""
    failed: Line = ("outcome", {"claim": 3, "act": "queue_successor", "ok": False})
    assert told(failed, failed, failed, pause_s=300.0) == ["queue successor: it did not work"]


def test_odd_lines_stop_no_telling() -> None:
    odd: list[Line] = [(kind, {"attempt": [], "node": {}, "why": 7, "exits": "x", "action": [], "row": {}})
                       for kind in ("failure", "decision", "node_suspected", "progress", "attempt_started", "new")]
    assert len(told(*odd)) == 5
