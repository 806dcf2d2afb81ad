"""Logs of a Megatron training on many ranks with one planted cause, among as many echoes as a real failure leaves.

Everything follows from a seed. What makes real logs hard is in them: the lines of all ranks mixed, each host with a
clock of its own and a delay of its own, echoes that reach the file before the cause does, a file that ends amid a line.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Literal

from tests.why.plants import Plant

Prefix = Literal["host:rank", "default", "srun -l", "none"]
Layout = Literal["one file", "a file per node"]
START = datetime(2024, 5, 1, 12, 0, tzinfo=timezone.utc)
TIMEOUT_S = 600.0   # PyTorch's own for NCCL


@dataclass(frozen=True)
class Shape:
    """How big, mixed and broken a log is."""

    hosts: int = 48
    ranks_per_host: int = 8
    steps: int = 40
    echoes: int = 2000           # lines that follow from the cause
    skew_s: float = 0.0          # clocks of the hosts differ by up to this
    delay_s: float = 0.0         # lines of a host reach the file up to this late
    prefix: Prefix = "host:rank"
    layout: Layout = "one file"
    cut_bytes: int = 0           # so much of the end is missing
    scare: bool = False          # harmless lines with frightening words among the steps


@dataclass(frozen=True)
class Synthetic:
    """Files, and the truth about them; None and () = the log does not say."""

    files: dict[str, bytes]
    plant: Plant | None
    line: str = ""
    host: str | None = None
    ranks: tuple[int, ...] = ()   # the local and the global one: launchers print either


@dataclass(frozen=True, order=True)
class Said:
    """One line: when (true time, s after the start), by whom, and what."""

    t: float
    number: int
    host: int = field(compare=False)
    rank: int | None = field(compare=False)   # local; None = the node itself; host -1: srun
    text: str = field(compare=False)


class _Story:
    """Lines as they come to be said."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape = shape
        self.random = random.Random(seed)
        self.said: list[Said] = []
        self.skew_s = [self.random.uniform(-shape.skew_s, shape.skew_s) for _ in range(shape.hosts)]
        self.delay_s = [self.random.uniform(0, shape.delay_s) for _ in range(shape.hosts)]

    def say(self, t: float, host: int, rank: int | None, *lines: str) -> None:
        """Lines one after the other, a millisecond apart: other ranks get between them."""
        for number, line in enumerate(lines):
            self.said.append(Said(t + number * 1e-3, len(self.said), host, rank, line))

    def clock(self, t: float, host: int) -> datetime:
        """What that host's clock shows."""
        return START + timedelta(seconds=t + (self.skew_s[host] if host >= 0 else 0.0))

    def host(self, number: int) -> str:
        return f"node{number:03d}"


def make_log(plant: Plant | None, shape: Shape, seed: int) -> Synthetic:
    """A log in which `plant` is the cause, or a healthy one."""
    story = _Story(shape, seed)
    host, rank = story.random.randrange(shape.hosts), story.random.randrange(shape.ranks_per_host)
    _say_start(story)
    end_s = 60.0 if plant is not None and plant.at_start else _say_steps(story)
    names = {"host": story.host(host), "first": story.host(0), "rank": str(rank), "n": str(int(end_s) + 51234),
             "when": f"{story.clock(end_s, host):%b %d %H:%M:%S}", "task": str(host * shape.ranks_per_host + rank)}
    if plant is None:
        _say_good_end(story, end_s)
        return Synthetic(_render(story), None)
    speaker = {"rank": (host, rank), "host": (host, None), "slurm": (-1, None)}[plant.speaker]
    story.say(end_s, *speaker, *(_fill(line, names) for line in plant.lines))
    if plant.echoes:
        _say_echoes(story, end_s, host, rank, plant)
    else:
        _say_teardown(story, end_s)
    prefixed = shape.prefix in ("host:rank",) or shape.layout == "a file per node"
    said_host = plant.names_host and (prefixed or plant.speaker == "slurm" or "{host}" in "".join(plant.lines))
    said_rank = plant.names_rank and shape.prefix != "none"
    return Synthetic(_render(story), plant, _fill(plant.line, names), names["host"] if said_host else None,
                     (rank, host * shape.ranks_per_host + rank) if said_rank else ())


