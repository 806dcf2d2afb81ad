"""Real files, written by real PyTorch where it is installed, judged on a real filesystem."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from safelaunch.checkpoints.io.checkpoints import find
from tests.torchbin import Ranks, needs_torch


def names_of(found_dir: Path, format: str = "auto", pattern: str | None = None) -> list[str]:
    found = find(str(found_dir), format, pattern)
    return [Path(one.path).name for one in (found.best, *found.older) if one]


def test_a_missing_folder_holds_nothing(tmp_path: Path) -> None:
    assert find(str(tmp_path / "none"), "auto").best is None


def test_paths_are_absolute_even_for_a_relative_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "3.bin").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    best = find("a b", "pattern", "{step}.bin").best
    assert best is not None and best.path == str(tmp_path / "a b" / "3.bin")


@pytest.mark.parametrize("is_absolute", [False, True], ids=["relative", "absolute"])
def test_a_link_to_a_checkpoint_beside_it_is_no_other_one(tmp_path: Path, is_absolute: bool) -> None:
    for name in ("step_1/a.pt", "step_2/a.pt", "step_3.pt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"\x80\x02N.")
    top = tmp_path if is_absolute else Path()
    (tmp_path / "last").symlink_to(top / "step_2")
    (tmp_path / "latest.pt").symlink_to(top / "step_3.pt")
    assert names_of(tmp_path) == ["step_3.pt", "step_2", "step_1"]


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / "up").symlink_to(tmp_path)
    (tmp_path / "step-1" / "self").symlink_to("self")
    (tmp_path / "step-1" / "step_1.pt").symlink_to("step_1.pt")
    found = find(str(tmp_path), "auto")
    assert found.best is None
    assert [Path(one.path).name for one in found.skipped] == ["step-1"]


def test_pipes_and_sockets_do_not_hold_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "step_9.pt")
    monkeypatch.chdir(tmp_path)  # a socket's path is limited to 107 bytes
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("step_8.pt")
        os.mkfifo(tmp_path / "latest")
        found = find(str(tmp_path), "auto")
    assert found.best is None
    assert {one.reason.rpartition(": ")[2] for one in found.skipped} == {"not a regular file"}


def find_as_guest(folder: Path) -> dict[str, Any]:
    """What `find` tells a process that is not root, whom permissions do not stop."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            told: dict[str, Any] = asdict(find(str(folder), "auto", "step_{step}.bin"))
        except OSError as error:
            told = {"error": str(error)}
        os.write(writer, json.dumps(told).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        answer: dict[str, Any] = json.loads(said.read())
    os.waitpid(child, 0)
    return answer


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user may enter; pytest's own are 0700."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def test_a_file_that_may_not_be_read_is_skipped_with_the_reason(open_folder: Path) -> None:
    for step in (8, 9):
        (open_folder / f"step_{step}.bin").write_bytes(b"x")
    (open_folder / "step_9.bin").chmod(0)
    told = find_as_guest(open_folder)
    assert told["best"]["step"] == 8
    reason = "cannot be read: Permission denied"
    assert told["skipped"] == [{"path": str(open_folder / "step_9.bin"), "reason": reason}]


def test_a_folder_that_may_not_be_read_is_an_error_and_not_an_empty_one(open_folder: Path) -> None:
    open_folder.chmod(0o711 if os.geteuid() == 0 else 0)
    told = find_as_guest(open_folder)
    open_folder.chmod(0o755)
    assert "Permission denied" in told["error"]


def test_the_leader_can_afford_the_import() -> None:
    # The leader has 40 MB in all; the import takes 4 to 5 MB. torch, pydantic and pathlib would cost more than that.
    script = (
        "import resource, sys; before = resource.getrusage(0).ru_maxrss; import safelaunch.checkpoints.io.checkpoints;"
        "print(resource.getrusage(0).ru_maxrss - before, *{'torch', 'pydantic', 'pathlib'} & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, timeout=120, check=True)
    grown_kb, *heavy = said.stdout.split()
    assert int(grown_kb) < 12_000
    assert heavy == []


def test_a_checkpoint_of_terabytes_is_judged_without_reading_it(tmp_path: Path) -> None:
    # A sparse file: one member of 1 TB whose header and directory are real, as zip64 writes them.
    size = 1 << 40
    name = b"archive/data/0"
    extra = b"\x01\x00\x10\x00" + size.to_bytes(8, "little") * 2
    lengths = bytes([len(name), 0, len(extra), 0])
    header = b"PK\x03\x04-\0\0\0\0\0\0\0\0\0\0\0\0\0" + b"\xff" * 8 + lengths + name + extra
    entry = (
        b"PK\x01\x02-\0-\0\0\0\0\0\0\0\0\0\0\0\0\0" + b"\xff" * 8 + lengths + b"\0" * 14 + name + extra
    )  # fmt: skip
    directory_at = len(header) + size
    end64 = (
        b"PK\x06\x06" + (44).to_bytes(8, "little") + b"-\0-\0" + b"\0" * 8 + (1).to_bytes(8, "little") * 2
        + len(entry).to_bytes(8, "little") + directory_at.to_bytes(8, "little")
    )  # fmt: skip
    locator = b"PK\x06\x07" + b"\0" * 4 + (directory_at + len(entry)).to_bytes(8, "little") + b"\1\0\0\0"
    end = b"PK\x05\x06" + b"\0" * 4 + b"\1\0\1\0" + b"\xff" * 8 + b"\0\0"
    with (tmp_path / "step_5.pt").open("wb") as file:
        file.write(header)
        file.seek(directory_at)
        file.write(entry + end64 + locator + end)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = find(str(tmp_path), "torch")
    assert found.best is not None, found
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 10_000


@pytest.mark.parametrize("content", [b"N0" * 30_000_000, b"I1\n" * 5_000_000], ids=["60 MB", "lines"])
def test_files_of_millions_of_opcodes_neither_hold_a_search_nor_take_its_memory(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "pumped").write_bytes(b"\x80\x02" + content + b"N.")
    folder = tmp_path / "ckpt"
    folder.mkdir()
    for step in range(100, 120):
        (folder / f"step_{step}.pt").hardlink_to(tmp_path / "pumped")
    (folder / "step_5.pt").write_bytes(b"\x80\x02N.")
    script = (
        "import json, resource; from safelaunch.checkpoints.io.checkpoints import find\n"
        f"found = find({str(folder)!r}, 'auto'); used = resource.getrusage(0)\n"
        "peak_kb = next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(json.dumps([found.best.step, len(found.skipped), used.ru_utime + used.ru_stime, peak_kb]))"
    )
    said = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, timeout=600, check=True)
    step, skipped, processor_s, memory_kb = json.loads(said.stdout)
    assert (step, skipped) == (5, 20)
    assert processor_s < 15   # 2 to 5 on a free processor; each file alone took 2 to 4
    assert memory_kb < 60_000


def cut_everywhere(path: Path, cuts: int) -> list[int]:
    size = path.stat().st_size
    return sorted({*range(0, size, max(1, size // cuts)), *range(max(0, size - 40), size)})


@pytest.mark.torch
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before 1.6"])
def test_files_of_real_torch_are_whole_until_they_are_cut(torch: Any, tmp_path: Path, zipped: bool) -> None:
    layer = torch.nn.Linear(17, 5)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(2, 17)).sum().backward()
    optimizer.step()
    state = {
        "model": layer.state_dict(), "optimizer": optimizer.state_dict(), "step": 200, "rng": torch.get_rng_state(),
        "half": torch.ones(7, dtype=torch.bfloat16), "shared": [layer.weight, layer.weight.t()],
        "flag": torch.ones(3) > 0,
    }  # fmt: skip
    for step in (100, 200):
        torch.save(state, tmp_path / f"step_{step}.pt", _use_new_zipfile_serialization=zipped)
    assert names_of(tmp_path) == ["step_200.pt", "step_100.pt"]
    newest = tmp_path / "step_200.pt"
    whole = newest.read_bytes()
    for length in cut_everywhere(newest, 300):
        os.truncate(newest, length)
        assert names_of(tmp_path) == ["step_100.pt"], length
        newest.write_bytes(whole)


SAVE_DCP = """
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemWriter
dist.init_process_group("gloo")
state = {"model": {"w": torch.arange(600.0), "offset": torch.ones(3)}, "length": 7, "name": "x" * 50}
if dist.get_rank(): state[f"of rank {dist.get_rank()}"] = torch.ones(33)
for step in (100, 200):
    writer = FileSystemWriter(f"ckpt/step-{step}", thread_count=2)
    dcp.save(state, storage_writer=writer)
dist.destroy_process_group()
"""


@pytest.mark.torch
@needs_torch
@pytest.mark.skipif(find_spec("numpy") is None, reason="torch.distributed sends objects through numpy")
def test_folders_of_real_dcp_are_whole_until_a_file_is_cut(tmp_path: Path, torch_ranks: Ranks) -> None:
    (tmp_path / "save.py").write_text(SAVE_DCP)
    said = torch_ranks.run(tmp_path, "save.py", count=2)
    assert said.codes == [0, 0], said.err
    folder = tmp_path / "ckpt"
    assert names_of(folder) == ["step-200", "step-100"]
    for file in sorted((folder / "step-200").iterdir()):
        whole = file.read_bytes()
        for length in cut_everywhere(file, 100):
            os.truncate(file, length)
            assert names_of(folder) == ["step-100"], (file, length)
            file.write_bytes(whole)
    assert names_of(folder) == ["step-200", "step-100"]


@pytest.mark.torch
def test_megatron_and_deepspeed_layouts_of_real_files_are_found(torch: Any, tmp_path: Path) -> None:
    for step in (900, 1000):
        for name in ("model_optim_rng.pt", "distrib_optim.pt"):
            for rank in ("mp_rank_00", "mp_rank_01"):
                file = tmp_path / "megatron" / f"iter_{step:07d}" / rank / name
                file.parent.mkdir(parents=True, exist_ok=True)
                torch.save({"iteration": step, "w": torch.ones(9)}, file)
        tag = tmp_path / "deepspeed" / f"global_step{step}"
        tag.mkdir(parents=True)
        torch.save({"module": torch.ones(9)}, tag / "mp_rank_00_model_states.pt")
        for data_rank in range(4):
            torch.save({"optimizer": torch.ones(9)}, tag / f"zero_pp_rank_{data_rank}_mp_rank_00_optim_states.pt")
    (tmp_path / "megatron" / "latest_checkpointed_iteration.txt").write_text("1000")
    (tmp_path / "deepspeed" / "latest").write_text("global_step1000")
    assert names_of(tmp_path / "megatron") == ["iter_0001000", "iter_0000900"]
    assert names_of(tmp_path / "deepspeed") == ["global_step1000", "global_step900"]
    for damaged in (tmp_path / "megatron").glob("iter_0001000/*/*"), (tmp_path / "deepspeed").glob("global_step1000/*"):
        victim = next(damaged)
        os.truncate(victim, victim.stat().st_size - 1)
    assert names_of(tmp_path / "megatron") == ["iter_0000900"]
    assert names_of(tmp_path / "deepspeed") == ["global_step900"]
