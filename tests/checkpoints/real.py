"""The checkpoints that real packages have written (make_real.py), as bytes in memory."""

from __future__ import annotations

import functools
import tarfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    """One layout: what `auto` calls it, and its two checkpoints, of steps 4 and 2."""

    format: str
    newest: str
    older: str


LAYOUTS: dict[str, Layout] = {
    "torch_files": Layout("torch", "step_4.pt", "step_2.pt"),
    "dcp": Layout("dcp", "step-4", "step-2"),
    "megatron": Layout("megatron", "iter_0000004", "iter_0000002"),
    "deepspeed": Layout("deepspeed", "global_step4", "global_step2"),
    "hf": Layout("hf", "checkpoint-4", "checkpoint-2"),
    "hf_sharded": Layout("hf", "checkpoint-4", "checkpoint-2"),
    "hf_peft": Layout("hf", "checkpoint-4", "checkpoint-2"),
    "hf_save_only_model": Layout("hf", "checkpoint-4", "checkpoint-2"),
    "accelerate": Layout("hf", "step_4", "step_2"),
    "safetensors": Layout("safetensors", "model_step_4.safetensors", "model_step_2.safetensors"),
    "safetensors_sharded": Layout("hf", "step_4", "step_2"),
    "lightning": Layout("lightning", "epoch=0-step=4.ckpt", "epoch=0-step=2.ckpt"),
    "lightning_sharded": Layout("lightning", "epoch=0-step=4.ckpt", "epoch=0-step=2.ckpt"),
    "orbax": Layout("orbax", "4", "2"),
}
# Lightning's other names of the same step would be chosen in the place of a damaged one.
_TWINS = ("lightning/lightning_logs/version_0/checkpoints/last.ckpt", "lightning/hpc_ckpt_1.ckpt")


@functools.cache
def everything() -> dict[str, bytes]:
    """Every file of the archive by its path."""
    with tarfile.open(Path(__file__).with_name("real.tar.xz")) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


def files(layout: str) -> dict[str, bytes]:
    """The files of one layout; Lightning's lie in the folder of their version."""
    top = f"{layout}/lightning_logs/version_0/checkpoints/" if layout == "lightning" else f"{layout}/"
    return {name[len(top) :]: content for name, content in everything().items()
            if name.startswith(top) and name not in _TWINS}


def parts(layout: str) -> list[str]:
    """The files of the newest checkpoint of a layout."""
    newest = LAYOUTS[layout].newest
    return [name for name in files(layout) if name == newest or name.startswith(f"{newest}/")]
