"""The lease, and every time that depends on it: pings, silences, takeover, margins, heartbeats.
tests/pure/base/test_timing.py has the relations between them and the node guard's own times (node/guard).
"""

from __future__ import annotations

# --- the lease ------------------------------------------------------------------------------------------------------

# A node guard that has heard nobody for so long, and finds its attempt's record moved on, ends its ranks.
LEASE_S = 10.0
FENCE_MARGIN_S = 5.0   # after it: a guard's look at the record (1 s), its deadline (2 s), and the kill

# --- the leader and its guards --------------------------------------------------------------------------------------

PING_S = 1.0        # a tenth of the lease
MANY_PING_S = 3.0   # a third of it, which keeps 64 guards within 0.3 % of a core
MANY_GUARDS = 32
OWES_S = 3.0        # a guard that was silent for so long, and owes an answer, gets no further ping: its lease runs
SILENT_S = 10.0     # a guard that misses ten pings in a row, while the log stands still, is lost
CLOSED_S = 2.0      # a guard that lost its connection is back within 1 s, or gone with its task
CALL_S = 5.0        # for guards to call a new leader; a dead host's lease runs for longer, and nobody waits for this
OLD_HOST_S = 6.0    # for those of the old leader's host: most likely dead, and then a helper step there takes 11 s
STALL_S = 3.0       # a leader that slept so much too long was stopped: above waits of 2 s for a folder that freezes

# --- the leader and its standby (decide.jobs.takeover) --------------------------------------------------------------

# The leader checks once a second, so a standby is pinged each 1.5 s at most. A full second here made 2.0 s of it
# (measured).
STANDBY_PING_S = 0.5
SUSPICION_S = 2.0     # of silence: from here on the heartbeat is read, and the leader publishes it, each second
PATIENT_S = 1.5       # for an answer of the folder that is worth a wait
TAKEOVER_S = 7.0      # above a leader's pause of 5 s (a collector, a hypervisor) and a ping's second
# (simulated: test_found "launch that slept starts nothing beside the attempt of whoever took over")
CLAIM_HOLDS_S = 5.0
PAUSE_S = 5.0         # the longest pause of a healthy leader (docs/simulation.md)

# --- the heartbeat ----------------------------------------------------------------------------------------------------

HEARTBEAT_S = 15.0    # between two heartbeats of a leader that hears everybody who may watch it
CONTESTED_S = 1.0     # ... and of one that does not
READ_EVERY_S = 1.0    # a doubting standby's looks at it
FRESH_S = 2.5         # a look at the heartbeat that is older says nothing about now
STALE_S = 60.0        # `status` calls a heartbeat of this age old
CALM_AFTER_S = 60.0   # a standby that is not heard any more gets a heartbeat each second for so long; then
SETTLE_S = 10.0       # ... the heartbeat no longer lists it; after so long it has read that, or has acted before

# --- nobody left ----------------------------------------------------------------------------------------------------

ORPHANED_S = 180.0    # above the patience of node guards, who do the same and may be gone


def ping_every_s(guards: int) -> float:
    """Seconds between two pings of each of so many guards."""
    return PING_S if guards <= MANY_GUARDS else MANY_PING_S
