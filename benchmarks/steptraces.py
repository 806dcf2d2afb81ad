"""Made-up trainings, as their logs and their ranks would show them: steps, evaluations, checkpoints, stalls, restarts.

A job is drawn from a seed and is the same each time. Sources of the ranges: the seeds (steps of 105 s, evaluations of 7
steps, checkpoints of 40 s to many minutes), Megatron-LM's and Transformers' logs, Lustre's and GPFS's failover times.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

START, WARM_UP, STEP, EVALUATION, CHECKPOINT, COMPILE, DATA, STALL = (
    "start", "warm-up", "step", "evaluation", "checkpoint", "compile", "data", "stall")
KINDS = (START, WARM_UP, STEP, EVALUATION, CHECKPOINT, COMPILE, DATA, STALL)

# How a step's line looks, and what each phase says when it begins and when it is over; "" = nothing.
STYLES: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "megatron": (" iteration {step:8d}/  250000 | consumed samples: {step:12d} | elapsed time per iteration (ms): "
                 "{ms:.1f} | lm loss: 2.382640E+00 | loss scale: 1.0 | grad norm: 0.227 |\n", {
                     CHECKPOINT: ("saving checkpoint at iteration {step:7d} to /gpfs/ckpt in torch format\n",
                                  "  successfully saved checkpoint from iteration {step:7d} to /gpfs/ckpt\n"),
                     EVALUATION: ("Evaluating on 2048 samples\n",
                                  " validation loss at iteration {step} | lm loss value: 2.3E+00 |\n")}),
    "transformers": ("{{'loss': 2.31, 'grad_norm': 1.1, 'learning_rate': 1e-05, 'epoch': 0.1}}\n"
                     " 12%|#2        | {step}/900000 [02:00<14:40,  1.00s/it]\n", {
                         CHECKPOINT: ("Saving model checkpoint to out/checkpoint-{step}\n",
                                      "Model weights saved in out/checkpoint-{step}/model.safetensors\n"),
                         EVALUATION: ("***** Running Evaluation *****\n",
                                      "{{'eval_loss': 1.36, 'eval_runtime': 16.2}}\n")}),
    "titan": ("[rank0]:[titan] 2026-05-18 16:04:46,338 - root - INFO - step: {step}  loss:  3.24  tps: 7,282\n", {
        CHECKPOINT: ("[titan] Saving the checkpoint (or staging if async is enabled).\n",
                     "[titan] Finished saving the checkpoint (or staging if async is enabled) in 3.22 seconds.\n"),
        COMPILE: ("[titan] Compiling each TransformerBlock with torch.compile\n", "")}),
    "nanogpt": ("iter {step}: loss 2.1042, time {ms:.2f}ms, mfu 30.15%\n", {
        EVALUATION: ("", "step {step}: train loss 2.1, val loss 2.3\n"),
        CHECKPOINT: ("saving checkpoint to out\n", "")}),
    "fairseq": ("2020-07-17 07:11:02 | INFO | train_inner | epoch 001:   {step} / 160368 loss=9.255, ups=0.04, "
                "num_updates={step}, lr=2.8e-05\n", {
                    EVALUATION: ('begin validation on "valid" subset\n',
                                 "epoch 001 | valid on 'valid' subset | loss 8.1 | num_updates {step}\n"),
                    CHECKPOINT: ("Preparing to save checkpoint for epoch 1 @ {step} updates\n",
                                 "Saved checkpoint ckpt_1_{step}.pt (writing took 12.3 seconds)\n"),
                    DATA: ("loading train data for epoch 2\n", "")}),
    "silent": ("step {step} loss 0.5 rank 0\n", {}),
}


# Who is at a phase: all ranks, one for which the others wait, or in a way of its own (hangscenes).
_WHO = {EVALUATION: ("all", "rank0", "unknown"), COMPILE: ("all", "rank0", "own"),
        DATA: ("all", "rank0", "one", "download")}


@dataclass(frozen=True)
class Piece:
    """A stretch of one kind. What the log says at its begin and its end; `who`: how its ranks stand (hangscenes)."""

    kind: str
    length_s: float
    first: str = ""
    last: str = ""
    who: str = "all"


@dataclass(frozen=True)
class Job:
    """One training's nature; times in seconds."""

    seed: int
    style: str
    step_s: float
    jitter: float              # of a step: sigma of a lognormal
    log_every: int
    start_s: float
    every_s: dict[str, float]  # between two of a kind; 0 = never
    length_s: dict[str, float]
    spread: float              # of those lengths
    stalls_an_hour: float
    burst: str                 # "", "block" (a buffer of 8 kB), "clock" (each 30 s)
    attempt_s: float           # after which it is restarted

    @property
    def line_s(self) -> float:
        """Between two lines that name a step."""
        return self.step_s * self.log_every


