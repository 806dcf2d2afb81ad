"""Slurm's words by release: the heads of its lines, its reasons, its versions. Whole texts: tests/slurmwords."""

from __future__ import annotations

import re
from itertools import product

from safelaunch.slurm import slurmwords
from safelaunch.slurm.slurmoutput import is_step_cancelled_first, parse_ending, parse_step_end, parse_step_ending
from tests.tables import each

STAMP = "2026-11-22T18:25:39"
HEADS = {
    "22.05, one node": "slurmstepd: error: ", "22.05": "slurmstepd-n0: error: ", "26.05": f"[{STAMP}.996] error: ",
    "26.05, LogTimeFormat=iso8601": f"[{STAMP}] error: ", "26.05, rfc5424_ms": f"[{STAMP}.996+01:00] error: ",
    "26.05, short": "[Nov 22 18:25:39] error: ", "a stamp and a program": f"[{STAMP}.996] slurmstepd: error: ",
}
REASONS = {
    "": "cancelled", " DUE to SIGNAL Terminated": "cancelled", " DUE to SIGNAL Killed": "cancelled",
    " DUE TO TIME LIMIT": "time_limit", " DUE TO PREEMPTION": "preempted", " DUE TO JOB REQUEUE": "requeued",
    " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS": "node_failure", " DUE TO TASK FAILURE": "task_failure",
    " DUE to SIGNAL User defined signal 2": "unknown", " DUE TO A REASON OF 2030": "unknown", " BY NOBODY": "unknown",
    " DUE TO TIME LIMITS OF ANOTHER KIND": "unknown",
}


def line(head: str, what: str, reason: str) -> str:
    """slurmstepd's line on the end of `what`, JOB 12 or STEP 12.0."""
    return f"{head}*** {what} ON n0 CANCELLED AT {STAMP}{reason} ***\n"


@each(("reason", "head"), product(REASONS, HEADS.values()))
def test_every_head_goes_with_every_reason(head: str, reason: str) -> None:
    word = REASONS[reason]
    assert parse_ending(line(head, "JOB 12", reason), "12") == word
    assert parse_step_ending(line(head, "STEP 12.0", reason), "12") == (None if word == "cancelled" else word)
    assert parse_step_end(line(head, "STEP 12.0", reason), "12") == word


@each("text", [
    line("error: ", "JOB 12", ""), line("[info] error: ", "JOB 12", ""),
    line("[n0:3]:slurmstepd: error: ", "JOB 12", ""), line("  slurmstepd: error: ", "JOB 12", ""),
    line("slurmstepd: ", "JOB 12", ""), line(HEADS["26.05"], "JOB 120", ""),
    line(HEADS["26.05"], "JOB 12", "").replace(" AT ", " "), line(HEADS["26.05"], "JOB 12", "").replace(" ***", ""),
    line(f"the log says: {HEADS['26.05']}", "JOB 12", " DUE TO TIME LIMIT"),
], ids=["no head", "a tag", "a rank's prefix", "indented", "no error", "another job", "no time", "no end", "quoted"])
def test_words_of_another_shape_are_no_end(text: str) -> None:
    assert parse_ending(text, "12") is None


@each("head", HEADS.values(), ids=HEADS)
def test_words_behind_a_progress_bar_without_a_line_end_are_read(head: str) -> None:
    bar = "step 7\n\rEpoch 3:   4%|4 | 4/105 [00:03<01:15]\rEpoch 3:   5%|5 | 5/105 [00:03<01:11, loss=0.4596]   "
    assert parse_ending(bar + line(head, "JOB 12", " DUE TO TIME LIMIT"), "12") == "time_limit"
    assert parse_step_ending(bar + line(head, "STEP 12.0", " DUE TO PREEMPTION"), "12") == "preempted"
    assert is_step_cancelled_first(bar + line(head, "STEP 12.0", ""), "12")
    assert not is_step_cancelled_first(f"{bar}srun: error: n0: task 1: Killed\n{line(head, 'STEP 12.0', '')}", "12")


def test_two_ends_that_are_written_into_each_other_tell_the_jobs() -> None:
    """A public log of 2026-03-25: the slurmstepds of job and step write to one file."""
    said = (f"\r 45%|4 | 723/1602 [2:12:45<2:59:53][{STAMP}.530] error: *** STEP 12.0 ON n0 CANCELLED "
            f"[{STAMP}.531] error: *** JOB 12 ON n0 CANCELLED AT {STAMP} DUE TO PREEMPTION ***\n"
            f"AT {STAMP} DUE TO PREEMPTION ***\nsrun: Job step aborted: Waiting up to 32 seconds\n")
    assert parse_ending(said, "12") == "preempted"


def test_a_scancel_of_26_05_is_a_persons_word_and_no_reason() -> None:
    step, job = (line(HEADS["26.05"], what, " DUE to SIGNAL Terminated") for what in ("STEP 12.0", "JOB 12"))
    assert parse_ending(f"srun: got SIGCONT\n{step}{job}srun: forcing job termination\n", "12") == "cancelled"
    assert parse_ending(step, "12") is None
    assert is_step_cancelled_first(f"step 7\n{step}srun: error: n0: task 0: Terminated\n", "12")


def test_the_echo_of_a_failed_task_is_no_cancel_of_its_step() -> None:
    echo = line(HEADS["26.05"], "STEP 12.0", " DUE TO TASK FAILURE")
    assert not is_step_cancelled_first(echo, "12")
    assert not is_step_cancelled_first(f"srun: Terminating StepId=12.0\n{line(HEADS['22.05'], 'STEP 12.0', '')}", "12")


@each(("text", "version", "is_known"), [
    ("slurm-wlm 22.05.8\n", "22.05.8", True), ("slurm-wlm 24.11.5\n", "24.11.5", True),
    ("slurm-wlm 26.05.5\n", "26.05.5", True), ("slurm 25.05.0-0rc1\n", "25.05.0-0rc1", True),
    ("slurm 24.05.1\n", "24.05.1", True), ("Welcome!\nslurm 23.11.10\n", "23.11.10", True),
    ("slurm 26.11.0\n", "26.11.0", False), ("slurm 21.08.8-2\n", "21.08.8-2", False),
    ("sbatch: command not found\n", None, False), ("", None, False), ("slurm is great\n", None, False),
], ids=["22.05", "24.11", "26.05", "a candidate", "between two", "a banner", "newer", "older", "none", "nothing",
        "talk"])
def test_a_version_is_told_and_known_or_not(text: str, version: str | None, is_known: bool) -> None:
    assert slurmwords.parse_version(text) == version
    assert slurmwords.is_known(version) is is_known


def test_every_row_compiles_and_names_known_releases_and_its_source() -> None:
    tables = (slurmwords.HEADS, slurmwords.REASONS, slurmwords.UNREACHABLE, slurmwords.NOT_SENT,
              slurmwords.DATABASE_AWAY, slurmwords.JOB_OVER, slurmwords.UNKNOWN_NODE, slurmwords.UNKNOWN_JOB,
              slurmwords.TOO_FEW_NODES, slurmwords.NEVER_STARTS, slurmwords.IS_HELD, slurmwords.NO_STEP,
              slurmwords.SRUN_SAW, slurmwords.REFUSED_BY_SRUN, slurmwords.STEP_WAITS)
    for row in (row for table in tables for row in table):
        re.compile(row.pattern)
        assert row.source and row.word
        assert row.since in slurmwords.RELEASES and row.until in ("", *slurmwords.RELEASES)
