"""Which nodes the next attempt, and the next job, may use."""

from __future__ import annotations

from dataclasses import replace

from safelaunch.base.endings import AttemptEnd
from safelaunch.decide.facts.actions import (
    HandOver,
    Launch,
)
from safelaunch.decide.nodes.nodes import kept_out, preserved
from safelaunch.run.fold.state import Attempt, Exclusion, State
from safelaunch.why.fingerprint import UNEXPLAINED_KILL
from tests.pure.decide.situations import (
    LOST,
    PLAN,
    action,
    history,
    seen,
)
from tests.tables import each


def suspecting(*nodes: str) -> State:
    return replace(history("lost"), exclusions=tuple(Exclusion(node, "silent") for node in nodes))


@each(
    ("state", "lost", "expected"),
    [
        (history("failed"), (), ("n0", "n1")),
        (suspecting("n0"), (), ("n1", "n2")),
        (history("lost"), LOST, ("n0", "n2")),
        (replace(history("lost"), left_out=(("n0", "silent; the run needs it"),)), (), ("n1", "n2")),
        (replace(history("lost"), left_out=(("n0", "silent; the run needs it"),)), LOST, ("n0", "n2")),
    ],
    ids=["the same nodes when none is suspect", "a spare for a suspect", "a spare for a lost node",
         "a spare for a suspect that jobs need", "a suspect where no other is left"],
)
def test_the_next_attempt_runs_on_good_nodes_in_slurms_order(
    state: State, lost: tuple[tuple[str, str], ...], expected: tuple[str, ...],
) -> None:
    got = action(state, seen(lost=lost))
    assert isinstance(got, Launch)
    assert got.nodes == expected


def failing(*failures: tuple[str, str]) -> State:
    """Attempts that made steps, and failed of such a cause on that node alone."""
    return replace(history("failed"), attempts=tuple(
        Attempt(number, "11", ("n0", "n1"), 0.0, ended=AttemptEnd.FAILED, category="storage", step=9,
                fingerprint=mark, blamed=(node,)) for number, (mark, node) in enumerate(failures, start=1)))


@each(("state", "expected"), [
    (failing(("a", "n1")), ("n0", "n2")), (failing((UNEXPLAINED_KILL, "n1")), ("n0", "n1")),
    (failing(("a", "n1"), ("b", "n2")), ("n0", "n1")), (failing(("a", "n1"), ("b", "n2"), ("a", "n1")), ("n0", "n2")),
    (failing(("a", "n1"), ("a", "n1"), ("b", "n2")), ("n0", "n2")),
], ids=["a spare at the first failure", "a kill that nobody explains is no node's", "the later failure of two nodes",
        "the later failure, of the first again", "one that has shown it twice never before one that has shown it once"])
def test_a_spare_takes_the_place_of_a_node_that_alone_has_shown_a_failure(
        state: State, expected: tuple[str, ...]) -> None:
    got = action(state, seen(), PLAN._replace(restart=PLAN.restart._replace(max_without_progress=9)))
    assert isinstance(got, Launch)
    assert got.nodes == expected
    idle = "n1" if "n2" in expected else "n2"
    assert (f"without {idle}, as attempt" in got.why) == (state.attempts[-1].fingerprint != UNEXPLAINED_KILL), got.why


@each(("state", "lost", "expected"), [
    (suspecting("n2"), ("n0",), ("n0", "n2")),
    (replace(suspecting(), unfit=(("n1", "its disk is full"),)), ("n0",), ("n0", "n1")),
    (replace(suspecting("n2"), unfit_before=("n1", "n8")), ("n0",), ("n0", "n2", "n8")),
    (replace(suspecting("n2"), unfit_before=("n8",), lives=(("7", 0, 1), ("8", 0, 1), ("9", 0, 1))), ("n0",), ("n0",)),
], ids=["excluded and lost", "unfit and lost",
        "unfit in an earlier job, but for a node that this job has got once more",
        "three jobs have launched nothing: only a lost node"])
def test_which_nodes_the_next_job_is_kept_from(
        state: State, lost: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert kept_out(state, lost) == expected


def test_with_too_few_good_nodes_the_successor_goes_on_without_the_bad_ones() -> None:
    assert action(suspecting("n2", "n0"), seen(lost=(("n0", "dead"),))) == HandOver(
        ("n0", "n2"), "of the 2 nodes needed only 1 can be used (without n0, n2)")


@each(("which", "cluster", "expected"), [
    ("suspects", "slurm", ("n0", "n1", "n2")), ("all", "slurm", ("n0", "n1", "n2", "n3")),
    ("suspects", "local", ("n0", "n1", "n2", "n3")),
], ids=["the batch host, the first to fail, the suspect", "all", "nothing can be given back"])
def test_which_nodes_are_kept_for_people(which: str, cluster: str, expected: tuple[str, ...]) -> None:
    plan = PLAN._replace(cluster=cluster, preserve=PLAN.preserve._replace(nodes=which))
    last = suspecting("n2")
    assert last.attempt is not None
    state = replace(last, attempts=(*last.attempts[:-1], replace(last.attempt, failed_node="n1")))
    assert preserved(plan, state, ("n0", "n1", "n2", "n3"), "n0") == expected
