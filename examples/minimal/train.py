"""The smallest training that can be resumed: counts, saves, and goes on from where it was."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--step-time", type=float, default=0.1, help="seconds")
    parser.add_argument("--resume", type=Path)
    args = parser.parse_args()
    state = json.loads(args.resume.read_text()) if args.resume else {"step": 0, "loss": 4.0}
    while state["step"] < args.steps:
        time.sleep(args.step_time)
        state = {"step": state["step"] + 1, "loss": state["loss"] * 0.99}
        print(f"step {state['step']} loss {state['loss']:.4f}", flush=True)
        if state["step"] % 10 == 0:
            save(state)


def save(state: dict[str, float]) -> None:
    """Written beside its name and then renamed: whoever sees the name sees a whole file."""
    path = Path("checkpoints") / f"step_{state['step']}.json"
    path.parent.mkdir(exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("w") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


if __name__ == "__main__":
    main()
