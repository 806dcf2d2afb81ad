"""A callback for Lightning's Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

try:
    from lightning.pytorch import Callback
    from lightning.pytorch.utilities import exceptions
except ImportError:   # Lightning under its older name
    from pytorch_lightning import Callback
    from pytorch_lightning.utilities import exceptions

from . import RunSteps

# Ends fit() at once, as Lightning's own Tuner does. After `trainer.should_stop` it would take the epoch for done. A
# ModelCheckpoint saves that at the same step, and a resumed run skips the rest of the data. So would min_steps go on.
_End: Any = getattr(exceptions, "_TunerExitException", SystemExit)


class LightningCallback(Callback):
    """Tells the steps. When the run is asked to end: saves a checkpoint, and fit() returns on all ranks.
    When it is asked to save (`safelaunch save`), it goes on after that.

    `is_ending` says so afterwards. The checkpoint lies where the Trainer's ModelCheckpoint saves.
    """

    def __init__(self) -> None:
        self.is_ending = False
        self._step = -1
        self._steps: RunSteps | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Listen from here on: fit() may run in another process than this object was made in."""
        def sum_up(values: list[float]) -> list[float]:
            import torch

            sums = trainer.strategy.reduce(torch.tensor(values, device=trainer.strategy.root_device), reduce_op="sum")
            return list(sums.tolist())

        self._steps = RunSteps(sum_up)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A batch is done, and a step where the optimizer has made one (accumulate_grad_batches)."""
        if self._steps is None or trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        self.is_ending = self._steps.done(self._step, outputs.get("loss") if isinstance(outputs, dict) else None)
        if not self._steps.should_save:
            return
        folder = getattr(trainer.checkpoint_callback, "dirpath", None) or trainer.default_root_dir
        name = f"safelaunch-epoch={trainer.current_epoch}-step={self._step}.ckpt"
        trainer.save_checkpoint(Path(folder) / name)
        if self.is_ending:
            raise _End
