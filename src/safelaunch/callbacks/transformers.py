"""A callback for the Trainer of Hugging Face Transformers, and for those that build on it (TRL, axolotl)."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from . import RunSteps


def _sum(values: list[float]) -> list[float]:
    import torch
    from accelerate import PartialState
    from accelerate.utils import reduce

    sums: list[float] = reduce(torch.tensor(values, device=PartialState().device), "sum").tolist()
    return sums


class TransformersCallback(TrainerCallback):
    """Tells the steps. When the run is asked to end: saves a checkpoint, and train() returns on all ranks.
    When it is asked to save (`safelaunch save`), it goes on after that.

    `is_ending` says so afterwards. There is no evaluation then: it could take longer than kill_switch.grace.
    """

    def __init__(self) -> None:
        self.is_ending = False
        self._steps: RunSteps | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Listen from here on: train() may run in another process than this object was made in."""
        self._steps = RunSteps(_sum)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """A step of the optimizer is done. The last one ends the training anyway."""
        if self._steps and self._steps.done(state.global_step) and not control.should_training_stop:
            self.is_ending = control.should_save = control.should_training_stop = True
            control.should_evaluate = False
        elif self._steps and self._steps.should_save:   # `safelaunch save`: it goes on
            control.should_save = True
        return control

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """The Trainer calls this when it stops in the middle of an epoch, too."""
        if self.is_ending:
            control.should_save = control.should_evaluate = False
        return control
