"""What needs no long hold: a rank that is named, for which all others wait, and nothing that takes its time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from safelaunch.hangs import hang
from safelaunch.hangs.hang import HOLD_FILES_S, HOLD_MOST_S, HOLD_S, NAMED_S
from safelaunch.hangs.proof import (
    ALL_LOOKS_S,
    BETWEEN_LOOKS_S,
    Examination,
    conclude,
    counts_at_s,
    is_certain,
    last_look_s,
    pause_before_last_s,
    stacks_phase,
    weigh,
)
from safelaunch.stacks.ranks import KernelPlace, Life, ObservedRank, Stack
from safelaunch.stacks.stacks import fold
from safelaunch.stacks.verdict import judge_hang
from safelaunch.trainlog.lines import Talk
from tests.pure.hangs.stack_values import ALL_REDUCE, rank, reports
from tests.tables import each

MAIN: Stack = ("main (train.py:250)", "<module> (train.py:300)")
SLEEP: Stack = ("train_step (train.py:41)", *MAIN)
ASKS: Stack = ("exists (<frozen genericpath>:19)", "train_step (train.py:49)", *MAIN)
PAUSES: Stack = ("train_step (train.py:50)", *MAIN)
BACKWARD: Stack = ("_engine_run_backward (torch/autograd/graph.py:824)", "backward (torch/_tensor.py:5)", *MAIN)
OLD_BACKWARD: Stack = ("backward (torch/autograd/__init__.py:200)", "backward (torch/_tensor.py:5)", *MAIN)
BARRIER: Stack = ("barrier (torch/distributed/distributed_c10d.py:4100)", *MAIN)
RECEIVES: Stack = ("receive (ring.py:7)", *MAIN)
LOADER: Stack = ("wait (threading.py:324)", "get (queue.py:180)",
                 "_try_get_data (torch/utils/data/dataloader.py:1011)",
                 "__next__ (torch/utils/data/dataloader.py:530)", *MAIN)
NAP = KernelPlace(1, "python", "S", "hrtimer_nanosleep", "clock_nanosleep")
FUTEX = KernelPlace(1, "python", "S", "futex_wait_queue", "futex")
RECV = KernelPlace(1, "python", "S", "sk_wait_data", "recvfrom")


def still(number: int, stack: Stack, main: KernelPlace, switches: float = 7.0, **fields: Any) -> ObservedRank:
    life = tuple(Life(switches, 0.0, 0.0, 0.0, 0.0, t) for t in (1.0, 3.0))
    return rank(number, stack, stack, stack, ran=False, cpu=0.0, main=main, life=life, **fields)


def naps(number: int = 3, stack: Stack = SLEEP, switches: float = 7.0) -> ObservedRank:
    return still(number, stack, NAP, switches)


def polls(number: int, *samples: Stack, cpu: float = 0.04) -> ObservedRank:
    return rank(number, *(samples or (PAUSES, ASKS, PAUSES)), ran=True, cpu=cpu, main=NAP, life=(
        Life(number, 0.0, 0.0, 0.0, 0.0, 1.0), Life(number + 9.0, 0.0, 0.0, 0.0, 0.0, 3.0)))


def spins(number: int, stack: Stack = ALL_REDUCE) -> ObservedRank:
    """In NCCL's wait, which takes a core."""
    return rank(number, stack, stack, ran=True, cpu=1.0, states="RR", life=(Life(number, 0.0, 0.0, 0.0, 0.0, 3.0),))


def others(one: object) -> list[ObservedRank]:
    return [one(number) for number in range(3)]  # type: ignore[operator]


def backward(number: int) -> ObservedRank:
    return still(number, BACKWARD, FUTEX)


def look(ranks: Sequence[ObservedRank]) -> Examination:
    told, groups = reports(*ranks), fold(ranks)
    return Examination(told, groups, judge_hang(told, groups=groups))


def silent_from_zero(step_s: float = 0.5) -> hang.Rhythm:
    rhythm = hang.begin(-21 * step_s, 3600.0, None)
    for step in range(20):
        rhythm = hang.update(rhythm, (step - 19) * step_s, Talk(step, (), str(step)))
    return rhythm


