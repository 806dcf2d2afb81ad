"""Nodes that are odd and not broken: none of them is told to have failed."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from safelaunch.node.checks import disk, memory, table
from safelaunch.node.checks.answer import CheckRequest
from tests.node.checks.nodes import H100, PROCESS, SAID, MadeNode
from tests.node.checks.test_run import shorten
from tests.users import acting_as

MIG = H100.replace("<current_mig>Disabled", "<current_mig>Enabled").replace(
    "<used>1 MiB", "<used>70000 MiB").replace("\t\t</processes>", PROCESS)
PART = "<mig_device><index>0</index><gpu_instance_id>1</gpu_instance_id></mig_device>"
BUSY_SECOND = PROCESS.join(H100.rsplit("\t\t</processes>", 1))   # another job's process is on GPU 1
INFOROM = "WARNING: infoROM is corrupted at gpu 0000:3B:00.0\n"
NO_AMDGPU = ("cat: /sys/module/amdgpu/initstate: No such file or directory\n"
             "ERROR:root:Driver not initialized (amdgpu not found in modules)\n")
NO_SPACE = os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, 4096, 255))


def cut_link_of_the_second(node: MadeNode) -> None:
    """A link of GPU 1 that is down."""
    first, second, rest = (SAID / "nvlink.txt").read_text().partition("GPU 1")
    (node.folder / "link").write_text(first + second + rest.replace("Link 3: 26.562 GB/s", "Link 3: <inactive>", 1))
    node.program("nvidia-smi", by=f"[[ $1 == nvlink ]] && exec cat {node.folder}/link; exec cat {node.folder}/smi")


def parts(*counts: int) -> str:
    """GPUs that are divided into parts, of which this job sees so many each."""
    told = iter(counts)
    return re.sub("</mig_mode>", lambda end: f"{end[0]}<mig_devices>{PART * next(told)}</mig_devices>", MIG)


def outcomes(node: MadeNode, *names: str, **words: Any) -> list[str]:
    return [node.check(name, **words)["outcome"] for name in names]


def test_gpus_that_are_divided_are_counted_by_their_parts_and_are_shared_with_others(node: MadeNode) -> None:
    node.gpus(parts(2, 1))
    assert node.check("gpu_count", gpus=3)["why"] == "3 parts of 2 GPUs (MIG)"
    assert outcomes(node, "gpu_count", gpus=2) == ["unknown"]
    assert outcomes(node, "gpu_memory", "gpu_leftovers") == ["skipped", "skipped"]


@pytest.mark.parametrize("visible", ["0", "GPU-0a1b2c3d-1111-2222-3333-444455556666"])
def test_where_a_job_sees_the_gpus_of_others_its_own_are_looked_at(node: MadeNode, visible: str) -> None:
    node.gpus(BUSY_SECOND)
    cut_link_of_the_second(node)
    assert outcomes(node, "gpu_count", "gpu_nvlink", gpus=1) == ["failed", "failed"]
    node.patch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert outcomes(node, "gpu_count", "gpu_leftovers", "gpu_nvlink", gpus=1) == ["ok", "ok", "ok"]


@pytest.mark.parametrize("visible", ["", "NoDevFiles", "1,0", "7", "MIG-1a", "-1", "0,nonsense"])
def test_a_list_of_gpus_that_names_no_fewer_of_them_hides_none(node: MadeNode, visible: str) -> None:
    node.gpus(BUSY_SECOND)
    node.patch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert outcomes(node, "gpu_count", "gpu_leftovers", gpus=2) == ["ok", "failed"]


def test_words_around_the_log_of_nvidia_smi_are_no_fault_of_the_gpus(node: MadeNode) -> None:
    (node.folder / "smi").write_text(f"a word of the site\n{H100}{INFOROM}")
    node.program("nvidia-smi", by=f"cat {node.folder}/smi; exit 14")
    assert outcomes(node, "gpu_count", "gpu_ecc", gpus=2) == ["ok", "ok"]


def test_a_log_that_breaks_off_is_told_by_its_last_words(node: MadeNode) -> None:
    node.gpus(H100[:3000] + "\nUnable to determine the device handle for GPU 0000:3B:00.0: Unknown Error\n")
    answer = node.check("gpu_count", gpus=2)
    assert answer["outcome"] == "failed" and answer["why"].endswith("0000:3B:00.0: Unknown Error"), answer


def test_amds_tool_on_a_node_without_its_gpus_tells_of_no_gpu(node: MadeNode) -> None:
    node.program("rocm-smi", by=f"printf '%s' '{NO_AMDGPU}' >&2; exit 1")
    assert outcomes(node, "gpu_count") == ["skipped"]
    node.card(vendor="0x1002")
    assert outcomes(node, "gpu_count") == ["failed"]


def test_nvidias_tool_whose_driver_is_not_loaded_tells_of_no_gpu_where_there_is_no_card(node: MadeNode) -> None:
    node.program("nvidia-smi", "Failed to initialize NVML: Driver Not Loaded\n", 9)
    assert outcomes(node, "gpu_count") == ["skipped"]


def test_a_filesystem_that_does_not_count_its_space_is_not_full(node: MadeNode) -> None:
    node.patch.setattr(os, "statvfs", lambda path: NO_SPACE)
    node.patch.setattr(memory, "SHM", str(node.folder))
    node.patch.setattr(disk, "LIGHT_BYTES", disk.BLOCK)
    paths = [str(node.folder)]
    assert outcomes(node, "rw", "space", "shm", paths=paths, level="light") == ["ok", "unknown", "ok"]


@pytest.mark.root
def test_a_mount_of_somebody_else_that_may_not_be_seen_does_answer(tmp_path: Path) -> None:
    (tmp_path / "closed" / "far").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    with acting_as(65534):
        assert disk.check_mount(CheckRequest({}), str(tmp_path / "closed" / "far"))["outcome"] == "ok"


@pytest.mark.parametrize(("deadline_s", "expected"), [(1, "failed"), (20, "unknown")])
def test_what_got_less_than_a_third_of_its_deadline_is_unknown(
    node: MadeNode, deadline_s: int, expected: str
) -> None:
    shorten(node.patch, "name", deadline_s)
    (name,) = [check for check in table.CHECKS if check.name == "name"]
    node.patch.setattr(name, "function", lambda request, item: time.sleep(60))
    (smi,) = [source for source in table.SOURCES if source.name == "smi"]
    node.patch.setattr(smi, "deadline_s", float(deadline_s))
    node.program("nvidia-smi", by="exec sleep 600")
    assert outcomes(node, "name", "gpu_count", deadline_s=1) == [expected, expected]
