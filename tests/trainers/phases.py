"""A training with phases that take longer than a step, as its log and its stacks would show them.

    python phases.py --steps 20 --step-time 1 --evaluate-at 12 --evaluation 65 [--quiet]

Ranks wait for each other over TCP, as in a collective; rank 0 alone writes checkpoints. Standard library only.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from pathlib import Path

from stepping import Ring, first_in_env  # type: ignore[import-not-found]

PR_SET_DUMPABLE = 4   # prctl(2): 0 closes /proc/PID and ptrace to everybody but root


def parse_args() -> argparse.Namespace:
    """The command line; steps count from 1, 0 = never."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--step-time", type=float, default=1.0, metavar="S")
    parser.add_argument("--rest", type=float, default=0.002, metavar="S", help="between two parts of a step's work")
    parser.add_argument("--evaluate-at", type=int, default=0, metavar="STEP")
    parser.add_argument("--evaluation", type=float, default=0.0, metavar="S")
    parser.add_argument("--save-at", type=int, default=0, metavar="STEP", help="and at each step of twice that, ...")
    parser.add_argument("--save", type=float, default=0.0, metavar="S")
    parser.add_argument("--quiet", action="store_true", help="say nothing of evaluations and checkpoints")
    parser.add_argument("--hold-from", type=int, default=0, metavar="STEP", help="keep lines back from this step ...")
    parser.add_argument("--hold-until", type=int, default=0, metavar="STEP", help="... to that one, as a buffer does")
    parser.add_argument("--hang-at", type=int, default=0, metavar="STEP", help="a rank sleeps for ever, first attempt")
    parser.add_argument("--hang-rank", type=int, nargs="+", default=[1], metavar="R")
    parser.add_argument("--closed", action="store_true", help="nobody may look into these processes")
    parser.add_argument("--poll", type=float, metavar="S", help="ranks wait for each other by looking for files, "
                        "with pauses of S seconds; 0 = without a pause")
    return parser.parse_args()


class Trainer:
    """One rank."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.rank = first_in_env(("RANK", "SLURM_PROCID"), 0)
        self.world = first_in_env(("WORLD_SIZE", "SLURM_NTASKS"), 1)
        self.ring = Ring(self.rank, self.world)
        self.held: list[str] = []

    def train(self) -> None:
        """All steps."""
        for step in range(1, self.args.steps + 1):
            self.train_step(step)
            if step == self.args.evaluate_at:
                self.evaluate(step)
            if self.args.save_at and step % self.args.save_at == 0:
                self.save_checkpoint(step)
        self.say(f"done after step {self.args.steps}")

    def train_step(self, step: int) -> None:
        """Compute, wait for the others, say so."""
        attempt = first_in_env(("SAFELAUNCH_ATTEMPT",), 1)
        if step == self.args.hang_at and self.rank in self.args.hang_rank and attempt == 1:
            time.sleep(36000)
        compute(self.args.step_time, self.args.rest)
        if self.args.poll is None:
            self.ring.wait_for_all()
        else:
            Path(f"arrived-{attempt}-{step}-{self.rank}").touch()
            while not all(os.path.exists(f"arrived-{attempt}-{step}-{rank}") for rank in range(self.world)):
                if self.args.poll:
                    time.sleep(self.args.poll)
        self.say(f"step {step} loss 0.5 rank {self.rank}", is_held=self.args.hold_from <= step < self.args.hold_until)

    def evaluate(self, step: int) -> None:
        """Batch after batch, then the others."""
        if not self.args.quiet:
            self.say(f"evaluating at step {step}")
        until_s = time.monotonic() + self.args.evaluation
        while time.monotonic() < until_s:
            compute(0.5, self.args.rest)
        self.ring.wait_for_all()

    def save_checkpoint(self, step: int) -> None:
        """Rank 0 writes as slowly as it was told, the others wait."""
        if self.rank == 0:
            if not self.args.quiet:
                self.say(f"saving checkpoint of step {step}")
            until_s = time.monotonic() + self.args.save
            with open(f"checkpoint-{os.getpid()}", "wb") as file:
                while time.monotonic() < until_s:
                    file.seek(0)
                    file.write(b"x" * (4 << 20))
                    file.flush()
                    time.sleep(0.2)
            os.unlink(f"checkpoint-{os.getpid()}")
        self.ring.wait_for_all()

    def say(self, text: str, is_held: bool = False) -> None:
        """One line, or what was kept back and that."""
        self.held.append(text + "\n")
        if not is_held:
            sys.stdout.write("".join(self.held))
            sys.stdout.flush()
            self.held.clear()


def compute(seconds: float, rest: float) -> None:
    """Work for a part of it: other tests share these cores. With a `rest` of 2 ms it is seen to compute."""
    until_s = time.monotonic() + seconds
    table = [0] * 4096
    while (left_s := until_s - time.monotonic()) > 0:
        for index in range(4096):
            table[index] = index * index % 97
        time.sleep(min(left_s, rest))


if __name__ == "__main__":
    asked = parse_args()
    if asked.closed:
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    Trainer(asked).train()
