"""Whether a standby may take its leader for dead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from safelaunch.base.timing import CALM_AFTER_S, CONTESTED_S, HEARTBEAT_S, ORPHANED_S, READ_EVERY_S, TAKEOVER_S
from safelaunch.decide.jobs.takeover import (
    HeartbeatOf,
    Signs,
    begin,
    is_dead,
    is_orphaned,
    read,
    receive,
    wait_for_heartbeat,
    whose,
)
from safelaunch.run.heartbeat import Heartbeat
from tests.tables import each


def watch(signs: Signs, from_s: float, to_s: float, count: int = 5, every_s: float = HEARTBEAT_S) -> float | None:
    """When a watcher that reads the same pulse each second from `from_s` on says dead; None = never."""
    now_s = from_s
    while now_s < to_s:
        signs = read(signs, now_s, count, every_s)
        if is_dead(signs, now_s):
            return now_s - from_s
        now_s += READ_EVERY_S
    return None


def test_leader_that_was_heard_and_shows_no_pulse_is_dead_within_eight_seconds() -> None:
    after_s = watch(receive(begin(0.0), 100.0, 5), 100.0, 200.0)
    assert after_s is not None and TAKEOVER_S < after_s <= TAKEOVER_S + 1.0


def test_watcher_that_has_heard_nothing_yet_waits_for_a_pulse_that_comes_each_15_s() -> None:
    """Demoted leaders and standbys that never got through took over from a living leader (simulation, two writers)."""
    after_s = watch(begin(100.0, is_known=True), 100.0, 200.0)
    assert after_s is not None and after_s > HEARTBEAT_S + TAKEOVER_S - CONTESTED_S


def test_a_supervisor_that_has_claimed_the_lead_has_the_time_of_a_first_pulse_and_no_more() -> None:
    silent = wait_for_heartbeat(read(receive(begin(0.0), 92.0, 4), 95.0, 5, has_resigned=True), 100.0)
    after_s = watch(silent, 100.0, 200.0)
    assert after_s is not None and 0 < after_s - (HEARTBEAT_S + TAKEOVER_S - CONTESTED_S) <= READ_EVERY_S


def test_watcher_that_no_leader_has_let_in_never_takes_over() -> None:
    """So a leader whose standby is still on its way knows that nobody can lead in its stead."""
    assert watch(begin(100.0), 100.0, 1000.0) is None
    assert is_dead(read(begin(0.0), 3.0, 6, has_resigned=True), 3.0), "unless the leader itself asks for it"


def test_watcher_has_the_patience_that_the_last_pulse_asked_for() -> None:
    calm = read(receive(begin(0.0), 100.0, 5), 101.0, 6, every_s=HEARTBEAT_S)
    after_s = watch(calm, 102.0, 200.0, count=6)
    assert after_s is not None and after_s > HEARTBEAT_S
    contested = read(receive(begin(0.0), 100.0, 5), 101.0, 6, every_s=CONTESTED_S)
    after_s = watch(contested, 102.0, 200.0, count=6)
    assert after_s is not None and after_s <= TAKEOVER_S


def test_old_pulse_changes_no_patience() -> None:
    heard = receive(begin(0.0), 100.0, 9)
    assert read(heard, 101.0, 9, every_s=HEARTBEAT_S).promise_s == CONTESTED_S


@pytest.mark.parametrize("signs", [
    pytest.param(receive(begin(0.0), 100.0, 5), id="the folder does not answer: one witness alone"),
    pytest.param(read(read(receive(begin(0.0), 100.0, 5), 101.0, 5), 102.0, 5), id="the folder has fallen silent, too"),
])
def test_silent_line_alone_proves_nothing(signs: Signs) -> None:
    assert not is_dead(signs, 100.0 + CALM_AFTER_S)


def test_pause_of_five_seconds_is_no_death() -> None:
    signs = receive(begin(0.0), 100.0, 5)
    for now_s in (102.1, 103.1, 104.1, 105.1):
        signs = read(signs, now_s, 5)
        assert not is_dead(signs, now_s)


def test_watcher_that_a_new_pulse_lists_no_more_never_takes_over_until_it_is_heard_again() -> None:
    struck_off = read(receive(begin(0.0), 100.0, 5), 165.0, 6, CONTESTED_S, is_listed=False)
    assert watch(struck_off, 166.0, 1000.0, count=6) is None
    assert watch(receive(struck_off, 1000.0, 7), 1000.0, 1100.0, count=7) is not None


def test_ping_that_a_mended_cable_brings_late_lets_nobody_in_again() -> None:
    """A leader that had struck its standby off was sure of itself while that one led."""
    struck_off = read(receive(begin(0.0), 100.0, 5), 165.0, 6, CONTESTED_S, is_listed=False)
    assert receive(struck_off, 170.0, 5) == struck_off


def test_leader_that_is_being_born_lives_and_lets_nobody_in() -> None:
    struck_off = read(receive(begin(0.0), 100.0, 5), 165.0, 6, CONTESTED_S, is_listed=False)
    greeted = receive(struck_off, 170.0, None)
    assert (greeted.heard_s, greeted.is_known) == (170.0, False)
    assert receive(receive(begin(0.0), 100.0, 5), 170.0, None).is_known


def test_pulse_from_before_the_greeting_strikes_nobody_off() -> None:
    assert read(receive(begin(0.0), 100.0, 5), 103.0, 5, is_listed=False).is_known


def orphaned_after_s(signs: Signs, counts: Callable[[float], int]) -> float | None:
    """When a watcher that reads the pulse each second says that nobody leads; None = not within 1,000 s."""
    for second in range(1000):
        signs = read(signs, float(second), counts(second))
        if is_orphaned(signs, float(second)):
            return float(second)
    return None


def test_watcher_that_nobody_has_let_in_calls_the_job_orphaned_after_minutes_of_silence() -> None:
    """Whoever had taken over from it died before he knew of it: the job kept its nodes until its limit."""
    assert orphaned_after_s(begin(0.0), lambda t: 5) == ORPHANED_S + 1.0


def test_pulse_that_moves_or_was_not_looked_at_makes_no_orphan() -> None:
    assert orphaned_after_s(begin(0.0), lambda t: 5 + int(t // 100)) is None
    assert not is_orphaned(begin(0.0), 1000.0)
    assert not is_orphaned(receive(read(begin(0.0), 999.0, 5), 1000.0, 5), 1000.0)


def test_leader_that_says_itself_that_it_is_cut_off_is_followed_at_once() -> None:
    assert is_dead(read(receive(begin(0.0), 100.0, 5), 103.0, 6, has_resigned=True), 103.0)


AT = ("n0", 4000)
SHOWN = Heartbeat(7, 3, "n0", "12", endpoint=AT)


@each(("pulse", "leader", "expected"), [
    (SHOWN, "n0", HeartbeatOf.LEADER),
    (SHOWN, "", HeartbeatOf.LEADER),
    (replace(SHOWN, gen=2), "n0", HeartbeatOf.EARLIER),
    (replace(SHOWN, gen=2, over=True), "n0", HeartbeatOf.EARLIER),
    (replace(SHOWN, host="n1"), "n0", HeartbeatOf.OWN_HOST),
    (replace(SHOWN, host="n1", over=True), "n0", HeartbeatOf.OWN_HOST),
    (replace(SHOWN, over=True), "n0", HeartbeatOf.OVER),
    (replace(SHOWN, job="13", host="n1"), "n0", HeartbeatOf.OVER),
    (replace(SHOWN, endpoint=("n0", 4001)), "n0", HeartbeatOf.OTHER),
    (replace(SHOWN, host="n2"), "n0", HeartbeatOf.OTHER),
], ids=["its leader's", "the first one", "an old one, delivered late", "... which said that all was over",
        "its own host's", "... the last one", "the last one", "the next job's, on this host", "its leader's anew",
        "another host's"])
def test_whose_pulse_a_standby_has_read(pulse: Heartbeat, leader: str, expected: HeartbeatOf) -> None:
    assert whose(pulse, "n1", "12", gen=3, leader=leader, endpoint=AT) is expected
