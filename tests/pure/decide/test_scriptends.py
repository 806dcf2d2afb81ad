"""How a user's own script has ended."""

from __future__ import annotations

import pytest

from safelaunch.base.model import Exit
from safelaunch.decide.ends.scriptends import ScriptWords, TaskEnd, exits_of, let_pass
from safelaunch.slurm.slurmoutput import parse_task_ends
from tests.tables import each

OK, BAD, NOWHERE = Exit("n0", 0, 0), Exit("n0", 0, 143), Exit("", 0, 143)
KILLED, ENDED = Exit("n1", 1, 137, 9), Exit("n0", 0, 143, 15)
TRAINED = [TaskEnd(2, 8.2, ENDED), TaskEnd(2, 8.1, KILLED), TaskEnd(1, 3.0, Exit("n0", 0, 1))]   # after a helper


@each(("own", "ends", "hides", "told"), [
    (BAD, [TaskEnd(0, 8.5, BAD), *TRAINED], False, (KILLED, ENDED)),
    (OK, [TaskEnd(0, 8.5, OK), *TRAINED], True, (KILLED, ENDED)),
    (OK, [TaskEnd(0, 8.5, OK), *TRAINED], False, (OK,)),                          # srun … || true
    (OK, [TaskEnd(0, 9.0, OK), *TRAINED, TaskEnd(3, 8.8, OK)], True, (OK,)),      # the next srun ended well
    (OK, [TaskEnd(0, 8.0, OK), *TRAINED[:2]], True, (OK,)),   # left behind, and ended
    (BAD, [TaskEnd(0, 1.0, BAD)], True, (NOWHERE,)),
    (BAD, TRAINED, True, (NOWHERE,)),                                                 # the script's own guard is silent
], ids=["fails", "hides", "handles", "went on", "left behind", "no srun", "silent"])
def test_a_script_that_fails_or_hides_a_failure_has_ended_as_the_first_rank_of_its_last_srun(
        own: Exit, ends: list[TaskEnd], hides: bool, told: tuple[Exit, ...]) -> None:
    assert exits_of((own,), ends, lambda: hides, ScriptWords(("n0",), [], lambda: "")) == told


SHARDS = [TaskEnd(1, 1.0, OK), TaskEnd(1, 4.0, Exit("n0", 1, 1)), TaskEnd(1, 8.0, Exit("n1", 2, 0))]


def test_a_shard_that_fails_alone_is_the_scripts_own_affair_as_under_sbatch() -> None:
    none, failed = ScriptWords(("n0", "n1"), [], lambda: ""), Exit("n0", 1, 1)
    rows = {
        "the others ended well after it": (SHARDS, (OK,), (failed,)),
        "nobody ended well after it": (SHARDS[:2], (failed,), ()),
        "it was killed": ([TaskEnd(1, 4.0, KILLED), SHARDS[2]], (KILLED,), ()),
        "its own kill": ([TaskEnd(1, 4.0, Exit("n0", 1, 143)), SHARDS[2]], (Exit("n0", 1, 143),), ()),
    }
    for name, (ends, told, passed) in rows.items():
        every = [TaskEnd(0, 9.0, OK), *ends]
        assert exits_of((OK,), every, lambda: True, none) == told, name
        assert let_pass((OK,), every) == passed, name
    assert exits_of((BAD,), [TaskEnd(0, 9.0, BAD), *SHARDS], lambda: True, none) == (failed,)
    assert let_pass((BAD,), [TaskEnd(0, 9.0, BAD), *SHARDS]) == ()


