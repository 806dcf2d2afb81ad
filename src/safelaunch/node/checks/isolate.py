"""Hardware, or the program? Each GPU works alone with the others hidden, then all together, then pair by pair.

What is worked out has one right result, to the last bit: whole numbers below 2^24 are exact in float32. The training's
Python runs `ISOLATE` and forks a process for each GPU: one that hangs or dies is named by that. Standard library,
Python 3.9; PyTorch only within `ISOLATE`.
"""

from __future__ import annotations

from safelaunch.node.checks.answer import IMPORT_TORCH, failed, ok, skipped, unknown
from safelaunch.node.checks.gpu import NO_GPU, read_seen
from safelaunch.node.checks.software import python_words, read_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Optional

    from safelaunch.node.checks.answer import CheckRequest
    from safelaunch.node.children import Outcome

PART_S = 50       # of each of its five rounds; NCCL's first all-reduce of eight GPUs takes some seconds
DEADLINE_S = 270.0
# Prints {"torch", "gpus", "alone": {gpu: why}, "together": why, "pairs": {"0-1": why}}; why null: it is right.
# Arguments: seconds of a round; for a test without GPUs, how many processes of the CPU stand for them.
ISOLATE = f"import json, os, sys, time\n{IMPORT_TORCH}" + """import select, signal, tempfile
from datetime import timedelta
within_s, mock = int(sys.argv[1]), int(sys.argv[2])
place = "cpu" if mock else "cuda"
def run(parts):   # name -> function, each in a fork: this process never touches a GPU
    waiting, whys, until = {}, {}, time.monotonic() + within_s
    for name, part in parts.items():
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            nothing = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(nothing, fd)
            try:
                said = part()
            except BaseException as error:
                said = ("%s: %s" % (type(error).__name__, error))[:300]
            os.write(writer, json.dumps(said).encode())
            os._exit(0)
        os.close(writer)
        waiting[reader] = name, pid
    while waiting:
        ready = select.select(list(waiting), [], [], max(0.0, until - time.monotonic()))[0]
        for reader in ready or list(waiting):
            name, pid = waiting.pop(reader)
            data = os.read(reader, 65536) if ready else b""
            os.close(reader)
            if not data:   # late, or it died: what hangs in the driver does not even die, and is left
                os.kill(pid, signal.SIGKILL)
            whys[name] = json.loads(data) if data else (
                "it died without a word" if ready else "no answer within %d s" % within_s)
    return whys
def alone(number):
    os.environ["CUDA_VISIBLE_DEVICES"] = visible[number]
    size = 512 if mock else 8192
    rows, columns = ((torch.arange(size, device=place) % odd - odd // 2).float() for odd in (7, 5))
    small = (torch.arange(256 * 256, device=place).reshape(256, 256) % 11 - 5).float()
    right = torch.mm(small.cpu().double(), small.cpu().double())
    for turn in range(10):
        product = torch.mm(rows.repeat(size, 1).t(), columns.repeat(size, 1))   # every row of it is known
        if not torch.equal(product, size * torch.outer(rows, columns)) or not torch.equal(
                torch.mm(small, small).cpu().double(), right):
            return "a product of matrices is wrong"
    data = torch.arange((1 << 16) if mock else (1 << 26), dtype=torch.int32, device=place)
    if not torch.equal(data.clone().cpu(), torch.arange(len(data), dtype=torch.int32)):
        return "what was copied to it and back is wrong"
def together(numbers, rank, file):
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(visible[number] for number in numbers)
    import torch.distributed as dist
    device = "cpu" if mock else "cuda:%d" % rank
    if not mock:
        torch.cuda.set_device(rank)
    dist.init_process_group("gloo" if mock else "nccl", init_method="file://" + file, rank=rank,
                            world_size=len(numbers), timeout=timedelta(seconds=within_s))
    for turn in range(5):
        data = torch.full((1 << (10 if mock else 24),), rank + 1.0, device=device)
        dist.all_reduce(data)
        if not bool((data == len(numbers) * (len(numbers) + 1) // 2).all()):
            return "a sum of all is wrong"
def groups(them):   # of GPUs, all at once -> group -> why
    with tempfile.TemporaryDirectory() as folder:
        whys = run({(group, rank): lambda group=group, rank=rank: together(group, rank, "%s/%d" % (folder, group[0]))
                    for group in them for rank in range(len(group))})
    return {group: next((why for (of, _), why in whys.items() if of == group and why), None) for group in them}
if mock:
    gpus = mock
else:   # asked in a fork, too
    reader, writer = os.pipe()
    if not os.fork():
        os.write(writer, b"%d" % torch.cuda.device_count())
        os._exit(0)
    os.close(writer)
    gpus = int(os.read(reader, 16) or b"0") if select.select([reader], [], [], within_s)[0] else 0
visible = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
visible = visible if len(visible) >= gpus else [str(number) for number in range(gpus)]
whys = run({number: lambda number=number: alone(number) for number in range(gpus)})
well = [number for number in range(gpus) if whys[number] is None]
every, pairs = None, {}
if len(well) > 1:
    every = groups([tuple(well)])[tuple(well)]
if every and len(well) > 2:
    row = list(zip(well, well[1:]))
    for them in row[::2], row[1::2], [(well[0], well[-1])]:   # each GPU with two others, and at once with one only
        pairs.update(groups(them))
print(json.dumps({"torch": torch.__version__, "gpus": gpus, "tried": len(well),
                  "alone": dict(sorted(whys.items())), "together": every,
                  "pairs": {"%d-%d" % pair: why for pair, why in pairs.items()}}))
sys.stdout.flush()
os._exit(0)
"""


