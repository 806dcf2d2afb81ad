"""Trains a small network with Lightning, in a way that survives being killed at any moment.

    torchrun --nproc_per_node 2 train.py --steps 50

Lightning keeps model, optimizer and its place in the epochs. What is added: the loader keeps its place among the
batches, the training goes on from the checkpoint that it is given, and LightningCallback ends all ranks together when
the run is asked to. Lightning keeps no random numbers, so a model with dropout does not repeat its losses to the digit.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

try:
    from safelaunch_callbacks.lightning import LightningCallback
except ImportError:   # not installed: the run ends at its next checkpoint, not at once
    LightningCallback = None

WIDTH = 32


class ResumableLoader(DataLoader):
    """Goes on behind the batches that the run has seen in this epoch; Lightning keeps what has these two methods."""

    seen = skipped = 0

    def __iter__(self) -> Iterator[Any]:
        skipped, self.skipped = self.skipped, 0
        for self.seen, batch in enumerate(super().__iter__(), 1):
            if self.seen > skipped:
                yield batch

    def state_dict(self) -> dict[str, int]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.skipped = state["seen"] % len(self)


class Model(lightning.LightningModule):
    """A small network, and one line a step."""

    def __init__(self, step_time_s: float) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))
        self.step_time_s = step_time_s

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        time.sleep(self.step_time_s)
        points, wanted = batch
        loss = nn.functional.mse_loss(self.net(points), wanted)
        mean = self.trainer.strategy.reduce(loss.detach().clone(), reduce_op="mean").item()
        if self.trainer.is_global_zero:
            print(f"step {self.global_step + 1} loss {mean:.6f}", flush=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def make_loader(rows: int, batch: int, ranks: int, rank: int) -> ResumableLoader:
    """Points, and what a fixed random network says of each. Their order follows from the epoch."""
    source = torch.Generator().manual_seed(1)
    points = torch.randn(rows, WIDTH, generator=source)
    data = TensorDataset(points, torch.tanh(points @ torch.randn(WIDTH, 1, generator=source)))
    return ResumableLoader(data, batch, sampler=DistributedSampler(data, ranks, rank, seed=1), drop_last=True)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-time", type=float, default=0.0, help="seconds, at least, of one step")
    parser.add_argument("--batch", type=int, default=8, help="rows per rank and step")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--save-to", type=Path, default=Path("checkpoints"))
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--resume", type=Path, help="a .ckpt file")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    lightning.seed_everything(1, verbose=False)
    ranks, rank, local = (int(os.environ.get(name, default)) for name, default in
                          (("WORLD_SIZE", 1), ("RANK", 0), ("LOCAL_WORLD_SIZE", 1)))
    asked = LightningCallback() if LightningCallback else None
    saves = ModelCheckpoint(args.save_to, every_n_train_steps=args.save_every, save_top_k=-1)
    trainer = lightning.Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu", devices=local, num_nodes=ranks // local,
        strategy="ddp" if ranks > 1 else "auto", max_steps=args.steps, max_epochs=-1, deterministic=True, logger=False,
        use_distributed_sampler=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[saves, *([asked] if asked else [])])
    print(f"rank {rank} of {ranks} begins with {args.resume or 'nothing'}", flush=True)
    trainer.fit(Model(args.step_time), make_loader(args.rows, args.batch, ranks, rank),
                ckpt_path=str(args.resume) if args.resume else None)
    if asked and asked.is_ending:
        print(f"rank {rank} was asked to end: saved, ending after step {trainer.global_step}", flush=True)


if __name__ == "__main__":
    main()
