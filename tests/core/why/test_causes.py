"""Why an attempt ended: what is proved is named, everything else is unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.core.model import Exit
from safelaunch.core.why.causes import judge, last_exception

RAISED = Exit("n1", 1, 1)
OTHER = Exit("n0", 0, 1)
SHOT = Exit("n1", 1, 137, 9)
LOST = (("n1", "its guard has been silent for 10 s"),)
TRACE = """step 7 loss 0.5
[n1:1]:Traceback (most recent call last):
[n1:1]:  File "train.py", line 7, in <module>
[n1:1]:    main()
[n1:1]:ValueError: no such shard: 17
"""


@pytest.mark.parametrize(
    ("exits", "lost", "ending", "tail", "expected"),
    [
        ((RAISED,), LOST, None, TRACE,
         ("node_failure", "n1: its guard has been silent for 10 s", "exclude_and_restart")),
        ((RAISED,), (), "time_limit", TRACE, ("time_limit", "Slurm ended the job: time_limit", "requeue_only")),
        ((RAISED,), (), "preempted", "", ("preempted", "Slurm ended the job: preempted", "requeue_only")),
        ((RAISED,), (), "cancelled", TRACE, ("cancelled", "Slurm ended the job: cancelled", "none")),
        ((RAISED,), (), None, TRACE, ("user_code", "ValueError: no such shard: 17", "fix_user_code")),
        ((), (), None, TRACE, ("user_code", "ValueError: no such shard: 17", "fix_user_code")),
        ((SHOT,), (), None, TRACE, ("unknown", "task 1 on n1: killed by signal 9", "restart")),
        ((RAISED, OTHER), (), None, "", ("unknown", "task 1 on n1: exit code 1", "restart")),
        ((), (), None, "", ("unknown", "srun ended with exit code 143", "restart")),
    ],
    ids=[
        "a lost node explains what its rank said", "the time limit explains a traceback", "preemption",
        "scancel: nothing to do", "an exception of the program", "an exception, and no guard told of an exit",
        "an old traceback does not explain a KILL", "the first of two exits, without a word in the log",
        "only srun's code",
    ],
)
def test_the_cause_before_its_symptoms(
    exits: tuple[Exit, ...], lost: tuple[tuple[str, str], ...], ending: str | None, tail: str,
    expected: tuple[str, str, str],
) -> None:
    verdict = judge(exits, lost, ending, tail.encode(), 143)
    assert (verdict.category, verdict.summary, verdict.action) == expected


def test_a_verdict_names_where_it_started_and_shows_its_line() -> None:
    verdict = judge((RAISED, OTHER), (), None, TRACE.encode(), 1)
    assert (verdict.node, verdict.task) == ("n1", 1)
    assert verdict.evidence == ("[n1:1]:ValueError: no such shard: 17",)


def test_an_unknown_cause_suspects_no_node() -> None:
    assert judge((SHOT,), (), None, b"", 137).suspects == ()


def test_every_lost_node_is_a_suspect() -> None:
    assert judge((), (("n1", "dead"), ("n4", "dead")), None, b"", None).suspects == ("n1", "n4")


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (TRACE, "ValueError: no such shard: 17"),
        ("Traceback (most recent call last):\n  File\nKeyboardInterrupt\n", "KeyboardInterrupt"),
        ("Traceback (most recent call last):\n  File\nstruct.error: unpack requires 4 bytes\n",
         "struct.error: unpack requires 4 bytes"),
        ("Traceback (most recent call last):\n  File\ntorch.cuda.OutOfMemoryError: CUDA out of memory.\n",
         "torch.cuda.OutOfMemoryError: CUDA out of memory."),
        ("[n0:0]:Traceback (most recent call last):\n[n1:1]:step 7\n[n0:0]:  File\n[n1:1]:step 8\n"
         "[n0:0]:KeyError: 'x'\n", "KeyError: 'x'"),
        (TRACE + "Traceback (most recent call last):\n  File\ntorch.distributed.elastic.multiprocessing.errors."
         "ChildFailedError: \n", "ValueError: no such shard: 17"),
        (TRACE + "[n0:0]:Traceback (most recent call last):\n[n0:0]:  File\n[n0:0]:RuntimeError: Connection closed by "
         "peer [10.0.0.1]:2000\n", "ValueError: no such shard: 17"),
        ("Traceback (most recent call last):\n  File\nRuntimeError: " + "x" * 5000 + "\n",
         "RuntimeError: " + "x" * 286),
        ("Traceback (most recent call last):\n  File\n", None),
        ("Traceback (most recent call last):\n  File\nstep 7 loss 0.5\n", None),
        ("ValueError: without a traceback\n", None),
        ("Traceback (most recent call last):\r\n  File\r\nValueError: x\r\n", "ValueError: x"),
    ],
    ids=["torchrun's prefix", "without a text", "a small letter", "dots", "lines of two ranks mixed",
         "the launcher's echo behind it", "another rank's echo behind it", "a text of 5000 letters", "cut off",
         "no exception behind it", "no traceback", "carriage returns"],
)
def test_the_last_exception_that_is_no_echo(tail: str, expected: str | None) -> None:
    found = last_exception(tail.encode())
    assert (found[1] if found else None) == expected


@given(st.binary(max_size=400))
def test_no_log_stops_the_judge(tail: bytes) -> None:
    assert judge((RAISED,), (), None, b"Traceback (most recent call last):\n" + tail, 1).category
