"""on_nan: previous_checkpoint: what is left out, what is gone back to, and when the run has gone back often enough."""

from __future__ import annotations

from typing import Any

from safelaunch.base.model import FAILED_FOR_GOOD, Event
from safelaunch.decide.budget import nanback
from safelaunch.decide.budget.budget import reason_to_give_up
from safelaunch.decide.facts.actions import Kill
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.run.nancut import NanCut, SavedAt, last_good_step
from tests.pure.decide.situations import ALIVE, PLAN, Said, action, seen
from tests.tables import each

BACK = PLAN._replace(on_nan="previous_checkpoint")


def lived(*attempts: dict[str, Any]) -> State:
    """Attempts that all ended: `nan`: at which step; `before`, `from`, and what their search has cut off."""
    said: Said = [("submitted", {"job": "11"}), ("job_started", {"job": "11", "nodes": ["n0", "n1"]})]
    for number, facts in enumerate(attempts, start=1):
        start = facts.get("from")
        said.append(("attempt_started", {"attempt": number, "job": "11", "nodes": ["n0", "n1"], "resume_step": start,
                                         "resume_path": None if start is None else f"/c/{start}"}))
        if "nan" in facts:
            said.append(("odd_figure", {"attempt": number, "kind": "nan", "step": facts["nan"], "value": "nan",
                                        "before": facts.get("before")}))
            said.append(("verdict", {"attempt": number, "category": "numerical", "confidence": 0.95}))
        said.append(("attempt_ended", {"attempt": number, "how": "failed"}))
        if "cut" in facts:
            said.append(("checkpoints_cut", {"attempt": number, "step": facts["nan"], "upto": facts["cut"],
                                             "checkpoints": [], "is_left": facts.get("left", True)}))
        if "checkpoint" in facts:
            said.append(("checkpoint", {"attempt": number, "step": facts["checkpoint"]}))
    return fold(Event(1000.0 + seq, 1, seq, "n0", event, data) for seq, (event, data) in enumerate(said))


@each(("step", "before", "start", "is_again", "upto"), [
    (100, 99, 80, False, 99),      # a log of each step
    (100, 90, 80, False, 90),      # of each tenth: what was saved at 95 may hold it
    (100, None, 80, False, 79),    # at once: the checkpoint itself is not trusted
    (100, 99, 80, True, 79),       # at the same step again: an older one
    (100, 99, None, True, 99),     # nothing was loaded
    (33, None, None, False, 0),    # a log so fast that no line before it was read
    (100, 120, None, False, 99),   # a count that fell
])
def test_up_to_which_step_a_checkpoint_may_be_used(
    step: int, before: int | None, start: int | None, is_again: bool, upto: int,
) -> None:
    assert last_good_step(step, before, start, is_again=is_again) == upto


def test_a_checkpoint_behind_the_last_finite_loss_is_left_out_until_it_is_written_again() -> None:
    state = lived({"nan": 100, "before": 90, "from": 40})
    cut = nanback.open_cut(state)
    assert cut == NanCut(1, 100, 90)
    found = [SavedAt(f"/c/{step}", step, 1000.0 + step) for step in (100, 95, 90, 80)] + [SavedAt("/c/last", None, 5.0)]
    cut = nanback.cut_off(cut, found)
    assert ([one.step for one in cut.taken], cut.is_left) == ([100, 95, None], True)
    data = {**cut._asdict(), "checkpoints": [list(one) for one in cut.taken]}
    event = Event(2000.0, 1, 90, "n0", "checkpoints_cut", data)
    after = fold([event], state)
    assert fold([event], after) == after and nanback.open_cut(after) is None
    assert [nanback.is_cut_off(after, one) for one in found] == [True, True, False, False, True]
    assert not nanback.is_cut_off(after, found[0]._replace(t=2222.0))
    assert nanback.is_cut_off(after, found[0]._replace(t=0.0)), "its time cannot be read now"
    assert not nanback.cut_off(NanCut(1, 100, 10), found).is_left


