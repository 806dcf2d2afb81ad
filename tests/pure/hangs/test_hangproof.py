"""What is proof of a hang, and what only takes its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from safelaunch.base.model import Silent
from safelaunch.hangs import hang
from safelaunch.hangs.hang import HOLD_FILES_S, HOLD_S
from safelaunch.hangs.proof import Examination, conclude, signs_of_life, stacks_phase, weigh
from safelaunch.stacks.ranks import Life, ObservedRank, Stack
from safelaunch.stacks.stacks import fold
from safelaunch.stacks.verdict import judge_hang
from safelaunch.trainlog.lines import Talk
from tests.pure.hangs.stack_values import ALL_REDUCE, DATA, SEND, asleep, rank, reports
from tests.tables import each

ITEM: Stack = ("sync (train.py:131)", "train (train.py:120)", "<module> (train.py:300)")
FORWARD: Stack = ("forward (model.py:88)", "train (train.py:120)", "<module> (train.py:300)")
SAVE: Stack = ("save (torch/serialization.py:850)", "save_checkpoint (train.py:95)", *ITEM[1:])
BARRIER: Stack = ("barrier (torch/distributed/distributed_c10d.py:4100)", *ITEM[1:])
SCORE: Stack = ("sync (train.py:75)", "evaluate (train.py:77)", *ITEM[1:])


def look(ranks: Sequence[ObservedRank], silent: Sequence[Silent] = ()) -> Examination:
    groups = fold(ranks)
    told = reports(*ranks)
    return Examination(told, groups, judge_hang(told, silent, groups=groups))


def twice(ranks: Sequence[ObservedRank]) -> list[Examination]:
    return [look(ranks), look(ranks)]


def lived(one: ObservedRank, *points: tuple[float, ...]) -> ObservedRank:
    """A rank with these counters: (bytes, faults, CPU below, rests, t), a look each."""
    return one._replace(life=tuple(Life(0.0, *point) for point in points))


def spinning(stack: Stack, count: int = 8) -> list[ObservedRank]:
    return [rank(number, stack, stack, cpu=1.0, ran=True) for number in range(count)]


def silent_for(seconds: float) -> hang.Rhythm:
    """A training of 3 s a step that has been silent for so long at t = 0."""
    rhythm = hang.begin(-seconds - 150, 60.0, None)
    for step in range(50):
        rhythm = hang.update(rhythm, -seconds - 147 + 3 * step, Talk(step, (), str(step)))
    return rhythm


def test_ranks_in_different_collectives_are_proof_at_once() -> None:
    ranks = [*spinning(ALL_REDUCE, 7), rank(7, SEND, SEND, cpu=1.0, ran=True)]
    rhythm, why_not = conclude(silent_for(60.0), 0.0, twice(ranks))
    assert why_not == "" and rhythm == silent_for(60.0)


def test_a_stopped_rank_is_proof_at_once() -> None:
    ranks = [*spinning(ALL_REDUCE, 7), rank(7, ALL_REDUCE, states="TT")]
    assert conclude(silent_for(60.0), 0.0, twice(ranks))[1] == ""


def test_ranks_that_their_launcher_has_started_anew_are_no_hang() -> None:
    before = [*spinning(ALL_REDUCE, 7), rank(7, ALL_REDUCE, states="ZZ")]
    after = [rank(0, ITEM, pid=2000), *(rank(n, ALL_REDUCE, states="ZZ") for n in range(1, 8))]
    weighed = weigh([look(before), look(after)])
    assert (weighed.is_proof, weighed.is_alive) == (False, True)
    assert "rank 0 on n0 was started anew" in weighed.why


@each(
    "ranks",
    [spinning(ITEM), spinning(ALL_REDUCE), [rank(n, ALL_REDUCE, ran=False) for n in range(8)],
     [*spinning(ALL_REDUCE, 7), rank(7, ITEM, ran=False)], [*spinning(ALL_REDUCE, 7), asleep(7, ITEM)]],
    ids=["all wait for the GPU", "all in one collective", "all asleep", "one elsewhere", "one in D state"],
)
def test_what_may_pass_counts_once_it_has_lasted(ranks: list[ObservedRank]) -> None:
    early, why_not = conclude(silent_for(60.0), 0.0, twice(ranks))
    assert "may pass" in why_not and hang.deadline_s(early) > 0
    lasts_s = HOLD_FILES_S if ranks[-1].stuck_in else HOLD_S
    assert "may pass" in conclude(silent_for(lasts_s - 1), 0.0, twice(ranks))[1]
    assert conclude(silent_for(lasts_s + 1), 0.0, twice(ranks))[1] == ""


def test_a_filesystem_that_stands_still_after_work_was_seen_is_given_its_own_time() -> None:
    ranks = [*spinning(ALL_REDUCE, 7), asleep(7, ITEM)]
    rhythm = replace(silent_for(5000.0), alive_s=-HOLD_FILES_S + 1)
    assert "may pass" in conclude(rhythm, 0.0, twice(ranks))[1]
    assert conclude(replace(rhythm, alive_s=-HOLD_FILES_S - 1), 0.0, twice(ranks))[1] == ""


def test_who_has_set_the_silence_is_asked_no_more_than_two_looks() -> None:
    rhythm = hang.update(hang.begin(-100.0, 60.0, 15.0), -60.0, Talk(1, (), "1"))
    assert conclude(rhythm, 0.0, twice(spinning(ITEM)))[1] == ""


@each(
    ("before", "after", "says"),
    [
        ((0.0, 0.0, 0.0, 0.0, 1.0), (2e9, 0.0, 0.0, 0.0, 3.0), "has read or written 1907 MB"),
        ((0.0, 0.0, 0.0, 0.0, 1.0), (0.0, 0.0, 1.9, 0.0, 3.0), "processes of its own, which have computed for 1.9 s"),
        ((0.0, 0.0, 0.0, 4.0, 1.0), (0.0, 0.0, 0.0, 5.0, 3.0), "goes through backward passes"),
        ((0.0, 0.0, 0.0, 0.0, 1.0), (0.0, 5000.0, 0.0, 0.0, 3.0), "has touched 20 MB of new memory"),
        ((0.0, 0.0, 0.0, 0.0, 1.0), (9e5, 900.0, 0.4, 0.0, 3.0), ""),
        ((0.0, 0.0, 0.0, 0.0, 1.0), (3e6, 2000.0, 3.0, 0.0, 601.0), ""),
    ],
    ids=["a checkpoint's bytes", "a compiler", "backward passes", "new memory", "a heartbeat", "ten minutes of these"],
)
def test_what_moves_although_the_stack_does_not(
    before: tuple[float, ...], after: tuple[float, ...], says: str
) -> None:
    others = [rank(number, BARRIER, ran=False) for number in range(1, 8)]
    looks = [look([lived(rank(0, SAVE), before), *others]), look([lived(rank(0, SAVE), after), *others])]
    assert (says in signs_of_life(looks)) if says else signs_of_life(looks) == ""
    assert weigh(looks).is_proof is not bool(says)


def test_a_rank_that_was_elsewhere_at_an_earlier_look_goes_on() -> None:
    looks = [look([rank(n, FORWARD, FORWARD, cpu=1.0) for n in range(8)]), *twice(spinning(ITEM))]
    assert "elsewhere" in signs_of_life(looks)


def test_a_loop_that_polls_is_no_sign_of_life() -> None:
    ranks = [*spinning(ALL_REDUCE, 7), rank(7, ITEM, FORWARD, cpu=0.04, ran=True)]
    assert signs_of_life(twice(ranks)) == ""
    assert "still moves" in signs_of_life(twice([*ranks[:7], ranks[7]._replace(cpu=0.9)]))


@each(
    ("stack", "phase"),
    [
        (SAVE, "checkpoint"), (SCORE, "evaluation"), (DATA, "evaluation"), (ITEM, ""), (ALL_REDUCE, ""),
        (("_get_data (torch/utils/data/dataloader.py:1163)", *ITEM[1:]), "data"),
        (("wait (torch/_inductor/async_compile.py:300)", "compile_fx (torch/_inductor/compile_fx.py:90)"), "compile"),
        (("estimate_loss (train.py:216)", "<module> (train.py:267)"), "evaluation"),
        (("_save_checkpoint (transformers/trainer.py:3000)", "train (transformers/trainer.py:2245)"), "checkpoint"),
        (("validate_args (arguments.py:12)", "<module> (train.py:1)"), ""),
        (("compile_wrapper (torch/_dynamo/eval_frame.py:655)", *ITEM[1:]), ""),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0].partition(" ")[0],
)
def test_stacks_show_what_takes_longer_than_a_step(stack: Stack, phase: str) -> None:
    assert stacks_phase(fold([*spinning(ALL_REDUCE, 7), rank(7, stack)])) == phase


def test_an_evaluation_that_only_the_stacks_show_is_given_its_time() -> None:
    rhythm, why_not = conclude(silent_for(60.0), 0.0, [look(spinning(SCORE))])
    assert why_not.startswith("looks healthy: all 8 ranks ran between the samples, at sync, train.py:75")
    assert why_not.endswith("; evaluation may take longer than a step")
    assert hang.phase_of(rhythm) == "evaluation" and hang.deadline_s(rhythm) > 600
    assert conclude(rhythm, 1000.0, twice(spinning(SCORE)))[1] == "", "its time is over"


def closed(number: int, ran: bool, cpu: float = 0.0) -> ObservedRank:
    """A rank whose stack nobody may read: its state, its calls and its counters alone are known."""
    return lived(rank(number, (), ran=ran, cpu=cpu, why="ptrace is closed"), (0.0, 0.0, 0.0, 0.0, 1.0),
                 (0.0, 0.0, 0.0, 0.0, 3.0))


def test_without_a_stack_main_threads_that_do_not_run_are_the_second_witness() -> None:
    ranks = [*(closed(number, False) for number in range(7)), closed(7, True)]
    found = look(ranks).found
    assert found.witnesses == ("asleep",) and [one.number for one in found.odd] == [7]
    assert found.summary.startswith("no stack can be read; 7 ranks (0-6) sleep without a pause")
    assert "may pass" in conclude(silent_for(60.0), 0.0, twice(ranks))[1]
    assert conclude(silent_for(HOLD_S + 1), 0.0, twice(ranks))[1] == ""


def test_without_a_stack_ranks_that_compute_are_left_alone() -> None:
    ranks = [closed(number, True, cpu=1.0) for number in range(8)]
    assert look(ranks).found.witnesses == ()
    one = [*(closed(number, False) for number in range(7)), closed(7, True, cpu=1.0)]
    assert "computes, and nobody may see what" in conclude(silent_for(HOLD_S + 1), 0.0, twice(one))[1]