NAMED = {
    "a sleep beside NCCL's wait": [*others(spins), naps()],
    "a sleep beside gloo's wait": [*others(lambda n: still(n, ALL_REDUCE, FUTEX)), naps()],
    "a sleep beside DDP's backward passes": [*others(backward), naps()],
    "the same in old PyTorch": [*others(lambda n: still(n, OLD_BACKWARD, FUTEX)), naps()],
    "a sleep beside loops with a pause": [*others(polls), naps()],
    "a sleep beside loops without one": [*others(lambda n: polls(n, ASKS, PAUSES, ASKS, cpu=1.0)), naps()],
    "a sleep beside ranks that wait for a message": [*others(lambda n: still(n, RECEIVES, RECV)), naps()],
    "one of two": [polls(0), naps(1)],
    "two of six": [*(polls(n) for n in range(4)), naps(4), naps(5)],
    "a barrier beside backward passes": [*others(backward), still(3, BARRIER, FUTEX)],
    "backward of one beside the others' barrier": [*others(lambda n: still(n, BARRIER, FUTEX)), backward(3)],
}


@each("ranks", list(NAMED.values()), ids=list(NAMED))
def test_a_rank_that_is_named_and_waited_for_is_ended_soon(ranks: list[ObservedRank]) -> None:
    weighed = weigh([look(ranks), look(ranks)])
    assert (weighed.is_proof, weighed.least_s) == (True, NAMED_S), weighed


@each("ranks", list(NAMED.values()), ids=list(NAMED))
def test_it_is_ended_within_two_minutes_of_the_last_step_and_after_three_looks(ranks: list[ObservedRank]) -> None:
    seen: list[Examination] = []
    rhythm, took_s = silent_from_zero(), 2.0   # a helper step's start, on a busy machine
    now_s = hang.deadline_s(rhythm) + 1.0
    for looks_s, more_s in ((2.0, ALL_LOOKS_S), (4.2, ALL_LOOKS_S), (None, 0.0)):
        if looks_s is None:
            assert not is_certain(rhythm, seen)
            now_s += pause_before_last_s(rhythm, now_s, seen)
            looks_s = last_look_s(seen)
        now_s += looks_s + took_s + (BETWEEN_LOOKS_S if len(seen) == 1 else 0.0)
        seen.append(look(ranks))
        rhythm, why_not = conclude(rhythm, now_s, seen, more_s)
        assert not why_not
    assert NAMED_S <= now_s <= 110.0


def own(name: str, file: str = "train.py", stack: Stack = MAIN) -> Stack:
    return (f"{name} ({file}:12)", *stack)


# On the stack of the one for whom the others wait, asleep between two tries.
TAKES_ITS_TIME = {
    "a compilation": own("wait", "torch/_inductor/async_compile.py"),
    "a build of extensions": own("sleep_until", "torch/utils/cpp_extension.py"),
    "a lock of a build": own("wait", "torch/utils/file_baton.py"),
    "a download's retry": own("sleep", "urllib3/util/retry.py"),
    "a library's retry": own("sleep", "tenacity/nap.py"),
    "a hub": own("http_backoff", "huggingface_hub/utils/_http.py"),
    "a download of its own": ("pause (train.py:9)", *own("download_shard")),
    "an upload of its own": own("upload"),
    "a retry of its own": own("_with_retry"),
    "a checkpoint": own("save_checkpoint"),
    "a checkpoint's library": own("wait", "torch/distributed/checkpoint/state_dict_saver.py"),
    "an evaluation": own("evaluate"),
    "an evaluation below": ("pause (train.py:9)", *own("Trainer._validate")),
    "a file": own("copyfileobj", "shutil.py"),
    "a child process": own("_wait", "subprocess.py"),
    "a tracker": own("wait", "wandb/sdk/mailbox.py"),
    "an import": own("_find_and_load", "<frozen importlib._bootstrap>"),
    "a socket": own("readinto", "socket.py"),
    "data of its own": own("load_batch"),
    "the rendezvous": own("new_group", "torch/distributed/distributed_c10d.py"),
}


