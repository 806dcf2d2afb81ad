"""What counts as progress by the log's own steps, and where an attempt is said to have begun."""

from __future__ import annotations

from typing import Any

from safelaunch.base.model import Event
from safelaunch.decide.budget.budget import reason_to_give_up
from safelaunch.decide.ends.advice import what_follows
from safelaunch.decide.facts import advance
from safelaunch.launch.settings import Resume
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.run.plan import Plan
from tests.pure.decide.situations import PLAN, seen
from tests.pure.decide.situations import action as decided
from tests.tables import each

NO_FOLDER = PLAN._replace(resume=Resume(None, "auto", "", None, by="training"))
STEP = "step #"


class Journal:
    """A journal that grows by whole attempts: first step, last step."""

    def __init__(self, plan: Plan = NO_FOLDER) -> None:
        self.plan, self.state, self.seq, self.number, self.t = plan, State(), 0, 0, 1000.0
        self.says("submitted", job="11")
        self.says("job_started", job="11", nodes=["n0"])

    def says(self, event: str, **data: Any) -> None:
        self.seq += 1
        self.t += 1.0
        self.state = fold([Event(self.t, 1, self.seq, "n0", event, data)], self.state)

    def trains(self, first: int | None, last: int | None, how: str = "failed", *, counter: str = STEP,
               epoch: float | None = None, saved: bool = False, **verdict: Any) -> str | None:
        """Why that was progress, as its leader says at its end."""
        self.number += 1
        self.says("attempt_started", attempt=self.number, job="11", nodes=["n0", "n1"])
        if last is not None:
            self.says("progress", attempt=self.number, step=last, first=first, counter=counter)
        self.says("verdict", attempt=self.number, **{"category": "unknown", "summary": "killed by signal 9",
                                                     "confidence": 0.4, "suspects": [], **verdict})
        self.says("attempt_ended", attempt=self.number, how=how, epoch=epoch)
        why = advance.find(self.state, self.plan, self.t if saved else 0.0)
        if why is not None:
            self.says("advanced", attempt=self.number, why=why)
        return why


def test_a_script_that_resumes_itself_and_is_killed_ten_times_each_time_further_goes_on() -> None:
    run, begin = Journal(), 1
    for end in range(61, 61 + 10 * 50, 50):
        assert run.trains(begin, end)
        assert reason_to_give_up(run.state, run.plan) is None, end
        begin = end - end % 20 + 1
    assert (run.state.failures_without_progress, run.state.restarts) == (0, 10)


Life = tuple[Any, ...]


@each(("plan", "lives", "is_progress"), [
    (NO_FOLDER, [(1, 61)], True),
    (NO_FOLDER, [(1, 61), (61, 61)], True),
    (NO_FOLDER, [(1, 61), (61, 115)], True),
    (NO_FOLDER, [(1, 61), (1, 61)], False),
    (NO_FOLDER, [(1, 61), (1, 60), (1, 61)], False),
    (NO_FOLDER, [(1, 61), (1, 75)], True),
    (NO_FOLDER, [(1, 61), (None, None)], False),
    (NO_FOLDER, [(None, None)], False),
    (NO_FOLDER, [(0, 100), (3, 99)], False),
    (NO_FOLDER, [(1, 61), (61, 115), (61, 114)], False),
    (PLAN, [(1, 61)], False),
    (PLAN, [(1, 61), (1, 75)], False),
    (PLAN, [(1, 61), (61, 60)], True),
], ids=["first steps", "begins further, dies at once", "resumed and further",
        "from the start, as far",
        "no further than the first", "further by a crash that came later", "no step", "never one",
        "a bar's first figure differs", "the same checkpoint again", "nothing saved in a known folder",
        "further, and nothing saved in a known folder", "a known folder that is not the one: it begins further"])
def test_what_is_progress(plan: Plan, lives: list[Life], is_progress: bool) -> None:
    run = Journal(plan)
    for life in lives:
        found = run.trains(*life)
    assert (found is not None) is is_progress, found


def test_a_checkpoint_of_no_step_is_progress_where_the_log_goes_further_or_names_no_step() -> None:
    run = Journal(PLAN)
    assert run.trains(1, 50, saved=True)
    assert not run.trains(1, 40, saved=True), "made again from the start, and overwritten"
    unread = Journal(PLAN)
    assert unread.trains(None, None, saved=True)
    assert not unread.trains(None, None)


@each(("lives", "is_progress"), [
    ([(0, 90, 3.0), (0, 40, 5.0)], True),
    ([(0, 90, 3.0), (0, 95, 3.0)], True),
    ([(0, 90, 3.0), (0, 80, 3.0)], False),
    ([(0, 90, 3.0), (0, 95, 1.0)], False),
    ([(0, 90, None), (0, 95, None)], False),
], ids=["a later epoch", "later in the same epoch", "as late", "an earlier epoch", "epochs that are not named"])
def test_where_each_epoch_counts_anew_epochs_are_compared(lives: list[Life], is_progress: bool) -> None:
    run = Journal()
    for first, last, epoch in lives:
        found = run.trains(first, last, counter="", epoch=epoch)
    assert (found is not None) is is_progress, found


def test_two_time_limits_from_the_start_are_no_progress_though_the_second_came_a_bit_further() -> None:
    run = Journal()
    assert run.trains(1, 100, "interrupted", category="time_limit")
    assert not run.trains(1, 103, "interrupted", category="time_limit")
    assert run.trains(90, 190, "interrupted", category="time_limit")


def test_a_journal_folded_twice_counts_once() -> None:
    run = Journal()
    run.trains(1, 61)
    told = [Event(2000.0 + seq, 1, 50 + seq, "n0", event, data) for seq, (event, data) in enumerate([
        ("attempt_started", {"attempt": 2, "job": "11"}), ("attempt_ended", {"attempt": 2, "how": "failed"}),
        ("advanced", {"attempt": 1, "why": "again"})])]
    assert fold(told, run.state).failures_without_progress == 1


@each(("second", "told"), [
    ((61, 70), "restarted by itself, and went on at step 61 (attempt 2)"),
    ((1, 70), "restarted by itself from the start (attempt 2)"),
    ((None, None), "restarted by itself (attempt 2)"),
], ids=["by itself", "from the start", "nobody knows"])
def test_where_an_attempt_went_on_is_read_from_its_first_steps(second: Life, told: str) -> None:
    run = Journal()
    run.trains(1, 61)
    run.trains(*second)
    assert what_follows(run.state, run.state.attempts[0], run.plan).startswith(told)


def test_no_launch_claims_the_start_where_the_training_may_resume_by_itself() -> None:
    run = Journal()
    run.trains(1, 61)
    launch: Any = decided(run.state, seen(), run.plan)
    assert "from the start" not in launch.why and "wherever the training resumes by itself" in launch.why
    known = Journal(PLAN)
    known.trains(1, 61)
    launch = decided(known.state, seen(), PLAN)
    assert launch.why.endswith("going on from the start: no checkpoint yet")
