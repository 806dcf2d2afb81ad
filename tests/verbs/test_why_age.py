"""The page of a log in which nothing has failed tells how old its last line is, whatever it was read from."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from safelaunch.verbs.why.whyverdict import tell_age
from safelaunch.why.findings import Line, Log
from tests.handmade import make_run
from tests.tables import each
from tests.verbs.test_why import Said, here, why

__all__ = ["here", "why"]

STEPS = "".join(f"step {step}/20 loss 2.1\n" for step in range(1, 21))
HOUR = 3600.0
NOW = 1_800_000_000.0


@each("stamp_age_s, file_age_s, said", (
    (None, 2 * HOUR, "last written to 2 h ago"),
    (3 * HOUR, 2 * HOUR, "last written to 2 h ago"),         # its zone is not known
    (400 * 24 * HOUR, 60.0, "its last line is 400 d old"),   # a copy
    (90.0, None, "its last line is 1 min old"),
    (None, None, "cannot be told"),
    (NOW - 900.0, 60.0, "last written to 1 min ago"),        # a stamp without a date
))
def test_the_age_of_the_last_line(stamp_age_s: float | None, file_age_s: float | None, said: str) -> None:
    line = Line(0, 0, 1, "step 1", t=None if stamp_age_s is None else NOW - stamp_age_s)
    written_t = None if file_age_s is None else NOW - file_age_s
    assert said in tell_age(Log(("a.log",), last=(line,)), written_t, NOW)


def test_the_page_of_a_healthy_log_shows_it(here: Path, why: Said) -> None:
    (here / "train.log").write_text(STEPS)
    os.utime(here / "train.log", (time.time() - 2 * HOUR,) * 2)
    out, _ = why("train.log")
    assert "none: nothing is wrong" in out and "last written to 2 h ago" in out


def test_the_page_of_a_healthy_run_shows_it(here: Path, why: Said) -> None:
    made = make_run(here / "bloom")
    made.running()
    made.log(1, STEPS.encode())
    made.completed()
    out, _ = why("bloom")
    assert "none: nothing is wrong" in out and "the log was last written to" in out


def test_the_page_of_a_healthy_pipe_shows_it() -> None:
    done = subprocess.run([sys.executable, "-m", "safelaunch", "why", "-"], input=STEPS.encode(), capture_output=True,
                          timeout=60)
    assert b"none: nothing is wrong" in done.stdout and b"through a pipe" in done.stdout, done