@each("stack", list(TAKES_ITS_TIME.values()), ids=list(TAKES_ITS_TIME))
def test_what_may_end_by_itself_keeps_the_long_hold(stack: Stack) -> None:
    for rest in (spins, polls, backward):
        ranks = [*others(rest), naps(3, stack)]
        weighed = weigh([look(ranks), look(ranks)])
        assert not weighed.is_proof or (weighed.is_sure is False and weighed.least_s >= HOLD_S), weighed
        # ... and so does a rank that is at it beside the one that is named.
        ranks = [still(0, stack, FUTEX), *others(rest)[1:], naps(3)]
        assert weigh([look(ranks), look(ranks)]).least_s >= HOLD_S


KEPT = {
    "a lock or an extension's wait": [[*others(spins), still(3, SLEEP, FUTEX)]] * 2,
    "a message of somebody": [[*others(spins), still(3, RECEIVES, RECV)]] * 2,
    "it has run in between": [[*others(spins), naps()], [*others(spins), naps(switches=8.0)]],
    "it is elsewhere by now": [[*others(spins), naps()], [*others(spins), naps(stack=own("cool_down"))]],
    "another one is named by now": [[*others(spins), naps()], [naps(0), *(spins(n) for n in (1, 2, 3))]],
    "all in one collective": [others(spins)] * 2,
    "all in their backward passes": [others(backward)] * 2,
    "all sleep": [[naps(n, own(f"part_{n}")) for n in range(4)]] * 2,
    "most sleep": [[*(naps(n) for n in range(3)), backward(3)]] * 2,
    "a GPU works in a loop": [[*(polls(n)._replace(gpu_util=60.0) for n in range(3)), naps()]] * 2,
    "one is in D state": [[*others(spins)[1:], still(0, own("emit"), KernelPlace(
        1, "python", "D", "rpc_wait", "write", "/gpfs/log", "/gpfs", "gpfs"), states="DD"), naps()]] * 2,
    "no stack can be read": [[*(polls(n)._replace(samples=(), why="closed") for n in range(3)),
                              naps()._replace(samples=(), why="closed")]] * 2,
}


@each("looks", list(KEPT.values()), ids=list(KEPT))
def test_without_that_evidence_the_long_hold_stays(looks: list[list[ObservedRank]]) -> None:
    weighed = weigh([look(ranks) for ranks in looks])
    assert not weighed.is_proof or (not weighed.is_sure and weighed.least_s >= HOLD_S), weighed


def test_who_fetches_or_builds_has_the_time_of_files_as_these_may_stand_still_with_it() -> None:
    builds = own("wait_for_build", "ops.py")
    for stack in (TAKES_ITS_TIME["a download's retry"], TAKES_ITS_TIME["a download of its own"], builds,
                  own("read", "ssl.py", own("read", "http/client.py"))):
        ranks = [*others(lambda number: still(number, BARRIER, FUTEX)), still(3, stack, RECV)]
        weighed = weigh([look(ranks), look(ranks)])
        assert weighed.is_proof and weighed.least_s == hang.HOLD_FILES_S, (stack, weighed)


def test_where_a_first_look_shows_a_sleeper_beside_what_may_be_a_loop_the_next_one_follows_soon() -> None:
    ranks = [*others(lambda number: polls(number, PAUSES, ASKS, own("other")[:1] + MAIN, cpu=1.0)), naps()]
    rhythm, now_s = silent_from_zero(), 57.0
    rhythm, why_not = conclude(rhythm, now_s, [look(ranks)], ALL_LOOKS_S)
    assert why_not and hang.deadline_s(rhythm) <= now_s + BETWEEN_LOOKS_S


