"""python -m benchmarks.checkpoints: what judging a checkpoint of 10,000 files takes, and how often each is looked at.

On this machine's disk, warm. A look is a stat, fstat or lstat: on a parallel filesystem each is a message.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.pure.checkpoints.checkpoint_files import dcp_metadata, torch_file

from benchmarks.figure import Figure, render_table
from safelaunch.checkpoints.io import checkpoints

FILES = 10_000
ROUNDS = 7
PUMPED = 20


def measure(files: int = FILES, rounds: int = ROUNDS) -> list[Figure]:
    """Time and looks for each layout; the search is the leader's, with `auto`."""
    figures = []
    with tempfile.TemporaryDirectory() as made:
        for name, write in LAYOUTS.items():
            folder = Path(made, name)
            write(folder, files)
            _judge(folder)
            with counted() as looks:
                _judge(folder)
            times, processor = [], []
            for _ in range(rounds):
                start_s, start_processor_s = time.perf_counter(), time.process_time()
                _judge(folder)
                times.append(time.perf_counter() - start_s)
                processor.append(time.process_time() - start_processor_s)
            figures += [Figure(f"{name}, {files} files", "s", tuple(times), "≤ 1 s"),
                        Figure("… of it the processor's", "s", tuple(processor)),
                        Figure("… looks at a file", "", (looks[0] / files,), "≤ 3")]
        figures.append(_search_pumped(Path(made, "pumped"), rounds))
    return figures


def _search_pumped(folder: Path, rounds: int) -> Figure:
    write_pumped(folder)
    processor = []
    for _ in range(rounds):
        start_s = time.process_time()
        best = checkpoints.find(str(folder), "auto").best
        processor.append(time.process_time() - start_s)
        if best is None or best.step != 1:
            raise AssertionError(best)
    return Figure(f"{PUMPED} files of 60 million opcodes, of the processor", "s", tuple(processor), "≤ 5")


def _judge(folder: Path) -> None:
    (judged,) = checkpoints.survey(str(folder), "auto")
    if judged.reason is not None:
        raise AssertionError(judged.reason)


@contextmanager
def counted() -> Iterator[list[int]]:
    """[how many times a file was looked at]."""
    looks = [0]
    real = {name: getattr(os, name) for name in ("stat", "fstat", "lstat")}

    def count(function: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*words: Any, **more: Any) -> Any:
            looks[0] += 1
            return function(*words, **more)
        return counting

    for name, function in real.items():
        setattr(os, name, count(function))
    try:
        yield looks
    finally:
        for name, function in real.items():
            setattr(os, name, function)


def write_dcp(folder: Path, files: int) -> None:
    top = folder / "step-1"
    top.mkdir(parents=True)
    shard = torch_file(b"w" * 2000)
    shards = [f"__{rank}_0.distcp" for rank in range(files)]
    (top / ".metadata").write_bytes(dcp_metadata([(name, 0, len(shard)) for name in shards]))
    for name in shards:
        (top / name).write_bytes(shard)


def write_hf(folder: Path, files: int) -> None:
    top = folder / "checkpoint-1"
    top.mkdir(parents=True)
    weights = {}
    for number in range(1, files + 1):
        tensor, name = f"layer.{number}.weight", f"model-{number:05d}-of-{files:05d}.safetensors"
        header = json.dumps({tensor: {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]}}).encode()
        (top / name).write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
        weights[tensor] = name
    (top / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    (top / "trainer_state.json").write_text('{"global_step": 1}')


def write_deepspeed(folder: Path, files: int) -> None:
    top = folder / "global_step1"
    top.mkdir(parents=True)
    (folder / "latest").write_text(top.name)
    (top / "mp_rank_00_model_states.pt").write_bytes(torch_file())
    for rank in range(files):
        (top / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").write_bytes(torch_file())


def write_pumped(folder: Path) -> None:
    """Files of 60 million opcodes, and an old good one."""
    folder.mkdir()
    first = folder / "step_100.pt"
    first.write_bytes(b"\x80\x02" + b"N0" * 30_000_000 + b"N.")
    for step in range(101, 100 + PUMPED):
        (folder / f"step_{step}.pt").hardlink_to(first)
    (folder / "step_1.pt").write_bytes(torch_file())


LAYOUTS = {"dcp": write_dcp, "hf": write_hf, "deepspeed": write_deepspeed}


if __name__ == "__main__":
    print(render_table("checkpoints: one of 10,000 files", measure()))
    sys.exit(0)
