"""How many GPUs sbatch's own options ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def gpus_per_node(slurm: Mapping[str, Any]) -> int:
    """GPUs that each node gives by gpus-per-node, gres, or gpus over the nodes; 0 where none are asked for."""
    for name in ("gpus-per-node", "gres"):
        counts = [_gpu_count(part, is_gres=name == "gres") for part in str(slurm.get(name, "")).split(",")]
        if total := sum(counts):
            return total
    nodes = slurm.get("nodes", 1)
    total = sum(_gpu_count(part, is_gres=False) for part in str(slurm.get("gpus", "")).split(","))
    return total // nodes if isinstance(nodes, int) and nodes > 0 else 0


def _gpu_count(part: str, *, is_gres: bool) -> int:
    """GPUs in `8`, `a100:8`, and, of a gres, `gpu`, `gpu:8`, `gpu:a100:8`."""
    fields = part.strip().partition("(")[0].split(":")
    if is_gres:
        if fields[0] != "gpu":
            return 0
        fields = fields[1:] or ["1"]
    if fields[-1].isascii() and fields[-1].isdigit() and len(fields[-1]) < 10:
        return int(fields[-1])
    return 1 if is_gres else 0
