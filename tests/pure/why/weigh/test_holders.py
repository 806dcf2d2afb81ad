"""A GPU that another process holds is its node's matter; ranks of the training that share one are the program's."""

from __future__ import annotations

from safelaunch.why.weigh.holders import parse_memory
from tests.pure.why.judged import judge_text
from tests.tables import each

FULL = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU {gpu} has a total capacity of "
        "79.10 GiB of which 11.38 MiB is free. {others}Including non-PyTorch memory, this process has {own} memory in "
        "use. Of the allocated memory 512.00 MiB is allocated by PyTorch, and 20.00 MiB is reserved but unallocated.")
OLD = ("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79.10 GiB total capacity; {own} already "
       "allocated; 11.38 MiB free; {own} reserved in total by PyTorch)")
HEAD = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    x()\n'


def full(own: str, *others: tuple[int, str], gpu: int = 3, label: str = "") -> str:
    said = "".join(f"Process {pid} has {size} memory in use. " for pid, size in others)
    text = HEAD + FULL.format(gpu=gpu, own=own, others=said) + "\n"
    return "".join(f"{label}{line}\n" for line in text.splitlines())


def old(own: str) -> str:
    return HEAD + OLD.format(own=own) + "\n"


VLLM = ("ValueError: Free memory on device {}({}/79.11 GiB) on startup is less than desired GPU memory utilization "
        "(0.9, 71.2 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.\n")
HUGE = (2505781, "77.98 GiB")
BUSY = HEAD + "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable\n"
ALL_BUSY = HEAD + "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable\n"
IN_USE = "Unable to set the mode for GPU 00000000:4E:00.0: In use by another client\n"
NODES = ("node_failure", "gpu_hardware")
STEPS = "".join(f"step {number} loss 2.{number}\n" for number in range(10, 20))


@each(("log", "is_nodes"), [
    (full("1.08 GiB", HUGE), True),
    (full("544.00 MiB", HUGE), True),
    (full("544.00 MiB", (1, "77.98 GiB")), True),
    (full("1.08 GiB", (7001, "38.00 GiB"), (7002, "39.00 GiB")), True),
    (STEPS + full("1.08 GiB", HUGE), True),
    (full("1.08 GiB", HUGE, label="[n1:4]:"), True),
    (full("1.08 GiB", HUGE, label="[n1:4]:") + full("1.08 GiB", (2505782, "77.50 GiB"), gpu=4, label="[n1:5]:"), True),
    (full("1.08 GiB", HUGE) + full("1.08 GiB", HUGE), True),
    (full("1.08 GiB"), True),
    (old("512.00 MiB"), True),
    (BUSY, True), (ALL_BUSY, True), (IN_USE, True),
    (HEAD + "RuntimeError: CUDA error: exclusive-thread device already in use by a different thread\n", True),
    (HEAD + "RuntimeError: CUDA error: device busy\n", True),
    ("nvidia-smi: GPU 00000000:4E:00.0 is currently in use by one or more other processes\n", True),
    (full("77.98 GiB"), False),
    (full("77.98 GiB", (2505781, "1.08 GiB")), False),
    (full("30.00 GiB", (2505781, "45.00 GiB")), False),
    (full("9.80 GiB", *((7000 + rank, "9.80 GiB") for rank in range(7))), False),
    (full("20.00 GiB", (7001, "20.00 GiB"), (7002, "20.00 GiB")), False),
    (full("1.08 GiB", *((7000 + rank, "1.10 GiB") for rank in range(60))), False),
    (full("1.08 GiB", (7001, "20.00 GiB")), False),
    (full("1.08 GiB", HUGE, label="[n0:0]:") + full("1.08 GiB", (7001, "77.98 GiB"), label="[n1:1]:"), False),
    (full("1.08 GiB", HUGE, label="[n0:1]:") + full("1.20 GiB", HUGE, label="[n0:2]:"), False),
    ("[n0:0]:started rank 0 (pid 2505781)\n" + full("1.08 GiB", HUGE, label="[n0:1]:"), False),
    (full("9.80 GiB"), False),
    (full("1.08 GiB", gpu=0) + full("1.50 GiB", gpu=0), False),
    (old("70.00 GiB"), False), (old("9.80 GiB"), False),
    (HEAD + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n", False),
    (HEAD + "RuntimeError: CUDA error: out of memory\n", False),
], ids=["another process", "a context only", "of a container", "two others", "late", "with a label", "two cards",
        "said twice", "nobody is named", "older PyTorch", "exclusive", "all are busy", "NVML", "exclusive thread",
        "device busy", "nvidia-smi", "own", "own, and a small one", "half", "eight ranks on one card", "three ranks",
        "many contexts", "there is room", "on two nodes", "two ranks name the same process", "the log names it",
        "nobody is named, and it has some", "two processes and nobody is named", "older PyTorch, own",
        "older PyTorch, some", "without sizes", "the runtime's words"])
def test_whose_matter_a_full_gpu_is(log: str, is_nodes: bool) -> None:
    verdict = judge_text(log)
    assert (verdict.category in NODES) == is_nodes
    assert is_nodes or verdict.category == "cuda_oom"
    if is_nodes:
        # A node that nothing names cannot be left out.
        assert verdict.confidence >= 0.6 and verdict.action == ("exclude_and_restart" if verdict.host else "restart")


@each("log", [BUSY, IN_USE], ids=["busy", "NVML"])
def test_a_busy_gpu_on_two_nodes_at_once_is_the_programs(log: str) -> None:
    both = "".join(f"[{node}:0]:{line}\n" for node in ("n0", "n1") for line in log.splitlines())
    assert judge_text(both).category == "config"


def test_the_node_is_named_with_what_it_lacks() -> None:
    verdict = judge_text(full("1.08 GiB", HUGE, label="[n1:4]:"))
    assert verdict.suspects == ("n1",) and verdict.rule == "gpu.memory_held"
    assert verdict.summary.endswith("this one has 1.08 GiB of 79.10 GiB, and it is full")


def test_sizes_are_read_in_gib() -> None:
    found = parse_memory(full("544.00 MiB", HUGE))
    assert found is not None and (found.total, found.own, found.others) == (79.1, 544 / 1024, {"2505781": 77.98})
    assert parse_memory("CUDA out of memory") is None


@each(("log", "is_nodes"), [
    (HEAD + VLLM.format("", "1.21"), True),
    (HEAD + VLLM.format("cuda:3 ", "20.50"), True),
    (HEAD + VLLM.format("", "78.40"), False),
    ("INFO Model loading took 70.1 GiB\n" + HEAD + VLLM.format("", "1.21"), False),
    (STEPS + HEAD + VLLM.format("", "1.21"), False),
    (VLLM.format("", "1.21") + VLLM.format("", "8.21"), False),
], ids=["full at the start", "a third is free", "nearly all is free", "a model is there", "a training is there",
        "two ranks on one card"])
def test_whose_matter_a_gpu_is_that_is_full_at_the_start(log: str, is_nodes: bool) -> None:
    assert judge_text(log).category in (NODES if is_nodes else ("config",))
