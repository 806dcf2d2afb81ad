"""All checks of a node, and the programs that they ask. Standard library, Python 3.9."""

from __future__ import annotations

import os
import socket

from safelaunch.node import devices, evidence
from safelaunch.node.checks import disk, gpu, isolate, memory, network, processes, software, witnesses
from safelaunch.node.checks.answer import FULL, ISOLATE, LIGHT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional

    from safelaunch.node.checks.answer import CheckRequest


class Source:
    """A program that is asked once, for all checks that need its answer. `is_heavy`: it takes whole GPUs, so it runs
    after all others, alone, and only where no process is on a GPU.
    """

    def __init__(self, name: str, words: Callable[[CheckRequest], list[str]], deadline_s: float,
                 is_heavy: bool = False, is_by_python: bool = False) -> None:
        self.name, self.words, self.deadline_s, self.is_heavy = name, words, deadline_s, is_heavy
        self.is_by_python = is_by_python   # the training's, which its own PATH finds


class Check:
    """One check. `function` takes the request and, by its kind, an item or what its sources have said. `items`: what it
    looks at, each in a child of its own; `none`: why there may be none.
    """

    def __init__(self, name: str, function: Callable[[CheckRequest, Any], dict[str, Any]], deadline_s: float,
                 needs: tuple[str, ...] = (), level: str = LIGHT,
                 items: Optional[Callable[[CheckRequest], list[str]]] = None, none: str = "") -> None:
        self.name, self.function, self.deadline_s, self.needs = name, function, deadline_s, needs
        self.level, self.items, self.none = level, items, none

    def is_wanted(self, request: CheckRequest) -> bool:
        """Whether it belongs to a look of the request's level, and is not left out."""
        return request.has_level(self.level) and self.name not in request.skip


def served_mounts(request: CheckRequest) -> list[str]:
    """Filesystems that other machines or processes serve: those can hang."""
    return [task.name[1] for task in devices.mount_tasks(evidence.real_mounts(os.getpid()), ())]


def own_and_asked(request: CheckRequest) -> list[str]:
    """This host's own name, which torchrun and Gloo look up, and those that were asked."""
    return list(dict.fromkeys([socket.gethostname(), *request.names]))


_JUDGE_S = 5.0   # of a check that reads an answer and no file

SOURCES = (
    # With eight GPUs and no persistence daemon it takes some seconds; on a lost GPU it hangs for ever.
    Source("smi", lambda request: ["nvidia-smi", "-q", "-x"], 20.0),
    Source("nvlink", lambda request: ["nvidia-smi", "nvlink", "--status"], 20.0),
    Source("rocm", lambda request: ["rocm-smi", "--showproductname", "--showdriverversion", "--showmeminfo", "vram",
                                    "--json"], 20.0),
    Source("dcgmi", witnesses.dcgmi_words, 120.0),
    Source("nhc", witnesses.nhc_words, 60.0),
    Source("gpu_burn", witnesses.burn_words, 60.0, is_heavy=True),
    Source("nccl_tests", witnesses.nccl_words, 90.0, is_heavy=True),
    Source("python", lambda request: software.python_words(request, software.LIST_MODULES), 30.0, is_by_python=True),
    Source("torch", lambda request: software.python_words(request, software.ASK_TORCH), 120.0, is_by_python=True),
    Source("isolate", isolate.isolate_words, isolate.DEADLINE_S, is_heavy=True, is_by_python=True),
)

HEAVY = frozenset(source.name for source in SOURCES if source.is_heavy)

CHECKS = (
    Check("rw", disk.check_read_write, 30.0, items=lambda request: request.paths, none="no path was given"),
    Check("space", disk.check_space, 5.0, items=lambda request: request.paths, none="no path was given"),
    Check("mount", disk.check_mount, 5.0, items=served_mounts, none="no filesystem is served from elsewhere"),
    Check("control", disk.check_control, 10.0, items=lambda request: [request.control] if request.control else [],
          none="no control folder was given"),
    Check("memory", memory.check_memory, 5.0),
    Check("shm", memory.check_shm, 5.0),
    Check("load", processes.check_load, 5.0),
    Check("stuck", processes.check_stuck, 10.0),
    Check("limits", processes.check_limits, 5.0),
    Check("port", network.check_port, 5.0),
    Check("name", network.check_name, 15.0, items=own_and_asked),   # resolv.conf(5): 5 s a server, twice
    Check("clock", network.check_clock, 5.0),
    Check("infiniband", network.check_infiniband, 10.0),
    Check("gpu_count", gpu.check_count, _JUDGE_S, ("smi", "rocm")),
    Check("gpu_model", gpu.check_model, _JUDGE_S, ("smi", "rocm")),
    Check("gpu_driver", gpu.check_driver, _JUDGE_S, ("smi", "rocm")),
    Check("gpu_ecc", gpu.check_ecc, _JUDGE_S, ("smi", "rocm")),
    Check("gpu_clocks", gpu.check_clocks, _JUDGE_S, ("smi", "rocm")),
    Check("gpu_pcie", gpu.check_pcie, _JUDGE_S, ("smi", "rocm")),
    Check("gpu_nvlink", gpu.check_nvlink, _JUDGE_S, ("smi", "rocm", "nvlink")),
    Check("gpu_memory", gpu.check_memory, _JUDGE_S, ("smi", "rocm")),
    Check("gpu_leftovers", gpu.check_leftovers, _JUDGE_S, ("smi", "rocm")),
    Check("gpu_xid", witnesses.check_xid, 5.0),
    Check("dcgm", witnesses.check_dcgm, _JUDGE_S, ("dcgmi",)),
    Check("nhc", witnesses.check_nhc, _JUDGE_S, ("nhc",), FULL),
    Check("gpu_burn", witnesses.check_burn, _JUDGE_S, ("gpu_burn",), FULL),
    Check("nccl_tests", witnesses.check_nccl, _JUDGE_S, ("nccl_tests",), FULL),
    Check("python", software.check_python, _JUDGE_S, ("python",)),
    Check("torch", software.check_torch, _JUDGE_S, ("torch",), FULL),
    Check("gpu_alone", isolate.check_alone, _JUDGE_S, ("smi", "rocm", "isolate"), ISOLATE),
    Check("gpu_together", isolate.check_together, _JUDGE_S, ("smi", "rocm", "isolate"), ISOLATE),
)
# What tells whether heavy programs may run.
LEFTOVERS = next(check for check in CHECKS if check.name == "gpu_leftovers")
