"""The words for ends: one table each, as journals and --json have them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from safelaunch.base.endings import JOB_ENDS, RUN_ENDED, AttemptEnd, JobEnd, JobEndRow, RunEnd
from safelaunch.run.fold.folding import _STEPS
from safelaunch.why.categories import TABLE
from tests.tables import each

ROOT = Path(__file__).parents[3]


@each(("end", "row"), JOB_ENDS.items(), ids=JOB_ENDS)
def test_every_reason_of_slurms_is_told_and_judged(end: str, row: JobEndRow) -> None:
    assert row.told and row.summary and row.category in TABLE and 0 < row.confidence <= 1


def test_no_end_is_without_its_words() -> None:
    assert set(JOB_ENDS) == set(JobEnd) and set(RUN_ENDED) == set(RunEnd)
    assert set(RunEnd) <= set(_STEPS), "the end of a run is an event"


def test_attempts_ends_are_documented() -> None:
    text = (ROOT / "docs" / "protocol.md").read_text()
    row = re.search(r"^\| `attempt_ended` \|[^|]*\| ([^;]*);", text, re.MULTILINE)
    assert row is not None and set(re.split(", | or ", row[1])) == set(AttemptEnd)


@each("end", [*AttemptEnd, *RunEnd, *JobEnd])
def test_an_end_is_its_word_wherever_it_is_written(end: AttemptEnd | RunEnd | JobEnd) -> None:
    word = end.value
    assert end == word and f"{end}" == str(end) == word and json.loads(json.dumps({end: end})) == {word: word}
    assert {end: 1}[word] == 1
