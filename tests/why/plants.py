"""Causes to plant: what one rank, or the machine around it, writes when it is the one that fails.

The forms are those of the software that prints them; hosts, ranks, numbers and paths are filled in by the generator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Speaker = Literal["rank", "host", "slurm"]   # behind the rank's prefix; as the node's own log; srun and slurmstepd


@dataclass(frozen=True)
class Plant:
    """One cause. `line` is part of the line that states it; `{host}`, `{rank}` and the like are filled in."""

    name: str
    category: str
    also: tuple[str, ...]            # other readings that the text allows
    speaker: Speaker
    lines: tuple[str, ...]
    line: str
    names_host: bool = True          # whether the log says where it began
    names_rank: bool = True
    echoes: bool = True              # whether the others fail of it, with their time-outs and resets
    at_start: bool = False           # before the first step


_HEAD = ("Traceback (most recent call last):", '  File "/home/user/gpt/pretrain_gpt.py", line 249, in <module>',
         "    pretrain(train_valid_test_datasets_provider, model_provider, forward_step)",
         '  File "/home/user/gpt/megatron/training.py", line 188, in pretrain',
         "    iteration = train(forward_step_func,")


def _raise(*last: str, head: tuple[str, ...] = _HEAD) -> tuple[str, ...]:
    return (*head, *last)


PLANTS: tuple[Plant, ...] = (
    Plant("fallen off the bus", "gpu_hardware", (), "host",
          ("{when} {host} kernel: [ {n}.551204] NVRM: GPU at PCI:0000:90:00: GPU-4f1d3c55-93a1-8e0b-52d5-0b1f6d7a9a11",
           "{when} {host} kernel: [ {n}.551209] NVRM: Xid (PCI:0000:90:00): 79, pid=4242, name=python, GPU has fallen "
           "off the bus."),
          "79, pid=4242, name=python, GPU has fallen off the bus", names_rank=False),
    Plant("uncorrectable ECC", "gpu_hardware", (), "rank",
          _raise("RuntimeError: CUDA error: uncorrectable ECC error encountered",
                 "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below "
                 "might be incorrect."), "CUDA error: uncorrectable ECC error encountered"),
    Plant("cgroup OOM", "host_oom", (), "slurm",
          ("slurmstepd-{host}: error: Detected 1 oom_kill event in StepId=77.0. Some of the step tasks have been OOM "
           "Killed.", "srun: error: {host}: task {task}: Out Of Memory"), "oom_kill event in StepId=77.0",
          names_rank=False),
    Plant("CUDA OOM", "cuda_oom", (), "rank",
          _raise('  File "/home/user/gpt/megatron/model/transformer.py", line 612, in forward',
                 "    context_layer = torch.bmm(attention_probs, value_layer)",
                 "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 3; 79.15 GiB total "
                 "capacity; 74.31 GiB already allocated; 917.25 MiB free; 76.80 GiB reserved in total by PyTorch)"),
          "CUDA out of memory. Tried to allocate 1.50 GiB"),
    Plant("an assertion", "user_code", ("config",), "rank",
          _raise('  File "/home/user/gpt/megatron/mixture.py", line 71, in blend',
                 "    assert weights.sum() > 0, 'all weights are zero'", "AssertionError: all weights are zero"),
          "AssertionError: all weights are zero"),
    Plant("a KeyError", "user_code", ("config", "data"), "rank",
          _raise('  File "/home/user/gpt/megatron/curriculum.py", line 33, in difficulty',
                 "    return table[step]", "KeyError: 31337"), "KeyError: 31337"),
    Plant("IB completion error", "network", (), "rank",
          ("{host}:4242:4977 [{rank}] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer "
           "10.1.7.9<41823> with status=12 opcode=0 len=0 vendor err 129 (Send) localGid fe80::1 remoteGid fe80::2",),
          "NET/IB : Got completion from peer"),
    Plant("lost node", "node_failure", (), "slurm",
          ("srun: error: Node failure on {host}", "slurmstepd: error: *** STEP 77.0 ON {first} CANCELLED AT "
           "2024-05-01T12:30:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"),
          "Node failure on {host}", names_rank=False),
    Plant("no space", "storage", ("checkpoint",), "rank",
          _raise('  File "/home/user/gpt/megatron/checkpointing.py", line 280, in save_checkpoint',
                 "    torch.save(state_dict, checkpoint_name)", "OSError: [Errno 28] No space left on device"),
          "[Errno 28] No space left on device"),
    Plant("stale handle", "storage", ("data",), "rank",
          _raise('  File "/home/user/gpt/megatron/data/indexed_dataset.py", line 520, in __getitem__',
                 "    np_array = np.frombuffer(self._bin_buffer, dtype=self._index.dtype)",
                 "OSError: [Errno 116] Stale file handle: '/scratch/data/part_7.bin'"),
          "[Errno 116] Stale file handle"),
    Plant("a segmentation fault", "native_crash", (), "rank",
          ("Fatal Python error: Segmentation fault", "", "Current thread 0x00001518a06137d2 (most recent call first):",
           '  File "/home/user/gpt/megatron/fused_kernels/softmax.py", line 41 in forward'),
          "Fatal Python error: Segmentation fault"),
    Plant("a loader's bus error", "data", ("native_crash", "environment", "host_oom"), "rank",
          _raise("RuntimeError: DataLoader worker (pid 90210) is killed by signal: Bus error. It is possible that "
                 "dataloader's workers are out of shared memory. Please try to raise your shared memory limit."),
          "is killed by signal: Bus error"),
    Plant("a broken checkpoint", "checkpoint", (), "rank",
          _raise('  File "/opt/env/lib/python3.10/site-packages/torch/serialization.py", line 283, in __init__',
                 "    super().__init__(torch._C.PyTorchFileReader(name_or_buffer))",
                 "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"),
          "PytorchStreamReader failed reading zip archive", at_start=True),
    Plant("a missing module", "environment", (), "rank",
          ("Traceback (most recent call last):", '  File "/home/user/gpt/pretrain_gpt.py", line 12, in <module>',
           "    import flash_attn", "ModuleNotFoundError: No module named 'flash_attn'"),
          "No module named 'flash_attn'", at_start=True),
    Plant("a port in use", "rendezvous", (), "rank",
          ("[W socket.cpp:464] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already "
           "in use).",
           "[E socket.cpp:500] [c10d] The server socket has failed to listen on any local network address."),
          "failed to", at_start=True),
    Plant("time limit", "time_limit", (), "slurm",
          ("slurmstepd: error: *** JOB 77 ON {first} CANCELLED AT 2024-05-01T12:30:00 DUE TO TIME LIMIT ***",),
          "DUE TO TIME LIMIT", False, False, False),
    Plant("preemption", "preempted", (), "slurm",
          ("slurmstepd: error: *** JOB 77 ON {first} CANCELLED AT 2024-05-01T12:30:00 DUE TO PREEMPTION ***",),
          "DUE TO PREEMPTION", False, False, False),
    Plant("scancel", "cancelled", (), "slurm",
          ("slurmstepd: error: *** JOB 77 ON {first} CANCELLED AT 2024-05-01T12:30:00 ***",),
          "CANCELLED AT", False, False, False),
    Plant("a NaN", "numerical", (), "rank",
          _raise("AssertionError: Rank {task}: found NaN in local grad norm in backward pass before data-parallel "
                 "communication collective. Device: 3, node: {host}"), "found NaN in local grad norm"),
    Plant("a gated model", "hub_auth", (), "rank",
          _raise("OSError: You are trying to access a gated repo.",
                 "401 Client Error. Access to model org/tokenizer is restricted. You must be authenticated to access "
                 "it."), "gated repo", at_start=True),
    Plant("nothing but silence", "hang", ("network",), "rank", (), "Watchdog caught collective operation timeout",
          names_host=False, names_rank=False),
)
