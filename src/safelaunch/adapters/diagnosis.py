"""Why an attempt ended, as its own log says: the first cause, found on the node's local disk.

The rules are imported with this module, at the supervisor's start: 80 ms and 5 MB that no restart has to wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safelaunch.adapters import logfiles, logindex
from safelaunch.core.why import rulebook, verdictjson
from safelaunch.core.why.causes import judge_log
from safelaunch.core.why.findings import Evidence, Rule
from safelaunch.core.why.globalranks import Layout, to_global
from safelaunch.node.probe import run_in_child

DEADLINE_S = 3.0      # a log of 20 GB; most take 20 ms


def diagnose(log: Path, evidence: Evidence, index: Path | None = None, layout: Layout | None = None,
             more: Sequence[Path] = (), packs: tuple[Rule, ...] = ()) -> dict[str, Any] | None:
    """The verdict as `why --json` prints it, with `fingerprint`; None where it could not be had in time.

    In a child: whatever a log may hold, the supervisor is not slowed down by it and does not die of it. What `index`
    knows of the log is not read again; without it, what the pump has left of the log is read. `layout`: whose ranks are
    ranks of a node in it (core.globalranks); `more` are logs beside it, `packs` the rules of rule packs.
    """
    answer = run_in_child(lambda: _judge(log, evidence, index, layout, more, (*rulebook.RULES, *packs)), DEADLINE_S)
    return answer.value if answer.is_ok else None


def _judge(log: Path, evidence: Evidence, index: Path | None, layout: Layout | None,
           more: Sequence[Path], rules: tuple[Rule, ...]) -> dict[str, Any]:
    known = logindex.load(index) if index is not None else None
    if known is None or not logindex.is_of(known, log, rules):
        known = logindex.begin(log, rules)
    read = logfiles.read_logs([log, *more], rules, indexes={log: known}, workers=1)
    verdict = judge_log(to_global(read, *layout) if layout is not None else read, evidence)
    return {**verdictjson.to_public(verdict), "fingerprint": verdict.fingerprint}
