"""Trains a small language model with the Trainer of Hugging Face Transformers; it survives being killed at any moment.

    torchrun --nproc_per_node 2 train.py --steps 50

The Trainer keeps model, optimizer, scheduler, the random numbers of each rank and its place in the data. What is added:
it goes on from the checkpoint that it is given, and TransformersCallback ends all ranks together when the run is asked
to.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed

try:
    from safelaunch_callbacks.transformers import TransformersCallback
except ImportError:   # not installed: the run ends at its next checkpoint, not at once
    TransformersCallback = None

WORDS = 64


class Counting(Dataset):
    """Rows of numbers, each in steps of its own; the model learns to go on counting."""

    def __init__(self, rows: int, context: int) -> None:
        self.rows, self.context = rows, context

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        tokens = (row + torch.arange(self.context) * (1 + row % 7)) % WORDS
        return {"input_ids": tokens, "labels": tokens}


class StepLines(TrainerCallback):
    """One line a step; the Trainer's own bar rounds the loss."""

    def __init__(self, step_time_s: float) -> None:
        self.step_time_s, self.begun_s = step_time_s, time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        time.sleep(max(0.0, self.step_time_s - (time.monotonic() - self.begun_s)))
        self.begun_s = time.monotonic()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any) -> None:
        if state.is_world_process_zero and "loss" in logs:
            print(f"step {state.global_step} loss {float(logs['loss']):.6f}", flush=True)


def make_model() -> LlamaForCausalLM:
    """Random weights: nothing is downloaded."""
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        attention_dropout=0.1, max_position_embeddings=64, bos_token_id=None, eos_token_id=None))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-time", type=float, default=0.0, help="seconds, at least, of one step")
    parser.add_argument("--batch", type=int, default=8, help="rows per rank and step")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--save-to", type=Path, default=Path("checkpoints"))
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--resume", type=Path, help="a checkpoint-N folder")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.use_deterministic_algorithms(True)
    set_seed(1)
    trainer = Trainer(make_model(), TrainingArguments(
        output_dir=str(args.save_to), max_steps=args.steps, per_device_train_batch_size=args.batch, learning_rate=1e-2,
        save_steps=args.save_every, logging_steps=1, logging_nan_inf_filter=False, disable_tqdm=True, report_to="none",
        use_cpu=not torch.cuda.is_available(), ddp_find_unused_parameters=False, seed=1),
        train_dataset=Counting(args.rows, 32))
    trainer.add_callback(StepLines(args.step_time))
    asked = TransformersCallback() if TransformersCallback else None
    if asked:
        trainer.add_callback(asked)
    rank = trainer.args.process_index
    print(f"rank {rank} of {trainer.args.world_size} begins with {args.resume or 'nothing'}", flush=True)
    trainer.train(resume_from_checkpoint=str(args.resume) if args.resume else None)
    if asked and asked.is_ending:
        print(f"rank {rank} was asked to end: saved, ending after step {trainer.state.global_step}", flush=True)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()   # without it gloo aborts more processes at their very end


if __name__ == "__main__":
    main()
