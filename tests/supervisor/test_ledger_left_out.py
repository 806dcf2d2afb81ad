"""A ledger that is not judged in time, or cannot be read, is said, with what follows."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from safelaunch.base.io.probe import ChildAnswer, run_in_child
from safelaunch.nodehealth.io import ledger
from safelaunch.supervisor.state.suspicion import Suspicions


def boot(folder: Path, deadline_s: float) -> tuple[list[str], list[Any]]:
    """What a supervisor says as it recalls the ledger, and which evidence it has then."""
    said, evidence = list[str](), list[Any]()

    def ask(judge: Any, _: float) -> ChildAnswer[Any]:
        return run_in_child(judge, deadline_s)

    here: Any = SimpleNamespace(job=SimpleNamespace(cluster="c", is_local=False, env={}, nodes=("n0",)),
                                plan=SimpleNamespace(run_id="r1", suspects=SimpleNamespace(ledger=str(folder))))
    clock: Any = SimpleNamespace(now=time.time())
    journal: Any = SimpleNamespace(history=())
    files: Any = SimpleNamespace(ask_anyway=ask)
    nodes: Any = SimpleNamespace(recall=evidence.append, evidence=())
    say: Any = SimpleNamespace(decision=lambda row, text: said.append(f"{row}: {text}"))
    Suspicions(here, clock, journal, files, nodes).recall(say, None)
    return said, evidence


@pytest.fixture(autouse=True)
def _no_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Suspicions, "change_exclusions", lambda *parts: [])


def test_a_ledger_that_is_too_large_to_be_judged_in_time_is_said(tmp_path: Path) -> None:
    line = b'{"v":1,"used":"' + b"n[1-99]," * 30 + b'n1","t":1,"s":1,"run":"r","attempt":1}\n'
    for month in range(1, 13):
        (tmp_path / f"1-n0-2026-{month:02}.jsonl").write_bytes(line * (ledger.FILE_MAX_BYTES // len(line)))
    (said,), evidence = boot(tmp_path, 0.02)
    assert said.startswith(f"ledger_left_out: the ledger of suspects in {tmp_path} was not read and judged within 2 s")
    assert f"ls -lS '{tmp_path}'" in said and evidence == [()]


def test_one_that_cannot_be_read_is_said_and_one_that_can_or_is_not_there_yet_is_not(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (said,), _ = boot(tmp_path / "file", 2.0)
    assert "cannot be read: Not a directory" in said
    (tmp_path / "nodes").mkdir()
    assert boot(tmp_path / "nodes", 2.0)[0] == boot(tmp_path / "none", 2.0)[0] == []
