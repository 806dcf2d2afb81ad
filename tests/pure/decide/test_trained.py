"""Failures behind the last step of a training: one restart, no checkpoint, and words that say what is trained."""

from __future__ import annotations

from safelaunch.base.endings import AttemptEnd
from safelaunch.base.model import FAILED_FOR_GOOD
from safelaunch.decide.budget.budget import reason_to_give_up, rejects_checkpoint
from safelaunch.decide.ends.advice import what_follows
from safelaunch.decide.facts.seen import Observation
from safelaunch.decide.facts.trained import behind_training
from safelaunch.decide.turn.between import BETWEEN
from tests.pure.decide.situations import NODES, NOW, PLAN
from tests.pure.decide.test_budget import Facts, run, with_policy
from tests.tables import each

ALL: Facts = {"unit": "step", "step": 20, "total": 20, "all": True}
FROM_ZERO: Facts = {"unit": "step", "step": 399, "total": 400, "all": True}
BY_WORDS: Facts = {"unit": "step", "step": 300, "total": None, "all": True}
EPOCHS: Facts = {"unit": "epoch", "step": 3, "total": 3, "all": True}
UNTIL_18: Facts = {"unit": "step", "step": 18, "total": 20}
HALF: Facts = {"unit": "step", "step": 10, "total": 20}
CRASH: Facts = {"category": "native_crash", "step": 20, "checkpoint": 20, "reach": ALL}
AGAIN: Facts = {"category": "native_crash", "from": 20, "path": "/c/20"}
# Trainers that name epochs alone, with a checkpoint of each: "Epoch [4/5]", checkpoint_4.
FOUR: Facts = {"reach": {**EPOCHS, "step": 4, "total": 5, "all": False}, "checkpoint": 4}
FIVE: Facts = {"reach": {**EPOCHS, "step": 5, "total": 5, "all": False}, "checkpoint": 5}
FROM_4: Facts = {"from": 4, "path": "/c/4"}
FROM_5: Facts = {"from": 5, "path": "/c/5"}
GPU: Facts = {"category": "gpu_hardware"}


@each(("attempts", "behind"), [
    ((CRASH,), (1,)),
    ((CRASH, AGAIN), (1, 2)),
    ((CRASH, {**AGAIN, "from": 15}), (1,)),
    ((CRASH, {**AGAIN, "from": 15, "step": 20, "reach": ALL}), (1, 2)),
    ((CRASH, {**AGAIN, "step": 21}), (1,)),
    (({**CRASH, "reach": FROM_ZERO}, {**AGAIN, "from": 399}), (1, 2)),
    (({**CRASH, "reach": BY_WORDS}, {**AGAIN, "from": 300}), (1, 2)),
    (({**CRASH, "reach": EPOCHS, "checkpoint": 900}, {**AGAIN, "from": 900}), (1, 2)),
    (({**CRASH, "reach": EPOCHS, "checkpoint": 900}, {**AGAIN, "from": 600}), (1,)),
    (({**CRASH, "reach": UNTIL_18}, AGAIN), (1, 2)),
    (({**CRASH, "reach": UNTIL_18, "checkpoint": 15}, {**AGAIN, "from": 15}), ()),
    (({"step": 20, "reach": ALL}, {}), (1, 2)),
    (({"step": 20, "reach": ALL}, {"fingerprint": "another"}), (1,)),
    (({"step": 10, "reach": HALF}, {}), ()),
    (({"step": 10}, {"from": 5}), ()),
    ((FIVE,), (1,)),
    ((FIVE, FROM_5), (1, 2)),
    ((FOUR,), ()),
    ((FOUR, FROM_4), (1, 2)),
    ((FOUR, {**FROM_4, "fingerprint": "another"}), ()),
    (({**FIVE, "checkpoint": 2500}, {"from": 2500, "path": "/c/2500"}), (1, 2)),
    (({**FIVE, "checkpoint": 4}, FROM_4), (1, 2)),
    (({**FOUR, "checkpoint": 3}, {**FROM_4, "from": 3, **FOUR}), ()),
], ids=["its log", "no step left", "from an older one", "the last part again", "further", "from zero", "by words",
        "epochs", "an older epoch", "the final checkpoint", "no final checkpoint", "a script loads by itself",
        "another failure", "half", "unknown",
        "the last epoch's checkpoint", "begun at its end", "the last epoch but one", "counted from zero",
        "which does not load", "steps in the checkpoint's name", "its checkpoint counts from zero",
        "an epoch was left"])
def test_who_ended_behind_the_last_step(attempts: tuple[Facts, ...], behind: tuple[int, ...]) -> None:
    assert tuple(one.number for one in behind_training(run(*attempts))) == behind


@each(("attempts", "row"), [
    ((CRASH,), None),
    ((CRASH, AGAIN), "trained"),
    ((CRASH, {**AGAIN, "how": "interrupted"}), None),
    ((CRASH, {**AGAIN, **GPU}), None),
    (({**CRASH, **GPU}, AGAIN), None),
    (({**CRASH, "how": "lost"}, AGAIN), None),
    ((CRASH, {**AGAIN, **GPU}, AGAIN), "trained"),
    (({"step": 20, "reach": ALL}, {}), "trained"),
    ((CRASH, {**AGAIN, "from": 15}), None),
    (({"step": 10, "reach": HALF}, {"step": 11, "reach": HALF}), None),
], ids=["once", "twice", "the job ended", "a GPU", "a GPU first", "a lost node first", "a GPU in between",
        "without a checkpoint", "not there again", "half"])
