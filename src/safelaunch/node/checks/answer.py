"""What is asked of a node, how one check answers (an outcome, a reason for people, plain facts), and the node's line.

Standard library, Python 3.9.
"""

from __future__ import annotations

import json
import os
import sys
import time

from safelaunch.node.host import short_host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Optional, TypeVar

    Request = TypeVar("Request")

OK, FAILED, SKIPPED, UNKNOWN = "ok", "failed", "skipped", "unknown"
LIGHT, FULL, ISOLATE = "light", "full", "isolate"
DEADLINE_S = {LIGHT: 60.0, FULL: 300.0, ISOLATE: 300.0}   # of all checks together
MOST_ITEMS = 64
MOST_WHY = 400
# Begins a program for the training's Python, which may have no PyTorch; the program imports json and sys before it.
IMPORT_TORCH = """try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    print(json.dumps({"torch": None}))
    sys.exit()
"""


def ok(why: str, **facts: Any) -> dict[str, Any]:
    """It was looked at, and is well."""
    return _answer(OK, why, facts)


def failed(why: str, **facts: Any) -> dict[str, Any]:
    """It was looked at, and is not well."""
    return _answer(FAILED, why, facts)


def skipped(why: str, **facts: Any) -> dict[str, Any]:
    """There is nothing to look at here, or nothing was asked."""
    return _answer(SKIPPED, why, facts)


def unknown(why: str, **facts: Any) -> dict[str, Any]:
    """It should have been looked at, and could not be."""
    return _answer(UNKNOWN, why, facts)


def _answer(outcome: str, why: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    return {"outcome": outcome, "why": why[:MOST_WHY], "facts": dict(facts)}


def print_answer(text: str, level: str, read: Callable[[dict[str, Any]], Request],
                 look: Callable[[Request, dict[str, Any]], None]) -> int:
    """Print the answer to a request, a JSON object; 0, whatever happened. `read` raises ValueError for a request that
    makes no sense; `look` adds to the answer, which keeps what a look that then fails has found.
    """
    start_s, host = time.monotonic(), short_host()
    told: dict[str, Any] = {"v": 1, "node": host, "host": host, "t": time.time(), "took_s": 0.0, "level": level,
                            "checks": [], "notes": []}
    try:
        words = json.loads(text)
        if not isinstance(words, dict):
            raise ValueError("not a JSON object")
        told["node"] = CheckRequest({"node": words.get("node")}).node
        request = read(words)
    except (ValueError, RecursionError) as error:
        told["notes"] = ["not a request: %s" % error]
    else:
        try:
            look(request, told)
        except Exception as error:  # noqa: BLE001 - a helper that fails takes its node's evidence with it
            told["notes"] = ["the look failed: %r" % (error,)]
    told["took_s"] = round(time.monotonic() - start_s, 3)
    sys.stdout.write(json.dumps(told, separators=(",", ":")) + "\n")
    sys.stdout.flush()
    return 0


class Meeting:
    """A port of one node, at an address, that all others are to reach. `listens`: the node's own check listens on it,
    else somebody else does.
    """

    def __init__(self, node: str, address: str, port: int, listens: bool) -> None:
        self.node, self.address, self.port, self.listens = node, address, port, listens


class CheckRequest:
    """What is asked of a node; raises ValueError with words for people for a request that makes no sense."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.node = _text(fields, "node") or os.environ.get("SLURMD_NODENAME") or short_host()
        self.level = _text(fields, "level") or LIGHT
        if self.level not in DEADLINE_S:
            raise ValueError("level: %r is none of light, full and isolate" % self.level[:40])
        self.paths = _texts(fields, "paths")        # to be read and written
        self.control = _text(fields, "control")     # the run's control folder
        self.names = _texts(fields, "names")        # host names to be resolved
        self.port = _number(fields, "port", 65535)  # to be free, such as MASTER_PORT
        self.meeting = _meeting(fields)             # where the ranks of all nodes are to meet
        self.gpus = _number(fields, "gpus", 4096)   # how many there should be
        self.gpu_model = _text(fields, "gpu_model")
        self.python = _text(fields, "python")       # the training's interpreter
        self.skip = _texts(fields, "skip")          # checks to leave out, by name
        self.programs = _programs(fields)           # of plugins: name, program, deadline_s, level
        self.deadline_s = float(_number(fields, "deadline_s", 86400) or DEADLINE_S[self.level])

    def has_level(self, level: str) -> bool:
        """Whether a look of this request's level includes checks of that one."""
        return level in (LIGHT, self.level)


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or "\0" in value or len(value) > 4096:
        raise ValueError("%s: not a text" % key)
    return value


def _texts(fields: Mapping[str, Any], key: str) -> list[str]:
    values = fields.get(key) or []
    if not isinstance(values, list) or len(values) > MOST_ITEMS:
        raise ValueError("%s: not a list of at most %d texts" % (key, MOST_ITEMS))
    return list(dict.fromkeys(_text({key: value}, key) for value in values))


def _programs(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    given = fields.get("programs") or []
    if not isinstance(given, list) or len(given) > MOST_ITEMS or not all(isinstance(one, dict) for one in given):
        raise ValueError("programs: not a list of at most %d objects" % MOST_ITEMS)
    return [{"name": _text(one, "name"), "level": _text(one, "level"), "deadline_s": float(one["deadline_s"]),
             "program": str(one["program"])} for one in given]


def _meeting(fields: Mapping[str, Any]) -> Optional[Meeting]:
    given = fields.get("meeting")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise ValueError("meeting: not an object")
    return Meeting(_text(given, "node"), _text(given, "address"), _number(given, "port", 65535) or 0,
                   given.get("listens") is True)


def _number(fields: Mapping[str, Any], key: str, most: int) -> Optional[int]:
    value = fields.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError("%s: not a whole number from 0 to %d" % (key, most))
    return value
