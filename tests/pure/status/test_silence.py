"""Whether a run is silent, by the last pulse and the log beside it."""

from __future__ import annotations

from safelaunch.status.silence import SeenHeartbeat, judge, sentence
from tests.tables import each

TOLD = SeenHeartbeat(3.0, False, "n0", 1, 4, None, 1, 89, 1000.0, 1020.0, "step")
FIRST = TOLD._replace(step=None, late_t=1060.0, phase="")


def span(seconds: float) -> str:
    return f"{seconds:.0f} s"


@each(("told", "named", "grew_t", "now", "since_t"), [
    (TOLD, 89, 1000.0, 1019.0, None),
    (TOLD, 89, 1000.0, 1021.0, 1000.0),
    (TOLD, 89, 1015.0, 1021.0, 1000.0),
    (TOLD, 95, 1005.0, 1024.0, None),
    (TOLD, 95, 1005.0, 1026.0, 1005.0),
    (TOLD, 95, 900.0, 1026.0, 1000.0),
    (TOLD, None, None, 1026.0, 1000.0),
    (FIRST, None, None, 1061.0, 1000.0),
    (FIRST, 3, 1055.0, 1061.0, None),
    (TOLD._replace(step_t=None, late_t=None), 89, 1000.0, 9999.0, None),
], ids=["in time", "late", "words without a step are none", "a step behind the pulse", "late behind that one",
        "a file server's slow clock", "no log", "a late start", "a start that is over", "an older leader"])
def test_a_run_is_silent_from_the_moment_at_which_its_step_is_late(
        told: SeenHeartbeat, named: int | None, grew_t: float | None, now: float, since_t: float | None) -> None:
    found = judge(told, named, grew_t, 0.216, now)
    assert (None if found is None else found.since_t) == since_t


@each(("told", "said"), [
    (TOLD, "the last step, 89, was 120 s ago; usually one takes 216 ms"),
    (TOLD._replace(phase="checkpoint"),
     "the last step, 89, was 120 s ago; usually one takes 216 ms (phase: checkpoint)"),
    (FIRST, "no step for 120 s after its start, longer than the attempts before took"),
])
def test_it_is_told_in_one_sentence(told: SeenHeartbeat, said: str) -> None:
    found = judge(told, told.step, None, 0.216, 1120.0)
    assert found is not None and sentence(found, 1120.0, span) == said
