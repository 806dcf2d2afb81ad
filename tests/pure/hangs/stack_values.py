"""Ranks and stacks for tests: made up, in the words of py-spy."""

from __future__ import annotations

from safelaunch.stacks.ranks import KernelPlace, NodeReport, ObservedRank, Stack

BROADCAST: Stack = (
    "broadcast (torch/distributed/distributed_c10d.py:1191)",
    "_bcast_pipe_scalar (deepspeed/runtime/pipe/engine.py:542)",
    "eval_batch (deepspeed/runtime/pipe/engine.py:455)", "evaluate (megatron/training.py:983)",
    "train (megatron/training.py:904)", "<module> (pretrain_gpt.py:249)")
DATA: Stack = (
    "wait (threading.py:306)", "get (queue.py:179)", "_try_get_data (torch/utils/data/dataloader.py:1011)",
    "_get_data (torch/utils/data/dataloader.py:1163)", "_next_data (torch/utils/data/dataloader.py:1207)",
    "__next__ (torch/utils/data/dataloader.py:530)", "eval_batch (deepspeed/runtime/pipe/engine.py:440)",
    "evaluate (megatron/training.py:983)", "train (megatron/training.py:904)", "<module> (pretrain_gpt.py:249)")
ALL_REDUCE: Stack = (
    "all_reduce (torch/distributed/distributed_c10d.py:1316)", "allreduce_gradients (megatron/optimizer.py:20)",
    "train (megatron/training.py:860)", "<module> (pretrain_gpt.py:249)")
SEND: Stack = (
    "send (torch/distributed/distributed_c10d.py:900)", "_exec_send_grads (deepspeed/runtime/pipe/engine.py:1000)",
    "train (megatron/training.py:860)", "<module> (pretrain_gpt.py:249)")
USER: Stack = ("save_extra (train.py:10)", "train_step (train.py:7)", "<module> (pretrain_gpt.py:249)")
WRITE: Stack = ("emit (logging/__init__.py:1100)", "log (train.py:3)", "<module> (pretrain_gpt.py:249)")
ASLEEP = KernelPlace(1, "python", "D", "rpc_wait", "write", "/gpfs/log", "/gpfs", "gpfs")


def rank(number: int, stack: Stack = BROADCAST, *more: Stack, per_node: int = 8, **fields: object) -> ObservedRank:
    """A rank that was at `stack` at both looks, or moved on to `more`."""
    samples = (stack, *more) if more else (stack, stack) if stack else ()
    values = {"node": f"n{number // per_node}", "pid": 1000 + number, "states": "SS", "samples": samples, "world": None}
    return ObservedRank(number, **{**values, **fields})  # type: ignore[arg-type]


def asleep(number: int, stack: Stack = (), **fields: object) -> ObservedRank:
    """A rank in D state in write() on /gpfs."""
    return rank(number, stack)._replace(**{"states": "DD", "main": ASLEEP, **fields})  # type: ignore[arg-type]


def reports(*ranks: ObservedRank, **fields: object) -> list[NodeReport]:
    """What the nodes of these ranks report."""
    nodes = dict.fromkeys(one.node for one in ranks)
    return [NodeReport(node, tuple(one for one in ranks if one.node == node), **fields)  # type: ignore[arg-type]
            for node in nodes]
