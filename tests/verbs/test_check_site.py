"""safelaunch check --site: every misbehaviour of a shared filesystem is told."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from safelaunch.cli import run
from safelaunch.site import sitefolder as judged
from safelaunch.site.io import sitefolder
from tests.sharedfs import SharedFs


def check(capsys: pytest.CaptureFixture[str], folder: Path, *more: str) -> tuple[int, dict[str, dict[str, Any]]]:
    code = run(["check", "--site", str(folder), "--json", *more])
    said = json.loads(capsys.readouterr().out)
    assert said["v"] == 1 and said["ok"] == (code == 0)
    return code, {row["check"]: row for row in said["rows"]}


def test_sound_folder_is_fit_and_nothing_is_left_in_it(
    capsys: pytest.CaptureFixture[str], shared_fs: SharedFs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judged, "SLOW_S", 60.0)   # a machine that stands still for a moment looks like a slow folder
    code, rows = check(capsys, shared_fs.path)
    assert code == 0, rows
    assert {row["verdict"] for name, row in rows.items() if name != "space"} == {"ok"}, rows
    assert list(shared_fs.path.iterdir()) == []


# Faults that two rows tell apart share a folder: a whole check takes 2 s of processor time.
@pytest.mark.parametrize(("faults", "told"), [
    ({"clock_s": -300.0, "statfs": {"f_files": 1000, "f_ffree": 10}}, {"clock": "caution", "space": "caution"}),
    ({"link_says_exists": True, "attributes_late_s": 30.0}, {"link": "ok"}),
    ({"errors": [{"calls": ["link"], "errno": "EPERM"}]}, {"link": "not safe", "write": "ok"}),
    ({"errors": [{"calls": ["fsync"], "errno": "EIO"}]}, {"write": "not safe"}),
    ({"errors": [{"calls": ["flush"], "errno": "EDQUOT"}]}, {"write": "not safe"}),
    ({"rename_is_not_atomic": True, "statfs": {"f_bavail": 0}}, {"rename": "not safe", "space": "not safe"}),
], ids=["clock, inodes", "lost-answers", "no-links", "fsync", "quota-at-close", "rename, full"])
def test_misbehaviour_is_told(
    capsys: pytest.CaptureFixture[str], shared_fs: SharedFs, faults: dict[str, Any], told: dict[str, str]
) -> None:
    shared_fs.set(**faults)
    _, rows = check(capsys, shared_fs.path)
    assert {row: rows[row]["verdict"] for row in told} == told, rows


def test_folder_that_hangs_is_unknown_within_its_deadline(
    capsys: pytest.CaptureFixture[str], shared_fs: SharedFs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sitefolder, "DEADLINE_S", 0.5)
    shared_fs.set(away=True)
    begun_s = time.monotonic()
    code, rows = check(capsys, shared_fs.path)
    assert time.monotonic() - begun_s < 60.0
    assert (code, rows["write"]["verdict"]) == (13, "unknown")


def test_missing_folder_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, rows = check(capsys, tmp_path / "missing")
    assert (code, rows["write"]["verdict"]) == (13, "not safe")


def test_a_person_reads_one_line_for_each_row_and_the_sum(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (place := tmp_path / "\x1b[2J\x9b5m").mkdir()
    assert run(["check", "--site", str(place)]) == 0
    told = capsys.readouterr().out
    assert told.splitlines()[-1] == fr"{tmp_path}/\x1b[2J\x9b5m: fit for run folders"
    assert "a claim has exactly one owner" in told


@pytest.mark.parametrize("words", [[], ["--site", "/tmp", "more"], ["--site", "/tmp", "--from", "ssh n1"]])
def test_words_that_make_no_sense_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", *words]) == 2