def _fill(text: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        text = text.replace("{" + name + "}", value)
    return text


# --- what is said ---------------------------------------------------------------------------------------------------


def _say_start(story: _Story) -> None:
    shape = story.shape
    world = shape.hosts * shape.ranks_per_host
    story.say(0.1, 0, 0, f"using world size: {world}, data-parallel-size: 8, tensor-model-parallel size: 4, "
                         "pipeline-model-parallel size: 12", "using torch.bfloat16 for parameters ...")
    for host in range(shape.hosts):
        story.say(0.2 + host * 0.01, host, None,
                  "*****************************************",
                  "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your "
                  "system being overloaded", "*****************************************")
        for rank in range(shape.ranks_per_host):
            story.say(3 + rank * 0.01 + host * 0.02, host, rank,
                      f"{story.host(host)}:{4000 + rank}:{4900 + rank} [{rank}] NCCL INFO NET/IB : Using "
                      f"[0]mlx5_0:1/IB [RO]; OOB ib0:10.1.0.{host + 1}<0>", "> initializing torch distributed ...")


def _say_steps(story: _Story) -> float:
    """Seconds after the start when the last step was done."""
    shape = story.shape
    last_host, last_rank = shape.hosts - 1, shape.ranks_per_host - 1
    t = 30.0
    for step in range(1, shape.steps + 1):
        t += 5.0 + story.random.random()
        loss = 2.0 + 3.0 / step
        now = story.clock(t, last_host).strftime("%Y-%m-%d %H:%M:%S")
        story.say(t, last_host, last_rank,
                  f" [{now}] iteration {step:8d}/  115311 | consumed samples: {step * 2048:12d} | elapsed time per "
                  f"iteration (s): 5.42 | learning rate: 5.969E-05 | global batch size:  2048 | lm loss: {loss:.6E} | "
                  "grad norm: 0.174 | number of skipped iterations:   0 | number of nan iterations:   0 | "
                  "TFLOPs: 149.02 |")
        if step % 10 == 0:
            story.say(t + 0.5, 0, 0, f"saving checkpoint at iteration {step:7d} to /scratch/ckpt",
                      f"  successfully saved checkpoint at iteration {step:7d} to /scratch/ckpt")
        if shape.scare and step % 7 == 3:
            _say_scare(story, t + 0.7)
    return t + 2.0


def _say_scare(story: _Story, t: float) -> None:
    host, rank = story.random.randrange(story.shape.hosts), story.random.randrange(story.shape.ranks_per_host)
    story.say(t, host, rank, *story.random.choice((
        ("/opt/env/lib/python3.10/site-packages/torch/utils/data/dataloader.py:557: UserWarning: This DataLoader will "
         "create 12 worker processes in total.",),
        ("WARNING: could not find the metadata file, error handling falls back to defaults",),
        ("fail_on_error=False ignore_failures=True retries=3 on_error=continue",),
        ("Retrying in 1s [Retry 1/5] after connection error to the metrics server",),
        ("0 errors, 0 warnings in 2048 samples; failed: 0",),
    )))


def _say_good_end(story: _Story, t: float) -> None:
    story.say(t, 0, 0, "[after training is done] datetime: 2024-05-01 12:30:00", "Training finished")


_FRAMES = (
    "Exception raised from checkTimeout at ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:525 (most recent call "
    "first):",
    "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x57 (0x154ce8785d87 in /opt/env/lib/libc10.so)",
    "frame #1: c10d::ProcessGroupNCCL::ncclCommWatchdog() + 0x119 (0x154ce994e629 in /opt/env/lib/libtorch_cuda.so)",
    "frame #2: <unknown function> + 0xdbbf4 (0x154d3521cbf4 in /opt/env/lib/libstdc++.so.6)",
    "frame #3: clone + 0x43 (0x154d3d741353 in /lib/x86_64-linux-gnu/libc.so.6)",
)


def _watchdog(story: _Story, t: float, host: int, rank: int) -> tuple[str, ...]:
    number = host * story.shape.ranks_per_host + rank
    stamp = story.clock(t, host).strftime("%m%d %H:%M:%S.%f").lstrip("0")
    work = f"WorkNCCL(SeqNum={4476 + rank}, OpType=ALLREDUCE, NumelIn=9437184, NumelOut=9437184, Timeout(ms)=600000)"
    said = f"[Rank {number}] Watchdog caught collective operation timeout: {work} ran for 600070 milliseconds before " \
           "timing out."
    who = f"[rank{number}]:[E{stamp} ProcessGroupNCCL.cpp"
    return (f"{who}:523] {said}", f"{who}:537] Some NCCL operations have failed or timed out. Due to the asynchronous "
            "nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.",
            f"{who}:543] To avoid data inconsistency, we are taking the entire process down.",
            "terminate called after throwing an instance of 'c10::DistBackendError'",
            f"  what():  [Rank {number}] NCCL watchdog thread terminated with exception: {said}", *_FRAMES)


def _reset(story: _Story, t: float, host: int, rank: int) -> tuple[str, ...]:
    del t
    return (f"{story.host(host)}:{4000 + rank}:{4977 + rank} [{rank}] NCCL INFO [Service thread] Connection closed by "
            f"localRank {rank}",
            "Traceback (most recent call last):", '  File "/home/user/gpt/pretrain_gpt.py", line 249, in <module>',
            "    dist.all_reduce(loss)",
            "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:"
            "1333, remote process exited or there was a network error, NCCL version 2.18.1",
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
            "Last error:", f"socketProgress: Connection closed by remote peer node{(host + 1) % 48:03d}<41823>")


def _say_echoes(story: _Story, t: float, culprit: int, culprit_rank: int, plant: Plant) -> None:
    """The other ranks end of it, a moment later or when their time-out comes; then the launchers sum up."""
    shape = story.shape
    others = [(host, rank) for host in range(shape.hosts) for rank in range(shape.ranks_per_host)
              if host != culprit or not plant.lines]   # those beside the culprit are ended by its launcher
    forms: tuple[Callable[[_Story, float, int, int], tuple[str, ...]], ...] = (_watchdog, _reset)
    if plant.category == "hang" or not plant.lines:
        forms = (_watchdog,)
    left, round_s = shape.echoes, 0.0
    while left > 0 and others:
        for host, rank in others:
            form = story.random.choice(forms)
            after_s = (TIMEOUT_S if form is _watchdog else 1.0) + story.random.random() * 5 + round_s
            lines = form(story, t + after_s, host, rank)
            story.say(t + after_s, host, rank, *lines)
            left -= len(lines)
            if left <= 0:
                break
        round_s += 6.0
    _say_summaries(story, t, t + TIMEOUT_S + round_s + 10, culprit, culprit_rank, plant)


def _say_summaries(
    story: _Story, cause_t: float, t: float, culprit: int, culprit_rank: int, plant: Plant,
) -> None:
    """torchrun on each host names the rank of it that it saw fail first; on the culprit's host at once."""
    shape = story.shape
    for host in range(shape.hosts):
        rank = culprit_rank if host == culprit and plant.speaker == "rank" else 0
        at = cause_t + 5 if host == culprit and plant.lines else t + host * 0.01
        stamp = story.clock(at, host)
        story.say(at, host, None,
                  f"[{stamp:%Y-%m-%d %H:%M:%S},114] torch.distributed.elastic.multiprocessing.api: [ERROR] failed "
                  f"(exitcode: 1) local_rank: {rank} (pid: {4000 + rank}) of binary: /opt/env/bin/python",
                  "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
                  "============================================================", "pretrain_gpt.py FAILED",
                  "Root Cause (first observed failure):", "[0]:",
                  f"  time      : {stamp:%Y-%m-%d_%H:%M:%S}", f"  host      : {story.host(host)}",
                  f"  rank      : {host * shape.ranks_per_host + rank} (local_rank: {rank})",
                  "  exitcode  : 1 (pid: 4242)", "  error_file: <N/A>",
                  "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
                  "============================================================")
        story.say(t + 2 + host * 0.01, -1, None,
                  f"srun: error: {story.host(host)}: task {host}: Exited with exit code 1")
    now = f"{story.clock(t, 0):%Y-%m-%dT%H:%M:%S}"
    story.say(t + 5, -1, None, "srun: launch/slurm: _step_signal: Terminating StepId=77.0",
              f"slurmstepd: error: *** STEP 77.0 ON {story.host(0)} CANCELLED AT {now} ***",
              "srun: Job step aborted: Waiting up to 62 seconds for job step to finish.")


def _say_teardown(story: _Story, t: float) -> None:
    """Slurm ends it: the launchers are signalled, and say so."""
    story.say(t + 0.5, -1, None, "srun: Job step aborted: Waiting up to 62 seconds for job step to finish.")
    for host in range(story.shape.hosts):
        story.say(t + 1 + host * 0.01, host, None, *(
            f"[{story.clock(t, host):%Y-%m-%d %H:%M:%S},901] torch.distributed.elastic.multiprocessing.api: [WARNING] "
            f"Sending process {4000 + rank} closing signal SIGTERM" for rank in range(story.shape.ranks_per_host)))


# --- how it reaches the disk ----------------------------------------------------------------------------------------


def _render(story: _Story) -> dict[str, bytes]:
    """The files: lines in the order in which they arrive, which is not that in which they were said."""
    shape = story.shape
    delays = [*story.delay_s, 0.0]   # host -1 is srun
    said = sorted(story.said, key=lambda one: (one.t + delays[one.host], one.number))
    if shape.layout == "one file":
        data = "".join(_lines(story, said)).encode()
        return {"main.log": data[:len(data) - shape.cut_bytes] if shape.cut_bytes else data}
    files: dict[str, list[Said]] = {}
    for one in said:
        files.setdefault("slurm-77.out" if one.host < 0 else f"{story.host(one.host)}.log", []).append(one)
    return {name: "".join(_lines(story, lines)).encode() for name, lines in sorted(files.items())}


def _lines(story: _Story, said: list[Said]) -> Iterator[str]:
    per_host = story.shape.ranks_per_host
    for one in said:
        if one.host < 0 or story.shape.prefix == "none":
            yield f"{one.text}\n"
        elif story.shape.prefix == "srun -l":
            yield f"{one.host * per_host + (one.rank or 0)}: {one.text}\n"
        elif one.rank is None:
            yield f"{one.text}\n"   # torchrun's own words, and the kernel's
        elif story.shape.prefix == "default":
            yield f"[default{one.rank}]:{one.text}\n"
        else:
            yield f"[{story.host(one.host)}:{one.rank}]:{one.text}\n"
