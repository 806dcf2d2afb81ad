"""`why` of a run under the real torchrun: the rank of the training that failed first, its node, and its line."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import in_long, long_only
from tests.runs import Drill, Submit
from tests.sandboxes import make_workdir
from tests.torchbin import needs_torch

# One rank fails while all others wait for it: they die of its silence, each with an error of its own.
FAILING = """\
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
print("rank", dist.get_rank(), "is ready")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == {rank}:
    raise IndexError("no sample 4711 in shard 17")
dist.all_reduce(torch.ones(1))
"""
LINE = "IndexError: no sample 4711 in shard 17"
# The same, of a rank whose process stays: a thread of it never ends.
STAYING = "import threading\n" + FAILING.replace(
    "    raise", "    threading.Thread(target=threading.Event().wait).start()\n    raise")


def ask(drill: Drill, *words: str) -> dict[str, Any]:
    """The object of `why --json`, typed by the run's owner."""
    done = drill.as_user("why", *words, "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@needs_torch
@pytest.mark.torch
# Each launcher and each rank imports PyTorch: 2 s of processor time.
@pytest.mark.parametrize(("nodes", "each", "rank"), [
    in_long(3, 1, 0, id="on the first of three nodes"), pytest.param(2, 2, 2, id="on the last of two")])
def test_why_names_the_rank_of_the_training_that_failed_first(
    sandbox: Sandbox, torchrun: Submit, nodes: int, each: int, rank: int
) -> None:
    work = make_workdir(sandbox)
    (work / "fail.py").write_text(FAILING.format(rank=rank))
    drill = torchrun(command="python3 -u fail.py", folder=work, nodes=nodes,
                     overrides=("restart.max_restarts=0", f"launch.nproc_per_node={each}"))

    state = drill.wait_end(180)

    assert state.ended and state.ended.exit_code in (10, 11), drill.story()
    node = state.attempts[0].nodes[rank // each]
    log = drill.run_dir / "attempts" / "0001" / "main.log"
    for subject in (str(drill.run_dir), str(log)):   # the run; its log alone, where torchrun's words must do
        verdict = ask(drill, subject)["verdict"]
        assert (verdict["category"], verdict["host"], verdict["rank"]) == ("user_code", node, rank), drill.log(1)
        assert [line["text"] for line in verdict["evidence"] if line["role"] == "cause"] == [LINE]
        number = verdict["evidence"][0]["line_number"]
        assert LINE in drill.log(1).splitlines()[number - 1]


@needs_torch
@pytest.mark.torch
@long_only
def test_a_rank_that_raised_and_does_not_end_is_noticed_in_a_minute_and_its_exception_is_the_verdict(
    sandbox: Sandbox, torchrun: Submit
) -> None:
    work = make_workdir(sandbox)
    (work / "stay.py").write_text(STAYING.format(rank=2))
    drill = torchrun(command="python3 -u stay.py", folder=work, nodes=2,
                     overrides=("restart.max_restarts=0", "launch.nproc_per_node=2"))
    drill.wait_for(lambda: LINE in drill.log(1), 120, "no rank has raised")
    raised_t = time.time()

    noticed = drill.wait_event("hang_suspected", timeout_s=120)
    found = drill.wait_event("verdict", timeout_s=600)

    assert noticed.t - raised_t <= 65 and 295 <= found.t - raised_t <= 345, drill.story()
    node = drill.state().attempts[0].nodes[1]
    assert (found.data["category"], found.data["node"], found.data["summary"]) == ("user_code", node, LINE)
