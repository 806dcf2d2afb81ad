"""Nodes that fall silent and come back, with SlurmdTimeout at its default of 300 s; deaths: test_ladder."""

from __future__ import annotations

import time

from safelaunch.sandbox.cluster import Sandbox
from tests.runs import Drill, Submitter
from tests.trainers.stepping import losses_until

FLAGS = "--step-time 0.05 --save-every 10 --lockstep sync --stamp-dir stamps"


def stamps(drill: Drill, attempt: int) -> dict[str, list[tuple[int, int]]]:
    """Each rank's (time in ns, step) of an attempt, by the rank's file."""
    found: dict[str, list[tuple[int, int]]] = {}
    for path in (drill.folder / "stamps").iterdir():
        rows = [line.split() for line in path.read_text().splitlines()]
        found[path.name] = [(int(row[0]), int(row[2])) for row in rows if len(row) == 3 and int(row[1]) == attempt]
    return found


def test_stopped_node_that_wakes_after_the_relaunch_ends_its_old_ranks_before_they_write(
    sandbox: Sandbox, submit: Submitter
) -> None:
    drill = submit(sandbox)(f"--steps 250 {FLAGS}")
    drill.wait_event("submitted", 2)
    drill.wait_step(25)
    worker = drill.state().attempts[0].nodes[1]
    sandbox.crash(worker, silent=True)
    drill.wait_event("attempt_started", 2, timeout_s=90)
    drill.wait_step(30, attempt=2)
    before = stamps(drill, 1)

    sandbox.heal(worker)
    drill.wait_for(lambda: not drill.ranks(worker), 60, "old ranks live on")

    assert stamps(drill, 1) == before, "an old rank wrote after it had woken up"
    state = drill.wait_end()
    assert state.ended and state.ended.how == "completed", drill.story()
    assert drill.losses() == losses_until(250)


def test_node_that_is_silent_for_a_moment_is_left_alone(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)(f"--steps 200 {FLAGS}")
    drill.wait_step(10)
    worker = drill.state().attempts[0].nodes[1]

    sandbox.crash(worker, silent=True)
    time.sleep(5)   # half of what makes a node lost
    sandbox.heal(worker)
    state = drill.wait_end()

    assert state.ended and state.ended.how == "completed", drill.story()
    assert len(state.attempts) == 1 and not state.suspects, drill.story()
