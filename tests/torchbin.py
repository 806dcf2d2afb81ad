"""PyTorch in tests, its ranks as forks of one import, torchrun and its Python on the PATH of ordinary users, and drills
with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

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
# Reads requests, forks the ranks of each, and says how they ended and what they printed. Each script finds PyTorch
# imported, which takes 2 s of processor time.
RANKS = """\
import atexit, importlib, json, os, runpy, socket, sys, tempfile, traceback
for line in sys.stdin:
    asked, files, pids = json.loads(line), [], []
    importlib.import_module(asked["package"])
    held = socket.socket()   # until the ranks have ended: nobody else is given its port, and who listens may share it
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    port = held.getsockname()[1]
    for rank in range(asked["count"]):
        files.append((tempfile.TemporaryFile(), tempfile.TemporaryFile()))
        pids.append(os.fork())
        if pids[-1]:
            continue
        for number, file in enumerate(files[-1], 1):
            os.dup2(file.fileno(), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(asked["folder"])
        os.environ.update(asked["env"])
        if asked["count"] > 1:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(asked["count"]),
                              LOCAL_WORLD_SIZE=str(asked["count"]), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        sys.argv = asked["argv"]
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
        code = 1
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
            code = 0
        except SystemExit as ended:
            code = ended.code or 0
        except BaseException:
            traceback.print_exc()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    held.close()
    said = ["", ""]
    for pair in files:
        for index, file in enumerate(pair):
            file.seek(0)
            said[index] += file.read().decode()
            file.close()
    print(json.dumps([codes, *said]), flush=True)
"""
PYTHON3 = """\
#!/bin/bash
exec {python} "$@"
"""


class Said(NamedTuple):
    """How the ranks of a script ended, and what they printed, one after the other."""

    codes: list[int]
    out: str
    err: str


class Ranks:
    """Runs scripts as ranks on this machine's CPUs, as torchrun would; `package`: what they import for long."""

    def __init__(self) -> None:
        marks = ("SLURM_", "SAFELAUNCH_", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_", "PYTHON")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(marks)}
        quiet = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
                 "PYTHONWARNINGS": "ignore"}
        self._server = subprocess.Popen([sys.executable, "-c", RANKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=kept | quiet, text=True, start_new_session=True)

    def run(self, folder: Path, *argv: object, count: int = 1, package: str = "torch", **env: object) -> Said:
        """A script and its words, in `folder`; fails the test where it does not end."""
        assert self._server.stdin is not None and self._server.stdout is not None
        words = {key: str(value) for key, value in env.items()}
        self._server.stdin.write(json.dumps({"folder": str(folder), "argv": list(map(str, argv)), "count": count,
                                             "package": package, "env": words}) + "\n")
        self._server.stdin.flush()
        if not select.select([self._server.stdout], [], [], 240.0)[0]:
            self.close()
            pytest.fail(f"the ranks of {argv} do not end")
        return Said(*json.loads(self._server.stdout.readline()))

    def close(self) -> None:
        """End the server with all ranks."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._server.pid, signal.SIGKILL)
        self._server.communicate()


@pytest.fixture(scope="session")
def torch_ranks() -> Iterator[Ranks]:
    """For scripts that import PyTorch: one import serves them all."""
    ranks = Ranks()
    yield ranks
    ranks.close()


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
