"""The gentle order to end, while guards come and go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from safelaunch.decide.facts.seen import Live
from safelaunch.supervisor.common import asking
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.tasks import Work

Round = tuple[int, list[str]]   # guards that are there for an order, and the names that they answer with


class Server:
    """The guards of an attempt, as far as an order to end needs them: each order has its round."""

    def __init__(self, rounds: list[Round]) -> None:
        self.rounds = rounds
        self.orders = 0
        self.signalled: list[str] = []
        self.signal_answers = 0

    @property
    def guards(self) -> dict[int, Any]:
        return {number: SimpleNamespace(connection=object(), code=None) for number in range(self._round[0])}

    @property
    def _round(self) -> Round:
        return self.rounds[min(self.orders, len(self.rounds) - 1)]

    def forget_answers(self) -> None:
        self.signalled, self.signal_answers = [], 0

    def tell(self, message: dict[str, Any], now_s: float) -> int:
        told, self.signalled = self._round[0], list(self._round[1])
        self.signal_answers = told
        self.orders += 1
        return told


class Lead:
    """A leader with an attempt of two tasks that somebody has touched the kill switch for."""

    def __init__(self, server: Server) -> None:
        self.now_s = 0.0
        self.server = server
        self.running = RunningAttempt(0.0)
        self.running.begin(Live(1, ("n0", "n1"), tasks=2, end_row="kill"))
        self.waits = 0
        self.asking = asking.Asking(
            cast(Any, self), cast(Any, SimpleNamespace(server=server)), self.running,
            cast(Any, SimpleNamespace(begin=self._begin)), cast(Any, None), lambda: None, cast(Any, None))

    @property
    def attempt(self) -> Live:
        return self.running.now

    def _begin(self, work: Work, step: Any, of: str) -> None:
        self.waits += 1   # for the next checkpoint; over at once here
        step.close()


@pytest.mark.parametrize(
    ("rounds", "orders", "heard", "told"),
    [
        ([(2, ["n0: a", "n1: b"])], 1, 2, [2]),
        ([(1, ["n0: a"]), (2, ["n0: a", "n1: b"])], 2, 2, [1, 2]),
        ([(1, ["n0: a"]), (1, ["n1: b"]), (2, ["n0: a", "n1: b"])], 3, 2, [1, 2]),
        ([(1, []), (2, [])], 2, 0, [None, 0]),
        ([(1, ["n0: a"]), (0, []), (2, ["n0: a", "n1: b"])], 3, 2, [1, 2]),
    ],
    ids=["all are there", "one was away", "they take turns", "nobody handles it", "all were away in between"],
)
def test_guards_that_were_away_are_asked_again_until_all_have_answered(
    rounds: list[Round], orders: int, heard: int, told: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank whose guard had no connection at that moment trained on for 15 minutes after the kill switch."""
    server = Server(rounds)
    lead = Lead(server)
    said: list[int | None] = []
    monkeypatch.setattr(asking.Asking, "tell", lambda self, name, reached, answers: said.append(self.running.now.heard))

    for pause_s in lead.asking.ask_to_end("SIGUSR2"):
        lead.now_s += float(cast(float, pause_s))

    assert (server.orders, lead.attempt.heard, said) == (orders, heard, told)
    assert lead.waits == 1, "another wait finds the same checkpoint and counts its time anew"


def test_an_answer_that_comes_late_is_told_although_the_attempt_ends_before_the_next_order(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy node a guard answers after seconds; its ranks save and end then."""
    server = Server([(2, [])])
    monkeypatch.setattr(server, "tell", lambda message, now_s: 2)   # and no answer at once
    lead = Lead(server)
    said: list[int | None] = []
    monkeypatch.setattr(asking.Asking, "tell", lambda self, name, reached, answers: said.append(self.running.now.heard))

    for pause_s in lead.asking.ask_to_end("SIGUSR2"):
        lead.now_s += float(cast(float, pause_s))
        if asking.ANSWER_S < lead.now_s < asking.ANSWER_S + 1.0:
            server.signalled, server.signal_answers = ["n0: a"], 1
        elif asking.ANSWER_S < lead.now_s < asking.ANSWER_S + 2.0:
            server.signalled, server.signal_answers = ["n0: a", "n1: b"], 2
        elif lead.now_s > asking.ANSWER_S:
            lead.running.mark_killed("kill", lead.now_s, lead.now_s)
    assert said == [1, 2]
