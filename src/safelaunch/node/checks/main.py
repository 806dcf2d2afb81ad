"""Run the checks that a request asks for; one JSON line on stdout. Always exits with 0: the answer says what failed.

Each check runs in a disposable child with a deadline, all at once. What hangs costs its own deadline, and a child that
sleeps in D state is left behind. As a program: `python3 -I -S main.py '{"paths": ["/scratch"], "level": "light"}'`.
Standard library, Python 3.9.

The line: {"v": 1, "node", "host", "t", "took_s", "level", "checks": [{"name", "item", "outcome", "why", "facts",
"took_s"}], "notes": [text], "addresses": where other nodes reach this one}.
"""

from __future__ import annotations

import json
import os
import sys
import time

if __name__ == "__main__":   # under -I nothing else says where the package is
    sys.path.insert(0, os.path.abspath(__file__).rsplit("/", 4)[0])

from safelaunch.node import addresses, children, devices
from safelaunch.node.checks.answer import (
    FAILED,
    ISOLATE,
    OK,
    UNKNOWN,
    CheckRequest,
    failed,
    ok,
    print_answer,
    skipped,
    unknown,
)
from safelaunch.node.checks.table import CHECKS, HEAVY, LEFTOVERS, SOURCES, Check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

AT_ONCE = 48   # most of them wait


def read(fields: dict[str, Any]) -> CheckRequest:
    """The request; ValueError for one that makes no sense."""
    request = CheckRequest(fields)
    no_checks = set(request.skip) - {check.name for check in CHECKS} - {one["name"] for one in request.programs}
    if no_checks:
        raise ValueError("skip: no check of this name: %s" % ", ".join(sorted(no_checks)))
    return request


def look(request: CheckRequest, told: dict[str, Any]) -> None:
    """Add what the checks found to a node's answer."""
    told.update(level=request.level, addresses=addresses.own_addresses(), checks=run(request))


def run(request: CheckRequest) -> list[dict[str, Any]]:
    """All rows, at the latest at the request's deadline and a moment."""
    until_s = time.monotonic() + request.deadline_s
    wanted = [check for check in CHECKS if check.is_wanted(request)]
    items = {check.name: check.items(request) for check in wanted if check.items is not None}
    tasks = [_task(check, item, item, request) for check in wanted if not check.needs
             for item in items.get(check.name, [""])]
    programs = [one for one in request.programs if one["name"] not in request.skip and request.has_level(one["level"])]
    own = [children.Task(("plugin", one["name"]), [sys.executable, "-I", "-S", "-c", one["program"]],
                         one["deadline_s"]) for one in programs]
    heavy = [check for check in wanted if HEAVY.intersection(check.needs)]
    light = [check for check in wanted if check not in heavy]
    # Only where no process is on a GPU do heavy programs run: they would take a training's memory. On a GPU whose
    # processes nothing tells, those run that a person has asked for by name.
    asking = [*light, *([LEFTOVERS] if heavy and LEFTOVERS not in light else [])]
    outcomes = children.run_all([*_questions(asking, request), *tasks, *own], AT_ONCE, until_s)
    outcomes.update(_judge(asking, outcomes, request, until_s))
    idle = _outcome_in(outcomes[(LEFTOVERS.name, "")]) if heavy else OK
    free = [check for check in heavy if idle == OK or (idle != FAILED and check.level == ISOLATE)]
    outcomes.update(children.run_all([task for task in _questions(free, request) if task.name in HEAVY], 1, until_s))
    outcomes.update(_judge(heavy, outcomes, request, until_s))
    rows = [row for check in wanted
            for row in _rows(check, items.get(check.name, [""]), outcomes, request.deadline_s)]
    return rows + [_plugin_row(one, outcomes[("plugin", one["name"])], request.deadline_s) for one in programs]


