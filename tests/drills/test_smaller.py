"""A run that goes on with fewer nodes on a real Slurm, and grows back: before_resize works, and fails."""

from __future__ import annotations

import json
from pathlib import Path

from safelaunch.sandbox.cluster import Sandbox
from tests.drills import proofs
from tests.drills.test_handover import QUICK, warn
from tests.runs import Drill, Submitter

# The trainer's checkpoints load at any size; the hook copies one, and says what it was told.
COPIES = """echo "from $SAFELAUNCH_OLD_NODES to $SAFELAUNCH_NEW_NODES nodes, step $SAFELAUNCH_RESUME_STEP"
  [[ $SLURM_NTASKS == 1 ]] && cp "$SAFELAUNCH_RESUME_PATH" "$SAFELAUNCH_RESIZE_OUTPUT\""""
EXTRA = """min_nodes: 2
before_resize: |
  {hook}
"""


def lose_two(sandbox: Sandbox, drill: Drill) -> None:
    """Two of four nodes lose their power, neither of them the batch host."""
    drill.wait_event("submitted", 2)
    drill.wait_step(25)
    for node in ("n2", "n3"):
        sandbox.crash(node)


def test_two_of_four_nodes_die_and_the_run_goes_on_with_two_then_grows_back_in_the_next_job(
    sandbox: Sandbox, submit: Submitter
) -> None:
    drill = submit(sandbox)(proofs.FLAGS, nodes=4, tasks=1, extra=EXTRA.format(hook=COPIES), overrides=(QUICK,))
    lose_two(sandbox, drill)

    drill.wait_event("attempt_started", 3, timeout_s=90)
    first, hook, small = drill.state().attempts
    assert (hook.nodes, hook.ended, hook.job) == (("n0",), "converted", first.job), drill.story()
    assert (small.nodes, small.job, small.resume_step) == (("n0", "n1"), first.job, hook.resume_step), drill.story()
    assert hook.resize is not None and small.resume_path == hook.resize.output, drill.story()
    said = f"from 4 to 2 nodes, step {hook.resume_step}"
    drill.wait_for(lambda: said in drill.log(2), 60, "the output of the hook was not copied")
    drill.wait_step((small.resume_step or 0) + 30, attempt=3)
    status = json.loads(drill.as_user("status", "--json", str(drill.run_dir)).stdout)["attempt"]
    assert (len(status["nodes"]), status["of_nodes"], status["resize"]) == (2, 4, None), status

    for node in ("n2", "n3"):
        sandbox.heal(node)
    warn(drill)
    grown = drill.wait_event("attempt_started", 5, timeout_s=90).data
    hook = drill.state().attempts[3]
    assert (hook.ended, len(grown["nodes"])) == ("converted", 4), drill.story()
    assert grown["job"] != first.job and hook.resize and grown["resume_path"] == hook.resize.output, drill.story()
    said = f"from 2 to 4 nodes, step {hook.resume_step}"
    drill.wait_for(lambda: said in drill.log(4), 60, "the output of the hook was not copied")
    newest = Path(hook.resize.output)
    drill.wait_for(lambda: list(newest.parent.iterdir()) == [newest], 60, f"{newest} is not the only output left")
    proofs.check_completes(drill)


def test_a_hook_that_fails_leads_back_to_the_full_set_and_no_training_uses_what_it_has_written(
    sandbox: Sandbox, submit: Submitter
) -> None:
    hook = ('mkdir "$SAFELAUNCH_RESIZE_OUTPUT" kept; echo half >"$SAFELAUNCH_RESIZE_OUTPUT/part"; echo all >kept/file; '
            'ln -s "$PWD/kept" "$SAFELAUNCH_RESIZE_OUTPUT/linked"; echo "no space" >&2; exit 3')
    drill = submit(sandbox)(proofs.FLAGS, nodes=4, tasks=1, extra=EXTRA.format(hook=hook))
    lose_two(sandbox, drill)

    drill.wait_event("handed_over", timeout_s=90)
    first, failed = drill.state().attempts
    assert (failed.ended, failed.exit_code, drill.state().restarts) == ("unconverted", 3, 1), drill.story()
    assert "before_resize" in (failed.summary or ""), drill.story()
    for node in ("n2", "n3"):
        sandbox.heal(node)
    full = drill.wait_event("attempt_started", 3, timeout_s=90).data
    assert len(full["nodes"]) == 4 and full["job"] != first.job and ".resized" not in full["resume_path"], drill.story()
    assert failed.resize is not None
    half = Path(failed.resize.output)
    drill.wait_for(lambda: not half.exists(), 60, f"{half} is not removed")
    assert (drill.folder / "kept" / "file").read_text() == "all\n"   # no link was followed
    proofs.check_completes(drill)


def test_nodes_that_are_idle_make_the_next_job_a_full_one_at_once(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)(proofs.FLAGS, nodes=3, tasks=1, extra=EXTRA.format(hook=COPIES))
    drill.wait_event("submitted", 2)   # it waits in the queue, which makes Slurm's estimate late
    drill.wait_step(25)
    sandbox.crash(drill.state().attempts[0].nodes[2])

    drill.wait_event("attempt_started", 2, timeout_s=90)
    first, full = drill.state().attempts
    assert (len(full.nodes), full.resize) == (3, None) and full.job != first.job, drill.story()
    proofs.check_completes(drill)