def test_a_checkpoint_whose_time_could_not_be_read_stays_left_out() -> None:
    state = lived({"nan": 100, "before": 90, "from": 40})
    cut = nanback.cut_off(NanCut(1, 100, 90), [SavedAt("/c/95", 95, 0.0)])
    data = {**cut._asdict(), "checkpoints": [list(one) for one in cut.taken]}
    after = fold([Event(2000.0, 1, 90, "n0", "checkpoints_cut", data)], state)
    assert nanback.is_cut_off(after, SavedAt("/c/95", 95, 1095.0))
    assert not nanback.is_cut_off(after, SavedAt("/c/90", 90, 1090.0))


def test_nothing_is_cut_off_while_the_attempt_lives_or_where_its_loss_was_a_number() -> None:
    assert nanback.open_cut(lived({"from": 40})) is None
    assert nanback.open_cut(State()) is None
    living = fold(Event(1.0 + seq, 1, seq, "n0", event, data) for seq, (event, data) in enumerate([
        ("attempt_started", {"attempt": 1, "job": "11", "nodes": []}),
        ("odd_figure", {"attempt": 1, "kind": "nan", "step": 7, "value": "nan"})]))
    assert nanback.open_cut(living) is None


FIRST = {"nan": 100, "before": 99, "from": 40, "cut": 99}
SECOND = {"nan": 100, "before": 99, "from": 80, "cut": 79}


@each(("name", "state", "told"), [
    ("it is the first one", lived(FIRST), None),
    ("its search has no answer yet", lived({"nan": 100, "before": 99, "from": 40}), None),
    ("the same step again, an older one is left", lived(FIRST, SECOND), None),
    ("the same step for the third time", lived(FIRST, SECOND, {**SECOND, "from": 60}), "attempts 1, 2, 3 was nan"),
    ("the same step again, nothing older", lived(FIRST, {**SECOND, "left": False}), "no checkpoint before it is left"),
    ("another step", lived(FIRST, {**SECOND, "nan": 130}), None),
    ("no checkpoint before it is left", lived({**FIRST, "left": False}), "up to step 99 is left to go back to"),
    ("it started from the beginning, and does so again", lived({**FIRST, "from": None, "left": False}), None),
    ("from the beginning, twice", lived(*[{**FIRST, "from": None, "left": False}] * 2), "in the data or in the code"),
])
def test_when_the_run_goes_back_no_more(name: str, state: State, told: str | None) -> None:
    found = reason_to_give_up(state, BACK)
    if told is None:
        assert found is None
    else:
        assert found is not None and (found.row, found.exit_code) == ("nan", FAILED_FOR_GOOD)
        assert told in found.why and found.why.endswith("(on_nan: previous_checkpoint)")


def test_going_back_counts_as_a_failure_so_that_the_runs_own_budgets_end_it_too() -> None:
    state = lived(*({**FIRST, "nan": 100 + number} for number in range(3)))
    found = reason_to_give_up(state, BACK)
    assert found is not None and found.row == "spent"


def test_the_attempt_is_killed_at_once_before_it_can_save() -> None:
    living = fold([Event(1.0, 1, 1, "n0", "odd_figure", {"attempt": 1, "kind": "nan", "step": 7, "value": "nan"})],
                  lived())
    assert action(living, seen(ALIVE), BACK) == Kill(0.0, "the loss is nan since step 7 (on_nan: previous_checkpoint)")


def test_a_step_to_start_from_cuts_once_before_the_first_attempt() -> None:
    cut = nanback.first_cut(State(), 20)
    assert cut is not None and (cut.attempt, cut.upto) == (0, 20)
    assert nanback.first_cut(State(), None) is None
    assert nanback.first_cut(State(nan_cuts=(cut,)), 20) is None
    assert nanback.first_cut(lived({}), 20) is None, "what it has saved since is behind that step"
