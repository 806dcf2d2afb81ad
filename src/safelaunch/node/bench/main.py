"""Measure how fast this node is; one JSON line on stdout. Always exits with 0: the answer says what failed.

One measurement after another, each in a disposable child with a deadline: what hangs costs its own deadline. As a
program: `python3 -I -S main.py '{"paths": ["/scratch"]}'`. Standard library, Python 3.9.

The line has the form of node/checks/main.py: its rows are measurements, their facts {"value", "unit", "device",
"samples"}. Beside them: "addresses", where other nodes reach this one (node/addresses.py).
"""

from __future__ import annotations

import json
import os
import sys
import time

if __name__ == "__main__":   # under -I nothing else says where the package is
    sys.path.insert(0, os.path.abspath(__file__).rsplit("/", 4)[0])

from safelaunch.node import addresses, children
from safelaunch.node.bench import work
from safelaunch.node.checks.answer import CheckRequest, failed, print_answer, unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NAMES = ("matmul", "gpu_memory", "memory", "disk_write", "disk_read")
EACH_S = {"torch": 90.0, "matmul": 60.0, "memory": 60.0, "disk": 60.0}   # PyTorch from a shared disk: a minute
REPEATS = 5
MOST_REPEATS = 100


class Bench:
    """The measurements of a request, until their common deadline; ValueError for a request that makes no sense."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.request = CheckRequest(fields)
        if unknown_names := set(self.request.skip) - set(NAMES):
            raise ValueError("skip: nothing that is measured: %s" % ", ".join(sorted(unknown_names)))
        self.repeats = fields.get("repeats", REPEATS)
        if isinstance(self.repeats, bool) or not isinstance(self.repeats, int) or not 1 <= self.repeats <= MOST_REPEATS:
            raise ValueError("repeats: not a whole number from 1 to %d" % MOST_REPEATS)
        self.until_s = time.monotonic() + self.request.deadline_s
        self.rows: list[dict[str, Any]] = []

    def run(self) -> list[dict[str, Any]]:
        """The rows of the answer."""
        if self._wants("matmul", "gpu_memory"):
            self._multiply()
        if self._wants("memory"):
            self._measure("memory", ("memory",), "", lambda: {"memory": work.copy_memory(self.repeats)})
        if self._wants("disk_write", "disk_read"):
            for path in self.request.paths:
                self._measure("disk", ("disk_write", "disk_read"), path,
                              lambda path=path: work.use_disk(path, self.repeats))   # type: ignore[misc]
        return self.rows

    def _wants(self, *names: str) -> bool:
        return not set(names) <= set(self.request.skip)

    def _multiply(self) -> None:
        python = self.request.python
        outcome, took_s = self._child("torch", [python or "python", "-c", work.TORCH, str(self.repeats)])
        if outcome.late and outcome.err == b"no time was left":
            told = dict.fromkeys(("matmul", "gpu_memory"), unknown("no time was left for it"))
        else:
            told = work.read_torch(outcome, python)
        self._add(("matmul", "gpu_memory"), "", told, took_s)
        if "matmul" not in told:
            self._measure("matmul", ("matmul",), "", lambda: {"matmul": work.multiply(self.repeats)})

    def _measure(self, task: str, names: tuple[str, ...], item: str,
                 function: Callable[[], dict[str, dict[str, Any]]]) -> None:
        outcome, took_s = self._child(task, lambda: _answer(function, names))
        if outcome.late:
            answer = unknown("no time was left for it") if outcome.err == b"no time was left" else failed(
                "no answer within %.0f s" % took_s)
            self._add(names, item, dict.fromkeys(names, answer), took_s)
            return
        try:
            told = json.loads(outcome.text)
        except ValueError:
            why = "the measurement itself failed: %s" % (outcome.said or "it was killed")
            told = dict.fromkeys(names, unknown(why))
        self._add(names, item, told, took_s)

    def _child(self, task: str, what: Any) -> tuple[children.Outcome, float]:
        start_s = time.monotonic()
        outcome = children.run_all([children.Task(task, what, EACH_S[task])], 1, self.until_s)[task]
        return outcome, time.monotonic() - start_s

    def _add(self, names: tuple[str, ...], item: str, told: dict[str, dict[str, Any]], took_s: float) -> None:
        self.rows += [{"name": name, "item": item, "took_s": round(took_s, 3), **told[name]}
                      for name in names if name in told and name not in self.request.skip]


def _answer(function: Callable[[], dict[str, dict[str, Any]]], names: tuple[str, ...]) -> bytes:
    """Runs in a child."""
    try:
        told = function()
    except OSError as error:
        told = dict.fromkeys(names, failed(str(error.strerror or error)))
    return json.dumps(told).encode()


def look(bench: Bench, told: dict[str, Any]) -> None:
    """Measure, and add it to a node's answer."""
    told.update(addresses=addresses.own_addresses(), checks=bench.rows)
    bench.run()


def main(text: str) -> int:
    """Print the answer to a request, a JSON object; 0, whatever happened."""
    return print_answer(text, "bench", Bench, look)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "{}")
    os._exit(0)   # not the interpreter's own end: it would wait for what is left
