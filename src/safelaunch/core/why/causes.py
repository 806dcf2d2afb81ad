"""A first, cautious verdict from exits, lost nodes and the log's last lines.

`judge` names what it can prove and says "unknown" otherwise: the leader needs it at once, and whatever the log holds.
`judging.judge` looks at all that a log says.
"""

from __future__ import annotations

import re

from safelaunch.core.model import Exit
from safelaunch.core.secretmask import mask
from safelaunch.core.why.verdict import Verdict

_PREFIX = re.compile(rb"^(?:\[[^\]\n]{1,80}\]:)+ ?")
_EXCEPTION = re.compile(rb"^(?:(?:[A-Za-z_]\w*\.)*[A-Z]\w*|(?:[A-Za-z_]\w*\.)+\w+)(?:: .*)?$")   # struct.error, too
# The launcher's report of a failed rank, and what ranks say when another one has gone: echoes, never the cause.
_ECHO = re.compile(rb"ChildFailedError|Connection (?:reset|closed) by peer|ProcessGroup|torch\.distributed\.elastic")


def judge(exits: tuple[Exit, ...], lost: tuple[tuple[str, str], ...], ending: str | None, tail: bytes,
          srun_code: int | None) -> Verdict:
    """The verdict on an attempt that did not complete; `exits` in the order in which they were reported."""
    if lost:
        names = tuple(node for node, _ in lost)
        return Verdict("node_failure", "; ".join(f"{node}: {why}" for node, why in lost), 0.9, "exclude_and_restart",
                       names[0], None, names, tuple(why for _, why in lost))
    if ending in ("time_limit", "preempted", "cancelled"):
        action = "none" if ending == "cancelled" else "requeue_only"
        return Verdict(ending, f"Slurm ended the job: {ending}", 1.0, action)
    first = next((exit for exit in exits if exit.code), None)
    node, task = (first.node, first.task) if first else (None, None)
    exception = last_exception(tail)
    if exception is not None and (first is None or first.signal is None):
        line, text = exception
        return Verdict("user_code", text, 0.5, "fix_user_code", node, task, evidence=(line,))
    if first is not None:
        return Verdict("unknown", first.text, 0.2, "restart", node, task, evidence=(first.text,))
    return Verdict("unknown", f"srun ended with exit code {srun_code}", 0.1, "restart")


def last_exception(tail: bytes) -> tuple[str, str] | None:
    """The log line of the last Python exception that is no echo, and its text; None = there is no traceback."""
    if b"Traceback (most recent call last)" not in tail:
        return None
    found = None
    inside: set[bytes] = set()   # prefixes: the lines of many ranks come mixed
    for raw in tail.splitlines():
        line = _PREFIX.sub(b"", raw)
        prefix = raw[:len(raw) - len(line)]
        if line.startswith(b"Traceback (most recent call last)"):
            inside.add(prefix)
        elif prefix in inside and line and not line[:1].isspace():
            if _EXCEPTION.match(line) and not _ECHO.search(line):
                text = mask(line.decode(errors="replace").strip())
                found = (mask(raw.decode(errors="replace").strip())[:400], text[:300])
            inside.discard(prefix)
    return found