def isolate_words(request: CheckRequest) -> list[str]:
    """The training's interpreter with ISOLATE."""
    return [*python_words(request, ISOLATE), str(PART_S), "0"]


def check_alone(request: CheckRequest, heard: Mapping[str, Outcome]) -> dict[str, Any]:
    """Each GPU, with the others hidden: products and copies whose result is known."""
    told, why_not = _read(request, heard)
    if told is None:
        return why_not
    bad = {gpu: why for gpu, why in told["alone"].items() if why}
    if bad:
        return failed("alone: %s" % "; ".join("GPU %s: %s" % one for one in bad.items()), bad=sorted(bad))
    return ok("%s right, each GPU alone" % _count(told["gpus"]), gpus=told["gpus"])


def check_together(request: CheckRequest, heard: Mapping[str, Outcome]) -> dict[str, Any]:
    """The GPUs that are right alone: an all-reduce of all, and where that fails, of neighbours."""
    told, why_not = _read(request, heard)
    if told is None:
        return why_not
    if told["tried"] < 2:
        return skipped("less than two GPUs that are right alone")
    if not told["together"]:
        return ok("all-reduce of %s is right" % _count(told["tried"]))
    bad = bad_gpus(told["pairs"])
    named = "GPU %s is in no pair that is right" % " and ".join(bad) if bad else "no single GPU is to blame for it"
    return failed("all-reduce of %s: %s; %s" % (_count(told["tried"]), told["together"], named), bad=bad,
                  pairs=told["pairs"])


def bad_gpus(pairs: Mapping[str, Optional[str]]) -> list[str]:
    """GPUs in wrong pairs alone, while another pair is right: else nothing tells them from the rest."""
    well = {gpu for pair, why in pairs.items() if not why for gpu in pair.split("-")}
    return sorted({gpu for pair in pairs for gpu in pair.split("-")} - well, key=int) if well else []


def _read(request: CheckRequest, heard: Mapping[str, Outcome]) -> tuple[Optional[dict[str, Any]], dict[str, Any]]:
    """(what ISOLATE has told, …), or (None, the check's answer)."""
    seen = read_seen(heard)
    if not seen.gpus:
        return None, seen.why_not() or skipped(NO_GPU)
    if "isolate" not in heard:
        return None, skipped("a process is on a GPU: only those that nobody uses are tried")
    told, why_not = read_program(request, heard["isolate"])
    if told is None:
        return None, why_not
    if told.get("torch") is None:
        return None, skipped("PyTorch is not installed for this interpreter")
    if not isinstance(told.get("alone"), dict) or not isinstance(told.get("pairs"), dict) or "tried" not in told:
        return None, unknown("the answer is not understood")
    if not told.get("gpus"):
        return None, unknown("PyTorch %s sees none of %s" % (told["torch"], _count(len(seen.gpus))))
    return told, {}


def _count(number: int) -> str:
    return "%d GPU%s" % (number, "" if number == 1 else "s")
