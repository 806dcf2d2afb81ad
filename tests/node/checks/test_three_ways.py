"""Every check has a node that passes, one that fails, and one where it cannot run."""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable
from typing import Any

import pytest

from safelaunch.node import proctable
from safelaunch.node.checks import disk, memory, network, processes, witnesses
from tests.node.checks.nodes import H100, KERNEL, NAMES, PROCESS, SAID, XID, MadeNode
from tests.ports import free_ports

pytestmark = pytest.mark.timed   # real programs and screens, within real deadlines

Words = dict[str, Any]
Furnish = Callable[[MadeNode], Words]
_LISTED = '{"python": "3.11.7", "executable": "/opt/env/bin/python", "modules": {"torch": "2.5.1", "numpy": "2.1.0"}}'
_TORCH = ('{"torch": "2.5.1+cu124", "cuda": "12.4", "hip": null, "nccl": "2.21.5", "available": %s, "devices": %d}')


def nothing(node: MadeNode) -> Words:
    return {}


def folder(node: MadeNode) -> Words:
    return {"paths": [str(node.folder)], "control": str(node.folder)}


def no_such_folder(node: MadeNode) -> Words:
    return {"paths": [str(node.folder / "none")], "control": str(node.folder / "none")}


def full_disk(node: MadeNode) -> Words:
    node.patch.setattr(disk, "LEAST_FREE_GB", 1e9)
    return folder(node)


def mounts(*points: str) -> Furnish:
    def furnish(node: MadeNode) -> Words:
        shown = {str(node.folder / point): "nfs4" for point in points}
        node.patch.setattr("safelaunch.node.evidence.real_mounts", lambda pid: shown)
        return {}

    return furnish


def meminfo(text: str) -> Furnish:
    def furnish(node: MadeNode) -> Words:
        (node.folder / "meminfo").write_text(text)
        node.patch.setattr(memory, "MEMINFO", str(node.folder / "meminfo"))
        return {}

    return furnish


def shm(name: str) -> Furnish:
    def furnish(node: MadeNode) -> Words:
        (node.folder / "file").touch()
        node.patch.setattr(memory, "SHM", str(node.folder / name))
        node.patch.setattr(memory, "LEAST_SHM_GB", 0.0)
        return {}

    return furnish


def load(text: str) -> Furnish:
    def furnish(node: MadeNode) -> Words:
        (node.folder / "loadavg").write_text(text)
        node.patch.setattr(processes, "LOADAVG", str(node.folder / "loadavg"))
        return {}

    return furnish


def table(*states: str) -> Furnish:
    def furnish(node: MadeNode) -> Words:
        shown = {pid: proctable.Process(pid, 1, state, "python", 7, 100) for pid, state in enumerate(states, 40)}
        node.patch.setattr(proctable, "read_table", lambda: shown)
        node.patch.setattr(processes, "BETWEEN_S", 0.0)
        return {}

    return furnish


def limit(value: int | None) -> Furnish:
    def furnish(node: MadeNode) -> Words:
        def told(number: int) -> tuple[int, int]:
            if value is None:
                raise OSError(1, "Operation not permitted")
            return value, value

        node.patch.setattr(resource, "getrlimit", told)
        return {}

    return furnish


def free_port(node: MadeNode) -> Words:
    return {"port": free_ports(1)[0]}


def taken_port(node: MadeNode) -> Words:
    taken = node.stack.enter_context(socket.socket())
    taken.bind(("", 0))
    taken.listen(1)
    return {"port": taken.getsockname()[1]}


def name_service(answer: object) -> Furnish:
    def furnish(node: MadeNode) -> Words:
        def told(*_: object, **__: object) -> object:
            if isinstance(answer, Exception):
                raise answer
            return answer

        node.patch.setattr(socket, "getaddrinfo", told)
        return {"names": ["n7"]}

    return furnish


def clock(*told: int) -> Furnish:
    def furnish(node: MadeNode) -> Words:
        node.patch.setattr(network, "_ask_kernel", lambda: told)
        return {}

    return furnish


def adapter(**words: str) -> Furnish:
    def furnish(node: MadeNode) -> Words:
        node.port(**words)
        node.patch.setattr(network, "BETWEEN_S", 0.0)
        return {}

    return furnish


def gpus(old: str = "", new: str = "", **words: Any) -> Furnish:
    def furnish(node: MadeNode) -> Words:
        assert old in H100
        node.gpus(H100.replace(old, new, 1) if old else H100)
        return words

    return furnish


def kernel(*records: str) -> Furnish:
    def furnish(node: MadeNode) -> Words:
        node.kernel_says(*KERNEL, *records)
        return {}

    return furnish


def no_kernel_log(node: MadeNode) -> Words:
    node.patch.setattr(witnesses, "KMSG", str(node.folder / "none"))
    return {}


def says(name: str, text: str = "", code: int = 0, by: str = "", **words: Any) -> Furnish:
    def furnish(node: MadeNode) -> Words:
        node.program(name, text, code, by)
        return words

    return furnish


