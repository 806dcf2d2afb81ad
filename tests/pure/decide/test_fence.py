"""The fence's policy: which node is clean, waited for, swept or lost; and that only what is said of a node counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.base.timing import CLOSED_S, OLD_HOST_S
from safelaunch.decide.ends.fence import (
    GUARDED,
    STUCK_S,
    Fencing,
    Node,
    ScriptTask,
    StepAnswer,
    Swept,
    has_script_gone,
    is_lease_over,
    judge,
    judge_sweep,
)
from tests.tables import each

TALKING = Node(2, guards=2, connected=True)
SILENT = Node(2, guards=2, gone=1)


@each(("node", "expected"), [
    (Node(2, guards=2, gone=2), Fencing.CLEAN),
    (Node(2, guards=2, gone=2, is_lost=True), Fencing.CLEAN),
    (Node(2, guards=1, gone=1), Fencing.WAIT),
    (SILENT._replace(is_lost=True), Fencing.LEASE),
    (TALKING, Fencing.WAIT),
    (TALKING._replace(waited_s=STUCK_S), Fencing.WAIT),
    (TALKING._replace(waited_s=STUCK_S + 1), Fencing.STUCK),
    (TALKING._replace(waited_s=STUCK_S + 1, is_frozen=True), Fencing.FROZEN),
    (SILENT, Fencing.WAIT),
    (SILENT._replace(waited_s=CLOSED_S + 0.1), Fencing.SWEEP),
    (SILENT._replace(waited_s=CLOSED_S + 0.1, is_old_host=True), Fencing.WAIT),
    (SILENT._replace(waited_s=OLD_HOST_S + 0.1, is_old_host=True), Fencing.SWEEP),
    (SILENT._replace(srun_ended=True), Fencing.SWEEP),
    (SILENT._replace(srun_ended=True, may_ask=False), Fencing.LATER),
    (SILENT._replace(srun_ended=True, has_helpers=False), Fencing.LEASE),
    (Node(1), Fencing.WAIT),
    (Node(1, srun_ended=True), Fencing.SWEEP),
], ids=[
    "every guard has said that nothing is left", "... although the node was called lost", "one guard never called",
    "a silent node", "ranks that are told to end", "... for a minute", "ranks in D state after a KILL",
    "ranks that sleep in a frozen folder blame no node", "a guard lost its connection a moment ago",
    "... and did not come back", "guards of the host before look for the new endpoint", "... and did not come",
    "srun has ended", "slurmctld did not answer a moment ago", "a site that forbids --overlap",
    "no guard has called yet", "no guard ever called",
])
def test_what_the_fence_does_about_a_node(node: Node, expected: Fencing) -> None:
    assert judge(node) is expected


@each(("answer", "expected"), [
    (StepAnswer(left=False), Swept.CLEAN),
    (StepAnswer(left=False, is_frozen=True, is_unknown=True), Swept.CLEAN),
    (StepAnswer(left=True), Swept.STUCK),
    (StepAnswer(left=True, is_frozen=True), Swept.AGAIN),
    (StepAnswer(is_unknown=True), Swept.AGAIN),
    (StepAnswer(is_unknown=True, is_aborted=True), Swept.DEAD),
    (StepAnswer(is_unknown=True, is_late=True), Swept.DEAD),
    (StepAnswer(is_refused=True), Swept.LEASE),
    (StepAnswer(is_refused=True, failed=9), Swept.LEASE),
    (StepAnswer(), Swept.RETRY),
    (StepAnswer(failed=1), Swept.DEAD),
], ids=[
    "nothing is left", "... whatever else is wrong", "processes in D state", "... in a frozen folder",
    "slurmctld is away", "srun gave the node up after 11 s", "srun hangs on the node", "srun refuses --overlap",
    "... again and again", "the first failure on the node", "the second one",
])
def test_what_follows_from_a_helper_step(answer: StepAnswer, expected: Swept) -> None:
    assert judge_sweep(answer) is expected


NODES = st.builds(
    Node, st.integers(1, 8), st.integers(0, 8), st.integers(0, 8), st.booleans(), st.booleans(), st.booleans(),
    st.floats(0, 1e6), st.booleans(), st.booleans(), st.booleans(), st.booleans())


@given(NODES)
def test_only_the_guards_of_all_tasks_make_a_node_clean_without_a_helper_step(node: Node) -> None:
    assert (judge(node) is Fencing.CLEAN) == (node.guards >= node.tasks and node.gone == node.guards)


@given(NODES)
def test_no_node_is_lost_to_a_frozen_folder_or_before_a_minute(node: Node) -> None:
    if judge(node) is Fencing.STUCK:
        assert not node.is_frozen and node.waited_s > STUCK_S


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.none() | st.floats(0, 1e6), st.floats(1, 60))
def test_a_lease_is_over_only_after_the_last_word_and_the_records_move(
    now_s: float, heard_s: float, record_s: float | None, lease_s: float
) -> None:
    if is_lease_over(now_s, heard_s, record_s, lease_s, 5.0):
        assert record_s is not None and now_s > heard_s + lease_s and now_s > record_s


SCRIPT = ScriptTask(0, True, None)
TWO = (ScriptTask(7, True, 2), ScriptTask(7, True, 2))   # both tasks of a step


@each(("sruns", "told", "expected"), [
    ([GUARDED], [SCRIPT, *TWO], True),
    ([GUARDED, GUARDED], [SCRIPT, *TWO, ScriptTask(9, True, 1)], True),
    (None, [SCRIPT, *TWO], False),
    ([], [SCRIPT], True),
    ([GUARDED], [*TWO], False),
    ([GUARDED], [SCRIPT._replace(gone=False), *TWO], False),
    ([GUARDED], [SCRIPT, TWO[0]], False),
    ([GUARDED], [SCRIPT, TWO[0], TWO[1]._replace(gone=False)], False),
    ([GUARDED], [SCRIPT, ScriptTask(7, True, None)], False),
    ([GUARDED, GUARDED], [SCRIPT, *TWO], False),
    ([GUARDED, "plain"], [SCRIPT, *TWO], False),
    ([GUARDED], [SCRIPT, *TWO, ScriptTask(9, True, 1)], False),
    ([GUARDED, GUARDED], [SCRIPT, *TWO, ScriptTask(9, True, 3)], False),
], ids=[
    "the script and both tasks of its srun", "... of two sruns", "nobody knows its sruns", "it has called none",
    "the script's own guard never called", "the script runs", "a task never called", "a task runs",
    "nobody knows how many tasks there are", "an srun has made no step yet", "an srun has no guards",
    "a step of no known srun", "a task of the second never called",
])
def test_a_script_has_gone_when_all_that_its_sruns_started_has_said_so(
    sruns: list[str] | None, told: list[ScriptTask], expected: bool
) -> None:
    assert has_script_gone(sruns, told) is expected