@each(("code", "words", "told"), [
    (137, "srun: error: n1: task 1: Killed\nsrun: error: n0: task 0: Terminated\n", (KILLED,)),
    (1, "srun: error: n1: task 1: Killed\n", (KILLED,)),              # of a program that has called srun
    (3, "srun: error: n2: task 0: Exited with exit code 1\nsrun: error: n1: task 1: Exited with exit code 3\n",
     (Exit("n1", 1, 3),)),                                            # after a helper
    (1, "srun: error: n1: task 1: Killed\nsrun: error: n2: task 2: Killed\n", None),
    (3, "srun: error: n7: task 1: Exited with exit code 3\n", None),   # no node of the attempt
    (3, "", None), (3, "  srun: error: n1: task 1: Killed\n", None), (3, "srun: error: n1: task 1: Terminated\n", None),
], ids=["killed", "called", "helper first", "two", "another's node", "no word", "quoted", "ended by srun"])
def test_a_rank_without_a_guard_is_named_by_sruns_words_and_else_no_node_is(
        code: int, words: str, told: tuple[Exit, ...] | None) -> None:
    own = (Exit("n0", 0, code),)
    ends = [TaskEnd(0, 8.5, own[0])]
    three, one = (ScriptWords(nodes, [], lambda: words) for nodes in (("n0", "n1", "n2"), ("n0",)))
    assert exits_of(own, ends, lambda: False, three) == (told or (Exit("", 0, code),))
    (here,) = [exit for exit in parse_task_ends(words) if exit.node == "n0"] or (Exit("", 0, code),)
    assert exits_of(own, ends, lambda: False, one) == (here,)   # the only node is not to blame either


@each(("sruns", "ends", "hides", "words", "told"), [
    (["plain"], [], True, "srun: error: n1: task 1: Killed\n", (KILLED,)),
    (["guarded", "plain"], [TaskEnd(1, 3.0, OK)], True, "srun: error: n1: task 1: Killed\n", (KILLED,)),
    (["plain"], [], True, "step 7\n", (OK,)),
    (["plain"], [], False, "srun: error: n1: task 1: Killed\n", (OK,)),
    ([], [], True, "srun: error: n1: task 1: Killed\n", (OK,)),
    (["plain", "guarded"], [TaskEnd(1, 3.0, OK)], True, "srun: error: n1: task 1: Killed\n", (OK,)),
    (["plain", "plain"], [], True, "srun: error: n1: task 1: Killed\n", (OK,)),
    (["guarded", "plain"], [TaskEnd(1, 3.0, KILLED), TaskEnd(2, 4.0, OK)], True, "srun: error: n1: task 1: Killed\n",
     (OK,)),
    (["guarded"], [], True, "srun: error: n1: task 1: Killed\n", (KILLED,)),
    (["guarded"], [TaskEnd(1, 3.0, OK)], True, "srun: error: n1: task 1: Killed\n", (KILLED,)),
    (["guarded"], [TaskEnd(1, 3.0, OK)], True, "srun: error: n0: task 0: Killed\n", (OK,)),
    (["guarded"], [TaskEnd(1, 3.0, OK)], True, "srun: error: n1: task 1: Exited with exit code 1\n", (OK,)),
    (["guarded", "guarded"], [TaskEnd(1, 3.0, OK)], True, "srun: error: n1: task 1: Killed\n", (OK,)),
], ids=["alone", "last", "no word", "handled", "none noted", "before another", "two", "of a guarded one",
        "guards that told nothing", "a guard that told nothing", "a guard that told otherwise",
        "a shard", "which of two"])
def test_a_failure_without_a_guard_that_a_script_hides_is_seen_where_sruns_words_can_be_of_no_other_srun(
        sruns: list[str], ends: list[TaskEnd], hides: bool, words: str, told: tuple[Exit, ...]) -> None:
    known = ScriptWords(("n0", "n1"), sruns, lambda: words)
    assert exits_of((OK,), [TaskEnd(0, 8.5, OK), *ends], lambda: hides, known) == told


@pytest.mark.parametrize(("words", "end"), [
    ("n3: tasks 5-7: Exited with exit code 2", Exit("n3", 5, 2)), ("n3: task 5: Out Of Memory", Exit("n3", 5, 137, 9)),
    ("n3: task 5: Segmentation fault (core dumped)", Exit("n3", 5, 139, 11)),
    ("n3: task 5: Aborted", Exit("n3", 5, 134, 6)),
])
def test_what_srun_says_of_a_task_is_read(words: str, end: Exit) -> None:
    assert parse_task_ends(f"step 1\nsrun: error: {words}\n") == (end,)
    assert [one.node for one in parse_task_ends(f"srun: error: n[1-2]{words[2:]}\n")] == ["n1", "n2"]