def narrow_link(node: MadeNode) -> Words:
    node.gpus()
    link = (SAID / "nvlink.txt").read_text().replace("Link 3: 26.562 GB/s", "Link 3: <inactive>", 1)
    (node.folder / "link").write_text(link)
    node.program("nvidia-smi", by=f"[[ $1 == nvlink ]] && exec cat {node.folder}/link; exec cat {node.folder}/smi")
    return {}


_MEMORY = "MemTotal: 1000 kB\nMemAvailable: %d kB\nSwapTotal: 1000 kB\nSwapFree: %d kB\n"
_AGAIN = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
_NO_NAME = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
_ADDRESS = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.7", 0))]
def idle_gpus(program: str, said: str, old: str = "", new: str = "") -> Furnish:
    """GPUs without a process, and a program that takes them."""
    def furnish(node: MadeNode) -> Words:
        node.gpus()
        node.program(program, (SAID / said).read_text().replace(old, new) if old else (SAID / said).read_text())
        return {}

    return furnish


_NHC = "ERROR:  nhc:  Health check failed:  check_fs_mount:  /scratch not mounted"



def isolated(text: str = "", **words: Any) -> Furnish:
    def furnish(node: MadeNode) -> Words:
        if text:
            node.gpus()
            node.program("python", text)
        return {"level": "isolate", **words}

    return furnish


_ISOLATED = '{"torch": "2.5.1", "gpus": 2, "alone": {"0": null, "1": %s}, "together": %s, "tried": %d, "pairs": {}}'

# name → (passes, fails, words of the failure, cannot run, outcome there, words there)
NODES: dict[str, tuple[Furnish, Furnish, str, Furnish, str, str]] = {
    "rw": (folder, no_such_folder, "No such file", nothing, "skipped", "no path was given"),
    "space": (folder, full_disk, "GB are free", nothing, "skipped", "no path was given"),
    "mount": (mounts("."), mounts("gone"), "No such file", mounts(), "skipped", "no filesystem is served"),
    "control": (folder, no_such_folder, "No such file", nothing, "skipped", "no control folder"),
    "memory": (meminfo(_MEMORY % (900, 1000)), meminfo(_MEMORY % (99, 1000)), "are available", meminfo("\0\xff"),
               "unknown", "does not say"),
    "shm": (shm("."), shm("none"), "is not there", shm("file/none"), "unknown", "Not a directory"),
    "load": (load("0.50 0.2 0.1 1/99 1\n"), load("9999.0 1 1 1/99 1\n"), "load 9999.0", load(""), "unknown",
             "not understood"),
    "stuck": (table("S", "R"), table("S", "D"), "1 in D state: python (pid 41)", table(), "unknown", "no process"),
    "limits": (limit(65536), limit(256), "files 256, 1024 are needed", limit(None), "unknown", "not permitted"),
    "port": (free_port, taken_port, "Address already in use", nothing, "skipped", "no port"),
    "name": (name_service(_ADDRESS), name_service(_NO_NAME), "Name or service not known", name_service(_AGAIN),
             "unknown", "name service does not answer"),
    "clock": (clock(0x2001, 90_000), clock(0x2001, 9_000_000), "9.000 s off", clock(0x40, 16_000_000), "unknown",
              "no time service"),
    "infiniband": (adapter(), adapter(state="2: INIT"), "none of 1 ports is active", nothing, "skipped",
                   "no InfiniBand"),
    "gpu_count": (gpus(gpus=2), gpus(gpus=8), "2 GPUs, 8 asked", nothing, "skipped", "no GPU"),
    "gpu_model": (gpus(gpu_model="h100"), gpus(gpu_model="A100"), "A100 asked", nothing, "skipped", "no GPU"),
    "gpu_driver": (gpus(), gpus(), "", nothing, "skipped", "no GPU"),
    "gpu_ecc": (gpus(), gpus("<dram_uncorrectable>0<", "<dram_uncorrectable>3<"), "3 uncorrectable errors", nothing,
                "skipped", "no GPU"),
    "gpu_clocks": (gpus(), gpus("hw_slowdown>Not Active", "hw_slowdown>Active"), "hw_slowdown at 31 C", nothing,
                   "skipped", "no GPU"),
    "gpu_pcie": (gpus(), gpus("<current_link_width>16x", "<current_link_width>8x"), "x8 of x16", nothing, "skipped",
                 "no GPU"),
    "gpu_nvlink": (gpus(), narrow_link, "GPU 0: 17 of 18 links are up", nothing, "skipped", "no GPU"),
    "gpu_memory": (gpus(), gpus("<used>1 MiB", "<used>40960 MiB"), "40960 of 81559 MB are used", nothing, "skipped",
                   "no GPU"),
    "gpu_leftovers": (gpus(), gpus("\t\t</processes>", PROCESS), "pid 41287 (python)", nothing, "skipped", "no GPU"),
    "gpu_xid": (kernel(), kernel(XID % 79), "since boot: Xid 79 on 0000:4e:00", no_kernel_log, "unknown",
                "cannot be read"),
    "dcgm": (says("dcgmi", (SAID / "dcgmi-diag.txt").read_text()),
             says("dcgmi", (SAID / "dcgmi-health-bad.txt").read_text()), "link 1 is currently down", nothing,
             "skipped", "dcgmi is not installed"),
    "nhc": (says("nhc"), says("nhc", _NHC, 1), "check_fs_mount: /scratch not mounted", nothing, "skipped",
            "nhc is not installed"),
    "gpu_burn": (idle_gpus("gpu_burn", "gpu-burn.txt"),
                 idle_gpus("gpu_burn", "gpu-burn.txt", "GPU 1: OK", "GPU 1: FAULTY"), "wrong results on GPU 1", nothing,
                 "skipped", "no GPU"),
    "nccl_tests": (idle_gpus("all_reduce_perf", "nccl-tests.txt"),
                   idle_gpus("all_reduce_perf", "nccl-tests.txt", ": 0 OK", ": 3 FAILED"), "3 wrong values", nothing,
                   "skipped", "no GPU"),
    "python": (says("python", _LISTED), says("python", code=1), "exit code 1", nothing, "skipped", "no python"),
    "torch": (says("python", _TORCH % ("true", 8), gpus=8), says("python", _TORCH % ("false", 0), gpus=8),
              "sees no GPU, 8 asked", says("python", '{"torch": null}'), "skipped", "not installed"),
    "gpu_alone": (isolated(_ISOLATED % ("null", "null", 2)), isolated(_ISOLATED % ('"a product is wrong"', "null", 1)),
                  "GPU 1: a product is wrong", isolated(), "skipped", "no GPU"),
    "gpu_together": (isolated(_ISOLATED % ("null", "null", 2)), isolated(_ISOLATED % ("null", '"no answer"', 2)),
                     "all-reduce of 2 GPUs: no answer", isolated('{"torch": null}'), "skipped", "not installed"),
}
NEVER_FAILS = {"gpu_driver"}   # it only tells the versions, which are compared between nodes


