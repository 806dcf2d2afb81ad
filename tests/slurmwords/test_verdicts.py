"""What `why` makes of the recorded ends: the same verdict in the words of every release."""

from __future__ import annotations

import pytest

from tests.pure.why.judged import judge_text
from tests.slurmwords.texts import Text, load_all

STEPS = "".join(f"step {number} loss 2.{number}\n" for number in range(10, 20))
VERDICTS = {
    "scancel": "cancelled", "scancel-by-root": "cancelled", "scancel-step": "cancelled", "requeue": "preempted",
    "preempted": "preempted", "preempted-requeued": "preempted", "time-limit": "time_limit",
    "memory-of-step": "host_oom", "worker-down": "node_failure", "batch-host-down": "node_failure",
    "worker-down-no-kill": "node_failure",
}
NOT_KILLED = {("25.11", "memory-of-step")}   # its OverMemoryKill left the step alone: there is no text


@pytest.mark.parametrize("text", [pytest.param(text, id=f"{text.release} {text.name}")
                                  for text in load_all() if text.name in VERDICTS
                                  and (text.release, text.name) not in NOT_KILLED])
def test_an_end_gets_the_same_verdict_in_the_words_of_every_release(text: Text) -> None:
    assert judge_text(STEPS + text.text).category == VERDICTS[text.name], text.text
