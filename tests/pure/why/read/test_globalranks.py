"""Ranks of a node become ranks of the training where the layout is known."""

from __future__ import annotations

from safelaunch.why.findings import Finding, Line, Log, Progress
from safelaunch.why.judge.engine import judge_log
from safelaunch.why.read.globalranks import by_launcher, to_global
from tests.pure.why.judged import judge_text, read_text
from tests.tables import each

NODES = ("n4", "n7", "n9")


@each(
    ("host", "rank", "number"),
    [("n4", 3, 3), ("n7", 3, 11), ("n9", 0, 16), ("n7", 11, 11), ("n9", 23, 23), ("n8", 3, 3), (None, 3, 3),
     ("n7", None, None)],
    ids=["of the first node", "of the second", "the first one of the third", "one of the training already",
         "the last one of the training", "of a node that is not in it", "of nobody knows which", "no rank"])
def test_a_rank_has_its_number_in_the_training(host: str | None, rank: int | None, number: int | None) -> None:
    log = Log(findings=(Finding("a.b", 0, 0, 1, "x", host, rank),), progress=(Progress(0, 0, 1, rank, host),),
              last=(Line(0, 0, 1, "x", host, rank),))
    found = to_global(log, NODES, 8)
    assert (found.findings[0].rank, found.progress[0].rank, found.last[0].rank) == (number, number, number)


@each(("per_node", "rank"), [(2, None), (1, 1)], ids=["a task has two ranks", "a task is a rank"])
def test_the_number_of_sruns_task_is_a_ranks_only_where_a_task_is_one(per_node: int, rank: int | None) -> None:
    log = read_text("srun: error: n7: task 1: Out Of Memory\n")
    verdict = judge_log(to_global(log, NODES, per_node))
    assert (verdict.category, verdict.host, verdict.rank) == ("host_oom", "n7", rank)
    assert verdict.summary.startswith("task 1 on n7 was ended: host memory was exhausted")


SUMMARY = """\
Root Cause (first observed failure):
[0]:
  time      : 2025-01-02_03:04:05
  host      : {host}
  rank      : 9 (local_rank: 1)
  exitcode  : 1 (pid: 4242)
"""
FAILED = """\
[n7:1]:Traceback (most recent call last):
[n7:1]:  File "train.py", line 7, in <module>
[n7:1]:    go()
[n7:1]:IndexError: list index out of range
"""


@each("host", ["n7", "n7.site.example"])
def test_torchrun_s_summary_tells_the_first_rank_of_a_node(host: str) -> None:
    verdict = judge_text(FAILED + SUMMARY.format(host=host))
    assert (verdict.category, verdict.host, verdict.rank) == ("user_code", "n7", 9)


def test_torchrun_s_start_tells_the_first_rank_of_each_node() -> None:
    verdict = judge_text("[n7:0]:  global_ranks=[8, 9, 10, 11]\n" + FAILED)
    assert (verdict.host, verdict.rank) == ("n7", 9)


def test_ranks_of_other_nodes_and_those_of_the_training_stay() -> None:
    log = Log(findings=(
        Finding("elastic.host_line", 0, 0, 1, "x", groups={"host": "n7"}),
        Finding("elastic.rank_line", 0, 1, 2, "x", groups={"rank": "9", "number": "1"}),
        Finding("a.b", 0, 2, 3, "x", "n7", 3), Finding("a.b", 0, 3, 4, "x", "n7", 11),
        Finding("a.b", 0, 4, 5, "x", "n4", 3), Finding("a.b", 0, 5, 6, "x", None, 3)))
    assert [found.rank for found in by_launcher(log).findings[2:]] == [11, 11, 3, 3]


def test_a_node_that_is_told_of_in_two_ways_is_left_alone() -> None:
    log = Log(findings=(
        Finding("elastic.global_ranks", 0, 0, 1, "x", "n7", groups={"rank": "8"}),
        Finding("elastic.global_ranks", 0, 1, 2, "x", "n7", groups={"rank": "16"}),
        Finding("a.b", 0, 2, 3, "x", "n7", 3)))
    assert by_launcher(log) == log


def test_a_prefix_without_a_host_is_a_number_on_the_node_that_torchrun_names() -> None:
    verdict = judge_text(FAILED.replace("[n7:1]:", "[default1]:") + SUMMARY.format(host="n7"))
    assert (verdict.host, verdict.rank) == ("n7", 9)
