"""Why an attempt ended, as its own log says: the first cause, found on the node's local disk.

While a training runs, the rules and their judge are imported with this module, and `Ready` is made. So no start and no
restart waits for these 150 ms and 7 MB. A fork starts with all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safelaunch.base.io.probe import run_in_child
from safelaunch.why import rulebook
from safelaunch.why.findings import OutsideEvidence, Rule
from safelaunch.why.io import logfiles
from safelaunch.why.judge import engine
from safelaunch.why.read.globalranks import Layout, to_global
from safelaunch.why.read.scan import Compiled
from safelaunch.why.show import verdictjson

DEADLINE_S = 3.0      # a log of 20 GB; most take 10 ms
NO_NAMES: Mapping[str, str] = {}


class Ready(NamedTuple):
    """Rules, compiled for the search."""

    rules: tuple[Rule, ...]
    compiled: Compiled


def make_ready(packs: tuple[Rule, ...] = ()) -> Ready:
    """Our rules and those of rule packs, compiled."""
    rules = (*rulebook.RULES, *packs)
    compiled = Compiled(rules, logfiles.compile_rule)
    compiled.words.prepare()
    return Ready(rules, compiled)


def diagnose(log: Path, evidence: OutsideEvidence, layout: Layout | None = None, more: Sequence[Path] = (),
             ready: Ready | None = None, kept: Mapping[str, str] = NO_NAMES,
             beside: Callable[[], None] | None = None) -> dict[str, Any] | None:
    """The verdict as `why --json` prints it; None where there was no time for it.

    In a child: no log can slow the supervisor down or kill it. It also reads what the pump has left of the log.
    `layout`: whose ranks are ranks of a node in it (why.read.globalranks); `more` are logs beside it. `kept`: what the
    verdict calls these files, which nobody finds on another node. `beside`: as run_in_child has it.
    """
    answer = run_in_child(lambda: _judge(log, evidence, layout, more, ready or make_ready()), DEADLINE_S, beside)
    return _renamed(answer.value, kept) if answer.is_ok else None


def _judge(log: Path, evidence: OutsideEvidence, layout: Layout | None, more: Sequence[Path],
           ready: Ready) -> dict[str, Any]:
    read = logfiles.read_logs([log, *more], ready.rules, workers=1, compiled=ready.compiled)
    verdict = engine.judge_log(to_global(read, *layout) if layout is not None else read, evidence)
    return verdictjson.to_public(verdict)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """The same object with other names of files."""
    if isinstance(value, dict):
        return {key: names.get(one, one) if key == "file" else _renamed(one, names) for key, one in value.items()}
    return [_renamed(one, names) for one in value] if isinstance(value, list) else value
