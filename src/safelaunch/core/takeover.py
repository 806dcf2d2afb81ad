"""Whether the leader is dead, as the standby judges it: two witnesses, its own monotonic clock, never wall clocks.

The first witness is the direct connection: the leader pings each second, and each ping carries the pulse's counter. The
second is the pulse itself, read from the shared folder: a leader that does not hear its standby any more publishes one
each second, so that one that was only cut off is seen to live. Either alone proves nothing: the connection does not see
a leader that was cut off, the folder can freeze for minutes (seeds). A leader may pause for 5 s (a collector, a
hypervisor), which both witnesses see at once; hence TAKEOVER_S.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

SUSPICION_S = 2.0   # of silence: from here on the pulse is read, and the leader publishes it, each second
TAKEOVER_S = 7.0    # above a pause of 5 s and a ping's second; below the lease, whose end the fence waits for anyway
READ_EVERY_S = 1.0
FRESH_S = 2.5       # a look at the pulse that is older says nothing about now
MIN_READS = 3       # answers of the folder within the silence, all with the same counter


@dataclass(frozen=True)
class Signs:
    """What the standby knows of its leader; times are its own monotonic seconds."""

    heard_s: float                 # the last word of the leader over the connection, or when this watch began
    count: int = 0                 # the pulse's counter, as the leader last said or the folder last showed
    moved_s: float = 0.0           # when that counter was last seen to be new
    reads: int = 0                 # answers of the folder since the connection fell silent
    read_s: float = -1e9           # when the folder answered last
    has_resigned: bool = False     # the leader's own pulse says that it is cut off, and its ranks are gone


def begin(now_s: float) -> Signs:
    """Signs at the start of a watch, and after this process itself has stood still: nothing was silent but it."""
    return Signs(heard_s=now_s, moved_s=now_s)


def hear(signs: Signs, now_s: float, count: int | None) -> Signs:
    """The leader has spoken over the connection, if need be with its counter."""
    new = signs.count if count is None else max(signs.count, count)
    return replace(signs, heard_s=now_s, moved_s=now_s, count=new, reads=0, has_resigned=False)


def read(signs: Signs, now_s: float, count: int, has_resigned: bool = False) -> Signs:
    """The folder has shown the pulse."""
    if count > signs.count:
        return replace(signs, count=count, moved_s=now_s, reads=0, read_s=now_s, has_resigned=has_resigned)
    return replace(signs, reads=signs.reads + 1, read_s=now_s, has_resigned=has_resigned and count == signs.count)


def is_suspicious(signs: Signs, now_s: float) -> bool:
    """Time to look at the pulse."""
    return now_s - signs.heard_s > SUSPICION_S


def is_dead(signs: Signs, now_s: float) -> bool:
    """Both witnesses say so; or the leader itself has said that it is cut off, and leaves the run to this one."""
    if now_s - signs.heard_s <= SUSPICION_S or now_s - signs.read_s > FRESH_S:
        return False
    if signs.has_resigned:
        return True
    is_silent = now_s - signs.heard_s > TAKEOVER_S
    return is_silent and now_s - signs.moved_s > TAKEOVER_S and signs.reads >= MIN_READS
