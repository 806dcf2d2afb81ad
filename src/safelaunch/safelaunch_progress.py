"""progress(step): a training's line for the log of its safelaunch run, where its own lines name no step.

This file is all that it takes: copy it beside the training, or install it alone (the folder progress/). Standard
library, Python 3.8.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

_last_s = -1.0


def progress(step: int, loss: float | None = None) -> None:
    """Say in the run's log that a step is done, for a training whose own lines name none; never raises.

    One line a second at most, by rank 0 alone; nothing where no run of safelaunch's is around it.
    """
    global _last_s
    # Whatever it is given (a tensor, None), whatever stdout is (closed, full): a training must not end of it.
    with contextlib.suppress(Exception):
        rank = os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))
        now_s = time.monotonic()
        if "SAFELAUNCH_ATTEMPT" not in os.environ or rank != "0" or 0 <= _last_s > now_s - 1.0:
            return
        _last_s = now_s
        said = "" if loss is None else f" loss {float(loss):.6g}"
        sys.stdout.write(f"safelaunch: step {int(step)}{said}\n")
        sys.stdout.flush()
