"""What a training's own framework does for its safelaunch run: tell the steps, save when asked, end with all ranks.

`transformers.py`, `lightning.py` and `accelerate.py` hold one class each. This folder and safelaunch_progress.py are
all that they take: copy both beside the training, or install them alone (the folder progress/). Standard library and
the framework, Python 3.9. Outside a run of safelaunch's they do nothing (docs/callbacks.md).
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

try:
    from safelaunch_progress import progress  # type: ignore[import-not-found]
except ImportError:   # all of safelaunch is installed
    from safelaunch.safelaunch_progress import progress

LOOK_S = 3.0
MOST_STEPS = 100


class EndListener:
    """Whether this rank's run has asked it to save and end: by kill_switch.signal, or by the kill switch's file.

    Only rank 0 looks at the file, from a thread: a frozen folder must not hold the training.
    """

    def __init__(self) -> None:
        self.is_asked = False
        self.is_in_run = "SAFELAUNCH_ATTEMPT" in os.environ
        if not self.is_in_run:
            return
        # Another thread than the main one may not do that; the file is left.
        with contextlib.suppress(ValueError, AttributeError):
            number = getattr(signal, os.environ.get("SAFELAUNCH_KILL_SIGNAL", "SIGUSR2"))
            self._before: Any = signal.getsignal(number)
            signal.signal(number, self._note)
        kill_file = os.environ.get("SAFELAUNCH_KILL_FILE")
        if kill_file and os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) == "0":
            threading.Thread(target=self._watch, args=(kill_file,), name="safelaunch", daemon=True).start()

    def _note(self, number: int, frame: object) -> None:
        self.is_asked = True
        if callable(self._before):   # the training's own handler
            self._before(number, frame)

    def _watch(self, kill_file: str) -> None:
        while not self.is_asked:
            self.is_asked = os.path.lexists(kill_file)   # no error is raised: false
            time.sleep(LOOK_S)


class AllRanks:
    """All ranks' common answer to whether they end after this step; the same answer on each rank, at the same step.

    They ask each other about every 3 s, not in every step: that would make the CPU wait for the GPU. How many steps
    that is follows from a sum, too. Sums of whole numbers are exact in any order, so no two ranks can differ.
    `sum_up`: the sums over all ranks of some numbers, by the framework's own means.
    """

    def __init__(self, sum_up: Callable[[list[float]], list[float]], now_s: float) -> None:
        self._sum = sum_up
        self._begun_s = now_s
        self._stride = self._left = 1

    def should_end(self, is_asked: bool, now_s: float) -> bool:
        """To be called once a step on every rank; `now_s`: of a clock that never goes back."""
        self._left -= 1
        if self._left > 0:
            return False
        step_s = max(now_s - self._begun_s, 1e-6) / self._stride
        wanted = max(1, min(int(LOOK_S / step_s), 2 * self._stride, MOST_STEPS))   # first steps can be short
        asked, wishes, ranks = self._sum([float(is_asked), float(wanted), 1.0])
        self._stride = self._left = max(1, int(wishes) // int(ranks))
        self._begun_s = now_s
        return asked > 0


class RunSteps:
    """What the classes of all frameworks stand on: call `done` after each step on every rank."""

    def __init__(self, sum_up: Callable[[list[float]], list[float]]) -> None:
        self._request = EndListener()
        self._ranks = AllRanks(sum_up, time.monotonic())

    def done(self, step: int, loss: Any = None) -> bool:
        """Tell the step; whether all ranks are to save and end now. `loss` may be a tensor: read once a second."""
        if not self._request.is_in_run:
            return False
        progress(step, loss)
        return self._ranks.should_end(self._request.is_asked, time.monotonic())
