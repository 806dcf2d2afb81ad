"""PyTorch in tests, torchrun and its Python on the PATH of ordinary users, and drills with it."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.runs import Drill, Installation, Submit, Submitter
from tests.sandboxes import make_workdir

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
needs_accelerate = pytest.mark.skipif(find_spec("accelerate") is None, reason="Accelerate is not installed")
# As pip writes it, for an interpreter that may be mounted elsewhere for the users.
TORCHRUN = """\
#!{python}
import sys
from torch.distributed.run import main
sys.exit(main())
"""
ACCELERATE = """\
#!{python}
import sys
from accelerate.commands.accelerate_cli import main
sys.exit(main())
"""
PYTHON3 = """\
#!/bin/bash
exec {python} "$@"
"""


@pytest.fixture(scope="session")
def torch() -> Any:
    """PyTorch in the process of the tests. Who asks for it runs last (tests/lanes.py): it makes each fork dearer."""
    return pytest.importorskip("torch", reason="PyTorch is not installed")


def make_torch_bin(folder: Path, installation: Installation) -> Path:
    """A new folder with `torchrun`, `accelerate` and `python3` of the interpreter that runs the tests."""
    folder.mkdir()
    for name, text in (("torchrun", TORCHRUN), ("accelerate", ACCELERATE), ("python3", PYTHON3)):
        (folder / name).write_text(text.format(python=installation.python))
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def torchrun(sandbox: Sandbox, submit: Submitter, installation: Installation) -> Submit:
    """`torchrun(trainer flags, setup=…)`: a run of 2 nodes × 2 processes, torchrun on the PATH by `setup`.

    A torchrun imports PyTorch, 2 s of processor time: what says nothing of several nodes has `nodes=1`.
    """
    def go(flags: str = "", *, setup: str = "", command: str | None = None, folder: Path | None = None,
           nodes: int = 2, overrides: tuple[str, ...] = ()) -> Drill:
        work = folder or make_workdir(sandbox)
        bin_dir = make_torch_bin(work / "bin", installation)
        extra = "setup: " + json.dumps(f"export PATH={bin_dir}:$PATH\n{setup}") + "\nenv: {GLOO_SOCKET_IFNAME: lo}\n"
        return submit(sandbox)(flags, nodes=nodes, tasks=1, extra=extra, command=command, folder=work,
                               overrides=("launch.with=torchrun", "launch.nproc_per_node=2", *overrides))
    return go