def draw_job(seed: int) -> Job:
    """A training as it might be."""
    draw = random.Random(seed)
    step_s = 0.05 * (300 / 0.05) ** draw.random()
    log_every = draw.choice((1, 1, 1, 10, 10)) if step_s > 1 else draw.choice((1, 10, 10, 50, 100))
    if step_s * log_every > 600 or step_s > 30:
        log_every = 1
    noisy = draw.choice((0.0, 0.0, 0.0, 0.02, 0.1, 0.5))
    return Job(
        seed, draw.choice(tuple(STYLES)), step_s, draw.choice((0.02, 0.05, 0.1, 0.3)), log_every,
        draw.uniform(30, 900),
        {EVALUATION: draw.choice((0.0, draw.uniform(1200, 7200))), CHECKPOINT: draw.uniform(900, 7200),
         COMPILE: draw.choice((0.0, 0.0, 36000.0)), DATA: draw.choice((0.0, draw.uniform(3600, 40000)))},
        {EVALUATION: min(1800.0, max(5.0, step_s * draw.uniform(3, 60))),
         CHECKPOINT: draw.choice((draw.uniform(2, 60), draw.uniform(20, 400), min(900.0, 40 * step_s))),
         COMPILE: draw.uniform(20, 900), DATA: draw.uniform(5, 400)},
        draw.choice((0.03, 0.1, 0.3)), noisy, draw.choice(("",) * 7 + ("block", "block", "clock")),
        draw.choice((24 * 3600.0, 24 * 3600.0, draw.uniform(2, 12) * 3600)))


def play(job: Job, hours: float) -> Iterator[tuple[str, Piece]]:
    """("attempt", …) where a new one begins ("resized" on other nodes), and its pieces ("piece", …), in order."""
    draw = random.Random(job.seed ^ 0x5EED)
    step, left_s = 0, hours * 3600
    while left_s > 0:
        attempt_s = min(left_s, job.attempt_s * draw.uniform(0.7, 1.3))
        for piece in _attempt(job, draw, step, attempt_s):
            left_s -= piece.length_s
            yield "piece", piece
        step += 10_000 * job.log_every
        if left_s > 0 and draw.random() < 0.4:
            slower = draw.choice((0.5, 2.0, 4.0))
            job = replace(job, step_s=min(300.0, job.step_s * slower), length_s={
                **job.length_s, EVALUATION: min(3600.0, job.length_s[EVALUATION] * slower)})
            yield "resized", Piece(START, 0.0)
        elif left_s > 0:
            yield "attempt", Piece(START, 0.0)


def _attempt(job: Job, draw: random.Random, step: int, attempt_s: float) -> Iterator[Piece]:
    line, words = STYLES[job.style]
    kinds = [kind for kind, every_s in job.every_s.items() if every_s]
    # Every so many steps, as trainers count them; each kind has its own.
    every = {kind: max(job.log_every, round(job.every_s[kind] / job.step_s / job.log_every) * job.log_every)
             for kind in kinds}
    spent_s, made = 0.0, 0
    stall_s = draw.expovariate(job.stalls_an_hour / 3600) if job.stalls_an_hour else float("inf")
    yield Piece(START, job.start_s * draw.lognormvariate(0, 0.2), "loading\n", "")
    while spent_s < attempt_s:
        step, made = step + job.log_every, made + 1
        length_s = _steps_s(job, draw)
        if made <= 3:
            length_s *= draw.uniform(1, 4)   # caches, allocators, compilers
        if made == 2 and draw.random() < 0.3:
            length_s += draw.uniform(20, 300)
        yield Piece(WARM_UP if made <= 5 else STEP, length_s, "", line.format(step=step, ms=job.step_s * 1e3))
        spent_s += length_s
        if spent_s > stall_s and made > 5:
            stall = min(1200.0, draw.lognormvariate(3.4, 0.7))   # median 30 s, one of 6 above a minute
            stall_s = spent_s + stall + draw.expovariate(job.stalls_an_hour / 3600)
            yield Piece(STALL, stall, who=draw.choice(("worker", "writer", "network")))
            spent_s += stall
        for kind in kinds:
            if step % every[kind] == 0:
                piece = _phase(job, draw, kind, step, words)
                yield piece
                spent_s += piece.length_s


def _steps_s(job: Job, draw: random.Random) -> float:
    """As long as the steps between two lines take; one of a thousand is up to three times as long."""
    if job.log_every == 1:
        rare = draw.uniform(1.5, 3.0) if draw.random() < 0.001 else 1.0
        return job.step_s * draw.lognormvariate(0, job.jitter) * rare
    return job.line_s * draw.lognormvariate(0, job.jitter / job.log_every ** 0.5)


def _phase(job: Job, draw: random.Random, kind: str, step: int, words: dict[str, tuple[str, str]]) -> Piece:
    slow = draw.uniform(1.5, 4) if draw.random() < 0.01 else 1.0   # a busy filesystem
    length_s = job.length_s[kind] * draw.lognormvariate(0, job.spread) * slow
    first, last = words.get(kind, ("", ""))
    who = random.Random(f"{job.seed} {kind}").choice(_WHO.get(kind, ("all", "rank0", "rank0")))
    return Piece(kind, length_s, first.format(step=step), last.format(step=step), who)


class Buffer:
    """When lines reach the log: at once, in blocks of 8 kB, or each 30 s."""

    def __init__(self, how: str) -> None:
        self.how, self._held, self._next_s = how, "", 30.0

    def put(self, t: float, text: str) -> str:
        """What comes out at `t`, when `text` is printed."""
        if not self.how:
            return text
        self._held += text
        if (self.how == "block" and len(self._held) < 8192) or (self.how == "clock" and t < self._next_s):
            return ""
        out, self._held, self._next_s = self._held, "", t + 30.0
        return out
