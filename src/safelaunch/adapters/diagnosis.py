"""Why an attempt ended, as its own log says: the first cause, found on the node's local disk.

The rules are imported with this module, at the supervisor's start: 80 ms and 5 MB that no restart has to wait for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safelaunch.adapters import logfiles, logindex
from safelaunch.core import rulebook, whyjson
from safelaunch.core.causes import judge_log
from safelaunch.core.findings import Evidence
from safelaunch.node.probe import run_in_child

DEADLINE_S = 3.0      # a log of 20 GB; most take 20 ms


def diagnose(log: Path, evidence: Evidence, index: Path | None = None) -> dict[str, Any] | None:
    """The verdict as `why --json` prints it, with `fingerprint`; None where it could not be had in time.

    In a child: whatever a log may hold, the supervisor is not slowed down by it and does not die of it. What `index`
    knows of the log is not read again; without it, what the pump has left of the log is read.
    """
    answer = run_in_child(lambda: _judge(log, evidence, index), DEADLINE_S)
    return answer.value if answer.is_ok else None


def _judge(log: Path, evidence: Evidence, index: Path | None) -> dict[str, Any]:
    known = logindex.load(index) if index is not None else None
    if known is None or not logindex.is_of(known, log, rulebook.RULES):
        known = logindex.begin(log, rulebook.RULES)
    verdict = judge_log(logfiles.read_logs([log], rulebook.RULES, indexes={log: known}, workers=1), evidence)
    return {**whyjson.to_public(verdict), "fingerprint": verdict.fingerprint}
