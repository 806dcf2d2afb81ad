"""Nodes made for one check at a time: what its tools say, which files it reads."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from safelaunch.node import devices
from safelaunch.node.checks import disk, gpu, main, memory, network, witnesses
from safelaunch.node.checks.answer import CheckRequest
from safelaunch.node.checks.table import CHECKS
from tests.handmade import fake_command

SAID = Path(__file__).parent / "said"
H100 = (SAID / "smi-h100.xml").read_text()
NAMES = [check.name for check in CHECKS]
PORT = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "200 Gb/sec (4X HDR)", "link_layer": "InfiniBand",
        "counters/symbol_error": "0", "counters/link_downed": "1"}
KERNEL = ("6,0,0,-;Linux version 6.1.0", "6,812,4103200,-;nvidia: loading out-of-tree module taints kernel.",
          "4,820,4203200,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15")
PROCESS = ("<process_info><pid>41287</pid><type>C</type><process_name>python</process_name>"
           "<used_memory>30109 MiB</used_memory></process_info></processes>")
XID = "4,901,81200000,-;NVRM: Xid (PCI:0000:4e:00): %d, pid=4242, name=python, GPU has fallen off the bus."


class MadeNode:
    """A node that a test furnishes; `check` runs one check on it, by the real runner in a real child."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, patch
        self.stack = contextlib.ExitStack()
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name in ("bash", "cat", "sleep"):
            (self.bin / name).symlink_to(str(shutil.which(name)))
        # A machine of a developer may have a GPU: only what the test puts here is found.
        patch.setenv("PATH", str(self.bin))
        patch.setattr(devices, "SYSTEM_PATH", str(self.bin))
        patch.setattr(gpu, "PCI", str(folder / "pci"))
        patch.setattr(network, "INFINIBAND", str(folder / "infiniband"))
        # What others on this machine have taken is none of its tests' matter.
        (folder / "meminfo").write_text("MemTotal: 8000000 kB\nMemAvailable: 6000000 kB\n")
        patch.setattr(memory, "MEMINFO", str(folder / "meminfo"))
        patch.setattr(disk, "FULL_BYTES", disk.LIGHT_BYTES)   # tests lie in memory
        self.kernel_says(*KERNEL[:1])

    def program(self, name: str, said: str = "", code: int = 0, by: str = "") -> None:
        """A program that says this and ends with that code; `by`: a script instead."""
        text = self.folder / f"{name}.said"
        text.write_text(said)
        fake_command(self.bin, name, by or f"cat {text}; exit {code}")

    def gpus(self, said: str = H100) -> None:
        """What `nvidia-smi -q -x` says here; `nvlink --status` as recorded."""
        (self.folder / "smi").write_text(said)
        self.program("nvidia-smi", by=f"[[ $1 == nvlink ]] && exec cat {SAID}/nvlink.txt; exec cat {self.folder}/smi")

    def kernel_says(self, *records: str) -> None:
        log = self.folder / "kmsg"
        log.write_text("".join(f"{record}\n" for record in records))
        self.patch.setattr(witnesses, "KMSG", str(log))

    def port(self, device: str = "mlx5_0", **words: str) -> Path:
        """A port of an adapter, as the kernel shows it."""
        folder = self.folder / "infiniband" / device / "ports" / "1"
        (folder / "counters").mkdir(parents=True, exist_ok=True)
        for name, value in {**PORT, **words}.items():
            (folder / name).write_text(f"{value}\n")
        return folder

    def card(self, vendor: str = "0x10de") -> None:
        """A 3D controller on the PCI bus."""
        folder = self.folder / "pci" / "0000:19:00.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text("0x030200\n")

    def check(self, name: str, **words: Any) -> dict[str, Any]:
        """The first answer of one check."""
        return self.checks(name, **words)[0]

    def checks(self, name: str, **words: Any) -> list[dict[str, Any]]:
        """All answers of one check."""
        skip = [one for one in NAMES if one != name]
        rows: list[dict[str, Any]] = main.run(CheckRequest({"skip": skip, "level": "full", **words}))
        assert {row["name"] for row in rows} == {name}
        return rows
