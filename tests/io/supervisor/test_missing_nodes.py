"""What sbatch --test-only says of the nodes that a full set lacks, in the words of each release; what makes do with
fewer.
"""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path

import pytest

from safelaunch.decide.nodes.resize import size_in_slurm
from safelaunch.sandbox.cluster import Sandbox
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Result
from safelaunch.supervisor.io.successor import Successor
from tests.pure.decide.situations import PLAN
from tests.runs import ALICE
from tests.sandboxes import wait_until
from tests.slurmwords.texts import load_all
from tests.tables import each

NOW = 1000.0
ARGV = ("sbatch", "--test-only")


@each("text", [text for text in load_all() if text.name in ("site-plain", "site-too-many-nodes")])
def test_a_release_says_when_nodes_are_free_or_that_there_are_none(text: object) -> None:
    name, rc, words = text.name, text.rc, text.text   # type: ignore[attr-defined]
    found = Successor.free_nodes(Result(ARGV, rc, "", words), NOW)
    assert found.t == NOW and found.free_t is not None
    if name == "site-too-many-nodes":
        assert found.free_t == math.inf
    else:
        assert datetime.fromtimestamp(found.free_t).isoformat() in words


@each(("code", "words"), [
    (None, ""), (127, "sbatch: No such file"), (1, "sbatch: error: Access/permission denied"), (0, "hello"), (0, ""),
    (1, "sbatch: error: Unable to contact slurm controller"), (0, "sbatch: Job 1 to start at 9999-99-99T99:99:99")])
def test_any_other_answer_is_none(code: int | None, words: str) -> None:
    assert Successor.free_nodes(Result(ARGV, code, "", words), NOW).free_t is None


@each(("nodes", "said", "expected"), [
    ("n1 n2", "idle|n[1-2]\nmixed|n3", True), ("n1 n3", "idle|n[1-2]\nmixed|n3", False), ("n1", "reserved|n1", True),
    ("n1", "idle*|n1", False), ("n1", "idle~|n1", False), ("n1", "hello", False), ("n1", "", False),
    ("", "idle|n1", False)])
def test_only_nodes_that_wait_for_a_job_are_idle(nodes: str, said: str, expected: bool) -> None:
    assert Successor.are_idle(tuple(nodes.split()), Result(("sinfo",), 0, said, "")) is expected


def test_no_answer_is_none() -> None:
    assert Successor.free_nodes(None, NOW).free_t is None


@pytest.mark.slurm
def test_a_job_that_has_started_meanwhile_keeps_all_of_its_nodes(sandbox: Sandbox) -> None:
    job = sandbox.run(["sbatch", "--parsable", "--nodes=2", "--output=/dev/null", "--wrap=sleep 600"], user=ALICE,
                      cwd=Path("/")).stdout.strip()

    def shown() -> str:
        return sandbox.run(["squeue", "--noheader", "--format=%T %D", f"--jobs={job}"], user=ALICE).stdout.strip()

    wait_until(lambda: shown() == "RUNNING 2", 120, "the job did not start")
    said = sandbox.run(list(slurm.update_job(job, **size_in_slurm(PLAN, 1))), user=ALICE)
    assert (said.returncode, shown()) == (1, "RUNNING 2"), said
    sandbox.run(["scancel", job], user=ALICE)
