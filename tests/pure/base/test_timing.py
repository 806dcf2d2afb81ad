"""The times that hang on the lease stand to each other as fence, takeover and pulse need them."""

from __future__ import annotations

from safelaunch.base import timing as t
from safelaunch.decide.jobs.takeover import MIN_READS
from safelaunch.node.guard import fence, main, record
from tests.tables import each

# What must be less than what, and why.
LESS: tuple[tuple[str, float, float], ...] = (
    ("a guard is heard thrice within its lease, however many there are", 3 * t.MANY_PING_S, t.LEASE_S),
    ("few guards are asked no less often than many", t.PING_S, t.MANY_PING_S),
    ("a guard looks at the record before its lease is over", fence.LOOK_S, t.LEASE_S),
    ("the fence waits for a guard's last look at the record", fence.RECORD_CHECK_S + record.PROBE_DEADLINE_S,
     t.FENCE_MARGIN_S),
    ("the kernel's switch throws before the fence lets the next attempt start", main.SWITCH_MARGIN_S,
     t.FENCE_MARGIN_S),
    ("a ping is not withheld from a guard that answers each of them", t.PING_S, t.OWES_S),
    ("a silent node's lease runs before it is called lost", t.OWES_S + t.PING_S, t.SILENT_S),
    ("a lost node's lease is not over before it is called lost", t.LEASE_S - 0.001, t.SILENT_S),
    ("guards have called a new leader before it gives its predecessor's host up", t.CALL_S, t.OLD_HOST_S),
    ("the old host is given up before its lease is over", t.OLD_HOST_S, t.LEASE_S),
    ("a standby hears its leader before it doubts", 1.0 + t.STANDBY_PING_S, t.SUSPICION_S),
    ("a leader that waits for the folder is not doubted", t.PATIENT_S, t.SUSPICION_S),
    ("a contested leader's pulse is fresh at each look", t.CONTESTED_S, t.FRESH_S),
    ("two looks at the pulse stand within what counts as fresh", t.READ_EVERY_S, t.FRESH_S),
    ("a leader may pause, and miss a ping", t.PAUSE_S + t.PING_S, t.TAKEOVER_S),
    ("the doubting standby has its looks at the pulse", t.SUSPICION_S + MIN_READS * t.READ_EVERY_S, t.TAKEOVER_S),
    ("the standby takes over while the lease runs, which the fence waits for anyway", t.TAKEOVER_S, t.LEASE_S),
    ("a claim to launch is not used once a standby may lead", t.CLAIM_HOLDS_S, t.TAKEOVER_S),
    ("a standby has taken over, or never will, before it is struck off", t.TAKEOVER_S + t.HEARTBEAT_S, t.CALM_AFTER_S),
    ("one that is struck off has read so before that counts", t.TAKEOVER_S, t.SETTLE_S),
    ("several pulses are missing before `status` calls one old", 3 * t.HEARTBEAT_S, t.STALE_S),
    ("a takeover is over before guards think that nobody leads",
     t.TAKEOVER_S + t.HEARTBEAT_S + t.LEASE_S + t.FENCE_MARGIN_S, fence.ORPHAN_S),
    ("guards end an orphan before a standby that nobody has let in does", fence.ORPHAN_S, t.ORPHANED_S),
)


@each(("smaller_s", "larger_s"), [row[1:] for row in LESS], ids=[row[0] for row in LESS])
def test_times_stand_to_each_other_as_they_must(smaller_s: float, larger_s: float) -> None:
    assert smaller_s < larger_s


def test_many_guards_are_pinged_less_often() -> None:
    assert t.ping_every_s(t.MANY_GUARDS) == t.PING_S
    assert t.ping_every_s(t.MANY_GUARDS + 1) == t.MANY_PING_S
