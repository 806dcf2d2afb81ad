"""An error's whole message: what belongs to it, and which line of it states what happened."""

from __future__ import annotations

from safelaunch.why.read import messages
from tests.pure.why.judged import judge_text
from tests.tables import each


@each("first, below, count", (
    ("RuntimeError: From /job:0:", ("2 root error(s) found.", "  (0) INTERNAL: load failed", "0 operations."), 2),
    ("ValueError: bad", ("    expected 3", "    got 4", "next line"), 2),
    ("ValueError: bad", ("next line",), 0),
    ("ValueError: these are wrong:", ("- a", "- b", "done"), 2),
    ("ValueError: these are wrong:", ("Traceback (most recent call last):",), 0),
    ("ValueError: bad", ('  File "x.py", line 3, in f',), 0),
))
def test_a_message_goes_on_while_its_lines_do(first: str, below: tuple[str, ...], count: int) -> None:
    assert messages.rest(first, below) == tuple(line.strip() for line in below[:count])


def test_the_fact_is_not_the_sentence_that_explains() -> None:
    assert messages.fact_of(("This may usually be caused by a failed mount.", "Last error:", "open: access denied",
                             "status 3")) == "open: access denied"


def test_a_message_that_only_announces_is_judged_and_shown_by_what_stands_below() -> None:
    verdict = judge_text('Traceback (most recent call last):\n  File "/a/t.py", line 3, in f\n    run()\n'
                         "RuntimeError: the workers failed with:\n  (0) no space left on device, quota exceeded\n")
    assert verdict.category == "storage" and "no space left" in verdict.evidence[0], verdict
