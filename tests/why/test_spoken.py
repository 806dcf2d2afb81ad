"""Last words of many programs, written apart from the rules (spoken.jsonl): never wrong and sure, mostly right.

`categories` are all that a reader of these words alone could accept.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safelaunch.why.io.logfiles import read_logs
from safelaunch.why.judge.engine import judge_log
from safelaunch.why.rulebook import RULES
from safelaunch.why.verdict import Verdict
from tests.pure.why.judged import COMPILED
from tests.tables import each

LINES = (Path(__file__).parent / "spoken.jsonl").read_text().splitlines()
SPOKEN: list[dict[str, Any]] = [json.loads(line) for line in LINES]
LEAST_RIGHT = 0.9


def explain(folder: Path, text: str) -> Verdict:
    log = folder / "train.log"
    log.write_text(f"loading model\nepoch 0\n{text}\n")
    return judge_log(read_logs([log], RULES, compiled=COMPILED))


@each("one", SPOKEN, called=lambda one: one["text"].strip().splitlines()[-1])
def test_last_words_are_never_misread_with_confidence(tmp_path: Path, one: dict[str, Any]) -> None:
    said = explain(tmp_path, one["text"])
    assert said.category in one["categories"] or round(said.confidence, 2) < 0.8, said
    assert said.category != "none" or "none" in one["categories"], said


def test_nine_of_ten_are_read_right(tmp_path: Path) -> None:
    sample = SPOKEN[::3]   # each is read above as well, by whichever worker
    misread = [one["text"] for one in sample if explain(tmp_path, one["text"]).category not in one["categories"]]
    assert len(misread) <= (1 - LEAST_RIGHT) * len(sample), misread
