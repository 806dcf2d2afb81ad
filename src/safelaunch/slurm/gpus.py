"""How many GPUs sbatch's own options ask for, and of which type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class AskedGpus(NamedTuple):
    """GPUs of one entry; `type`: the site's word for their model, "" = any."""

    number: int
    type: str = ""


def gpus_per_node(slurm: Mapping[str, object]) -> int:
    """GPUs that each node gives by gpus-per-node, gres, or gpus over the nodes; 0 where none are asked for."""
    name, asked = _asked(slurm)
    total, nodes = sum(one.number for one in asked), slurm.get("nodes", 1)
    if name != "gpus":
        return total
    return total // nodes if isinstance(nodes, int) and nodes > 0 else 0


def gpu_type(slurm: Mapping[str, object]) -> str:
    """The one type that all of these GPUs are to have, such as a100; "" where none or several are named."""
    types = {one.type for one in _asked(slurm)[1]}
    return types.pop() if len(types) == 1 else ""


def _asked(slurm: Mapping[str, object]) -> tuple[str, list[AskedGpus]]:
    """The option that asks for GPUs, and its entries."""
    for name in ("gpus-per-node", "gres", "gpus"):
        entries = [_entry(part, is_gres=name == "gres") for part in str(slurm.get(name, "")).split(",")]
        if asked := [one for one in entries if one.number]:
            return name, asked
    return "", []


def _entry(part: str, *, is_gres: bool) -> AskedGpus:
    """GPUs in `8`, `a100:8`, and, of a gres, `gpu`, `gpu:8`, `gpu:a100`, `gpu:a100:8`."""
    fields = part.strip().partition("(")[0].split(":")
    if is_gres:
        if fields[0] != "gpu":
            return AskedGpus(0)
        fields = fields[1:] or ["1"]
    if fields[-1].isascii() and fields[-1].isdigit() and len(fields[-1]) < 10:
        return AskedGpus(int(fields[-1]), fields[0] if len(fields) > 1 else "")
    return AskedGpus(1, fields[0]) if is_gres else AskedGpus(0)
