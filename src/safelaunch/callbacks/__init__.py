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
    """Whether this rank's run has asked it to save and end, by kill_switch.signal or the kill switch's file, or to save
    and go on, by the file of `safelaunch save`.

    Only rank 0 looks at the files, from a thread: a frozen folder must not hold the training.
    """

    def __init__(self) -> None:
        self.is_asked = self.is_save_asked = False
        self._save_file = os.environ.get("SAFELAUNCH_SAVE_FILE", "")
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
            self.is_save_asked = self.is_save_asked or os.path.lexists(self._save_file)
            time.sleep(LOOK_S)

    def take_save(self) -> None:
        """Say that this training saves now: the file of the request goes."""
        if self.is_save_asked:
            with contextlib.suppress(OSError):   # the person may have taken it back
                os.unlink(self._save_file)   # noqa: PTH108 - text only
        self.is_save_asked = False


class AllRanks:
    """All ranks' common answer to whether they end after this step, and whether they save (`should_save`); the same
    answers on each rank, at the same step.

    They ask each other about every 3 s, not in every step: that would make the CPU wait for the GPU. How many steps
    that is follows from a sum, too. Sums of whole numbers are exact in any order, so no two ranks can differ.
    `sum_up`: the sums over all ranks of some numbers, by the framework's own means.
    """

    def __init__(self, sum_up: Callable[[list[float]], list[float]], now_s: float) -> None:
        self._sum = sum_up
        self._begun_s = now_s
        self._stride = self._left = 1
        self.should_save = False

    def should_end(self, is_asked: bool, now_s: float, is_save_asked: bool = False) -> bool:
        """To be called once a step on every rank; `now_s`: of a clock that never goes back."""
        self._left -= 1
        self.should_save = False
        if self._left > 0:
            return False
        step_s = max(now_s - self._begun_s, 1e-6) / self._stride
        wanted = max(1, min(int(LOOK_S / step_s), 2 * self._stride, MOST_STEPS))   # first steps can be short
        asked, wishes, ranks, saves = self._sum([float(is_asked), float(wanted), 1.0, float(is_save_asked)])
        self._stride = self._left = max(1, int(wishes) // int(ranks))
        self._begun_s = now_s
        self.should_save = saves > 0
        return asked > 0


class RunSteps:
    """What the classes of all frameworks stand on: call `done` after each step on every rank. `should_save`: all ranks
    are to save now, and go on where they do not end.
    """

    def __init__(self, sum_up: Callable[[list[float]], list[float]]) -> None:
        self._request = EndListener()
        self._ranks = AllRanks(sum_up, time.monotonic())
        self.should_save = False

    def done(self, step: int, loss: Any = None) -> bool:
        """Tell the step; whether all ranks are to save and end now. `loss` may be a tensor: read once a second."""
        if not self._request.is_in_run:
            return False
        progress(step, loss)
        ends = self._ranks.should_end(self._request.is_asked, time.monotonic(), self._request.is_save_asked)
        self.should_save = ends or self._ranks.should_save
        if self.should_save:
            self._request.take_save()
        return ends
