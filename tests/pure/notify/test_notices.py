"""What is to be told: by the journal alone, each thing once, in bounded number."""

from __future__ import annotations

from safelaunch.config.keys import NOTIFY_DEFAULT, NOTIFY_WHEN
from safelaunch.notify.message import compose
from safelaunch.run.fold.folding import fold
from safelaunch.run.notices import HOUR_S, MOST_AN_HOUR, MOST_WAITING, Notice, Notices
from safelaunch.run.noticewords import WORDS, due
from tests.pure.run.test_folding import Pen, end_attempt, started
from tests.tables import each

ALL = tuple(WORDS)
# event, its data, the word that it is told under; a restart has tests of its own
EVENTS: list[tuple[str, dict[str, object], str]] = [
    ("gave_up", {"exit_code": 10, "why": "budget"}, "gave_up"),
    ("completed", {"exit_code": 0}, "completed"),
    ("stopped", {"exit_code": 12}, "stopped"),
    ("hang_suspected", {"attempt": 1, "silent_s": 900.0, "phase": "step"}, "hang"),
    ("node_excluded", {"node": "n1", "why": "Xid 79"}, "suspect_node"),
    ("node_lost", {"node": "n1", "why": "silent"}, "suspect_node"),
    ("took_over", {"job": "11"}, "took_over"),
    ("lost_progress", {"attempt": 1, "why": "step 1"}, "lost_progress"),
    ("preserved", {"until": 9999.0, "nodes": ["n1"]}, "preserved"),
    ("held", {"job": "11", "why": "nobody can tell"}, "held"),
]


def test_the_table_of_keys_knows_all_words() -> None:
    assert tuple(WORDS) == NOTIFY_WHEN


def words(pen: Pen, when: tuple[str, ...] = ALL) -> list[str]:
    return [one.word for one in due(pen.state.notices, when, 1100.0)]


def told(pen: Pen, *keys: str, failed: tuple[str, ...] = ()) -> Pen:
    return pen.write("notified", keys=list(keys), sent=["env:URL"], failed=list(failed))


@each(("event", "data", "word"), EVENTS)
def test_an_event_is_told_under_its_word_and_only_once(event: str, data: dict[str, object], word: str) -> None:
    pen = started().write(event, **data).write(event, **data)
    assert words(pen) == [word]
    assert words(pen, tuple(set(ALL) - {word})) == []


def test_every_word_has_an_event_in_the_table_or_is_a_restart() -> None:
    assert {word for _, _, word in EVENTS} | {"restarted"} == set(WORDS)
    assert set(NOTIFY_DEFAULT) < set(WORDS)


def restart(pen: Pen, number: int, category: str) -> Pen:
    end_attempt(pen, number, "failed").write("verdict", attempt=number, category=category, confidence=0.9, action="x")
    return pen.write("attempt_started", attempt=number + 1, job="11", nodes=["n0"], port=1)


def test_a_restart_is_told_once_for_each_cause() -> None:
    pen = restart(restart(restart(started(), 1, "network"), 2, "network"), 3, "host_oom")
    assert [one.key for one in due(pen.state.notices, ALL, 1100.0)] == ["restarted network", "restarted host_oom"]


def test_the_first_attempt_of_a_run_is_no_restart() -> None:
    assert words(started()) == []


def test_what_was_told_is_not_told_again_by_the_next_supervisor() -> None:
    pen = told(started().write("node_excluded", node="n1", why="x"), "suspect_node n1").next_gen()
    pen.write("node_excluded", node="n1", why="y").write("node_excluded", node="n2", why="z")
    assert [one.key for one in due(pen.state.notices, ALL, 1100.0)] == ["suspect_node n2"]


def test_a_journal_that_is_folded_twice_tells_nothing_new() -> None:
    pen = told(restart(started(), 1, "network").write("took_over", job="11"), "restarted network")
    pen.write("gave_up", exit_code=10)
    assert fold(pen.events, pen.state) == pen.state


def test_a_full_hour_holds_back_all_but_the_end_and_tells_it_all_together_then() -> None:
    notices = Notices(sent_t=tuple(1000.0 + one for one in range(MOST_AN_HOUR)))
    for node in ("n1", "n2"):
        notices = notices.adds(Notice("suspect_node", f"suspect_node {node}", 1050.0))
    assert due(notices, ALL, 1100.0) == ()
    assert len(due(notices, ALL, 1000.0 + HOUR_S)) == 2
    with_end = notices.adds(Notice("gave_up", "gave_up", 1060.0))
    assert [one.word for one in due(with_end, ALL, 1100.0)] == ["suspect_node", "suspect_node", "gave_up"]