def test_the_short_hold_is_for_plain_steps_and_for_silences_without_work() -> None:
    looks = [look(NAMED["a sleep beside NCCL's wait"])] * 3
    short = silent_from_zero()
    assert hang.hold_s(short, 0.0, NAMED_S) == NAMED_S
    assert hang.hold_s(silent_from_zero(50.0), 0.0, NAMED_S) == 200.0, "four steps"
    assert hang.hold_s(hang.update(short, 1.0, Talk(None, ("checkpoint",), "")), 1.0, NAMED_S) == HOLD_S
    assert hang.hold_s(hang.begin(0.0, 3600.0, None), 0.0, NAMED_S) == HOLD_S, "the start"
    warm = hang.update(hang.begin(-30.0, 3600.0, None), 0.0, Talk(1, (), "1"))
    assert (warm.phase, hang.hold_s(warm, 0.0, NAMED_S)) == (hang.WARM_UP, NAMED_S)
    worked = short.__class__(**{**vars(short), "alive_s": 60.0})
    assert hang.hold_s(worked, 0.0, NAMED_S) == 60.0 + HOLD_S
    rhythm, why_not = conclude(short, NAMED_S - 1.0, looks)
    assert why_not.endswith(": this may pass") and counts_at_s(rhythm, looks) == NAMED_S
    assert conclude(short, NAMED_S, looks)[1] == ""


# --- one rank's data loader ------------------------------------------------------------------------------------------


def loads(number: int = 3, *below: KernelPlace) -> ObservedRank:
    return still(number, LOADER, FUTEX, below=below)


READS = KernelPlace(9, "pt_data_worker", "D", "rpc_wait", "read", "/gpfs/shard", "/gpfs", "gpfs")
FUSE = KernelPlace(9, "pt_data_worker", "S", "fuse_wait", "read", "/data/shard", "/data", "fuse")
IDLE = KernelPlace(9, "pt_data_worker", "S", "futex", "futex")


@each(("rest", "below", "least_s"), [
    (backward, (), HOLD_S), (spins, (), HOLD_S), (backward, (IDLE,), HOLD_S), (backward, (READS,), HOLD_FILES_S),
    (spins, (IDLE, FUSE), HOLD_FILES_S)],
    ids=["DDP's backward passes", "a collective", "its workers wait", "a worker in D state", "a worker in a file"])
def test_one_rank_that_waits_for_its_data_has_the_time_of_other_waits(
    rest: object, below: tuple[KernelPlace, ...], least_s: float
) -> None:
    looks = [look([*others(rest), loads(3, *below)])] * 2
    assert looks[0].found.summary.endswith("while 3 wait for it in a collective")
    assert (weigh(looks).phase, weigh(looks).least_s) == ("", least_s)
    assert "may pass" in conclude(silent_from_zero(), least_s - 1.0, looks)[1]
    assert conclude(silent_from_zero(), least_s, looks)[1] == ""


@each(("below", "suspects"), [((IDLE,), ()), ((READS,), ("n1",)), ((IDLE, FUSE), ("n1",)), (
    (KernelPlace(9, "pt_data_worker", "Z"),), ("n1",))], ids=["its own code", "D state", "a file", "a dead worker"])
def test_a_node_is_suspected_for_slow_data_only_by_its_files_and_processes(
    below: tuple[KernelPlace, ...], suspects: tuple[str, ...]
) -> None:
    ranks = [*others(backward), loads(3, *below)._replace(node="n1")]
    assert look(ranks).found.suspects == suspects


@each("ranks", [[loads(n) for n in range(4)], [*(loads(n) for n in range(3)), backward(3)],
                [polls(0), backward(1), backward(2), loads(3)]],
      ids=["all wait for data", "most do", "one does something else"])
def test_data_that_is_slow_for_most_is_given_its_own_time(ranks: list[ObservedRank]) -> None:
    looks = [look(ranks)] * 2
    assert stacks_phase(looks[0].groups) == weigh(looks).phase == "data"
    rhythm, why_not = conclude(silent_from_zero(), HOLD_S + 1.0, looks)
    assert why_not.endswith("data may take longer than a step")
    assert hang.deadline_s(rhythm) == hang.UNSEEN_S - hang.LAG_S


def test_a_driver_beside_ranks_that_may_work_keeps_its_hour() -> None:
    busy = own("forward", "model.py")
    looks = [look([*(rank(n, busy, PAUSES, busy, ran=True, cpu=1.0) for n in range(3)), naps()])] * 2
    assert weigh(looks).least_s == HOLD_MOST_S
