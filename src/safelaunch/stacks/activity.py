"""What a stack is at: in a collective, waiting for data, at a file, at the rendezvous, in the program's own code.

By the files of its innermost frames, which libraries keep for years; by function names only inside of these.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from safelaunch.stacks.ranks import Stack
from safelaunch.stacks.stacks import split_frame

COLLECTIVE, DATA, STORAGE, RENDEZVOUS, GPU, COMPILE, LOCK, USER, NOTHING = (
    "collective", "data", "storage", "rendezvous", "gpu", "compile", "lock", "user", "nothing")
_DEPTH = 14    # frames from the innermost one; deeper ones say who called, not what it waits for

_COLLECTIVE_FILES = re.compile(
    r"torch/distributed/(?:distributed_c10d|_functional_collectives|nn/functional|pipelining/stage)\.py|deepspeed/comm/"
    r"|horovod/torch/mpi_ops|mpi4py|megatron/.*p2p_communication|jaxlib|cupy/cuda/nccl")
_COLLECTIVE_NATIVE = re.compile(
    r"^(?:p?nccl(?:All|Reduce|Broad|Send|Recv|Group)\w*|c10d::\w+|gloo::\w+|ProcessGroup\w+::\w+)")
_RENDEZVOUS = re.compile(r"^(?:init_process_group|_store_based_barrier|_create_c10d_store|rendezvous|_rendezvous_helper"
                         r"|_new_group_with_tag|new_group|initialize_model_parallel)$")
_DATA = re.compile(r"torch/utils/data/|(?:^|/)datasets/|webdataset/|litdata/|streaming/base/|tensorflow/.{0,120}/data/"
                   r"|petastorm|megatron/(?:core/datasets|data)/|nvidia/dali|torchdata/")
_STORAGE = re.compile(r"torch/serialization\.py|safetensors|torch/distributed/checkpoint|(?:^|/)shutil\.py"
                      r"|logging/__init__|megatron/.{0,120}checkpointing|deepspeed/.{0,120}checkpoint|h5py|zarr|numpy/lib/.{0,60}npyio|zipfile")
_GPU = re.compile(r"torch/cuda/(?:__init__|streams|graphs)\.py|torch/xpu/|torch/_C/_cuda")
# Not eval_frame.py nor _inductor's output code: these are on the stack of every compiled model that runs.
_COMPILE = re.compile(r"torch/_inductor/(?:compile_fx|async_compile|codegen|graph|scheduler)"
                      r"|torch/_dynamo/(?:convert_frame|symbolic_convert)|triton/compiler|jax/_src/compiler")
# FileBaton.wait sleeps while the lock file exists; a process that is killed while it builds leaves it behind (seen:
# torch_extensions of DeepSpeed, 2026-11-22).
_LOCK = re.compile(r"torch/utils/file_baton\.py|(?:^|/)filelock/")
BACKWARD = "backward"          # `what` of a collective that is inside of a backward pass
_INSIDE = ("wait", "synchronize", "wrapper")   # on the way into a collective, not which one


class Activity(NamedTuple):
    """What a stack is at; `what` names it more closely: the collective's function, the frame of the program's own."""

    kind: str
    what: str


def is_in_backward(stack: Stack) -> bool:
    """Whether Python waits for the autograd engine; before PyTorch 2.3 in torch/autograd/__init__.py."""
    if not stack:
        return False
    name, file = split_frame(stack[0])
    return name == "_engine_run_backward" or (file == "torch/autograd/__init__.py" and name in ("backward", "grad"))


def classify(stack: Stack) -> Activity:
    """What a stack is at."""
    frames = [split_frame(frame) for frame in stack[:_DEPTH]]
    if any(_RENDEZVOUS.match(name.rpartition(".")[2]) for name, _ in frames):
        return Activity(RENDEZVOUS, "rendezvous")
    for name, file in frames:
        short = name.rpartition(".")[2]
        if _LOCK.search(file):
            return Activity(LOCK, short)
        if _COLLECTIVE_NATIVE.match(name) or (_COLLECTIVE_FILES.search(file) and short not in _INSIDE):
            return Activity(COLLECTIVE, short.strip("_"))
        for kind, files in ((DATA, _DATA), (STORAGE, _STORAGE), (GPU, _GPU), (COMPILE, _COMPILE)):
            if files.search(file):
                return Activity(kind, short)
    if not frames:
        return Activity(NOTHING, "")
    return Activity(USER, f"{frames[0][0]} ({frames[0][1]})")
