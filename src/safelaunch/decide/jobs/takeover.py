"""Whether the leader is dead, as the standby judges it: two witnesses, its own monotonic clock, never wall clocks.

The first witness is the connection: the leader pings each second, and each ping carries the heartbeat's counter. The
second is the heartbeat, read from the shared folder. A leader that does not hear its standby publishes one each second,
so that it is seen to live. Neither proves anything alone: a connection can be cut, and the folder can freeze for
minutes (an incident). A leader may pause for 5 s (a collector, a hypervisor), which both witnesses see at once; hence
TAKEOVER_S.

A missing heartbeat is a sign only where one was promised. A leader that hears all eligible standbys shows one every
15 s, and the heartbeat says so. A standby that the leader does not know (one that never connected, a former leader) has
no better promise: when it judged after 7 s, two supervisors took the run from each other in turn.

Only an eligible standby takes over, so that a leader knows who may lead in its place. A leader whose standby was still
starting when the folder froze ended its healthy attempt, as it could not know (seen in a drill). The heartbeat lists
the eligible standbys: one that is silent for long is removed there before the leader stops counting on it (simulated:
test_found "standby that was cut off for long leads beside nobody").
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from safelaunch.base.timing import CONTESTED_S, FRESH_S, HEARTBEAT_S, ORPHANED_S, SUSPICION_S, TAKEOVER_S
from safelaunch.run.heartbeat import Heartbeat

MIN_READS = 3       # answers of the folder within the silence, all with the same counter
ORPHANED_READS = 20


@dataclass(frozen=True)
class Signs:
    """What the standby knows of its leader; times are its own monotonic seconds."""

    heard_s: float                 # the last message of the leader over the connection, or the start of this standby
    count: int = 0                 # the heartbeat's counter, as the leader last said or the folder last showed
    moved_s: float = 0.0           # when that counter was last seen to be new
    reads: int = 0                 # answers of the folder since the connection fell silent
    read_s: float = -1e9           # when the folder answered last
    promise_s: float = HEARTBEAT_S   # a heartbeat is due each so many seconds, as far as this standby was told
    has_resigned: bool = False     # the leader's own heartbeat says that it is cut off, and its ranks are gone
    is_known: bool = False         # a supervisor on the leader's host has let this standby in


def begin(now_s: float, is_known: bool = False) -> Signs:
    """Signs at the start, and after this process itself was stopped: then only it was silent."""
    return Signs(heard_s=now_s, moved_s=now_s, is_known=is_known)


def receive(signs: Signs, now_s: float, count: int | None) -> Signs:
    """A message of the leader came over the connection. With the heartbeat's counter, this standby is eligible.

    A counter behind the heartbeat's comes from an old message that says nothing of now. None: a greeting, or a message
    of a leader that has not started, which lives, and may not know this standby.
    """
    if count is not None and count < signs.count:
        return signs
    return replace(signs, heard_s=now_s, moved_s=now_s, count=signs.count if count is None else count, reads=0,
                   has_resigned=False, promise_s=CONTESTED_S, is_known=signs.is_known or count is not None)


def read(signs: Signs, now_s: float, count: int, every_s: float = HEARTBEAT_S, has_resigned: bool = False,
         is_listed: bool = True) -> Signs:
    """The folder has shown the heartbeat, which promises another one each `every_s`.

    A new one that does not list this standby makes it ineligible until the leader is heard again.
    """
    if count > signs.count:
        return replace(signs, count=count, moved_s=now_s, reads=0, read_s=now_s, promise_s=every_s,
                       has_resigned=has_resigned, is_known=signs.is_known and is_listed)
    return replace(signs, reads=signs.reads + 1, read_s=now_s, has_resigned=has_resigned and count == signs.count)


def wait_for_heartbeat(signs: Signs, now_s: float) -> Signs:
    """Another supervisor has claimed the lead, and its first heartbeat is due. No word of the one before counts now."""
    return replace(signs, heard_s=now_s, moved_s=now_s, reads=0, promise_s=HEARTBEAT_S, has_resigned=False)


class HeartbeatOf(Enum):
    """Whose heartbeat a standby has read."""

    EARLIER = "an earlier leader's, delivered late"
    OWN_HOST = "this host's own supervisor's, which is gone: nobody leads here"
    OVER = "another job's, or this job's last one"
    OTHER = "another leader's: it took over, or was started elsewhere"
    LEADER = "the leader's that this standby follows"


def whose(pulse: Heartbeat, host: str, job: str, *, gen: int, leader: str, endpoint: tuple[str, int] | None
          ) -> HeartbeatOf:
    """Whose it is, for a standby on `host`; `gen`, `leader`, `endpoint`: of the one before; "" = of nobody yet."""
    if pulse.gen < gen:
        return HeartbeatOf.EARLIER
    if (pulse.host, pulse.job) == (host, job):
        return HeartbeatOf.OWN_HOST
    if pulse.job != job or pulse.over:
        return HeartbeatOf.OVER
    is_other = pulse.endpoint != endpoint or leader not in ("", pulse.host)
    return HeartbeatOf.OTHER if is_other else HeartbeatOf.LEADER


def is_suspicious(signs: Signs, now_s: float) -> bool:
    """Time to read the heartbeat."""
    return now_s - signs.heard_s > SUSPICION_S


def is_dead(signs: Signs, now_s: float) -> bool:
    """Both witnesses say so; or the leader itself has said that it is cut off, and leaves the run to this one."""
    if now_s - signs.heard_s <= SUSPICION_S or now_s - signs.read_s > FRESH_S:
        return False
    if signs.has_resigned:
        return True
    patience_s = TAKEOVER_S - CONTESTED_S + signs.promise_s
    is_silent = signs.is_known and now_s - signs.heard_s > TAKEOVER_S
    return is_silent and now_s - signs.moved_s > patience_s and signs.reads >= MIN_READS


def is_orphaned(signs: Signs, now_s: float) -> bool:
    """Nobody leads any more, and this standby may not: no message came and the heartbeat has not changed for minutes
    (simulated: test_found "job whose new leader dies before the old one is let in is ended").
    """
    still_s = now_s - max(signs.heard_s, signs.moved_s)
    return still_s > ORPHANED_S and signs.reads >= ORPHANED_READS and now_s - signs.read_s <= FRESH_S
