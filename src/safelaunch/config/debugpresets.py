"""Sets of variables for looking into a failure, by what is asked: `safelaunch submit --debug nccl`.

Names and values: NCCL user guide, Environment Variables; PyTorch, ProcessGroupNCCL Environment Variables and
torch.distributed, Debugging; CUDA-GDB, GPU core dump support; Python, faulthandler. They cost speed or log, so none is
set without being asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class DebugVariable(NamedTuple):
    """One variable, and what it shows or costs."""

    name: str
    value: str
    why: str


_FAULTHANDLER = DebugVariable(
    "PYTHONFAULTHANDLER", "1", "a crash (SIGSEGV, SIGABRT) prints the Python stack of all threads")
_CPP = DebugVariable("TORCH_SHOW_CPP_STACKTRACES", "1", "errors of PyTorch show their C++ stack")

PRESETS: dict[str, tuple[DebugVariable, ...]] = {
    "nccl": (
        DebugVariable("NCCL_DEBUG", "INFO", "which network, transport and rings each rank has chosen, and what failed"),
        DebugVariable("NCCL_DEBUG_SUBSYS", "INIT,BOOTSTRAP,ENV,NET,GRAPH",
                      "of these parts of NCCL: a line for each collective (COLL) would flood the log"),
    ),
    "trace": (
        DebugVariable("TORCH_DISTRIBUTED_DEBUG", "DETAIL", "each collective is checked for the same operation and "
                      "shapes on all ranks before it starts; steps get slower"),
        DebugVariable("TORCH_CPP_LOG_LEVEL", "INFO", "PyTorch's C++ parts log; TORCH_DISTRIBUTED_DEBUG needs it"),
        _CPP, _FAULTHANDLER,
    ),
    "cuda": (
        DebugVariable("CUDA_LAUNCH_BLOCKING", "1", "an error of CUDA is raised at the line that caused it; steps get "
                      "slower, and NCCL 2.14.3 (PyTorch 1.13) hangs with it"),
        _CPP, _FAULTHANDLER,
    ),
    "hang": (
        DebugVariable("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000",
                      "the flight recorder keeps so many of the newest collectives"),
        DebugVariable("TORCH_FR_BUFFER_SIZE", "2000", "the same, as newer releases of PyTorch call it"),
        DebugVariable("TORCH_NCCL_DUMP_ON_TIMEOUT", "1", "at a timeout each rank writes them to a file, which "
                      "`safelaunch stacks` and the hang's verdict read"),
        DebugVariable("TORCH_NCCL_DESYNC_DEBUG", "1", "at a timeout the ranks report who was behind"),
        _FAULTHANDLER,
    ),
    "core": (
        DebugVariable("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "1", "an error in a GPU kernel leaves a core of the GPU, "
                      "which cuda-gdb reads, in the working directory"),
        DebugVariable("CUDA_ENABLE_LIGHTWEIGHT_COREDUMP", "1", "without the GPU's memory: megabytes, not all of it"),
        DebugVariable("CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION", "0", "no core of the host's memory beside it"),
        DebugVariable("SL_CORE_KB", "4000000", "other crashes leave a core of the host's memory, of at most so many "
                      "kB, in the working directory or where kernel.core_pattern says; `why` names it"),
        _FAULTHANDLER,
    ),
}


def debug_variables(presets: Iterable[str]) -> tuple[DebugVariable, ...]:
    """The variables of these presets, each once, in their order."""
    return tuple(dict.fromkeys(one for preset in presets for one in PRESETS[preset]))


def debug_overrides(presets: Iterable[str]) -> list[str]:
    """The same as overrides of a command line; those that are typed come behind, and win."""
    return [f"env.{one.name}={one.value}" for one in debug_variables(presets)]
