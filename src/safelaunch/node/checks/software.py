"""Software: the training's interpreter, its modules, PyTorch and NCCL. Standard library, Python 3.9.

The interpreter is asked in a child of its own: it is the training's, and may be any Python.
"""

from __future__ import annotations

import hashlib
import json

from safelaunch.node.checks.answer import IMPORT_TORCH, failed, ok, skipped, unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Optional

    from safelaunch.node.checks.answer import CheckRequest
    from safelaunch.node.children import Outcome

MOST_MODULES = 2000
# Reads what is installed and imports nothing of it.
LIST_MODULES = """import json, sys
from importlib import metadata
modules = {}
for one in metadata.distributions():
    name = one.metadata["Name"]
    if name:
        modules.setdefault(name.lower().replace("_", "-"), one.version)
print(json.dumps({"python": sys.version.split()[0], "executable": sys.executable, "modules": modules}))
"""
ASK_TORCH = f"import json, sys\n{IMPORT_TORCH}" + """nccl = None
if torch.version.cuda and torch.distributed.is_available() and torch.distributed.is_nccl_available():
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip, "nccl": nccl,
                  "available": torch.cuda.is_available(), "devices": torch.cuda.device_count()}))
"""


def python_words(request: CheckRequest, code: str) -> list[str]:
    """The training's interpreter with a program."""
    return [request.python or "python", "-c", code]


def check_python(request: CheckRequest, heard: Mapping[str, Outcome]) -> dict[str, Any]:
    """The interpreter's version and its modules, for the comparison between nodes."""
    told, why_not = read_program(request, heard["python"])
    if told is None:
        return why_not
    modules = told.get("modules")
    if not isinstance(modules, dict) or not isinstance(told.get("python"), str):
        return unknown("the interpreter's answer is not understood")
    pairs = sorted((str(name)[:80], str(version)[:40]) for name, version in modules.items())
    digest = hashlib.sha256(json.dumps(pairs).encode()).hexdigest()[:16]
    return ok("Python %s, %d modules (%s)" % (told["python"], len(pairs), told.get("executable")),
              python=told["python"], executable=told.get("executable"), digest=digest,
              modules=dict(pairs[:MOST_MODULES]))


def check_torch(request: CheckRequest, heard: Mapping[str, Outcome]) -> dict[str, Any]:
    """PyTorch can be imported, and sees the GPUs that were asked; its versions, for the comparison between nodes."""
    told, why_not = read_program(request, heard["torch"])
    if told is None:
        return why_not
    if told.get("torch") is None:
        return skipped("PyTorch is not installed for this interpreter")
    facts = {key: told.get(key) for key in ("torch", "cuda", "hip", "nccl", "available", "devices")}
    words = "PyTorch %s" % told["torch"] + "".join(
        ", %s %s" % (name, told[key]) for name, key in (("CUDA", "cuda"), ("ROCm", "hip"), ("NCCL", "nccl"))
        if told.get(key))
    if request.gpus and not told.get("available"):
        return failed("%s: sees no GPU, %d asked" % (words, request.gpus), **facts)
    if request.gpus and told.get("devices") != request.gpus:
        return failed("%s: sees %s GPUs, %d asked" % (words, told.get("devices"), request.gpus), **facts)
    return ok(words, **facts)


def read_program(request: CheckRequest, outcome: Outcome) -> tuple[Optional[dict[str, Any]], dict[str, Any]]:
    """(the program's answer, …), or (None, the check's answer)."""
    name = request.python or "python"
    if outcome.had_no_time:
        return None, unknown("no time was left for it")
    if outcome.late:
        return None, failed("%s gave no answer in time: its files lie on a slow or frozen disk?" % name)
    if outcome.code == 127 and not request.python:
        return None, skipped("no python in PATH, and none was named")
    if outcome.code != 0:
        lines = outcome.err.decode(errors="replace").strip().splitlines()
        return None, failed("%s: %s" % (name, lines[-1] if lines else "exit code %s" % outcome.code))
    told = outcome.told()
    return (None, unknown("%s: its answer is not understood" % name)) if told is None else (told, {})
