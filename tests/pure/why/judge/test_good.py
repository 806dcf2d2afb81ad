"""What good logs of the same command say is no cause; what none of them says is evidence."""

from __future__ import annotations

from safelaunch.why.findings import OutsideEvidence, TaskExit
from safelaunch.why.usual import holds, read_good
from tests.pure.why.judged import judge_text
from tests.tables import each

STEPS = "".join(f"{{0}}iteration {n}/ 100 | lm loss: 2.{n}\n" for n in range(1, 9))
REMARK = "ValueError: no metrics server at {} given, metrics are off\n"
GOOD = read_good(("starting on gpu03\n" + REMARK.format("10.0.0.1:80") + STEPS.format("[n1:0]: ")).encode())
FAILED = OutsideEvidence(exits=(TaskExit("n1", 0, 1),))


@each("text, is_there", (
    ("iteration 77/ 100 | lm loss: 9.1", True),
    ("starting on gpu19", True),
    ("ValueError: no metrics server at other.example:99 given, metrics are off", True),
    ("\x1b[31mstarting on gpu19\x1b[0m", True),
    ("iteration 77/ 100 | lm loss: nan", False),
    ("off", False),
))
def test_a_line_is_compared_by_its_template(text: str, is_there: bool) -> None:
    assert holds(GOOD, text) is is_there


def test_what_all_good_logs_say_is_no_cause() -> None:
    text = "starting on gpu07\n" + REMARK.format("10.0.0.2:81")
    alone, beside = (judge_text(text, evidence=OutsideEvidence(exits=FAILED.exits, good=good))
                     for good in ((), (GOOD, GOOD)))
    assert alone.category != "unknown" and "metrics" in alone.summary
    assert beside.category == "unknown" and beside.cause is None, beside


def test_what_some_good_logs_say_may_be_one() -> None:
    text = "starting on gpu07\n" + REMARK.format("10.0.0.2:81")
    assert judge_text(text, evidence=OutsideEvidence(exits=FAILED.exits, good=(GOOD, "other\n"))).cause is not None


def test_a_traceback_at_the_end_ends_the_program_although_it_was_survived_before() -> None:
    text = 'Traceback (most recent call last):\n  File "/a/t.py", line 3, in f\n    g()\n' + REMARK.format("x1:9")
    assert judge_text(text, evidence=OutsideEvidence(exits=FAILED.exits, good=(GOOD,))).cause is not None


def test_of_a_failed_rank_the_line_is_shown_that_no_good_log_has() -> None:
    text = STEPS.format("") + "the pump of rack 7 stands still\n" + "starting on gpu07\n" * 8
    silent, beside = (judge_text(text, evidence=OutsideEvidence(exits=FAILED.exits, good=good))
                      for good in ((), (GOOD,)))
    assert "pump" not in silent.summary
    assert beside.category == "unknown" and "the pump of rack 7" in beside.summary, beside


def test_where_a_rule_names_the_cause_nothing_changes() -> None:
    text = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    assert judge_text(text, evidence=OutsideEvidence(good=(read_good(text.encode()),))) == judge_text(text)
