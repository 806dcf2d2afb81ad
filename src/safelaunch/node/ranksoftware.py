"""Which Python a rank runs, and which PyTorch and NCCL lie there: in the environment that `setup` has made.

The rank's own interpreter is asked, in a disposable child. It lists no modules: on a shared disk that takes seconds.
Travels with node.collect as text: standard library, Python 3.9.
"""

from __future__ import annotations

import os

from safelaunch.node import children

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, NoReturn, Optional

    from safelaunch.node.proctable import RankProcess

ASK_S = 5.0
_ASK = """import json, sys
from importlib import metadata
told = {"python": sys.version.split()[0], "executable": sys.executable}
for package in ("torch", "nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11"):
    try:
        told.setdefault("nccl" if "nccl" in package else package, metadata.version(package))
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(told))
"""
# What an interpreter finds its files by. Nothing by which others would take the child for a rank.
_KEPT = frozenset(("PATH", "HOME", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME",
                   "PYTHONUSERBASE", "PYTHONNOUSERSITE"))


def ask_task(ranks: Iterable[RankProcess]) -> Optional[children.Task]:
    """The question to the first rank's Python; None = no rank is a Python."""
    found = next((rank.process for rank in ranks
                  if rank.process.words and os.path.basename(rank.process.words[0]).startswith("python")), None)
    return None if found is None else children.Task("software", lambda: _ask(found.pid, found.words[0]), ASK_S)


def _ask(pid: int, python: str) -> NoReturn:
    """Become the rank's interpreter, which prints the answer."""
    with open("/proc/%d/environ" % pid, "rb") as file:
        pairs = [pair.partition(b"=") for pair in file.read(1 << 20).split(b"\0")]
    env = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    os.execvpe(python, [python, "-c", _ASK], {name: value for name, value in env.items() if name in _KEPT})  # noqa: S606


def read_answer(outcomes: Mapping[Any, children.Outcome]) -> Optional[dict[str, Any]]:
    """{"python", "executable", "torch", "nccl"}, versions but the second; None = not asked, or no answer."""
    outcome = outcomes.get("software")
    return None if outcome is None or outcome.code != 0 else outcome.told()
