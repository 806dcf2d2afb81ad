"""Trains a small network with Hugging Face Accelerate, in a way that survives being killed at any moment.

    accelerate launch --multi_gpu --num_processes 2 train.py --steps 50

Accelerate does most of it: `save_state` keeps model, optimizer, scheduler and the random numbers of each rank, which it
writes last. The rest is three habits: the order of the data follows from the epoch, a resumed epoch skips the batches
that it has seen, and all ranks agree on whether somebody asked for the end.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

try:
    from safelaunch_callbacks.accelerate import AccelerateLoop
except ImportError:   # not installed: the run ends at its next checkpoint, not at once
    AccelerateLoop = None

WIDTH = 32


class Counter:
    """The step, as save_state keeps it: whatever has these two methods can be registered."""

    def __init__(self) -> None:
        self.step = 0

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = state["step"]


def make_data(seed: int, rows: int) -> TensorDataset:
    """Points, and what a fixed random network says of each."""
    source = torch.Generator().manual_seed(seed)
    points = torch.randn(rows, WIDTH, generator=source)
    return TensorDataset(points, torch.tanh(points @ torch.randn(WIDTH, 1, generator=source)))


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))


def train(accelerator: Accelerator, args: argparse.Namespace) -> None:
    """Trains from the checkpoint, or from nothing, to the last step."""
    set_seed(args.seed, device_specific=True)   # dropout differs from rank to rank
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=args.steps)
    order = torch.Generator()
    loader = DataLoader(make_data(args.seed, args.rows), args.batch, shuffle=True, generator=order, drop_last=True)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    counter = Counter()
    accelerator.register_for_checkpointing(counter)
    if args.resume:
        accelerator.load_state(str(args.resume))
    origin = f"going on after step {counter.step} from {args.resume}" if args.resume else "starting from nothing"
    accelerator.print(f"{origin}: {accelerator.num_processes} ranks, {accelerator.distributed_type.value}", flush=True)
    print(f"rank {accelerator.process_index} trains on {accelerator.device}", flush=True)
    loop = AccelerateLoop(accelerator) if AccelerateLoop else None
    while counter.step < args.steps:
        epoch, seen = divmod(counter.step, len(loader))
        order.manual_seed(args.seed * 1_000_003 + epoch)
        for points, wanted in accelerator.skip_first_batches(loader, seen):
            counter.step += 1
            loss = train_step(accelerator, model, optimizer, scheduler, points, wanted, args.step_time)
            accelerator.print(f"step {counter.step} loss {loss:.6f}", flush=True)
            ends = bool(loop) and loop.step_done(counter.step, loss)   # the same answer on each rank
            if ends or counter.step % args.save_every == 0 or counter.step == args.steps:
                accelerator.save_state(str(args.save_to / f"step_{counter.step:08d}"))
            if ends:
                print(f"rank {accelerator.process_index} was asked to end: saved, ending after step {counter.step}",
                      flush=True)
            if ends or counter.step == args.steps:
                return


def train_step(
    accelerator: Accelerator,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler,
    points: Tensor,
    wanted: Tensor,
    step_time_s: float,
) -> float:
    """The loss over all ranks."""
    begun_s = time.monotonic()
    loss = nn.functional.mse_loss(model(points), wanted)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
    scheduler.step()
    mean = accelerator.reduce(loss.detach(), "mean").item()
    time.sleep(max(0.0, step_time_s - (time.monotonic() - begun_s)))
    return mean


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-time", type=float, default=0.0, help="seconds, at least, of one step")
    parser.add_argument("--batch", type=int, default=8, help="rows per rank and step")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--rate", type=float, default=1e-2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-to", type=Path, default=Path("checkpoints"))
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--resume", type=Path, help="a folder of save_state")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.use_deterministic_algorithms(True)
    accelerator = Accelerator(cpu=not torch.cuda.is_available())   # else each process without a GPU trains alone
    train(accelerator, args)
    accelerator.end_training()


if __name__ == "__main__":
    main()
