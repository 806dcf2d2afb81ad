"""The line between the logs of two attempts."""

from __future__ import annotations

from dataclasses import replace

from safelaunch.run.fold.state import Attempt
from safelaunch.verbs.logs.separator import END, MOST_WHY_CHARS, START, further_lines, separator
from tests.tables import each

FIRST = Attempt(1, "12", ("n0", "n1"), 100.0, ended="failed", ended_t=280.0, step=59, summary="KeyError: 'lable'")
SECOND = Attempt(2, "12", ("n0", "n2"), 290.0, resume_step=40)


def said(before: Attempt | None, after: Attempt | None) -> str:
    return separator(before, 2, after, lambda seconds: f"{seconds:.0f} s")


@each(("before", "after", "line"), [
    (FIRST, SECOND,
     "--- attempt 1 failed after 180 s at step 59: KeyError: 'lable' · attempt 2 on n[0,2] from step 40 ---"),
    (replace(FIRST, ended="lost", summary=None), replace(SECOND, resume_step=None),
     "--- attempt 1 was lost with a node after 180 s at step 59 · attempt 2 on n[0,2] ---"),
    (replace(FIRST, ended="stopped", step=None, summary=None), None,
     "--- attempt 1 was stopped after 180 s · attempt 2 ---"),
    (replace(FIRST, ended=None, ended_t=None), SECOND,
     "--- attempt 1 has no end in the journal · attempt 2 on n[0,2] from step 40 ---"),
    (None, SECOND, "--- attempt 2 on n[0,2] from step 40 ---"),
    (replace(FIRST, summary=None), replace(SECOND, lost="it counts 1", lost_surely=True),
     "--- attempt 1 failed after 180 s at step 59 · attempt 2 on n[0,2] from step 40, not loaded ---"),
], ids=["failed", "lost", "stopped, next unknown", "no end", "unknown before", "not loaded"])
def test_it_says_how_the_last_one_ended_and_how_the_next_goes_on(
    before: Attempt | None, after: Attempt | None, line: str
) -> None:
    assert said(before, after) == line


@each("summary", ["\x1b[2J\x1b]52;c;eA==\x07", "a\nb\r\nc", "x" * 10_000_000, "\udcff\x9b31m"],
                         ids=["escapes", "line ends", "10 MB", "no text"])
def test_a_hostile_cause_stays_on_one_short_printable_line(summary: str) -> None:
    line = said(replace(FIRST, summary=summary), SECOND)
    assert line.isprintable() and len(line) < MOST_WHY_CHARS + 120


def test_a_program_finds_each_such_line_by_its_start_and_end() -> None:
    for line in (said(FIRST, SECOND), said(None, None), further_lines(1)):
        assert line.startswith(START) and line.endswith(END)
