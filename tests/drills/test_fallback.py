"""The newest checkpoint is unfinished, corrupt, or does not load: the run resumes from the one before."""

from __future__ import annotations

from pathlib import Path

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import FLAGS, check_completes, in_long, rounds
from tests.runs import Submitter


@rounds
@pytest.mark.parametrize(("spoil", "more"), [
    ("truncated", ""), in_long("empty", ""), in_long("zeros", ""),   # what is whole: tests/pure/checkpoints
    ("shard-lost", "--shards 4"), in_long("shard-truncated", "--shards 4")])
def test_newest_checkpoint_that_is_not_whole_is_passed_over(
    sandbox: Sandbox, submit: Submitter, spoil: str, more: str, turn: int
) -> None:
    format = "deepspeed" if more else "torch"
    drill = submit(sandbox)(f"{FLAGS} {more} --spoil {spoil} --spoil-step 30 --die-at 33 --die-rank 1",
                            overrides=(f"resume.format={format}",))

    second = drill.wait_event("attempt_started", 2, timeout_s=60)

    assert second.data["resume_step"] == 20, drill.story()
    assert "is skipped" in drill.story(), "it says which one, and why"
    skipped = next(event.data for event in drill.events("checkpoint_skipped") if "30" in Path(event.data["path"]).name)
    assert skipped["reason"] and "20" in Path(skipped["instead"]).name, drill.story()
    drill.wait_step(33, attempt=2)
    check_completes(drill)


@rounds
def test_whole_checkpoint_that_does_not_load_is_left_for_the_one_before(
    sandbox: Sandbox, submit: Submitter, turn: int
) -> None:
    drill = submit(sandbox)(f"{FLAGS} --refuse-load 30 --die-at 33 --die-rank 1", overrides=("restart.backoff=1s",))

    drill.wait_for(lambda: [a for a in drill.state().attempts if a.resume_step == 20], 90, "nothing fell back")

    rejected = drill.events("checkpoint_rejected")
    assert [event.data["step"] for event in rejected] == [30], drill.story()
    drill.wait_step(33, attempt=drill.state().attempts[-1].number)
    check_completes(drill)
