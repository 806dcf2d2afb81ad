"""A script that submits itself: how its attempt has ended, what the next one is, and when a chain is over."""

from __future__ import annotations

from typing import Any

from safelaunch.base.endings import AttemptEnd
from safelaunch.decide.jobs import links
from safelaunch.run.fold.state import Attempt, State
from tests.tables import each

ANY, OK, NOT_OK = ({"id": str(number), "kind": "sbatch", "when": when, "args": [when]}
                   for number, when in enumerate(("any", "ok", "notok")))
REQUEUE = {"id": "8", "kind": "requeue", "when": "any"}
CANCEL = {"id": "", "kind": "cancel", "when": "cancel"}
COMPLETED, LINKED, FAILED = AttemptEnd.COMPLETED, AttemptEnd.LINKED, AttemptEnd.FAILED
LOST, INTERRUPTED, STOPPED = AttemptEnd.LOST, AttemptEnd.INTERRUPTED, AttemptEnd.STOPPED


@each(("asked", "how", "is_limit", "then", "link"), [
    ([], COMPLETED, False, COMPLETED, None),
    ([ANY], COMPLETED, False, LINKED, ANY),
    ([OK], COMPLETED, False, LINKED, OK),
    ([NOT_OK], COMPLETED, False, COMPLETED, None),
    ([OK, NOT_OK], FAILED, False, FAILED, NOT_OK),   # a failure stays one: the link is its restart
    ([ANY], FAILED, False, FAILED, ANY),
    ([OK], FAILED, False, FAILED, None),
    ([REQUEUE], FAILED, False, LINKED, REQUEUE),
    ([REQUEUE], COMPLETED, False, LINKED, REQUEUE),
    ([ANY], INTERRUPTED, True, INTERRUPTED, ANY),
    ([OK], INTERRUPTED, True, INTERRUPTED, None),
    ([ANY], INTERRUPTED, False, INTERRUPTED, None),   # a supervisor that was lost is no end of a job
    ([ANY], LOST, False, LOST, None),
    ([ANY], STOPPED, False, STOPPED, None),
    ([CANCEL], FAILED, False, STOPPED, CANCEL),
    ([ANY, CANCEL], FAILED, False, LINKED, ANY),
    ([OK, CANCEL], COMPLETED, False, STOPPED, CANCEL),
])
def test_a_link_starts_after_the_end_that_its_dependency_names(
        asked: list[dict[str, Any]], how: AttemptEnd, is_limit: bool, then: AttemptEnd, link: dict[str, Any] | None
) -> None:
    assert links.take(asked, how, is_limit) == (then, link)


def chain(*rows: tuple[str, dict[str, Any] | None, int | None], lived_s: float = 9.0) -> State:
    """A run whose attempts have ended so: the word, the link that follows, the last step."""
    return State(attempts=tuple(
        Attempt(number, "1", ("n0",), number * 1e3, ended=how, ended_t=number * 1e3 + lived_s, link=link, step=step)
        for number, (how, link, step) in enumerate(rows, 1)))


def arguments(*words: str, **more: Any) -> dict[str, Any]:
    return {"kind": "sbatch", "when": "any", "args": list(words), **more}


@each(("rows", "count"), [
    ([], 0),
    ([(FAILED, None, 5)], 1),
    ([(FAILED, None, 5), (INTERRUPTED, None, 9)], 2),
    ([(FAILED, None, 5), (LINKED, arguments("2"), 9)], 0),   # a new job has none (sbatch(1), SLURM_RESTART_COUNT)
    ([(INTERRUPTED, arguments("2"), 9), (FAILED, None, 12)], 1),
    ([(FAILED, arguments("2"), 9)], 1),
    ([(LINKED, REQUEUE, 9)], 1),
])
def test_restarts_are_counted_since_the_link_was_new(rows: list[Any], count: int) -> None:
    assert links.restarts_before(chain(*rows)) == count


def test_the_newest_link_stays_in_force_until_another_one() -> None:
    assert links.in_force(chain()) == {}
    state = chain((LINKED, arguments("2"), 9), (LINKED, REQUEUE, 12), (FAILED, None, 15))
    assert links.in_force(state)["args"] == ["2"]


@each(("rows", "lived_s", "is_over"), [
    ([(LINKED, arguments(), 10), (LINKED, arguments(), 20), (LINKED, arguments(), 30)], 9.0, False),
    ([(LINKED, arguments(), 10)] * 3, 9.0, False),   # the first has come far
    ([(LINKED, arguments(), 10)] * 4, 9.0, True),
    ([(LINKED, arguments(), None)] * 3, 9.0, True),
    ([(LINKED, arguments(), None)] * 3, 400.0, False),
    ([(LINKED, arguments(str(part)), None) for part in range(8)], 9.0, False),
    ([(LINKED, arguments(env={"PART": str(part)}), None) for part in range(8)], 9.0, False),
    ([(LINKED, arguments(str(part)), None) for part in range(100)], 9.0, True),
    ([(LINKED, arguments("2"), None), (LINKED, arguments("2"), None), (LINKED, arguments("2"), None)], 9.0, False),
    ([(LINKED, REQUEUE, None)] * 3, 9.0, True),
    ([(LINKED, arguments(), None)] * 2 + [(FAILED, None, None)], 9.0, False),   # the budgets of failures are others
])
def test_a_chain_that_comes_nowhere_is_over(rows: list[Any], lived_s: float, is_over: bool) -> None:
    assert (links.why_no_more(chain(*rows, lived_s=lived_s), 3) is not None) == is_over