def test_what_waits_is_bounded_and_the_newest_stays() -> None:
    notices = Notices()
    for number in range(MOST_WAITING + 5):
        notices = notices.adds(Notice("suspect_node", f"suspect_node n{number}", float(number)))
    assert len(notices.waiting) == MOST_WAITING and notices.waiting[-1].key == f"suspect_node n{MOST_WAITING + 4}"


def test_a_target_that_failed_is_remembered_until_a_message_reaches_it() -> None:
    pen = told(started().write("node_excluded", node="n1", why="x"), "suspect_node n1", failed=("env:B",))
    assert list(pen.state.notices.failing) == ["env:B"]
    told(pen.write("node_excluded", node="n2", why="x"), "suspect_node n2")
    assert list(pen.state.notices.failing) == []


def given_up() -> Pen:
    pen = end_attempt(started(("n0", "n1")).write("progress", attempt=1, step=20), 1, "failed")
    pen.write("verdict", attempt=1, category="cuda_oom", summary="CUDA out of memory", confidence=0.9, action="none",
              evidence=["RuntimeError: CUDA out of memory", "b", "c", "d"])
    return pen.write("gave_up", exit_code=10, why="cuda_oom: the policy says stop")


def test_a_message_says_run_verdict_evidence_place_and_the_next_command() -> None:
    state = given_up().write("node_excluded", node="n1", why="it failed").state
    found = due(state.notices, ALL, 1100.0)
    message = compose("bloom", "/scratch/my runs/bloom", state, found)
    assert (message.title, message.severity) == ("safelaunch: bloom has given up", "failure")
    assert set(message.events) == {"gave_up", "suspect_node"}
    assert message.text.splitlines() == [
        "bloom has given up: cuda_oom: the policy says stop",
        "Verdict on attempt 1: cuda_oom (90% sure): CUDA out of memory",
        "Evidence in attempts/0001/main.log:", "  RuntimeError: CUDA out of memory", "  b", "  c",
        "Also: suspects a node (n1): it failed",
        "Where: job 11, attempt 1, at step 20, on n[0-1]",
        "Run folder: /scratch/my runs/bloom",
        "Next: safelaunch why '/scratch/my runs/bloom'",
    ]


def test_text_of_logs_brings_neither_secrets_nor_control_characters_into_a_message() -> None:
    pen = end_attempt(started(), 1, "failed")
    pen.write("verdict", attempt=1, category="user_code", evidence=["password=hunter22\x1b]0;x"])
    state = pen.write("gave_up", exit_code=10, why="token hf_7aZk3Lm9Qw2Er5Ty8Ui1Op4As6Df\x1b[2J\nNext: rm").state
    message = compose("a\r\nBcc: b", "/r", state, due(state.notices, ALL, 1100.0))
    shown = message.title + message.text
    assert "Evidence" in shown and "7aZk3Lm9" not in shown and "hunter22" not in shown
    assert "\x1b" not in shown and "\r" not in shown and "\nNext: rm" not in shown and "\nBcc" not in shown


def test_an_early_end_is_a_warning_with_its_step_in_the_title() -> None:
    reach = {"unit": "step", "step": 47, "total": 400, "early": True}
    for early, title, severity in ((True, "safelaunch: run has completed at step 47 of 400", "warning"),
                                   (False, "safelaunch: run has completed", "success")):
        pen = started().write("attempt_ended", attempt=1, how="completed", exit_code=0, reach=reach if early else None)
        pen.write("completed", exit_code=0, why="attempt 1 ended")
        message = compose("run", "/run", pen.state, pen.state.notices.waiting)
        assert (message.title, message.severity) == (title, severity)


def test_an_end_with_a_loss_that_is_no_number_is_a_warning() -> None:
    pen = started().write("attempt_ended", attempt=1, how="completed", exit_code=0, nan_end="the loss is nan")
    pen.write("completed", exit_code=0, why="attempt 1 ended with exit code 0. But the loss is nan")
    message = compose("run", "/run", pen.state, pen.state.notices.waiting)
    assert message.title == "safelaunch: run has completed, but its loss is no finite number"
    assert message.severity == "warning" and "But the loss is nan" in message.text
