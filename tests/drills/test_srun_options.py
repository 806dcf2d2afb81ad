"""An option that srun does not take: a mistake of the config, which no restart mends."""

from __future__ import annotations

from safelaunch.sandbox.cluster import Sandbox
from tests.runs import Submitter


def test_an_option_that_srun_does_not_know_ends_the_run_at_once(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 3", extra="srun: {extra: [--container-image=x.sqsh]}\n")

    state = drill.wait_end()

    assert state.ended is not None and state.ended.how == "gave_up", drill.story()
    assert [attempt.category for attempt in state.attempts] == ["config"], drill.story()
    assert "--container-image" in state.ended.why, state.ended.why
