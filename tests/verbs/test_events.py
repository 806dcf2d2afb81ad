"""safelaunch events: every kind has its sentence, and nothing in a journal stops the reading."""

from __future__ import annotations

import json
import re
import threading
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import safelaunch
from safelaunch.base.model import Event
from safelaunch.cli import run
from safelaunch.verbs.common.eventwords import SENTENCES, describe
from safelaunch.verbs.logs.events import fold_line
from tests.effort import at_rest_s
from tests.handmade import Made, make_run
from tests.tables import each

SOURCES = Path(safelaunch.__file__).parent


@pytest.fixture
def bloom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return make_run(tmp_path / "bloom")


def test_every_kind_that_is_written_somewhere_has_a_sentence() -> None:
    written = {kind for path in SOURCES.rglob("*.py")
               for kind in re.findall(r"writer\.event\(\s*\"(\w+)\"", path.read_text())}
    assert written - SENTENCES.keys() == set()


@pytest.mark.parametrize(("kind", "data", "text"), [
    ("submitted", {"job": "12"}, "job 12 is submitted"),
    ("submitted", {"job": "13", "successor_of": "12", "exclude": ["n1", "n2"]},
     "job 13 is queued as the successor of job 12, without n[1-2]"),
    ("job_started", {"job": "12", "nodes": ["n0", "n1"], "batch_host": "n0"},
     "job 12 has started on n[0-1]; batch host n0"),
    ("attempt_started", {"attempt": 2, "nodes": ["n0"], "resume_step": 40, "why": "attempt 1 failed"},
     "attempt 2 starts on n0 from step 40: attempt 1 failed"),
    ("failure", {"attempt": 1, "exit_code": 9, "exits": ["a", "b", "c", "d", "e", "f"]},
     "attempt 1 failed, exit code 9: a, and 5 more"),
    ("failure", {"attempt": 1, "exit_code": 1, "exits": ["task 0 on n0: exit code 1"], "asked": "hung", "at_step": 82},
     "attempt 1 was ended at step 82: it hangs"),
    ("failure", {"attempt": 1, "exit_code": 1, "exits": ["a"], "asked": "task_failed"},
     "attempt 1 failed, exit code 1: a"),
    ("verdict", {"attempt": 1, "category": "user_code", "summary": "KeyError", "confidence": 0.5, "action": "none"},
     "verdict on attempt 1: user_code (50% sure): KeyError; to do: none"),
    ("hang_suspected", {"attempt": 1, "silent_s": 55.2, "phase": "step", "step": 14},
     "attempt 1 may hang: no step for 55 s, the last was step 14"),
    ("hang_suspected", {"attempt": 1, "silent_s": 55.2, "phase": "warm-up", "step": 4, "usual_s": 0.212},
     "attempt 1 may hang: no step for 55 s (usually 0.21 s), the last was step 4"),
    ("hang_suspected", {"attempt": 1, "silent_s": 3600.0, "phase": "start", "step": None},
     "attempt 1 may hang: no first step for 1 h"),
    ("outcome", {"claim": 3, "act": "queue_successor", "ok": None},
     "queue successor (claim 3): unknown whether it happened"),
    ("decision", {"row": "back_off", "why": "two failures"}, "decided (back off): two failures"),
    ("kill_switch", {"name": "kill", "who": "bob"}, "bob touched the kill switch (kill)"),
    ("preserved", {"until": "soon"}, "preserved: until=soon"),
    ("attempt_ended", {}, "attempt_ended: "),
    ("from_the_future", {"a": 1, "b": "x"}, "from_the_future: a=1, b=x"),
    ("decision", {"row": "launch", "why": "a\x1b[2Jb\nc"}, "decided (launch): a\\x1b[2Jb; c"),
])
def test_an_event_is_told_in_one_sentence(kind: str, data: dict[str, Any], text: str) -> None:
    assert describe(Event(0.0, 1, 1, "n0", kind, data)) == text


@each(("kind", "data"), product(sorted(SENTENCES), (
    {}, {"attempt": {}, "job": [], "nodes": 7, "exits": 3, "confidence": "x"},
    {"claim": 1, "act": None, "ok": "maybe", "until": "x", "nodes": ["["]})))
def test_odd_data_never_stop_the_reading(kind: str, data: dict[str, Any]) -> None:
    assert describe(Event(0.0, 1, 1, "n0", kind, data))


def test_events_are_shown_in_order_with_time_and_host(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.running()
    assert run(["events"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ", 1)[1] for line in lines] == [
        "login       job 12 is submitted", "n0          job 12 has started on n[0-3]; batch host n0",
        "n0          attempt 1 starts on n[0-3]"]
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d  ", lines[0])


def test_the_supervisors_own_lines_are_shown_with_all(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.running()
    bloom.event("intent", claim=4, act="queue_successor")
    assert run(["events"]) == 0
    assert "claim" not in capsys.readouterr().out
    assert run(["events", "--all"]) == 0
    assert "about to queue the next job (claim 4)" in capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 200])
def test_a_line_is_folded_to_the_terminals_width(width: int) -> None:
    told = fold_line(Event(0.0, 1, 1, "n0", "kill_switch", {"name": "kill", "who": "a name " * 30}), width)
    lines = told.splitlines()
    assert len(lines) > 1 and max(map(len, lines)) <= width
    assert all(line.startswith("    ") for line in lines[1:])


def test_json_is_the_journals_own_lines_in_order(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.running()
    assert run(["events", "--json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == ["submitted", "job_started", "attempt_started"]
    assert events[2]["v"] == 1 and events[2]["nodes"] == ["n0", "n1", "n2", "n3"]


def test_problems_of_the_journal_go_to_stderr(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.running()
    with (bloom.dir / "journal" / "000001-n0-1.jsonl").open("ab") as file:
        file.write(b"garbage\n\n")
    assert run(["events"]) == 0
    said = capsys.readouterr()
    assert "journal: 000001-n0-1.jsonl:3: not a journal line" in said.err and "garbage" not in said.out


def test_follow_shows_what_comes_and_ends_with_the_run(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.running()
    codes: list[int] = []
    follower = threading.Thread(target=lambda: codes.append(run(["events", "-f", str(bloom.dir)])))
    follower.start()
    time.sleep(0.2)
    bloom.event("standby_started", node="n1")
    bloom.completed()
    follower.join(60)
    out = capsys.readouterr().out
    assert codes == [0]
    assert out.count("job 12 is submitted") == 1 and out.count("a second supervisor stands by on n1") == 1
    assert out.splitlines()[-1].endswith("the run has completed: attempt 1 ended with exit code 0")


def test_ten_thousand_events_take_less_than_a_second(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.running()
    for number in range(10_000):
        bloom.event("progress", attempt=1, step=number)
    assert run(["events", "--all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 10_003
    assert at_rest_s(lambda: run(["events", "--all"]), 1.0) < 1.0
