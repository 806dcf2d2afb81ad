"""The next job's submission by a leader."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from safelaunch.slurm.io.slurm import Result
from safelaunch.supervisor.jobs.nextjob import submit_next
from safelaunch.supervisor.state.nextjob import NextSlot
from tests.tables import each

TOO_FEW = "sbatch: error: Batch job submission failed: Requested node configuration is not available"


@each(("answers", "kept", "said"), [
    (["99"], ("n1", "n2"), []),
    ([TOO_FEW, TOO_FEW], (), []),
    ([TOO_FEW, "99"], (), ["the next job may use n[1-2] again: Slurm refuses a job that excludes them, since too few "
                           "nodes are left"]),
], ids=["taken", "and without them too", "too few nodes are left"])
def test_a_next_job_that_may_use_bad_nodes_again_is_said_with_the_reason(
    answers: list[str], kept: tuple[str, ...], said: list[str]
) -> None:
    told: list[str] = []
    successor = SimpleNamespace(submit=lambda names, **how: ("sbatch", *names), ask_nodes=None)
    next_job: Any = SimpleNamespace(later={}, successor=successor)
    slot = NextSlot(cast(Any, None), cast(Any, None), next_job, cast(Any, told.append))
    trying: Any = submit_next(slot, ("n1", "n2"), is_held=False)
    next(trying)
    with pytest.raises(StopIteration) as done:
        for text in answers:
            trying.send(Result(("sbatch",), 0 if text.isdigit() else 1, text, text))
    assert (done.value.value[1], told) == (kept, said)
