"""The fence, by tables and properties: no clock, no process; the times here are made up."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.guard.io.guardcode import NODE, PARTS
from safelaunch.node.guard.fence import (
    CANCEL,
    HOLD,
    KILL,
    KILL_AGAIN_S,
    LEFTOVER_GRACE_S,
    LET_GO,
    LOOK,
    LOOK_S,
    MOVE,
    NO_SQUEUE,
    ORPHAN_AGAIN_S,
    ORPHAN_S,
    SAY,
    SIGNAL,
    SIGNAL_AGAIN,
    STAY_S,
    TERM,
    TICK_S,
    TaskFence,
    is_to_be_cancelled,
)
from tests.tables import each

LEASE_S = 10.0
PING: dict[str, Any] = {"do": "ping"}
MOVED_ON = ("ended", "unreadable")
Seen = tuple[str, Any, Any]


class Node:
    """A fence, the looks that it asks for, and its ranks; `record` is what the next look finds."""

    def __init__(self, *, has_met: bool = True, is_first: bool = True, has_job: bool = True) -> None:
        self.now = 100.0
        self.fence = TaskFence(self.now, LEASE_S, is_first, has_job)
        self.record: Seen = ("live", None, None)
        self.done: list[tuple[float, str, Any]] = []
        self.found: Seen | None = None
        self.are_running = True
        if has_met:
            self.step([{"do": "hello"}])

    def step(self, heard: list[dict[str, Any]] = [], left: bool | None = None) -> list[str]:  # noqa: B006
        seen, self.found = self.found, None
        todo = self.fence.step(self.now, record=seen)
        self.are_running &= HOLD not in [verb for verb, _ in todo]
        todo += self.fence.step(self.now, heard, left=left)
        for verb, what in todo:
            self.done.append((self.now, verb, what))
            if verb == LOOK:
                self.found = self.record
            if verb in (HOLD, LET_GO):
                self.are_running = verb == LET_GO
        return [verb for verb, _ in todo]

    def pass_s(self, seconds_s: float, heard: list[dict[str, Any]] = [], left: bool | None = None) -> list[str]:  # noqa: B006
        """Steps as main makes them, with the same words at each."""
        said = []
        end = self.now + seconds_s
        while self.now < end:
            self.now += TICK_S
            said += self.step(heard, left)
        return said

    def sleep_s(self, seconds_s: float) -> list[str]:
        """The whole node stands still, and wakes up."""
        self.now += seconds_s
        return self.step()

    def first(self, verb: str) -> float | None:
        return next((t - 100.0 for t, one, _ in self.done if one == verb), None)


# --- the lease --------------------------------------------------------------------------------------------------------


@each(("record", "has_met", "is_killed"), [
    (("live", None, 1), True, False), (("missing", None, None), True, False), (("ended", None, 1), True, True),
    (("unreadable", None, None), True, True), (("unreadable", None, None), False, False),
    (("ended", None, None), False, True), (("of another version", None, None), True, True),
], ids=["live", "missing", "moved on", "unreadable", "unreadable, never met", "moved on, never met", "odd"])
def test_ranks_that_hear_nobody_end_once_their_record_is_known_to_have_moved_on(
    record: Seen, has_met: bool, is_killed: bool,
) -> None:
    node = Node(has_met=has_met)
    node.record = record
    node.pass_s(3 * LEASE_S)
    killed_s = node.first(KILL)
    assert (killed_s is not None) == is_killed
    assert killed_s is None or LEASE_S < killed_s < LEASE_S + 2.0


def test_it_is_said_why_ranks_end() -> None:
    node = Node()
    node.record = ("ended", None, None)
    node.pass_s(LEASE_S + 1.0)
    assert next(what for _, verb, what in node.done if verb == KILL) == (
        "heard nobody for 10.5 s and the attempt's record is ended: ending its ranks")


def test_who_is_heard_does_not_look_at_the_record() -> None:
    node = Node()
    node.record = ("ended", None, None)
    asked: list[dict[str, Any]] = []
    for _ in range(200):
        node.now += TICK_S
        node.step([PING, *asked])
        asked = [{"do": "ping", "t": what["t"]} for t, verb, what in node.done[-3:]
                 if verb == SAY and "t" in what and t == node.now]
    assert node.first(LOOK) is None and node.first(KILL) is None


def test_a_look_that_was_begun_before_the_lease_ran_out_ends_nothing() -> None:
    node = Node()
    node.pass_s(LEASE_S - TICK_S)
    assert node.fence.step(node.now, record=("live", None, None)) == []
    while not node.fence.is_looking:
        node.now += TICK_S
        node.fence.step(node.now)
    node.fence.looks_alone = False
    node.now += 5.0 - TICK_S
    assert KILL not in [verb for verb, _ in node.fence.step(node.now, record=("ended", None, None))]


def test_the_record_names_a_supervisor_that_was_born_elsewhere() -> None:
    node = Node()
    node.record = ("live", ("10.0.0.2", 7), 1)
    node.pass_s(LOOK_S + 1.0)
    assert (MOVE, ("10.0.0.2", 7)) in [(verb, what) for _, verb, what in node.done]


def test_an_answer_that_comes_during_a_read_of_the_record_keeps_the_ranks() -> None:
    node = Node()
    node.pass_s(LEASE_S + LOOK_S)
    while not node.fence.is_looking:
        node.now += TICK_S
        node.fence.step(node.now)
    assert node.fence.looks_alone
    node.fence.step(node.now, [{"do": "ping", "t": node.now}])
    node.now += TICK_S
    assert KILL not in [verb for verb, _ in node.fence.step(node.now, record=("ended", None, None))]


@given(st.lists(st.tuples(
    st.sampled_from(["tick", "ping", "old answer", "answer", "sleep"]), st.sampled_from(["live", *MOVED_ON, "missing"]),
), max_size=120))
def test_no_lease_is_outlived_whatever_is_heard(course: list[tuple[str, str]]) -> None:
    """Ranks whose record has moved on end, or are held, soon after the lease of the last question that was answered."""
    node = Node()
    proved = node.now
    moved_since: float | None = None
    for what, state in course:
        node.record = (state, None, None)
        moved_since = (moved_since or node.now) if state in MOVED_ON else None
        asked = [words["t"] for _, verb, words in node.done if verb == SAY and "t" in words]
        heard = [PING] if what == "ping" else []
        if what == "answer" and asked:
            heard, proved = [{"do": "ping", "t": asked[-1]}], max(proved, asked[-1])
        if what == "old answer" and asked:
            heard, proved = [{"do": "ping", "t": asked[0]}], max(proved, asked[0])   # as of then, it is an answer
        node.now += LEASE_S / 2 + 1.0 if what == "sleep" else TICK_S
        was = node.fence.heard
        if KILL in node.step(heard):
            assert node.now - was > LEASE_S
            return
        overdue_s = node.now - max(proved + LEASE_S + LOOK_S, moved_since or node.now)
        assert overdue_s < 4.0 or not node.are_running


@given(st.lists(st.sampled_from([TICK_S, 1.0, LEASE_S / 3, LEASE_S, 100.0]), max_size=60))
def test_silence_alone_never_kills(gaps_s: list[float]) -> None:
    node = Node()
    for gap_s in gaps_s:
        node.now += gap_s
        assert KILL not in node.step()


@given(st.lists(st.tuples(st.floats(0.0, 40.0), st.booleans()), max_size=40))
def test_an_answer_counts_as_of_when_its_question_was_asked(answers: list[tuple[float, bool]]) -> None:
    fence = TaskFence(100.0, LEASE_S, is_first=True, has_job=True)
    newest = 100.0
    for number, (asked_s, is_ping) in enumerate(answers):
        now = 200.0 + number
        fence.step(now, [PING if is_ping else {"do": "ping", "t": 100.0 + asked_s}])
        newest = newest if is_ping else max(newest, 100.0 + asked_s)
        assert fence.heard == newest, "pings that came after a silence may be old"


# --- a node that was stopped ------------------------------------------------------------------------------------------


@each("slept_s", [LEASE_S / 2 - 0.5, LEASE_S / 2 + 0.5])
def test_ranks_that_wake_up_after_a_while_are_held_before_all_else(slept_s: float) -> None:
    node = Node()
    assert (node.sleep_s(slept_s)[:1] == [HOLD]) == (slept_s > LEASE_S / 2)


@each(("state", "then"), [("live", [LET_GO]), ("ended", [KILL]), ("unreadable", [KILL])])
def test_ranks_that_were_held_go_on_or_end_by_what_the_record_says(state: str, then: list[str]) -> None:
    node = Node()
    node.record = (state, None, None)
    assert node.sleep_s(LEASE_S + 1.0)[:2] == [HOLD, LOOK]
    assert [verb for verb in node.pass_s(TICK_S) if verb in (LET_GO, KILL)][:1] == then


def test_a_look_of_before_the_sleep_lets_nobody_go() -> None:
    node = Node()
    node.pass_s(LOOK_S + 2 * TICK_S)
    while not node.fence.is_looking:
        node.pass_s(TICK_S)
    node.found = ("live", None, None)
    node.record = ("ended", None, None)
    assert node.sleep_s(LEASE_S + 1.0)[:2] == [HOLD, LOOK]
    assert LET_GO not in node.pass_s(2.0) and node.first(KILL) is not None


def test_who_has_slept_looks_past_what_its_node_remembers() -> None:
    node = Node(is_first=False)
    node.pass_s(LOOK_S + 1.0)
    node.sleep_s(LEASE_S)
    assert [what for _, verb, what in node.done if verb == LOOK][::len(node.done)] == [False]
    assert [what for _, verb, what in node.done if verb == LOOK][-1] is True


# --- orders -----------------------------------------------------------------------------------------------------------


@each(("words", "said"), [
    ([PING], [(SAY, {"ev": "pong"})]),
    ([{"do": "hello"}], []),
    ([{"do": "signal", "signal": 12}], [(SIGNAL, 12)]),
    ([{"do": "save", "signal": 10}], [(SIGNAL_AGAIN, 10)]),
    ([{"do": "end", "grace_s": 5.0}], [(TERM, None)]),
    ([{"do": "end", "grace_s": 5.0}, {"do": "end", "grace_s": 9.0}], [(TERM, None)]),
    ([{"do": "end", "grace_s": 0.0}], [(TERM, None), (KILL, "")]),
], ids=["a ping", "a greeting", "a signal", "an end", "two ends", "an end at once"])
def test_an_order_is_obeyed_at_once(words: list[dict[str, Any]], said: list[tuple[str, Any]]) -> None:
    node = Node()
    assert node.fence.step(node.now, words) == said


@each(("graces_s", "killed_s"), [((5.0,), 5.0), ((60.0, 2.0), 2.0), ((2.0, 60.0), 2.0)])
def test_the_shortest_grace_counts_and_the_kill_is_repeated(graces_s: tuple[float, ...], killed_s: float) -> None:
    node = Node()
    node.step([{"do": "end", "grace_s": grace_s} for grace_s in graces_s])
    node.pass_s(killed_s + KILL_AGAIN_S + TICK_S)
    kills = [t - 100.0 for t, verb, _ in node.done if verb == KILL]
    assert kills == [killed_s, killed_s + KILL_AGAIN_S]


def test_what_a_launcher_leaves_behind_is_ended() -> None:
    node = Node()
    assert node.step(left=True) == [TERM]
    node.pass_s(LEFTOVER_GRACE_S, left=True)
    assert node.first(KILL) == LEFTOVER_GRACE_S and not node.fence.is_gone
    node.step(left=False)
    assert node.fence.is_gone


# --- a job that nobody leads ------------------------------------------------------------------------------------------


@each(("state", "moves", "has_job", "is_cancelled"), [
    ("live", False, True, True), ("live", True, True, False), ("live", False, False, False),
    ("missing", False, True, False),
], ids=["nobody leads", "the pulse moves", "another task, or no Slurm", "no record"])
def test_a_job_that_nobody_leads_is_cancelled(state: str, moves: bool, has_job: bool, is_cancelled: bool) -> None:
    node = Node(has_job=has_job)
    for second in range(int(ORPHAN_S) + 10):
        node.record = (state, None, second // 20 if moves else 7)
        node.pass_s(1.0)
    assert (node.first(CANCEL) is not None) == is_cancelled


def test_a_job_that_a_cancel_has_not_ended_is_cancelled_again_much_later() -> None:
    node = Node()
    node.record = ("live", None, 7)
    node.pass_s(2 * ORPHAN_S + ORPHAN_AGAIN_S)
    first_s, again_s = [t - 100.0 for t, verb, _ in node.done if verb == CANCEL]
    assert ORPHAN_S < first_s < ORPHAN_S + 10.0 and ORPHAN_AGAIN_S <= again_s - first_s < ORPHAN_AGAIN_S + 5.0


@each(("code", "said", "expected"), [
    (0, b"RUNNING\n", True), (0, b"COMPLETING\n", False), (0, b"", False), (1, b"", False), (1, b"RUNNING\n", False),
    (None, b"", False), (NO_SQUEUE, b"", True),
])
def test_only_a_job_that_slurm_goes_on_running_is_cancelled(code: int | None, said: bytes, expected: bool) -> None:
    assert is_to_be_cancelled(code, said) == expected


@each(("has_met", "has_job", "is_over", "answered_s", "stays"), [
    (True, True, False, LOOK_S + 1.0, True), (True, True, False, 1.0, False), (False, True, False, 9.0, False),
    (True, False, False, 9.0, False), (True, True, True, 9.0, False),
], ids=["nobody answers", "the leader's host lives", "never met", "ends no job", "Slurm ends the step"])
def test_last_words_wait_for_somebody_who_hears_them(
    has_met: bool, has_job: bool, is_over: bool, answered_s: float, stays: bool,
) -> None:
    node = Node(has_met=has_met, has_job=has_job)
    node.step(left=False)
    node.fence.is_over = is_over
    assert node.fence.stays(node.now, node.now - answered_s) == stays
    assert not stays or not node.fence.stays(node.now + STAY_S, node.now - answered_s)


@each("record", [("ended", None, None), ("live", None, 8)], ids=["another attempt", "a new pulse"])
def test_last_words_wait_no_longer_once_others_see_to_the_attempt(record: Seen) -> None:
    node = Node()
    node.record = ("live", None, 7)
    node.step(left=False)
    node.pass_s(LEASE_S)
    assert node.fence.stays(node.now, 100.0)
    node.record = record
    node.pass_s(3.0)
    assert not node.fence.stays(node.now, 100.0)
    assert node.first(KILL) is None


# --- the bundle -------------------------------------------------------------------------------------------------------


def test_no_name_stands_in_two_parts_of_the_guards_text() -> None:
    import ast

    seen: dict[str, str] = {}
    for part in PARTS:
        for item in ast.parse((NODE / part).read_text()).body:
            names = ([item.name] if isinstance(item, (ast.FunctionDef, ast.ClassDef)) else
                     [target.id for target in item.targets if isinstance(target, ast.Name)]
                     if isinstance(item, ast.Assign) else [])
            for name in names:
                assert name == "TYPE_CHECKING" or name not in seen, f"{name}: {seen[name]} and {part}"
                seen[name] = part