def _judge(checks: list[Check], heard: Mapping[Any, children.Outcome], request: CheckRequest,
           until_s: float) -> dict[Any, children.Outcome]:
    """What the programs have said, read in children. It takes milliseconds: programs that took all the time must not
    leave their words unread.
    """
    tasks = [_task(check, "", {name: heard[name] for name in check.needs if name in heard}, request)
             for check in checks if check.needs]
    return children.run_all(tasks, AT_ONCE, max(until_s, time.monotonic() + 2.0))


def _outcome_in(outcome: children.Outcome) -> str:
    try:
        return str(json.loads(outcome.text)["outcome"])
    except (ValueError, KeyError, TypeError):
        return UNKNOWN


def _questions(wanted: list[Check], request: CheckRequest) -> list[children.Task]:
    """Each program once that a check needs."""
    needed = {name for check in wanted for name in check.needs}
    system = dict(os.environ, PATH=devices.SYSTEM_PATH + ":" + os.environ.get("PATH", ""))
    own = dict(os.environ)   # the training's Python is the one that its own PATH finds
    return [children.Task(one.name, one.words(request), one.deadline_s, own if one.is_by_python else system)
            for one in SOURCES if one.name in needed]


def _task(check: Check, item: str, given: Any, request: CheckRequest) -> children.Task:
    return children.Task((check.name, item), lambda: _answer(check, item, given, request), check.deadline_s)


def _answer(check: Check, item: str, given: Any, request: CheckRequest) -> bytes:
    """Runs in a child."""
    start_s = time.monotonic()
    try:
        told = check.function(request, given)
    except OSError as error:
        # Of a path that was given: missing, read-only, full, not ours. Of the system's own files: cannot be told.
        told = failed(str(error.strerror or error)) if item else unknown(
            "%s%s" % (error.strerror or error, ": %s" % error.filename if error.filename else ""))
    return json.dumps({**told, "took_s": round(time.monotonic() - start_s, 3)}).encode()


def _rows(check: Check, items: list[str], outcomes: Mapping[Any, children.Outcome],
          most_s: float) -> list[dict[str, Any]]:
    if not items:
        return [{"name": check.name, "item": "", "took_s": 0.0, **skipped(check.none)}]
    return [_row(check, item, outcomes[(check.name, item)], most_s) for item in items]


def _row(check: Check, item: str, outcome: children.Outcome, most_s: float) -> dict[str, Any]:
    row: dict[str, Any] = {"name": check.name, "item": item, "took_s": 0.0}
    if outcome.late:
        return {**row, **_late(outcome, min(check.deadline_s, most_s))}
    try:
        told = json.loads(outcome.text)
    except ValueError:
        return {**row, **unknown("the check itself failed: %s" % (outcome.said or "it was killed"))}
    return {**row, **told}


def _plugin_row(one: Mapping[str, Any], outcome: children.Outcome, most_s: float) -> dict[str, Any]:
    """A plugin's answer is the last line that its program prints, such as "failed: no licence server"."""
    row: dict[str, Any] = {"name": one["name"], "item": "", "took_s": 0.0}
    if outcome.late:
        return {**row, **_late(outcome, min(one["deadline_s"], most_s))}
    word, _, why = (outcome.text.strip().splitlines() or [""])[-1].partition(":")
    answer = {"ok": ok, "failed": failed, "skipped": skipped, "unknown": unknown}.get(word.strip())
    if outcome.code == 0 and answer is not None:
        return {**row, **answer(why.strip())}
    said = outcome.err.decode(errors="replace").strip().splitlines()
    return {**row, **unknown("the plugin itself failed, exit code %s: %s" % (
        outcome.code, said[-1] if said else "its last line is no answer"))}


def _late(outcome: children.Outcome, given_s: float) -> dict[str, Any]:
    """No answer: of what had its time it is a failure."""
    if outcome.had_no_time:
        return unknown("no time was left for it")
    return {**failed("no answer within %g s" % given_s), "took_s": given_s}


def main(text: str) -> int:
    """Print the answer to a request, a JSON object; 0, whatever happened."""
    return print_answer(text, "", read, look)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "{}")
    os._exit(0)   # not the interpreter's own end: it would wait for what is left