def test_a_run_restarts_once_behind_its_last_step(attempts: tuple[Facts, ...], row: str | None) -> None:
    found = reason_to_give_up(run(*attempts), PLAN)
    assert (found and found.row) == row


def test_the_end_says_what_is_trained_and_what_failed() -> None:
    state = run(CRASH, AGAIN)
    found = reason_to_give_up(state, PLAN)
    assert found is not None and found.exit_code == FAILED_FOR_GOOD
    assert found.why.startswith("the training is complete (all 20 steps; checkpoint /c/20), and what comes behind it "
                                "has failed twice; last: native_crash: boom.")
    assert state.attempt is not None and what_follows(state, state.attempt, PLAN).startswith("not restarted")


def test_a_policy_of_the_users_own_restarts_more_often() -> None:
    assert reason_to_give_up(run(CRASH, AGAIN), with_policy(native_crash="restart 5")) is None


@each(("last", "is_rejected"), [
    (AGAIN, False), ({**AGAIN, "category": "checkpoint", "confidence": 0.5}, False),
    ({**AGAIN, "category": "checkpoint", "confidence": 0.9}, True),
], ids=["a crash", "perhaps the checkpoint", "surely the checkpoint"])
def test_the_final_checkpoint_is_not_rejected_because_no_step_was_left(last: Facts, is_rejected: bool) -> None:
    first: Facts = {"step": 15, "checkpoint": 15}
    assert (rejects_checkpoint(run(first, CRASH, AGAIN, last), PLAN) is not None) == is_rejected
    other = {**CRASH, "reach": None, "fingerprint": "another"}
    assert rejects_checkpoint(run(first, other, AGAIN, last), PLAN) is not None   # it may not load


@each(("attempts", "is_rejected"), [
    ((FIVE, FROM_5, FROM_5), False),
    ((FOUR, FROM_4, FROM_4), False),
    (({"reach": FOUR["reach"], "checkpoint": 2}, *[{"from": 2, "path": "/c/2", "reach": FOUR["reach"]}] * 2), False),
    (({"step": 15, "checkpoint": 15}, {"from": 15, "path": "/c/15"}, {"from": 15, "path": "/c/15"}), False),
    (({"step": 15, "checkpoint": 15}, *[{"from": 15, "path": "/c/15", "fingerprint": "another"}] * 2), True),
    (({"step": 25, "checkpoint": 15}, *[{"from": 15, "path": "/c/15"}] * 2), True),
    ((FIVE, {**FROM_5, "category": "checkpoint"}), True),
    (({**FOUR, "reach": {**FOUR["reach"], "step": 2}, "checkpoint": 2}, *[
        {"from": 2, "path": "/c/2", "fingerprint": "another"}] * 2), True),
], ids=["all epochs", "epochs from zero", "epochs were made from it", "the failure behind its save again",
        "another failure", "a failure further on", "surely the checkpoint", "an epoch's checkpoint"])
def test_a_checkpoint_is_not_to_blame_for_what_fails_behind_its_save(
    attempts: tuple[Facts, ...], is_rejected: bool
) -> None:
    assert (rejects_checkpoint(run(*attempts), PLAN) is not None) == is_rejected


def test_a_run_that_counts_epochs_restarts_once_behind_its_last_step() -> None:
    assert reason_to_give_up(run(FIVE), PLAN) is None
    found = reason_to_give_up(run(FIVE, FROM_5), PLAN)
    assert found is not None and found.row == "trained"
    assert "all 5 epochs; checkpoint /c/5" in found.why


def test_losses_that_are_no_numbers_are_told_with_the_runs_end() -> None:
    state = run({"how": AttemptEnd.COMPLETED, "step": 400, "nan_end": "the loss is nan from step 12 on"})
    found = next(filter(None, (row(state, Observation(now=NOW, nodes=NODES), PLAN) for row in BETWEEN)))
    assert getattr(found, "why", None) == "attempt 1 ended with exit code 0. But the loss is nan from step 12 on"
    assert what_follows(state, state.attempts[-1], PLAN).startswith("to do: go back to an older checkpoint")


@each(("early", "said"), [
    (True, "attempt 1 ended with exit code 0. It completed at step 47 of 400 (11.8 %): the log names 400 steps"),
    (False, "attempt 1 ended with exit code 0"),
], ids=["early", "well"])
def test_an_early_end_is_told_with_the_runs_end(early: bool, said: str) -> None:
    reach = {"unit": "step", "step": 47, "total": 400, "early": early}
    state = run({"how": AttemptEnd.COMPLETED, "step": 47, "reach": reach})
    found = next(filter(None, (row(state, Observation(now=NOW, nodes=NODES), PLAN) for row in BETWEEN)))
    assert getattr(found, "why", None) == said
