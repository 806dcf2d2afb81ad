"""When a step counts as late: by the longest that its phase ever took, and never during one that is known as longer."""

from __future__ import annotations

from safelaunch.hangs import hang
from safelaunch.hangs.hang import Rhythm
from safelaunch.hangs.late import LATE_S, LATE_START_S, late_after_s, next_due
from safelaunch.trainlog.lines import Talk
from tests.pure.hangs.test_hang import FIRST_S, Gap, plain, train
from tests.tables import each


def restarted(gaps: list[Gap]) -> Rhythm:
    rhythm, now_s, _ = train(gaps)
    return hang.begin(now_s, FIRST_S, None, rhythm)


def saying(sign: str, gaps: list[Gap]) -> Rhythm:
    """The log has just said that."""
    rhythm, now_s, _ = train(gaps)
    return hang.update(rhythm, now_s, Talk(None, (sign,)))


def passed(gaps: list[Gap]) -> Rhythm:
    return train(gaps)[0]


EVALUATED = [*plain(20), *[(200.0, "evaluation"), *plain(5)] * 3]


@each(("rhythm", "after_s"), [
    (passed(plain(50, 0.2)), LATE_S),
    (passed(plain(50, 14.0)), LATE_S),
    (passed([*plain(20, 30.0), (36.0, ""), *plain(9, 30.0)]), 1.3 * 36),
    (passed([*plain(50, 0.2), (40.0, ""), *plain(50, 0.2)]), 1.3 * 40),
    (passed([*plain(50, 0.2), (900.0, ""), *plain(50, 0.2)]), hang.NOTICE_S),
    (passed(plain(2, 0.2)), LATE_START_S),
    (passed(plain(4, 5.0)), LATE_S),
    (saying("evaluation", plain(50)), hang.UNSEEN_S - hang.LAG_S),
    (saying("evaluation", EVALUATED), 1.3 * 200 - hang.LAG_S),
    (saying("checkpoint", [*plain(20), (90.0, "checkpoint"), *plain(5)]), 2 * 90.0),
    (restarted([(30.0, ""), *plain(20)]), LATE_START_S),
    (restarted([(200.0, ""), *plain(20)]), 2 * 200.0),
], ids=["short steps", "steps of 14 s", "long ones by the longest", "a long silence that passed raises it",
        "... up to the first hang check", "warming up", "warm", "a phase never seen", "one seen three times",
        "one seen once",
        "a start as short as the one before", "a long start"])
def test_a_step_is_late_when_its_phase_never_took_so_long(rhythm: Rhythm, after_s: float) -> None:
    assert abs(late_after_s(rhythm) - after_s) < 0.01


def test_nothing_is_late_where_nobody_knows_steps() -> None:
    assert next_due(hang.begin(0.0, FIRST_S, None)) is None, "a first start"
    unread = hang.update(hang.begin(0.0, FIRST_S, None), 5.0, Talk(None, ("evaluation",)))
    assert next_due(unread) is None, "a log that names none"


def test_a_check_that_finds_the_ranks_at_work_ends_the_alarm() -> None:
    rhythm, now_s, _ = train(plain(50, 0.2))
    looked = hang.postpone_check(rhythm, now_s + 60, "evaluation")
    assert late_after_s(rhythm) < 60 < late_after_s(looked)


def test_an_alarm_does_not_come_and_go_while_the_checks_find_no_reason() -> None:
    rhythm, now_s, _ = train(plain(50, 0.2))
    assert late_after_s(hang.postpone_check(rhythm, now_s + 60)) == late_after_s(rhythm)
