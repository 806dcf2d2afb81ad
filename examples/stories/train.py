"""Four ranks fit a line together, in plain Python; FAULT says what goes wrong in the first attempt.

The gradient is averaged over all ranks after each step, as by an all-reduce. Every step prints `step N loss X`. Data
come from the step's number and the state from the checkpoint, so a resumed run prints the losses of an undisturbed one.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import signal
import socket
import time
import zipfile
from pathlib import Path

RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MASTER = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
IS_FIRST = os.environ.get("SAFELAUNCH_ATTEMPT", "1") == "1"
FAULT = os.environ.get("FAULT", "none") if IS_FIRST or os.environ.get("FAULT") == "bug" else "none"   # a bug stays
FAULT_STEP, FAULT_RANK = 60, 3
SAVE_EVERY, BATCH, RATE = 20, 8, 0.02
CONNECT_S = 10.0


class Group:
    """A stand-in for a process group of torch.distributed: rank 0 adds up, over TCP."""

    def __init__(self) -> None:
        if RANK == 0:
            server = socket.create_server(MASTER)
            sockets = [server.accept()[0] for _ in range(WORLD_SIZE - 1)]
        else:
            sockets = [connect()]
        self.peers = [one.makefile("rwb") for one in sockets]

    def all_reduce(self, values: list[float]) -> list[float]:
        """The mean over all ranks."""
        if RANK:
            self.send(values)
            return self.receive()[0]
        columns = zip(values, *self.receive(), strict=True)
        mean = [sum(column) / WORLD_SIZE for column in columns]
        self.send(mean)
        return mean

    def send(self, values: list[float]) -> None:
        for peer in self.peers:
            peer.write(json.dumps(values).encode() + b"\n")
            peer.flush()

    def receive(self) -> list[list[float]]:
        lines = [peer.readline() for peer in self.peers]
        if not all(lines):
            raise ConnectionResetError("another rank has closed its connection")
        return [json.loads(line) for line in lines]


def connect() -> socket.socket:
    """A connection to rank 0, which may start later."""
    end_s = time.monotonic() + CONNECT_S
    while True:
        try:
            return socket.create_connection(MASTER, timeout=None)
        except OSError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.02)


def gradient(weights: list[float], step: int) -> list[float]:
    """[d/da, d/db, loss] of a*x + b against 3x - 1, over the batch of this rank and step."""
    source = random.Random(step * WORLD_SIZE + RANK)
    total = [0.0, 0.0, 0.0]
    for _ in range(BATCH):
        x = source.uniform(-1, 1)
        error = weights[0] * x + weights[1] - (3 * x - 1)
        for index, part in enumerate((2 * error * x, 2 * error, error * error)):
            total[index] += part / BATCH
    return total


def evaluate(group: Group) -> None:
    """An evaluation that one rank alone enters, and that waits for something that never comes."""
    while True:
        time.sleep(60)


def fail(group: Group, step: int) -> None:
    """What goes wrong in the middle of a step, on one rank."""
    if FAULT == "bug":
        batch = {"input": step}
        print(batch["lable"])
    if FAULT == "gpu":   # as CUDA words it: there is no GPU here
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
    if FAULT == "hang":
        evaluate(group)


def save(folder: Path, weights: list[float], step: int) -> None:
    """Write a checkpoint of torch's form. The fault "crash" writes carelessly, and dies half-way."""
    folder.mkdir(exist_ok=True)
    path = folder / f"step_{step:06d}.pt"
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("checkpoint/state.json", json.dumps({"step": step, "weights": weights}))
    if FAULT == "crash" and step > FAULT_STEP:
        path.write_bytes(content.getvalue()[: len(content.getvalue()) // 2])
        print(f"half of {path} is written, and now the power goes out ...", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_bytes(content.getvalue())
    unfinished.replace(path)


def load(path: Path) -> tuple[list[float], int]:
    """(weights, step) of a checkpoint."""
    with zipfile.ZipFile(path) as archive:
        found = json.loads(archive.read("checkpoint/state.json"))
    return found["weights"], found["step"]


def main() -> None:
    """Train to the last step, or until the kill switch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--step-time", type=float, default=0.02, help="seconds, at least, of one step")
    parser.add_argument("--save-to", type=Path, default=Path("checkpoints"))
    parser.add_argument("--resume", type=Path, help="a checkpoint")
    args = parser.parse_args()
    weights, step = load(args.resume) if args.resume else ([0.0, 0.0], 0)
    kill_file = Path(os.environ.get("SAFELAUNCH_KILL_FILE") or os.devnull + "/none")
    group = Group()
    if RANK == 0:
        print(f"going on after step {step}" if args.resume else "starting from nothing", flush=True)
    while step < args.steps:
        time.sleep(args.step_time)
        step += 1
        if step == FAULT_STEP and RANK == FAULT_RANK:
            fail(group, step)
        asked = float(kill_file.exists())
        *slope, loss, asked = group.all_reduce([*gradient(weights, step), asked])
        weights = [weight - RATE * part for weight, part in zip(weights, slope, strict=True)]
        if RANK == 0:
            print(f"step {step} loss {loss:.6f}", flush=True)
            if asked or step % SAVE_EVERY == 0:
                save(args.save_to, weights, step)
        if asked:   # all ranks hear it in the same step
            if RANK == 0:
                print(f"the kill switch is touched: saved, ending after step {step}", flush=True)
            return
    if RANK == 0:
        print("done", flush=True)


if __name__ == "__main__":
    main()
