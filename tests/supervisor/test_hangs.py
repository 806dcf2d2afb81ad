"""What the leader says of a silence that it does not end yet."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from safelaunch.base.io.probe import ChildAnswer
from safelaunch.supervisor.hang.hangs import _last_checkpoint_s, tell_next
from tests.pure.checkpoints.checkpoint_files import torch_file
from tests.tables import each


@each(("next_s", "counts_s", "end_s", "said"), [
    (235.0, 300.0, math.inf, "counted as a hang at 300 if nothing changes, next check at 235"),
    (235.0, None, math.inf, "next check at 235"),
    (235.0, 900.0, 400.0, "the job's time limit comes before it counts as a hang, at 400; next check at 235"),
    (950.0, 897.0, 400.0, "the job's time limit comes before the next check, at 400"),
    (450.0, None, 400.0, "the job's time limit comes before the next check, at 400"),
], ids=["it may pass", "a rank works", "a check comes before the job's end", "none does", "of ranks at work as well"])
def test_when_it_counts_and_when_the_next_check_is_are_said_but_no_time_behind_the_jobs_end(
    next_s: float, counts_s: float | None, end_s: float, said: str
) -> None:
    assert tell_next(lambda at_s: f"{at_s:.0f}", next_s, counts_s, end_s) == said


@pytest.mark.parametrize(("ahead_s", "age_s"), [(-50.0, 50.0), (20.0, 0.0), (40 * 365 * 86400.0, None), (7200.0, None)],
                         ids=["a minute ago", "by a server that is ahead", "in forty years", "in two hours"])
def test_a_checkpoint_from_the_future_is_no_sign_of_life(ahead_s: float, age_s: float | None, tmp_path: Path) -> None:
    """Whoever may write the folder could set its time, and no hang would ever be seen."""
    now = time.time()
    (tmp_path / "step_2.pt").write_bytes(torch_file())
    os.utime(tmp_path / "step_2.pt", (now + ahead_s, now + ahead_s))
    plan = SimpleNamespace(resume=SimpleNamespace(dir=str(tmp_path), format="auto", pattern=None))
    clock: Any = SimpleNamespace(now=now, now_s=1e6)
    files: Any = SimpleNamespace(ask=lambda look, deadline_s: ChildAnswer[float | None](look()))
    here: Any = SimpleNamespace(plan=plan, job=SimpleNamespace(cwd="/"))
    found = _last_checkpoint_s(here, clock, files)
    assert found == pytest.approx(0.0 if age_s is None else 1e6 - age_s, abs=0.01)
