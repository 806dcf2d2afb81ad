"""Whose clock differs from those of most nodes for sure, however long their answers were on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# More than NTP leaves between nodes, and less than TLS and the times of checkpoints' files forgive.
MOST_APART_S = 2.0


class ClockBounds(NamedTuple):
    """A node's clock is ahead of the asker's by so many seconds, at least and at most."""

    least_s: float
    most_s: float


def bounds(node_t: float, took_s: float, asked_t: float, answered_t: float) -> ClockBounds | None:
    """What an answer tells: the node's clock read `node_t` when it began, after the question and `took_s` before the
    answer came. None = nothing, as where the asker's own clock was set meanwhile.
    """
    if not node_t or asked_t > answered_t - took_s:
        return None
    return ClockBounds(round(node_t - (answered_t - took_s), 3), round(node_t - asked_t, 3))


def compare(clocks: Mapping[str, ClockBounds]) -> tuple[dict[str, str], str | None]:
    """(node → how far it stands apart from most others for sure; what is said where there are no most others)."""
    wide = [(one.least_s - MOST_APART_S / 2, one.most_s + MOST_APART_S / 2) for one in clocks.values()]
    if not wide or max(least for least, _ in wide) <= min(most for _, most in wide):
        return {}, None
    # The most that can be alike share the place where one of them begins.
    if 2 * max(sum(least <= place <= most for least, most in wide) for place, _ in wide) <= len(wide):
        return {}, _tie(clocks)
    found = {}
    for node, one in clocks.items():
        ahead = [one.least_s - other.most_s for other in clocks.values() if one.least_s - other.most_s > MOST_APART_S]
        behind = [other.least_s - one.most_s for other in clocks.values() if other.least_s - one.most_s > MOST_APART_S]
        for apart_s, word in ((ahead, "ahead of"), (behind, "behind")):
            if 2 * len(apart_s) > len(clocks):
                found[node] = f"clock: at least {min(apart_s):.1f} s {word} {len(apart_s)} nodes"
    return found, None


def _tie(clocks: Mapping[str, ClockBounds]) -> str:
    last = max(clocks, key=lambda node: clocks[node].least_s)
    first = min(clocks, key=lambda node: clocks[node].most_s)
    apart_s = clocks[last].least_s - clocks[first].most_s
    return f"clocks: {last} is at least {apart_s:.1f} s ahead of {first}: which is right is unknown"
