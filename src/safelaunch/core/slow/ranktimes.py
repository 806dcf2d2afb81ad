"""What a step takes on each node, where the training prints that on every rank. One that computes for longer than the
others, and does not only wait for them, is a hint at the slow node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from safelaunch.core.logview.parts import PREFIX
from safelaunch.core.progress.figures import median, seconds_in
from safelaunch.core.progress.steplines import Patterns
from safelaunch.core.slow.fleet import LEAST_NODES

NAME = "step_time"   # of core.slow.condition
NEWEST = 7           # values of a rank: a drop is told after eight, and what steps took before it does not count


def node_times(text: bytes, patterns: Patterns, nodes: Collection[str]) -> dict[str, float]:
    """node → seconds of a step: its slowest rank's newest, in a piece of a log; {} where fewer than LEAST_NODES print.
    """
    named = {node.split(".")[0]: node for node in nodes}
    of_rank: dict[tuple[str, bytes], list[float]] = defaultdict(list)
    for line in text.split(b"\n"):
        prefix = PREFIX.match(line)
        node = named.get(prefix[2].decode(errors="replace").split(".")[0]) if prefix else None
        seconds = seconds_in(line, patterns.step_time) if node is not None else None
        if prefix is not None and node is not None and seconds is not None:
            of_rank[node, prefix[3]].append(seconds)
    found: dict[str, float] = {}
    for (node, _), times in of_rank.items():
        found[node] = max(found.get(node, 0.0), median(times[-NEWEST:]))
    return found if len(found) >= LEAST_NODES else {}
