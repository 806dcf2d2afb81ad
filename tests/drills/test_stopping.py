"""A person's request is final: kill switch, scancel, stop."""

from __future__ import annotations

import os
import re

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import long_only
from tests.runs import ALICE, Drill, Submitter

BOB = "sl-bob"
GROUP = "kill_switch.group=sl-team"
QUICK = "kill_switch.grace=3s"


def touch(drill: Drill, name: str, user: str) -> None:
    done = drill.sandbox.run(["touch", str(drill.run_dir / "control" / name)], user=user)
    assert done.returncode == 0, done.stderr


def test_teammate_touches_the_kill_switch_while_it_runs(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 2000 --step-time 0.05 --handle-usr2", extra="kill_switch: {signal: SIGUSR2}\n",
                            overrides=(GROUP,))
    drill.wait_ranks(4)

    touch(drill, "kill", BOB)
    state = drill.wait_end()

    assert state.ended and (state.ended.how, state.ended.exit_code) == ("stopped", 12), drill.story()
    assert BOB in state.ended.why
    assert len(state.attempts) == 1
    assert "SIGUSR2 reached 4 processes" in drill.story(), drill.story()
    last = max(drill.losses(rank=0))
    assert os.path.exists(drill.folder / "ckpt" / f"step_{last:08d}.pt"), "the graceful end saved a checkpoint"


def test_training_that_handles_no_signal_is_ended_with_its_next_checkpoint(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 2000 --step-time 0.05", overrides=(GROUP, "kill_switch.grace=10m"))
    drill.wait_step(2)

    touch(drill, "kill", BOB)
    state = drill.wait_end()

    assert state.ended and state.ended.how == "stopped"
    assert "no process of the training handles SIGUSR2" in drill.story()
    assert "its next checkpoint is complete: " in drill.story()


def test_kill_switch_ends_a_training_that_hangs_and_ignores_term(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 2000 --step-time 0.05 --hang-at 5 --die-rank -1 --ignore-term",
                            overrides=(GROUP, QUICK))
    drill.wait_step(4)

    touch(drill, "kill", BOB)
    state = drill.wait_end()

    assert state.ended and state.ended.how == "stopped"
    assert not drill.ranks()


def test_kill_now_does_not_wait_for_the_grace(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 2000 --step-time 0.05 --ignore-term", overrides=(GROUP, "kill_switch.grace=10m"))
    drill.wait_step(2)

    touch(drill, "kill-now", BOB)
    state = drill.wait_end()

    assert state.ended and state.ended.how == "stopped"
    said = drill.as_user("why", str(drill.run_dir)).stdout
    assert f"{BOB} touched kill-now" in said and "not restarted: a person's request is final" in said, said


def test_kill_switch_touched_while_queued_starts_nothing(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 20 --step-time 0.05", overrides=(GROUP, "slurm.begin=now+1hour"),
                            wait_started=False)

    touch(drill, "kill", BOB)
    sandbox.slurm(["scontrol", "update", f"JobId={drill.job}", "StartTime=now"])
    state = drill.wait_end()

    assert state.ended and (state.ended.how, state.ended.exit_code) == ("stopped", 12), drill.story()
    assert not state.attempts and BOB in state.ended.why


def test_scancel_by_a_person_is_final(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 2000 --step-time 0.05")
    drill.wait_step(3)
    drill.wait_event("submitted", 2)

    done = sandbox.run(["scancel", drill.job], user=ALICE)
    assert done.returncode == 0
    state = drill.wait_end()

    assert state.ended and (state.ended.how, state.ended.exit_code) == ("stopped", 12), drill.story()
    # The ranks hear of it before the batch shell: an attempt that begins in between ends with the job.
    assert "scancel" in state.ended.why and len(state.attempts) <= 2, drill.story()
    assert not drill.steps(2), drill.story()


@long_only
def test_scancel_of_a_training_that_ignores_term_is_final_too(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 2000 --step-time 0.05 --ignore-term")
    drill.wait_step(3)
    drill.wait_event("submitted", 2)

    sandbox.run(["scancel", drill.job], user=ALICE)
    state = drill.wait_end()

    assert state.ended and state.ended.how == "stopped", drill.story()


def test_scancel_during_the_back_off_is_final(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 900 --save-every 9999 --die-at 1 --die-rank 1 --die-attempt 0 --die-signal SEGV",
                            overrides=("restart.backoff=10m",))
    drill.wait_event("attempt_ended", 2)
    drill.wait_event("submitted", 2)

    sandbox.run(["scancel", drill.job], user=ALICE)
    state = drill.wait_end()

    assert state.ended and state.ended.how == "stopped", drill.story()


def test_stop_types_the_kill_switch(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 2000 --step-time 0.05 --watch-kill-file", overrides=(GROUP,))
    drill.wait_step(2)

    done = drill.as_user("stop", str(drill.run_dir))
    state = drill.wait_end()

    assert done.returncode == 0 and state.ended and state.ended.how == "stopped"
    assert re.search(r"touched (the )?kill", state.ended.why)
