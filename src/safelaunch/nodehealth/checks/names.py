"""The names of the checks of nodes: apart, because every submission imports them."""

from __future__ import annotations

# All checks of node.checks.table, in its order: what `checks.skip` can name.
CHECK_NAMES = (
    "rw", "space", "mount", "control", "memory", "shm", "load", "stuck", "limits", "port", "name", "clock",
    "infiniband", "gpu_count", "gpu_model", "gpu_driver", "gpu_ecc", "gpu_clocks", "gpu_pcie", "gpu_nvlink",
    "gpu_memory", "gpu_leftovers", "gpu_xid", "dcgm", "nhc", "gpu_burn", "nccl_tests", "python", "torch", "gpu_alone",
    "gpu_together",
)
