"""Nodes that the ledger speaks against stay out of a run's first job."""

from __future__ import annotations

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.runs import Submitter
from tests.sandboxes import make_workdir


@pytest.mark.slurm
def test_a_suspected_node_is_kept_out_of_the_next_submission_and_comes_back_when_it_is_cleared(
    sandbox: Sandbox, submit: Submitter
) -> None:
    folder = make_workdir(sandbox)
    (folder / "ledger").mkdir(mode=0o777)
    (folder / "ledger").chmod(0o777)
    words = ("--ledger", str(folder / "ledger"))
    first = submit(sandbox)("--steps 3", overrides=(f"suspects.ledger={folder}/ledger",))
    first.wait_end()
    said = first.as_user("nodes", "suspect", "n0", "--why", "its fan is loud", *words)
    assert said.returncode == 0, said.stderr

    second = submit(sandbox)("--steps 3", overrides=(f"suspects.ledger={folder}/ledger", "name=second"))

    assert "excluded: n0" in second.noise[0] and "its fan is loud" in second.noise[0]
    state = second.wait_end()
    assert "n0" not in state.attempts[0].nodes

    # A job of three nodes, one a spare, in a partition of four of which the user has excluded one.
    tight = submit(sandbox)("--steps 3", overrides=(
        f"suspects.ledger={folder}/ledger", "name=tight", "spare_nodes=1", "slurm.exclude=n2"))
    assert "\nexcluded" not in tight.noise[0] and "not excluded: n0" in tight.noise[0], tight.noise
    state = tight.wait_end()
    assert state.attempts[0].nodes == ("n1", "n3"), "the suspect is the spare"
    assert [node for node, _ in state.left_out] == ["n0"], tight.story()

    # The user's own word wins: Slurm refuses a job that must have a node and must not.
    wanted = submit(sandbox)("--steps 3", overrides=(
        f"suspects.ledger={folder}/ledger", "name=wanted", "slurm.nodelist=n0"))
    assert "not excluded: n0" in wanted.noise[0] and "slurm.nodelist asks for it" in wanted.noise[0], wanted.noise
    assert "n0" in wanted.wait_end().attempts[0].nodes, wanted.story()

    assert first.as_user("nodes", "clear", "n0", "--why", "a new fan", *words).returncode == 0
    third = submit(sandbox)("--steps 3", overrides=(f"suspects.ledger={folder}/ledger", "name=third"))
    assert "excluded" not in third.noise[0]


@pytest.mark.slurm
def test_a_suspect_in_the_runs_own_reservation_is_kept_out(sandbox: Sandbox, submit: Submitter) -> None:
    folder = make_workdir(sandbox)
    first = submit(sandbox)(command="true", folder=folder)
    first.wait_end()
    assert first.as_user("nodes", "suspect", "n0", "--why", "its fan is loud").returncode == 0
    sandbox.slurm(["scontrol", "create", "reservation", "ReservationName=mine", "Users=sl-alice", "Nodes=n[0-2]",
                   "StartTime=now", "Duration=30"])
    try:
        second = submit(sandbox)(command="true", folder=folder, overrides=("name=second", "slurm.reservation=mine"))
        state = second.wait_end()
    finally:
        sandbox.slurm(["scontrol", "delete", "ReservationName=mine"])

    assert "excluded: n0" in second.noise[0], second.noise
    assert (state.attempts[0].nodes, state.excluded) == (("n1", "n2"), ("n0",)), second.story()
