"""What is measured on a node: the programs and functions that run in a child, each several times.

A rate's median is its value; more is better. `device` says what was measured: rates of unlike devices are not compared.
Standard library, Python 3.9; PyTorch only within `TORCH`, which the training's interpreter runs.
"""

from __future__ import annotations

import json
import time

from safelaunch.node.checks import disk
from safelaunch.node.checks.answer import IMPORT_TORCH, OK, CheckRequest, failed, ok, skipped, unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from safelaunch.node.children import Outcome

COPY_BYTES = 128 << 20   # more than most caches of one core's share hold
COPIES = 2               # in one turn
SIZE = 96                # rows and columns of a product in plain Python: 0.03 to 0.1 s
SAMPLE_S = 0.25          # of processor time in one sample: in less, one slice of the scheduler is some per cent
# Prints {"torch": null} or its device and for each GPU (or the CPU) a list of rates. bfloat16: as trainings do.
TORCH = f"import json, sys, time\n{IMPORT_TORCH}" + """repeats = int(sys.argv[1])
gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
def rates(device, work, amount, times):
    found = []
    for turn in range(repeats + 1):
        if gpus:
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        for _ in range(times):
            work()
        if gpus:
            torch.cuda.synchronize(device)
        found.append(amount * times / (time.perf_counter() - start) / 1e9)
    return found[1:]
def matmul(device):
    size = 8192 if gpus else 1024
    a, b, c = (torch.full((size, size), 0.5, device=device, dtype=torch.bfloat16 if gpus else torch.float32)
               for _ in range(3))
    return rates(device, lambda: torch.mm(a, b, out=c), 2 * size ** 3, 50 if gpus else 4)
def memory(device):
    a, b = (torch.ones(1 << 28, device=device) for _ in range(2))
    return rates(device, lambda: b.copy_(a), 2 * a.numel() * a.element_size(), 20)
devices = ["cuda:%d" % number for number in range(gpus)] or ["cpu"]
print(json.dumps({"torch": torch.__version__, "name": torch.cuda.get_device_name(0) if gpus else "cpu", "gpus": gpus,
                  "threads": torch.get_num_threads(), "matmul": [matmul(one) for one in devices],
                  "memory": [memory(one) for one in devices] if gpus else []}))
"""


def measured(unit: str, device: str, samples: list[float], **facts: Any) -> dict[str, Any]:
    """An answer with the median of the rates as its value."""
    value = middle(samples)
    return ok("%.4g %s (%s)" % (value, unit, device), value=value, unit=unit, device=device,
              samples=[float("%.6g" % sample) for sample in samples], **facts)


def middle(values: list[float]) -> float:
    """Their median."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def read_torch(outcome: Outcome, python: str) -> dict[str, dict[str, Any]]:
    """matmul and gpu_memory as TORCH told them; no matmul where there is no PyTorch: plain Python measures it then."""
    no_gpu = {"gpu_memory": skipped("no GPU that PyTorch sees")}
    if outcome.late:
        late = failed("%s with PyTorch gave no answer in time" % (python or "python"))
        return {"matmul": late, "gpu_memory": late}
    if outcome.code == 127 and not python:
        return no_gpu   # no python in PATH, and none was named
    try:
        if outcome.code != 0:
            raise ValueError(outcome.said or "exit code %s" % outcome.code)
        told = json.loads(outcome.text.strip().splitlines()[-1])   # a sitecustomize may print before it
        if told["torch"] is None:
            return no_gpu
        return {"matmul": _slowest("matmul", "GFLOP/s", told),
                "gpu_memory": _slowest("memory", "GB/s", told) if told["gpus"] else no_gpu["gpu_memory"]}
    except (ValueError, LookupError, TypeError) as error:
        wrong = unknown("%s with PyTorch: %s" % (python or "python", error))
        return {"matmul": wrong, "gpu_memory": wrong}


def _slowest(key: str, unit: str, told: dict[str, Any]) -> dict[str, Any]:
    """The slowest GPU's rates: all others of the training wait for it."""
    values = [middle(samples) for samples in told[key]]
    number = values.index(min(values))
    device = "%d × %s" % (told["gpus"], told["name"]) if told["gpus"] else "torch, %d threads" % told["threads"]
    each = {"slowest_gpu": number, "gpus": values} if told["gpus"] else {}
    return measured(unit, device, told[key][number], torch=told["torch"], **each)


def multiply(repeats: int) -> dict[str, Any]:
    """A product of matrices in plain Python on one core: where there is no PyTorch."""
    rows = [[float(number % 7) for number in range(SIZE)] for _ in range(SIZE)]

    def product() -> None:
        for left in rows:
            for right in rows:
                sum(map(float.__mul__, left, right))

    return measured("GFLOP/s", "plain Python, one core", _rates(product, 2.0 * SIZE ** 3, repeats))


def copy_memory(repeats: int) -> dict[str, Any]:
    """Bytes that one core copies from memory to memory."""
    source, target = memoryview(bytearray(COPY_BYTES)), memoryview(bytearray(COPY_BYTES))

    def copy() -> None:
        for _ in range(COPIES):
            target[:] = source

    return measured("GB/s", "memory copy, one core", _rates(copy, COPIES * COPY_BYTES, repeats))


def use_disk(path: str, repeats: int) -> dict[str, dict[str, Any]]:
    """disk_write and disk_read of a path, or of both the same failure."""
    rates: dict[str, list[float]] = {"write": [], "read": []}
    for _ in range(repeats):
        answer = disk.check_read_write(CheckRequest({}), path)
        if answer["outcome"] != OK:
            return {"disk_write": answer, "disk_read": answer}
        for way, found in rates.items():
            found.append(answer["facts"]["%s_gb_s" % way])
    return {"disk_" + way: measured("GB/s", "32 MiB", found) for way, found in rates.items()}


def _rates(work: Callable[[], None], amount: float, repeats: int) -> list[float]:
    """In thousand millions a second; the first turn warms caches up, and is left out."""
    found = []
    for _ in range(repeats + 1):
        start_s, until_s, times = time.perf_counter(), time.process_time() + SAMPLE_S, 0
        while not times or time.process_time() < until_s:
            work()
            times += 1
        found.append(amount * times / (time.perf_counter() - start_s) / 1e9)
    return found[1:]
