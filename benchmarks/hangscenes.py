"""What a look at a made-up training shows, healthy or hung: stacks, states and counters of 8 ranks on 2 nodes.

The worst that can be true of a healthy one is drawn often: a loop that stands at `loss.item()` at 85 of 100 samples,
trainings without data loaders or any read or write, evaluations under names that nobody knows, ranks asleep in D state
on a filesystem that comes back. So are those of which one rank alone compiles, downloads or waits for its data.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache

from benchmarks.steptraces import CHECKPOINT, COMPILE, DATA, EVALUATION, STALL, START, STEP, WARM_UP, Job, Piece
from safelaunch.hangs.proof import Examination
from safelaunch.stacks.ranks import KernelPlace, Life, NodeReport, ObservedRank, Stack
from safelaunch.stacks.stacks import fold
from safelaunch.stacks.verdict import judge_hang

RANKS, PER_NODE = 8, 4
HANGS = ("collectives", "asleep", "nap", "backward", "network", "storage", "stopped", "loader", "polling")
NAMING = ("collectives", "nap", "backward", "polling")   # those whose stacks name one rank (hangs.named)
_TRAIN: Stack = ("train (train.py:120)", "main (train.py:250)", "<module> (train.py:300)")
_C10D = "torch/distributed/distributed_c10d.py"
_REDUCE: Stack = (f"all_reduce ({_C10D}:2501)", "reduce_gradients (train.py:140)", *_TRAIN)
_BARRIER: Stack = (f"barrier ({_C10D}:4100)", *_TRAIN)
_BACKWARD: Stack = ("_engine_run_backward (torch/autograd/graph.py:824)", "backward (torch/_tensor.py:648)", *_TRAIN)
_RETRY: Stack = ("sleep (urllib3/util/retry.py:348)", "urlopen (urllib3/connectionpool.py:900)", *_TRAIN)
_RECEIVE: Stack = ("read (ssl.py:1166)", "readinto (socket.py:705)", "read (http/client.py:473)", *_TRAIN)
_BUILD: Stack = ("wait_for_build (ops.py:31)", *_TRAIN)
_NAPPING = ("cool_down (plugin.py:9)", _RETRY[0], _BUILD[0])
_LOADER: Stack = ("wait (threading.py:324)", "get (queue.py:180)", "_next_data (torch/utils/data/dataloader.py:1284)",
                  "__next__ (torch/utils/data/dataloader.py:631)", *_TRAIN)
_LOG: Stack = ("emit (logging/__init__.py:1100)", "report (train.py:60)", *_TRAIN)
_ASLEEP_ON_GPFS = KernelPlace(1, "python", "D", "rpc_wait", "write", "/gpfs/run/log", "/gpfs", "gpfs")
_NAP = KernelPlace(1, "python", "S", "hrtimer_nanosleep", "clock_nanosleep")
_WORKER = KernelPlace(9, "pt_data_worker", "D", "rpc_wait", "read", "/gpfs/data/shard", "/gpfs", "gpfs")


@lru_cache
def _is_slow_piece(length_s: float) -> bool:
    return random.Random(length_s).random() < 0.15


@lru_cache
def _is_slow_at(length_s: float, minutes: float) -> bool:
    return random.Random(f"{length_s} {minutes}").random() < 0.5


class Camera:
    """Looks at one silence; the counters go on from one look to the next."""

    def __init__(self, job: Job, piece: Piece, hang: str = "") -> None:
        self.job, self.piece, self.hang = job, piece, hang
        self.draw = random.Random(f"{job.seed} {piece.length_s} {hang}")
        self.is_spinning = random.Random(job.seed).random() < 0.7    # NCCL's waits take a core, gloo's sleep
        self.has_loaders = random.Random(job.seed + 1).random() < 0.5
        self.t = 0.0   # of the last look
        self.life = [Life(100.0, 0.0, 0.0, 0.0)] * RANKS
        self.backward = 0.0

    @property
    def is_slow(self) -> bool:
        """Whether the filesystem stands still now: at some pieces, for two minutes and more."""
        return self._stands_still(self.t)

    @property
    def _reads_slowly(self) -> bool:
        return self.piece.who == "worker" or (self.piece.who == "one" and self.is_slow)

    def _stands_still(self, t: float) -> bool:
        return _is_slow_piece(self.piece.length_s) and _is_slow_at(self.piece.length_s, t // 120)

    def _worked_s(self, spent_s: float) -> float:
        """Of the time before now as much as the filesystem did not stand still: counters count that too."""
        if spent_s < 1.0:
            return 0.0 if self.is_slow else spent_s
        return float(sum(not self._stands_still(self.t - second) for second in range(round(spent_s))))

    def look(self, t: float, samples: int) -> Examination:
        """One look at `t`, of so many samples."""
        spent_s = max(0.0, t - self.t) if self.t else 0.0
        self.t = t
        rows = [self._ranks(0.7 if number else spent_s) for number in range(samples)]
        self.t = t + 0.7 * (samples - 1)
        ranks = [_joined([row[number] for row in rows]) for number in range(RANKS)]
        reports = [NodeReport(f"n{node}", tuple(ranks[node * PER_NODE:(node + 1) * PER_NODE]))
                   for node in range(RANKS // PER_NODE)]
        groups = fold(ranks)
        return Examination(reports, groups, judge_hang(reports, groups=groups))

    def _ranks(self, spent_s: float) -> list[ObservedRank]:
        """All ranks at one moment, so long after the last one."""
        what: Callable[[int], tuple[Stack, str, float, float]] = self._hung if self.hang else self._healthy()
        worked_s = self._worked_s(spent_s)
        ranks = []
        for number in range(RANKS):
            stack, state, cpu, moved_a_s = what(number)
            self.life[number] = self._lived(self.life[number], cpu, moved_a_s, spent_s, worked_s)
            main = _ASLEEP_ON_GPFS if state == "D" else _NAP if self.hang == "polling" or stack[0] in _NAPPING else None
            below = (_WORKER,) if self._reads_slowly and number == 3 else ()
            ranks.append(ObservedRank(number, f"n{number // PER_NODE}", 1000 + number, state, (stack,), main=main,
                                      below=below,
                                      cpu=cpu, life=(self.life[number],)))
        return ranks

    def _lived(self, life: Life, cpu: float, moved_a_s: float, spent_s: float, worked_s: float) -> Life:
        trains = not self.hang and self.piece.kind in (STEP, WARM_UP)
        loads = not self.hang and self.has_loaders and cpu > 0.5
        self.backward += spent_s / self.job.step_s / RANKS if trains else 0.0
        below_s = 0.005 * spent_s + (0.8 * worked_s if not self.hang and self.piece.kind in (COMPILE, DATA) else 0.0)
        return Life(life.switches + (cpu > 0.02), life.moved + moved_a_s * worked_s,
                    life.faults + (150 * loads + 1) * spent_s, life.below_s + below_s, self.backward // 1,
                    life.t + spent_s)

    # --- what a rank does: (stack, state, share of a core, bytes a second) ------------------------------------------

    def _wait(self, stack: Stack) -> tuple[Stack, str, float, float]:
        return stack, "R" if self.is_spinning else "S", 1.0 if self.is_spinning else 0.0, 0.0

    def _wait_in_backward(self) -> tuple[Stack, str, float, float]:
        """In an all-reduce: DistributedDataParallel's, of which gloo shows no frame and NCCL the wait after it."""
        return self._wait(_REDUCE) if self.is_spinning else (_BACKWARD, "S", 0.0, 0.0)

    def _healthy(self) -> Callable[[int], tuple[Stack, str, float, float]]:
        at_item = self.draw.random() < (0.3 if self.piece.kind in (START, WARM_UP) else 0.85)
        line = self.draw.randrange(80, 99)
        kind, who = self.piece.kind, self.piece.who

        def rank(number: int) -> tuple[Stack, str, float, float]:
            busy: Stack = (f"forward (model.py:{line})", "train_step (train.py:128)", *_TRAIN)
            if kind == EVALUATION:
                name = "score_model" if who == "unknown" else "evaluate"
                if who == "rank0" and number:
                    return self._wait((f"barrier ({_C10D}:4100)", *_TRAIN))
                top = ("sync (train.py:75)",) if at_item else (f"forward (model.py:{line})",)
                return (*top, f"{name} (train.py:77)", *_TRAIN), "R", 1.0, 0.0
            if kind == CHECKPOINT:
                if who == "rank0" and number:
                    return self._wait((f"barrier ({_C10D}:4100)", "save_checkpoint (train.py:99)", *_TRAIN))
                writes: Stack = ("save (torch/serialization.py:850)", "save_checkpoint (train.py:95)", *_TRAIN)
                return (writes, "D", 0.0, 2e8) if self.is_slow else (writes, "R", 0.4, 2e8)
            if kind == DATA:
                if who == "one":
                    return (_LOADER, "S", 0.0, 1e7) if number == 3 else self._wait_in_backward()
                if who == "all":
                    return _LOADER, "S", 0.0, 0.0
                if number:
                    return self._wait(_BARRIER)
                if who == "download":   # a network comes back within minutes
                    return (_RETRY, "S", 0.0, 0.0) if self.t // 120 % 4 == 1 else (_RECEIVE, "S", 0.1, 1e7)
                return (f"build_index (data.py:{line})", *_TRAIN), "R", 1.0, 0.0
            if kind == COMPILE:
                if who != "all" and number:
                    return self._wait(_BARRIER)
                if who == "own":
                    return _BUILD, "S", 0.03, 0.0
                return ("wait (torch/_inductor/async_compile.py:300)", *_TRAIN), "S", 0.0, 0.0
            if kind == STALL:
                if who == "worker" and number == 3:
                    return _LOADER, "S", 0.0, 0.0
                if who == "writer" and number == 0:
                    return _LOG, "D", 0.0, 0.0
                return self._wait(_REDUCE)
            return (("sync (train.py:131)", *_TRAIN) if at_item else busy), "R", 1.0, 0.0

        return rank

    def _hung(self, number: int) -> tuple[Stack, str, float, float]:
        inside: Stack = {EVALUATION: ("evaluate (train.py:77)",), CHECKPOINT: ("save_checkpoint (train.py:99)",)}.get(
            self.piece.kind, ())
        is_odd = number == 5
        if self.hang == "polling":
            return self._polls(is_odd, (*inside, *_TRAIN))
        if self.hang == "collectives":
            name = "broadcast" if is_odd else "all_reduce"
            return self._wait((f"{name} ({_C10D}:2501)", *inside, *_TRAIN))
        if self.hang == "backward" or (self.hang == "loader" and not is_odd):
            return self._wait((f"barrier ({_C10D}:4100)", *inside, *_TRAIN)) if is_odd else self._wait_in_backward()
        if self.hang == "nap" and is_odd:
            return ("cool_down (plugin.py:9)", *inside, *_TRAIN), "S", 0.0, 0.0
        if self.hang == "network" or not is_odd:
            return self._wait((f"all_reduce ({_C10D}:2501)", *inside, *_TRAIN))
        if self.hang == "storage":
            return (_LOG[0], *inside, *_TRAIN), "D", 0.0, 0.0
        if self.hang == "stopped":
            return (f"all_reduce ({_C10D}:2501)", *inside, *_TRAIN), "T", 0.0, 0.0
        if self.hang == "loader":
            return _LOADER, "S", 0.0, 0.0
        return ("wait_for_it (plugin.py:7)", *inside, *_TRAIN), "S", 0.0, 0.0

    def _polls(self, is_odd: bool, below: Stack) -> tuple[Stack, str, float, float]:
        """One sleeps, the others look for its file: with a pause between two looks, or without."""
        if is_odd:
            return ("wait_for_all (sync.py:12)", *below), "S", 0.0, 0.0
        asks = self.draw.random() < (0.6 if self.is_spinning else 0.1)
        look: Stack = ("exists (genericpath.py:19)", "wait_for_all (sync.py:19)") if asks else (
            "wait_for_all (sync.py:20)",)
        return (*look, *below), "S", 1.0 if self.is_spinning else 0.04, 0.0


def _joined(seen: list[ObservedRank]) -> ObservedRank:
    """One rank, from what was seen of it at each sample."""
    life = tuple(rank.life[0] for rank in seen)
    return seen[-1]._replace(
        states="".join(rank.states for rank in seen), samples=tuple(rank.samples[0] for rank in seen), life=life,
        ran=life[0].switches != life[-1].switches)
