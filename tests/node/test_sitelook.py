"""What a node says of itself to safelaunch doctor."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from safelaunch.node.children import Outcome
from safelaunch.node.site import sitelook
from tests.ports import free_ports
from tests.tables import each


@each(("outcome", "expected"), [
    (Outcome(b"", b"", 0, False), ("ok", False)), (Outcome(b"", b"", None, True), ("failed", False)),
    (Outcome(b"", b"", 127, False), ("failed", True)),
    (Outcome(b"", b"srun: error: no", 1, False), ("failed", False))])
def test_a_program_works_fails_or_is_missing(outcome: Outcome, expected: tuple[str, bool]) -> None:
    row = sitelook.judge(outcome)
    assert (row["outcome"], row["facts"]["missing"]) == expected and row["why"]


@pytest.mark.parametrize(("text", "outcome"), [("0\n", "ok"), ("1\n", "failed"), ("x", "unknown"), (None, "ok")])
def test_ptrace_scope_is_read(tmp_path: Path, text: str | None, outcome: str) -> None:
    if text is not None:
        (tmp_path / "scope").write_text(text)
    assert sitelook.read_ptrace(str(tmp_path / "scope"))["outcome"] == outcome


def test_the_first_folder_that_can_be_written_is_a_supervisors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SAFELAUNCH_LOCAL_DIR", raising=False)
    missing = str(tmp_path / "missing")
    assert sitelook.read_local((missing, str(tmp_path)))["why"] == str(tmp_path)
    assert sitelook.read_local((missing,))["outcome"] == "failed" and os.listdir(tmp_path) == []


def test_a_folder_that_the_user_names_is_the_only_one_that_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAFELAUNCH_LOCAL_DIR", str(tmp_path))
    assert sitelook.read_local(("/nonexistent",))["why"] == str(tmp_path)
    monkeypatch.setenv("SAFELAUNCH_LOCAL_DIR", str(tmp_path / "missing"))
    assert sitelook.read_local((str(tmp_path),))["outcome"] == "failed"


def ask(capsys: pytest.CaptureFixture[str], **words: Any) -> dict[str, Any]:
    assert sitelook.main(json.dumps(words)) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return said


def test_a_node_without_slurms_commands_says_so_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    said = ask(capsys, node="n1", job="12", options=["--partition=gpu"])
    assert said["node"] == "n1" and said["addresses"]
    assert {row["name"]: row["outcome"] for row in said["checks"]} == {
        "interpreter": "ok", "ptrace": said["checks"][1]["outcome"], "local": "ok",
        **dict.fromkeys(("scontrol", "squeue", "sbatch", "overlap"), "failed")}


def test_what_is_no_request_is_a_note_and_no_crash(capsys: pytest.CaptureFixture[str]) -> None:
    assert sitelook.main("[]") == 0 and sitelook.main("{") == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["notes"] and second["notes"]


def test_two_nodes_meet_by_an_address_and_one_that_is_alone_fails(capsys: pytest.CaptureFixture[str]) -> None:
    common = {"token": "t" * 32, "ports": free_ports(1), "addresses": ["127.0.0.1"], "deadline_s": 60}
    rows: list[dict[str, Any]] = []
    first = threading.Thread(target=lambda: rows.extend(sitelook.meet({**common, "node": "n0", "peer": "n1",
                                                                   "is_first": True})))
    first.start()
    rows.extend(sitelook.meet({**common, "node": "n1", "peer": "n0", "is_first": False}))
    first.join()
    assert sorted(row["outcome"] for row in rows) == ["ok", "skipped"]
    (alone,) = ask(capsys, **{**common, "node": "n1", "peer": "n0", "is_first": False, "deadline_s": 1})["checks"]
    assert alone["outcome"] == "failed" and alone["why"] == "n0 did not answer"
