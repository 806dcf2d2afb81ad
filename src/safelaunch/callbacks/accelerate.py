"""Hugging Face Accelerate has no callbacks: an object whose one method is called after each step."""

from __future__ import annotations

from typing import Any

from . import RunSteps


class AccelerateLoop:
    """`loop = AccelerateLoop(accelerator)`; then, on every rank, `if loop.step_done(step, loss): save and end`."""

    def __init__(self, accelerator: Any) -> None:
        def sum_up(values: list[float]) -> list[float]:
            import torch

            return list(accelerator.reduce(torch.tensor(values, device=accelerator.device), "sum").tolist())

        self._steps = RunSteps(sum_up)

    def step_done(self, step: int, loss: Any = None) -> bool:
        """Tell the step; whether all ranks are to save and end now, the same answer on each of them."""
        return self._steps.done(step, loss)

    @property
    def should_save(self) -> bool:
        """Whether all ranks are to save after this step, and go on unless step_done has said to end."""
        return self._steps.should_save
