"""A run on nodes whose system Python is 3.9, while the submitter's own is newer: a row of docs/sites.md."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from safelaunch.sandbox import sites
from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import FLAGS
from tests.drills.test_sites import completes, kill_a_rank
from tests.runs import ROOT, Drill, Installation, Submitter


@dataclass(frozen=True)
class ByItself(Installation):
    """Under an interpreter that is not the nodes' python3, as a venv or conda's in a shared folder is."""

    @property
    def env(self) -> dict[str, str]:
        paths = [f"{self.root}/src", *(path for path in sys.path if path.endswith("site-packages"))]
        return {**super().env, "PYTHONPATH": ":".join(dict.fromkeys([*paths, *site.getsitepackages()]))}


@pytest.fixture(scope="module")
def installation(slurm_here: None) -> Installation:
    """Takes the place of the usual one, whose interpreter is a link to /usr/bin/python3."""
    python = Path(os.path.realpath(sys.executable))
    if sites.old_python() is None or python == Path("/usr/bin/python3"):
        pytest.skip("no Python 3.9 on this machine")
    return ByItself(ROOT, python)


def test_where_the_nodes_python_is_3_9_guards_and_looks_run_under_it(
    own_sandbox: Callable[..., Sandbox], submit: Submitter
) -> None:
    sandbox = own_sandbox(2, site=(sites.OLD_PYTHON,))
    assert sandbox.run(["srun", "-N1", "python3", "--version"]).stdout.startswith("Python 3.9")
    drill = submit(sandbox)(FLAGS)
    drill.wait_for(lambda: "python3.9" in programs(drill), 60, "no guard under Python 3.9")
    looked = drill.as_user("stacks", str(drill.run_dir))
    assert looked.returncode == 0 and "2 of 2 nodes answered" in looked.stderr, looked
    kill_a_rank(drill)
    completes(drill)


def programs(drill: Drill) -> set[str]:
    """What executes the guards."""
    found = set()
    for pid in drill.pids("SAFELAUNCH_GUARD", "launch"):
        with suppress(OSError):   # it has just ended
            found.add(Path(os.readlink(f"/proc/{pid}/exe")).name)
    return found