def setting(module: Any, name: str, value: float, furnished: Furnish) -> Furnish:
    def furnish(node: MadeNode) -> Words:
        words = furnished(node)
        node.patch.setattr(module, name, value)
        return words

    return furnish


def two_adapters(node: MadeNode) -> Words:
    node.port("mlx5_1", state="2: INIT")
    return adapter()(node)


def fewer_links(node: MadeNode) -> Words:
    words = narrow_link(node)
    link = (SAID / "nvlink.txt").read_text()
    (node.folder / "link").write_text(link[:link.rindex("\t Link 17")])
    return words


# The other faults of a check that can fail for several: name → (node, words of the failure).
OTHER_FAULTS: dict[str, tuple[str, Furnish, str]] = {
    "inodes": ("space", setting(disk, "LEAST_INODES", 1 << 60, folder), "inodes are free"),
    "swap": ("memory", meminfo(_MEMORY % (900, 899)), "are swapped out"),
    "a small /dev/shm": ("shm", setting(memory, "LEAST_SHM_GB", 1e9, shm(".")), "GB are free"),
    "zombies": ("stuck", table(*["Z"] * 201), "201 zombies"),
    "processes": ("limits", limit(2000), "processes 2000, 4096 are needed"),
    "a port half up": ("infiniband", two_adapters, "mlx5_1/1 is INIT"),
    "a remap that failed": ("gpu_ecc", gpus("<remapped_row_failure>No", "<remapped_row_failure>Yes"), "remap failed"),
    "fewer links than its neighbour": ("gpu_nvlink", fewer_links, "GPU 1: 17 of 18 links are up"),
    "fewer GPUs in PyTorch": ("torch", says("python", _TORCH % ("true", 4), gpus=8), "sees 4 GPUs, 8 asked"),
}


@pytest.mark.parametrize("fault", OTHER_FAULTS)
def test_each_fault_of_a_check_fails_it(node: MadeNode, fault: str) -> None:
    name, furnish, words = OTHER_FAULTS[fault]
    answer = node.check(name, **furnish(node))
    assert answer["outcome"] == "failed" and words in answer["why"], answer


def test_every_check_has_its_three_nodes() -> None:
    assert list(NODES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_check_passes_on_a_good_node(node: MadeNode, name: str) -> None:
    answer = node.check(name, **NODES[name][0](node))
    assert answer["outcome"] == "ok" and answer["why"], answer


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NEVER_FAILS])
def test_a_check_fails_on_a_bad_node_and_says_why(node: MadeNode, name: str) -> None:
    answer = node.check(name, **NODES[name][1](node))
    assert answer["outcome"] == "failed" and NODES[name][2] in answer["why"], answer


@pytest.mark.parametrize("name", NAMES)
def test_a_check_that_cannot_run_says_so_and_is_never_ok(node: MadeNode, name: str) -> None:
    _, _, _, furnish, outcome, words = NODES[name]
    answer = node.check(name, **furnish(node))
    assert answer["outcome"] == outcome and words in answer["why"], answer
