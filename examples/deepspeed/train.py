"""Trains a small network with DeepSpeed (ZeRO 1), in a way that survives being killed at any moment.

    deepspeed --num_gpus 2 train.py --steps 50

DeepSpeed keeps model, optimizer and the number of steps, each rank its own part. The rest is three habits: the data of
a step follow from its number, the run goes on from the checkpoint that it is given, and all ranks agree in every step
on whether somebody asked for the end.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

import deepspeed
import torch
from deepspeed import comm
from deepspeed.utils.logging import set_log_level_from_string
from torch import Tensor, nn

WIDTH = 32


class EndAsked:
    """Whether this rank was asked to end: by SIGUSR2, or by the file that $SAFELAUNCH_KILL_FILE names."""

    def __init__(self) -> None:
        self.by_signal = False
        self.kill_file = os.environ.get("SAFELAUNCH_KILL_FILE")
        signal.signal(signal.SIGUSR2, self.note)

    def note(self, number: int, frame: object) -> None:
        self.by_signal = True

    def __bool__(self) -> bool:
        return self.by_signal or bool(self.kill_file and os.path.exists(self.kill_file))


def draw_batch(step: int, rank: int, rows: int) -> tuple[Tensor, Tensor]:
    """Points of this step and rank, and what a fixed random network says of each."""
    truth = torch.randn(WIDTH, 1, generator=torch.Generator().manual_seed(1))
    points = torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(step * 4096 + rank))
    return points, torch.tanh(points @ truth)


def make_engine(args: argparse.Namespace) -> deepspeed.DeepSpeedEngine:
    """Model and optimizer in DeepSpeed's hands, from the checkpoint or from nothing."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2), config={
        "train_micro_batch_size_per_gpu": args.batch,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 1},
        "steps_per_print": 10,   # DeepSpeed's own lines tell the step and the time that it took
    })
    if args.resume:
        engine.load_checkpoint(str(args.resume.parent), tag=args.resume.name)
    return engine


def train(engine: deepspeed.DeepSpeedEngine, args: argparse.Namespace) -> None:
    """Trains to the last step."""
    rank, ranks, end_asked = comm.get_rank(), comm.get_world_size(), EndAsked()
    print(f"rank {rank} of {ranks} goes on after step {engine.global_steps}", flush=True)
    while engine.global_steps < args.steps:
        begun_s = time.monotonic()
        points, wanted = (part.to(engine.device) for part in draw_batch(engine.global_steps + 1, rank, args.batch))
        loss = nn.functional.mse_loss(engine(points), wanted)
        engine.backward(loss)
        engine.step()
        # One rank may have seen the signal or the file before the others, so they count votes.
        votes = torch.stack([loss.detach(), torch.tensor(float(bool(end_asked)), device=loss.device)])
        comm.all_reduce(votes)
        mean, ends, step = votes[0].item() / ranks, votes[1].item() > 0, engine.global_steps
        time.sleep(max(0.0, args.step_time - (time.monotonic() - begun_s)))
        if rank == 0:
            print(f"step {step} loss {mean:.6f}", flush=True)
        if ends or step % args.save_every == 0 or step == args.steps:
            engine.save_checkpoint(str(args.save_to))
        if ends:
            print(f"rank {rank} was asked to end: saved, ending after step {step}", flush=True)
            return


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-time", type=float, default=0.0, help="seconds, at least, of one step")
    parser.add_argument("--batch", type=int, default=8, help="rows per rank and step")
    parser.add_argument("--save-to", type=Path, default=Path("checkpoints"))
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--resume", type=Path, help="a global_stepN folder")
    parser.add_argument("--local_rank", type=int, help="what the deepspeed command adds")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.use_deterministic_algorithms(True)
    set_log_level_from_string("info")   # else DeepSpeed prints no steps
    deepspeed.init_distributed()
    train(make_engine(args), args)
    comm.destroy_process_group()


if __name__ == "__main__":
    main()
