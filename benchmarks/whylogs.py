"""Logs of gigabytes for benchmarks/why_speed.py: steps of 384 ranks, a cause, and the echoes of it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

RANKS = 384
PIECE = 32 << 20
CAUSE = (b'137: [default1]:Traceback (most recent call last):\n137: [default1]:  File "train.py", line 3, in step\n'
         b"137: [default1]:    loss.backward()\n"
         b"137: [default1]:RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
LIBRARIES = ("torch/lib/libtorch_cuda.so", "torch/lib/libc10.so", "libc.so.6")


def write(path: Path, size: int, layout: str) -> None:
    """A log of about `size` bytes: its cause at the "end", in the "middle", or at the end and "no steps" before it."""
    source = random.Random(1)
    steps = [_fill(source, say_step) for _ in range(2)]
    echoes = [_fill(source, say_echo) for _ in range(2)]
    if layout == "no steps":
        steps = [b"".join(line for line in piece.splitlines(keepends=True) if b"iteration" not in line
                          and b"step=" not in line) for piece in steps]
    dead = {"end": PIECE // 16, "middle": size // 2, "no steps": PIECE // 16}[layout]
    with path.open("wb") as stream:
        _pour(stream.write, steps, size - dead)
        stream.write(CAUSE)
        _pour(stream.write, echoes, dead)
        stream.flush()
        os.fsync(stream.fileno())


def _pour(write_some: Callable[[bytes], object], pieces: Sequence[bytes], size: int) -> None:
    left, number = size, 0
    while left > 0:
        piece = pieces[number % len(pieces)]
        if left < len(piece):
            piece = piece[:piece.rfind(b"\n", 0, left) + 1]
            left = 0
        write_some(piece)
        left -= len(piece)
        number += 1


def _fill(source: random.Random, say: Callable[[random.Random, int], str]) -> bytes:
    said: list[bytes] = []
    size = number = 0
    while size < PIECE:
        number += 1
        said.append(say(source, number).encode())
        size += len(said[-1])
    return b"".join(said)


def say_step(source: random.Random, step: int) -> str:
    """What the ranks say of one step, as Megatron-LM and DeepSpeed print it."""
    between = source.uniform
    said = [f"383: [default7]: iteration {step:8d}/  500000 | consumed samples: {step * 2048:12d} | elapsed time per "
            f"iteration (ms): {between(4000, 4400):.1f} | learning rate: {source.random():.3E} | global batch size: "
            f" 2048 | lm loss: {between(2, 3):.6E} | loss scale: 1.0 | grad norm: {source.random():.3f} | number of "
            "skipped iterations:   0 | number of nan iterations:   0 |\n"]
    for rank in source.sample(range(RANKS), 24):
        label = f"{rank:3d}: [default{rank % 8}]:"
        kind = source.random()
        if kind < 0.4:
            stamp = f"2024-03-{step % 28 + 1:02d} 12:{step % 60:02d}:{source.randrange(60):02d},{rank:03d}"
            said.append(f"{label}[{stamp}] [INFO] [logging.py:96:log_dist] [Rank {rank}] step={step}, skipped=0, "
                        f"lr=[{source.random():.6f}], mom=[(0.9, 0.95)]\n")
        elif kind < 0.6:
            said.append(f"{label}[Rank {rank}] (after {step} iterations) memory (MB) | allocated: "
                        f"{between(1e4, 2e4):.4f} | max allocated: {between(2e4, 3e4):.4f} | reserved: 33000.0\n")
        elif kind < 0.8:
            said.append(f"{label}time (ms) | forward-compute: {between(1e3, 2e3):.2f} | backward-compute: "
                        f"{between(1e3, 2e3):.2f} | optimizer: {between(1e2, 2e2):.2f}\n")
        else:
            said.append(f"{label}node-{rank // 8:03d}:{source.randrange(10**5)}:{source.randrange(10**5)} "
                        f"[{rank % 8}] NCCL INFO Channel {source.randrange(32):02d}/0 : {rank}[{rank % 8}] "
                        f"-> {(rank + 1) % RANKS} via P2P/IPC\n")
    return "".join(said)


def say_echo(source: random.Random, number: int) -> str:
    """What one rank says after another one has died: the watchdog, stack frames, a traceback, the store."""
    rank = source.randrange(RANKS)
    label = f"{rank:3d}: [default{rank % 8}]:"
    stamp = f"1121 20:38:{number % 60:02d}.{source.randrange(10**9):09d}"
    kind = source.random()
    if kind < 0.25:
        return (f"{label}[rank{rank}]:[E{stamp} ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective "
                f"operation timeout: WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
                f"Timeout(ms)=600000) ran for 600{source.randrange(100):02d} milliseconds before timing out.\n")
    if kind < 0.45:
        return "".join(
            f"{label}frame #{frame}: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout() + 0x282 "
            f"(0x7f{rank:03x}{source.randrange(64):02x}5b{frame:02x} in {LIBRARIES[frame % 3]})\n"
            for frame in range(6))
    if kind < 0.55:
        frames = "".join(f'{label}  File "/opt/megatron/training.py", line {100 + frame}, in run\n'
                         f"{label}    return inner(x)\n" for frame in range(8))
        return (f"{label}Traceback (most recent call last):\n{frames}{label}torch.distributed.DistBackendError: NCCL "
                "error in: NCCLUtils.hpp:317, remote process exited or there was a network error, NCCL 2.21.5\n")
    return (f"{label}[rank{rank}]:[W{stamp} TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd={number % 99}, "
            f"addr=[node-{rank // 8:03d}]:{source.randrange(60000)}, remote=[node-000]:29500): failed to recv, got 0 "
            "bytes\n")
