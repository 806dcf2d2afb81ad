"""A rank that sleeps beside ranks that poll: who is named, and who is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from safelaunch.hangs import hang
from safelaunch.hangs.hang import HOLD_MOST_S, HOLD_S
from safelaunch.hangs.proof import Examination, conclude, counts_at_s, verdict_of, weigh
from safelaunch.stacks.ranks import KernelPlace, Life, ObservedRank, Stack
from safelaunch.stacks.stacks import fold
from safelaunch.stacks.stacktext import headline
from safelaunch.stacks.verdict import judge_hang
from safelaunch.trainlog.lines import Talk
from tests.pure.hangs.stack_values import ALL_REDUCE, DATA, rank, reports
from tests.tables import each

MAIN: Stack = ("main (train.py:250)", "<module> (train.py:300)")
# All in the same function, at other lines.
SLEEPS: Stack = ("train_step (train.py:41)", *MAIN)
PAUSES: Stack = ("train_step (train.py:50)", *MAIN)
# As py-spy names them under Python 3.11.
ASKS: Stack = ("exists (<frozen genericpath>:19)", "Trainer.train_step.<locals>.<genexpr> (train.py:49)",
               "train_step (train.py:49)", *MAIN)
COMPUTES: Stack = ("forward (model.py:88)", "train_step (train.py:44)", *MAIN)
NAP = KernelPlace(1, "python", "S", "hrtimer_nanosleep", "clock_nanosleep")
RECEIVES = KernelPlace(1, "python", "S", "sk_wait_data", "recvfrom")


def silent(number: int = 1, stack: Stack = SLEEPS, main: KernelPlace = NAP) -> ObservedRank:
    return rank(number, stack, stack, stack, ran=False, cpu=0.0, main=main,
                life=(Life(7.0, 0.0, 0.0, 0.0, 0.0, 1.0), Life(7.0, 0.0, 0.0, 0.0, 0.0, 3.0)))


def poller(number: int, cpu: float = 0.04, *samples: Stack) -> ObservedRank:
    return rank(number, *(samples or (PAUSES, ASKS, PAUSES)), ran=True, cpu=cpu, main=NAP)


def look(ranks: Sequence[ObservedRank]) -> Examination:
    told, groups = reports(*ranks), fold(ranks)
    return Examination(told, groups, judge_hang(told, groups=groups))


def odd(ranks: Sequence[ObservedRank]) -> list[int | None]:
    """Whom the verdict names as asleep beside others."""
    found = look(ranks).found
    return [one.number for one in found.odd] if "silent_rank" in found.witnesses else []


def silent_for(seconds: float) -> hang.Rhythm:
    """A training of 3 s a step that has been silent for so long at t = 0."""
    rhythm = hang.begin(-seconds - 150, 60.0, None)
    for step in range(50):
        rhythm = hang.update(rhythm, -seconds - 147 + 3 * step, Talk(step, (), str(step)))
    return rhythm


@each(
    ("ranks", "named"),
    [
        ([poller(0), silent(1), poller(2), poller(3)], [1]),
        ([silent(0), poller(1), poller(2), poller(3)], [0]),
        ([poller(0), silent(1)], [1]),
        ([poller(0), silent(1, ("receive (ring.py:7)", *MAIN), RECEIVES), poller(2), poller(3)], [1]),
        ([*(poller(n) for n in range(6)), silent(6), silent(7, ("load (train.py:9)", *MAIN))], [6, 7]),
        ([poller(0, 1.0, ASKS, PAUSES, ASKS), silent(1), poller(2, 0.9, ASKS, ASKS, PAUSES)], [1]),
        ([*(poller(n, 0.03, PAUSES, PAUSES, PAUSES) for n in (0, 2, 3)), silent(1)], [1]),
    ],
    ids=["one of four", "rank 0", "one of two", "it waits for a message", "two in different places",
         "others poll without a pause", "others were seen at one line"],
)
def test_who_sleeps_beside_ranks_that_poll_is_named(ranks: list[ObservedRank], named: list[int]) -> None:
    assert odd(ranks) == named


@each(
    "ranks",
    [
        [poller(0), silent(1, PAUSES), poller(2), poller(3)],
        [silent(0), *(rank(n, COMPUTES, PAUSES, COMPUTES, ran=True, cpu=1.0) for n in (1, 2, 3))],
        [silent(0), *(rank(n, COMPUTES, PAUSES, COMPUTES, states="RRR", ran=True, cpu=0.1) for n in (1, 2, 3))],
        [silent(0), poller(1), poller(2), rank(3, COMPUTES, COMPUTES, COMPUTES, ran=True, cpu=1.0)],
        [poller(0), *(silent(n, ("receive (ring.py:7)", *MAIN), RECEIVES) for n in (1, 2, 3))],
        [poller(0), silent(1, ("receive (ring.py:7)", *MAIN), RECEIVES)],
        [poller(0), silent(1, ("receive (ring.py:7)", *MAIN), RECEIVES)._replace(life=()), poller(2), poller(3)],
        [poller(0), silent(1, DATA), poller(2), poller(3)],
        [silent(n) for n in range(4)],
        [poller(n) for n in range(4)],
    ],
    ids=["a slow loop that polls as well", "a driver whose workers compute",
         "the same on a crowded machine", "one of the others computes", "most wait for the one that polls",
         "one of two waits for a message", "one waits for a message in a short look", "a data loader", "all sleep",
         "all poll"],
)
def test_no_healthy_or_doubtful_scene_names_a_rank(ranks: list[ObservedRank]) -> None:
    assert odd(ranks) == []


def test_the_verdict_says_where_it_sleeps_and_where_the_others_wait() -> None:
    found = look([poller(0), silent(1), poller(2), poller(3)]).found
    assert found.kind == "deadlock" and found.suspects == ()
    assert found.summary == ("rank 1 on n0 sleeps in train_step, train.py:41 and has not run during "
                             "the look, unlike 3 ranks that wait in a loop in train_step, train.py:50")
    assert "train.py:41" in found.odd[0].why and "train.py:50" in found.odd[0].why


BACKWARD: Stack = ("_engine_run_backward (torch/autograd/graph.py:824)", "backward (torch/_tensor.py:5)", *MAIN)
WAITS = KernelPlace(1, "python", "S", "futex_wait_queue", "futex")


def test_a_sleep_of_its_own_beside_ranks_that_all_wait_is_named() -> None:
    found = look([silent(0, BACKWARD, WAITS), silent(1)]).found
    assert (found.kind, [one.number for one in found.odd]) == ("deadlock", [1])
    assert found.summary == ("rank 1 on n0 sleeps in train_step, train.py:41, while rank 0 on n0 "
                             "waits in backward's all-reduce, train.py:250")


@each("ranks", [
    [silent(0, BACKWARD, WAITS), silent(1, BACKWARD, WAITS)], [silent(0), silent(1)],
    [silent(0, BACKWARD, WAITS), silent(1), silent(2)], [silent(0, BACKWARD, WAITS)._replace(ran=True), silent(1)],
    [silent(0, BACKWARD, WAITS)._replace(ran=None), silent(1)], [silent(0, BACKWARD, WAITS), silent(1, DATA)],
], ids=["all wait", "all sleep", "most sleep", "one runs", "one is unknown", "a data loader"])
def test_otherwise_no_sleep_is_named(ranks: list[ObservedRank]) -> None:
    assert "sleeps in" not in look(ranks).found.summary or odd(ranks)


def test_without_stacks_the_kernels_counters_name_it() -> None:
    def closed(number: int, ran: bool) -> ObservedRank:
        return rank(number, (), ran=ran, cpu=0.02 * ran, main=NAP, why="ptrace is closed")

    ranks = [closed(0, True), closed(1, False), closed(2, True), closed(3, True)]
    found = look(ranks).found
    assert [one.number for one in found.odd] == [1] and "clock_nanosleep" in found.summary
    assert conclude(silent_for(HOLD_S + 1), 0.0, [look(ranks), look(ranks)])[1] == ""


@each("cpu", [0.04, 1.0], ids=["with pauses", "without a pause"])
def test_ranks_that_poll_for_a_rank_that_sleeps_are_no_sign_of_life(cpu: float) -> None:
    looks = [look([poller(0, cpu), silent(1), poller(2, cpu), poller(3, cpu)]),
             look([poller(0, cpu, ASKS, PAUSES, ASKS), silent(1), poller(2, cpu), poller(3, cpu)])]
    assert weigh(looks).is_proof
    assert "may pass" in conclude(silent_for(60.0), 0.0, looks)[1]
    assert conclude(silent_for(HOLD_S + 1), 0.0, looks)[1] == ""


def test_a_loop_of_which_one_look_shows_too_little_is_known_by_the_look_before() -> None:
    def seen(*samples: Stack) -> Examination:
        return look([silent(0), *(poller(number, 1.0, *samples) for number in (1, 2, 3))])

    between = ("train_step (train.py:49)", *MAIN)
    looks = [seen(PAUSES, ASKS, PAUSES), seen(PAUSES, between, PAUSES)]
    assert [one.found.kind for one in looks] == ["deadlock", "moving"]
    assert conclude(silent_for(HOLD_S + 1), 0.0, looks)[1] == ""
    assert verdict_of(looks).summary.startswith("rank 0 on n0 sleeps")


def test_a_rank_that_writes_while_the_others_poll_is_alive() -> None:
    def writes(moved: float, t: float) -> Examination:
        saver = silent(0)._replace(life=(Life(0.0, moved, 0.0, 0.0, 0.0, t),))
        return look([saver, poller(1), poller(2), poller(3)])

    weighed = weigh([writes(0.0, 1.0), writes(2e9, 11.0)])
    assert (weighed.is_proof, weighed.is_alive) == (False, True) and "read or written" in weighed.why


def beside_work(t: float, naps: float = 7.0, moved: float = 0.0, main: KernelPlace = NAP) -> Examination:
    """Rank 0 in a sleep, the others in what may be work: their counters at `t`."""
    driver = silent(0, main=main)._replace(life=(Life(naps, moved, 0.0, 0.0, 0.0, t),))
    return look([driver, *(rank(n, COMPUTES, PAUSES, COMPUTES, ran=True, cpu=1.0) for n in (1, 2, 3))])


def test_ranks_that_may_work_beside_one_that_sleeps_are_given_an_hour_and_no_more() -> None:
    looks = [beside_work(0.0), beside_work(235.0)]
    assert looks[-1].found.kind == "moving"
    rhythm, why_not = conclude(silent_for(HOLD_MOST_S - 1), 0.0, looks)
    assert why_not.endswith(": this may pass") and counts_at_s(rhythm, looks) == 1.0
    assert conclude(silent_for(HOLD_MOST_S + 1), 0.0, looks)[1] == ""
    assert verdict_of(looks).summary.startswith("rank 0 on n0 sleeps in train_step, train.py:41")
    assert verdict_of(looks).confidence < 0.5


@each(
    "looks",
    [[beside_work(235.0)], [beside_work(0.0), beside_work(235.0, naps=8.0)],
     [beside_work(0.0), beside_work(235.0, moved=1e9)],
     [beside_work(0.0, main=RECEIVES), beside_work(235.0, main=RECEIVES)]],
    ids=["one look alone", "it ran in between", "it has written", "a message would wake it"],
)
def test_a_driver_that_may_wait_for_its_workers_is_never_called_hung(looks: list[Examination]) -> None:
    for asked_s in (None, 15.0):
        rhythm = replace(silent_for(10 * HOLD_MOST_S), no_progress_s=asked_s)
        assert conclude(rhythm, 0.0, looks)[1].startswith("no hang so far")


def test_who_has_set_the_silence_ends_no_ranks_that_may_work_sooner() -> None:
    rhythm = replace(silent_for(600.0), no_progress_s=15.0)
    assert "may pass" in conclude(rhythm, 0.0, [beside_work(0.0), beside_work(235.0)])[1]


def test_a_short_look_is_less_sure_that_a_rank_sleeps() -> None:
    def seen_for(seconds: float) -> float:
        one = silent(1)._replace(life=tuple(Life(1.0, 0.0, 0.0, 0.0, 0.0, 5.0 + passed) for passed in (0.0, seconds)))
        return look([poller(0), one, poller(2), poller(3)]).found.confidence

    assert (seen_for(0.2), seen_for(2.0)) == (0.4, 0.7)


def test_in_a_known_collective_the_rank_outside_of_it_is_told_by_that() -> None:
    ranks = [*(rank(n, ALL_REDUCE, ran=n != 2, cpu=0.0) for n in range(3)), silent(3)]
    assert look(ranks).found.summary.startswith(
        "rank 3 on n0 is in train_step, train.py:41, while 3 ranks (0-2) wait in all_reduce, ")


def test_of_loops_that_sleep_through_a_short_look_the_lines_are_told() -> None:
    ranks = [silent(1), *(silent(number, PAUSES) for number in (0, 2, 3, 4))]
    found = look(ranks)
    assert found.found.summary.startswith("rank 1 on n0 is in train_step (train.py:41) ← main ← <module>, while 4 ")
    assert "train_step (train.py:50)" in found.found.summary and [one.number for one in found.found.odd] == [1]
    assert headline(found.groups) == ("4 ranks: train_step (train.py:50) ← main ← <module> · "
                                      "1 rank: train_step (train.py:41) ← main ← <module>")
