"""Teaches a very small network the sine, in plain Python; dies once while it saves, to show what happens then.

Every step prints `step N loss X`. Data come from the step's number and the state from the checkpoint, so a resumed run
prints the very losses that an undisturbed one would have printed.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import random
import signal
import time
import zipfile
from pathlib import Path

HIDDEN = 12
BATCH = 16
RATE = 0.05
State = dict[str, list[float]]


def fresh_state() -> State:
    """Small random weights, the same ones every time."""
    source = random.Random(1)
    return {
        "w1": [source.uniform(-1, 1) for _ in range(HIDDEN)],
        "b1": [source.uniform(-3, 3) for _ in range(HIDDEN)],
        "w2": [source.uniform(-0.3, 0.3) for _ in range(HIDDEN)],
        "b2": [0.0],
    }


def train_step(state: State, step: int) -> float:
    """One step of gradient descent on the batch of this step; the loss before it."""
    source = random.Random(step)
    loss = 0.0
    for _ in range(BATCH):
        x = source.uniform(-math.pi, math.pi)
        hidden = [math.tanh(state["w1"][i] * x + state["b1"][i]) for i in range(HIDDEN)]
        error = sum(state["w2"][i] * h for i, h in enumerate(hidden)) + state["b2"][0] - math.sin(x)
        loss += error * error / BATCH
        push = RATE * 2 * error / BATCH
        for i, h in enumerate(hidden):
            back = push * state["w2"][i] * (1 - h * h)
            state["w2"][i] -= push * h
            state["w1"][i] -= back * x
            state["b1"][i] -= back
        state["b2"][0] -= push
    return loss


def save(path: Path, state: State, step: int, crash: bool = False) -> None:
    """Writes a checkpoint of torch's form; `crash`: as a careless program would, and dies in the middle."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("checkpoint/state.json", json.dumps({"step": step, "state": state}))
    if crash:
        path.write_bytes(content.getvalue()[: len(content.getvalue()) // 2])
        print(f"half of {path} is written, and now the power goes out ...", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("wb") as file:
        file.write(content.getvalue())
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def load(path: Path) -> tuple[State, int]:
    """(state, step) of a checkpoint."""
    with zipfile.ZipFile(path) as archive:
        found = json.loads(archive.read("checkpoint/state.json"))
    return found["state"], found["step"]


def is_end_asked() -> bool:
    """Whether somebody touched the kill switch: save, and end by yourself."""
    kill_file = os.environ.get("SAFELAUNCH_KILL_FILE")
    return bool(kill_file) and Path(kill_file).exists()


def main() -> None:
    """Trains to the last step, or until the kill switch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--step-time", type=float, default=0.02, help="seconds, at least, of one step")
    parser.add_argument("--save-to", type=Path, default=Path("checkpoints"))
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--crash-at", type=int, default=100, help="in the first attempt; 0: never")
    parser.add_argument("--resume", type=Path, help="a checkpoint")
    args = parser.parse_args()
    state, step = load(args.resume) if args.resume else (fresh_state(), 0)
    print(f"going on after step {step}" if args.resume else "starting from nothing", flush=True)
    is_first_attempt = os.environ.get("SAFELAUNCH_ATTEMPT", "1") == "1"
    while step < args.steps:
        time.sleep(args.step_time)
        step += 1
        loss = train_step(state, step)
        print(f"step {step} loss {loss:.6f}", flush=True)
        ends = is_end_asked()
        if ends or step % args.save_every == 0 or step == args.steps:
            crash = is_first_attempt and step == args.crash_at
            save(args.save_to / f"step_{step:06d}.pt", state, step, crash)
        if ends:
            print(f"the kill switch is touched: saved, ending after step {step}", flush=True)
            return
    print("done", flush=True)


if __name__ == "__main__":
    main()
