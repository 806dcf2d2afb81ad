"""Hardware or the program: the real test by PyTorch, with processes of the CPU in the place of GPUs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from safelaunch.node.checks.isolate import ISOLATE, bad_gpus
from tests.torchbin import needs_torch

pytestmark = pytest.mark.timed   # real programs and screens, within real deadlines

FAULTS = """
import os
import torch, torch.distributed
right_mm, right_sum = torch.mm, torch.distributed.all_reduce
def mine():
    return os.environ["CUDA_VISIBLE_DEVICES"].split(",")
def mm(a, b):
    return right_mm(a, b) + (mine() == ["1"])
def all_reduce(data):
    rank = torch.distributed.get_rank()
    if mine()[rank] == "3":
        os._exit(1)
    right_sum(data)
torch.mm, torch.distributed.all_reduce = mm, all_reduce
"""


@needs_torch
@pytest.mark.torch
def test_a_gpu_that_counts_wrong_and_one_that_dies_with_the_others_are_named() -> None:
    done = subprocess.run([sys.executable, "-c", FAULTS + ISOLATE, "20", "5"], capture_output=True, text=True,
                          timeout=600)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["alone"] == {"0": None, "1": "a product of matrices is wrong", "2": None, "3": None, "4": None}
    assert told["tried"] == 4 and told["together"], "number 1 does not take part"
    assert {pair for pair, why in told["pairs"].items() if why is None} == {"0-2", "0-4"}, told
    assert bad_gpus(told["pairs"]) == ["3"]


@pytest.mark.parametrize(("pairs", "bad"), [
    ({}, []), ({"0-1": None, "1-2": "x", "2-3": "x", "0-3": None}, ["2"]),
    ({"0-1": "x", "1-2": "x", "0-2": "x"}, []),          # the network of all, or NCCL: no GPU
    ({"0-1": None, "1-2": None, "0-2": None}, []),       # only all together fail
    ({"0-9": None, "9-10": "x", "0-10": "x"}, ["10"]),
], ids=str)
def test_a_gpu_is_named_where_another_pair_is_right(pairs: dict[str, str | None], bad: list[str]) -> None:
    assert bad_gpus(pairs) == bad
