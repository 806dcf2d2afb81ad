"""The supervisor reads a log as it grows, and reports a drop of speed once: in the journal, and in the job's output."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from safelaunch.base.model import Event
from safelaunch.launch.settings import SlowPlan
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.supervisor.nodes import slowing
from safelaunch.supervisor.state import listening
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.suspicion import Suspicions
from safelaunch.trainlog.lines import listen
from tests.pure.decide.situations import PLAN
from tests.pure.nodehealth.test_changepoint import DROP_STEP, chronicle
from tests.supervisor.journals import ListJournal


class Lead:
    """What the watch of speed needs of a leader: its journal is a list, its lines another."""

    def __init__(self, state: State | None = None) -> None:
        self.here, self.journal = SimpleNamespace(plan=PLAN), ListJournal(state)
        self.running = RunningAttempt(0.0)
        self.said: list[str] = []
        self.due: set[object] = set()
        self.clock = SimpleNamespace(take_turn=self._take_turn)
        here, clock, nothing = cast(Any, self.here), cast(Any, self.clock), cast(Any, None)
        self.log = listening.LiveLog(here, clock, self.journal, self.running, cast(Any, self.said.append))
        self.suspects = Suspicions(here, clock, self.journal, nothing, nothing)

    def _take_turn(self, timer: object, every_s: float) -> bool:
        is_due = timer not in self.due
        self.due.add(timer)
        return is_due

    @property
    def state(self) -> State:
        return self.journal.state

    @property
    def events(self) -> list[Event]:
        return self.journal.lines

    def reads(self, text: bytes, attempt: int = 1) -> None:
        slowing.follow(self.log, self.suspects, attempt, text, 0, listen(text))

    def told(self) -> list[str]:
        return [event.event for event in self.events if event.event != "step_time"]


def lines_of(step: int, seconds: float) -> bytes:
    """Megatron's line of a step, with the lines of a checkpoint and of an evaluation where the chronicle has them."""
    text = (f" iteration {step:8d}/  115311 | consumed samples: 1 | elapsed time per iteration (s): {seconds:.2f} | "
            f"learning rate: 6.000E-05 | lm loss: 2.031E+00 | grad norm: 0.11 |\n")
    if step % 1000 == 0:
        text += "-" * 60 + f"\n validation loss at iteration {step} | lm loss value: 2.1E+00 | lm loss PPL: 8.2E+00 |\n"
    if step % 100 == 0:
        text += f"saving checkpoint at iteration {step} to /c\n  successfully saved checkpoint at iteration {step}\n"
    return text.encode()


def test_the_drop_of_the_chronicle_is_journalled_and_said_once_within_20_iterations_and_no_pause_is() -> None:
    lead, seen_at = Lead(), 0
    for pace in chronicle(seed=4):
        lead.reads(lines_of(pace.step, pace.seconds))
        seen_at = seen_at or (pace.step if lead.said else 0)
    assert lead.told() == ["slower"] and len(lead.said) == 1
    assert DROP_STEP <= seen_at <= DROP_STEP + 20
    assert lead.events[-1].data["since_step"] in range(DROP_STEP - 1, DROP_STEP + 3)
    assert "steps take 111.1 s instead of 105.2 s (5.6 % longer) since step 42783; nothing is ended" in lead.said[0]


def test_the_same_run_without_its_drop_is_never_reported() -> None:
    lead = Lead()
    for pace in chronicle(seed=4, drops=False):
        lead.reads(lines_of(pace.step, pace.seconds))
    assert lead.told() == [] and lead.said == []


def test_a_leader_that_starts_after_the_report_does_not_report_again() -> None:
    first = Lead()
    run = chronicle(seed=4, until=43_300)
    for pace in run[:1100]:
        first.reads(lines_of(pace.step, pace.seconds))
    second = Lead(fold(first.events))
    assert second.state.slower is not None
    second.reads(b"".join(lines_of(pace.step, pace.seconds) for pace in run[850:1100]))   # the log's last 64 KiB
    for pace in run[1100:]:
        second.reads(lines_of(pace.step, pace.seconds))
    assert second.told() == [] and second.said == []


def test_the_level_is_journalled_before_any_drop_so_that_the_next_supervisor_knows_it() -> None:
    lead = Lead()
    for step in range(60):
        lead.reads(lines_of(10_001 + step, 105.2))
    assert [event.event for event in lead.events] == ["step_time"]
    assert lead.state.pace is not None and lead.state.pace.level_s == pytest.approx(105.2)


def test_a_run_of_a_version_without_the_key_is_not_watched() -> None:
    lead = Lead()
    lead.here.plan = PLAN._replace(slow=SlowPlan(is_on=False))
    for pace in chronicle(seed=4):
        lead.reads(lines_of(pace.step, pace.seconds))
    assert lead.events == [] and lead.running.pace is None


def test_a_pattern_that_takes_too_long_is_given_up_and_the_leader_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "LISTEN_S", 0.02)
    lead = Lead()
    lead.here.plan = PLAN._replace(step_time_pattern=r"(?:a+)+b(\d+)")
    lead.reads(b"step 5 " + b"a" * 60 + b"\n")
    assert lead.log.patterns.step_time == "auto" and "are given up" in lead.said[0]


def losses(first: int, *values: str) -> bytes:
    return b"".join(f" iteration {first + number:8d}/  900 | lm loss: {value} | password=hunter2hunter2 |\n".encode()
                    for number, value in enumerate(values))


def test_a_loss_that_is_no_number_is_journalled_and_said_once_and_ends_nothing() -> None:
    lead = Lead()
    lead.reads(losses(100, "2.1E+00", "nan", "2.1E+00", "nan", "nan"))
    assert lead.told() == []
    lead.reads(losses(105, "nan", "nan"))
    lead.reads(losses(107, *["nan"] * 40))
    assert lead.told() == ["odd_figure"]
    assert lead.said == ["!!! the loss is nan in 3 step lines in a row, since step 103; nothing is ended"]
    data = lead.events[-1].data
    assert (data["kind"], data["step"], data["value"], data["usual"]) == ("nan", 103, "nan", None)
    assert "iteration      103" in data["line"] and "hunter2" not in data["line"]


def test_where_on_nan_says_stop_no_line_says_that_nothing_is_ended() -> None:
    lead = Lead()
    lead.here.plan = PLAN._replace(on_nan="stop")
    lead.reads(losses(100, *["nan"] * 5))
    assert lead.said == ["!!! the loss is nan in 3 step lines in a row, since step 100"]


def test_a_leader_that_takes_over_does_not_say_it_again_and_a_new_attempt_does() -> None:
    first = Lead()
    first.reads(losses(100, *["nan"] * 9))
    second = Lead(fold(first.events))
    second.reads(losses(105, *["nan"] * 9))
    assert second.told() == []
    second.reads(losses(100, *["nan"] * 9), attempt=2)
    assert second.told() == ["odd_figure"]


def test_nan_is_told_from_its_first_step_on_though_a_piece_of_the_log_has_twenty() -> None:
    lead = Lead()
    lead.here.plan = PLAN._replace(on_nan="report")
    lead.reads(b"".join(b"step %d/300 | loss 0.%d | 241 ms/step\n" % (step, step) for step in range(40, 55)))
    lead.reads(b"".join(b"step %d/300 | loss %s | 241 ms/step\n" % (step, b"nan" if step >= 60 else b"0.4")
                        for step in range(55, 79)))
    told = [event.data for event in lead.events if event.event == "odd_figure"]
    assert [(one["kind"], one["step"], one["before"]) for one in told] == [("nan", 60, 59)]
