"""Trains a small network with JAX on several processes, in a way that survives being killed at any moment.

    python3 train.py --steps 50

Each process draws its own rows; XLA sums the gradients. Four habits: the data of a step follow from its number, Orbax
gives a checkpoint its name only when it is whole, the run goes on from the checkpoint that it is given, and JAX's own
notice of a preemption makes all processes end after the same step.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import jax
import numpy
import orbax.checkpoint as orbax
from jax import numpy as jnp
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

WIDTH, HIDDEN = 32, 64
RATE, MOMENTUM = 0.01, 0.9


def draw_batch(step: int, process: int, rows: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Points of this step and process, and what a fixed random network says of each."""
    truth = numpy.random.default_rng(1).standard_normal((WIDTH, 1), numpy.float32)
    points = numpy.random.default_rng((step, process)).standard_normal((rows, WIDTH), numpy.float32)
    return points, numpy.tanh(points @ truth)


def make_state() -> dict[str, Any]:
    """Random weights, and the momentum of each."""
    first, second = jax.random.split(jax.random.key(1))
    weights = {"in": jax.random.normal(first, (WIDTH, HIDDEN)) / WIDTH ** 0.5,
               "out": jax.random.normal(second, (HIDDEN, 1)) / HIDDEN ** 0.5}
    return {"weights": weights, "momentum": jax.tree.map(jnp.zeros_like, weights)}


def train_step(state: dict[str, Any], points: jax.Array, wanted: jax.Array) -> tuple[dict[str, Any], jax.Array]:
    """(state after one step, loss over all processes)."""
    def loss_of(weights: dict[str, jax.Array]) -> jax.Array:
        return jnp.mean((jax.nn.relu(points @ weights["in"]) @ weights["out"] - wanted) ** 2)

    loss, slopes = jax.value_and_grad(loss_of)(state["weights"])
    momentum = jax.tree.map(lambda old, slope: MOMENTUM * old + slope, state["momentum"], slopes)
    weights = jax.tree.map(lambda old, change: old - RATE * change, state["weights"], momentum)
    return {"weights": weights, "momentum": momentum}, loss


def train(args: argparse.Namespace) -> None:
    """Trains from the checkpoint, or from nothing, to the last step."""
    mesh = Mesh(numpy.array(jax.devices()), ("rows",))
    split, everywhere = NamedSharding(mesh, PartitionSpec("rows")), NamedSharding(mesh, PartitionSpec())
    state = jax.jit(make_state, out_shardings=everywhere)()
    make_step = jax.jit(train_step, out_shardings=everywhere)
    process, step = jax.process_index(), 0
    with orbax.StandardCheckpointer() as checkpointer:
        if args.resume:
            state, step = checkpointer.restore(args.resume.absolute(), state), int(args.resume.name)
        print(f"process {process} of {jax.process_count()} goes on after step {step}", flush=True)
        while step < args.steps:
            begun_s, step = time.monotonic(), step + 1
            batch = [jax.make_array_from_process_local_data(split, part)
                     for part in draw_batch(step, process, args.batch)]
            state, loss = make_step(state, *batch)
            mean = float(loss)
            time.sleep(max(0.0, args.step_time - (time.monotonic() - begun_s)))
            if process == 0:
                print(f"step {step} loss {mean:.6f}", flush=True)
            ends = multihost_utils.reached_preemption_sync_point(step)   # the same answer in all processes
            if ends or step % args.save_every == 0 or step == args.steps:
                checkpointer.save(args.save_to.absolute() / str(step), state, force=True)
                checkpointer.wait_until_finished()
            if ends:
                print(f"rank {process} was asked to end: saved, ending after step {step}", flush=True)
                return


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-time", type=float, default=0.0, help="seconds, at least, of one step")
    parser.add_argument("--batch", type=int, default=8, help="rows per process and step")
    parser.add_argument("--save-to", type=Path, default=Path("checkpoints"))
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--resume", type=Path, help="a checkpoint: a folder named after its step")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    if os.environ.get("JAX_COORDINATOR_ADDRESS"):   # safelaunch sets it; JAX reads the rest from Slurm's variables
        jax.distributed.initialize()
    train(args)


if __name__ == "__main__":
    main()
