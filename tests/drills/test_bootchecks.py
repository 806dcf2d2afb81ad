"""The checks before a run's first attempt on a real Slurm: a node whose GPU tool fails, and what becomes of the run."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from safelaunch.run.io import runfolder
from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import tell_last
from tests.drills.test_nodechecks import SKIP
from tests.runs import Drill, Installation, Submitter
from tests.sandboxes import make_workdir

SAID = Path(__file__).parent.parent / "node/checks/said/smi-h100.xml"
# These machines share one host: its load, its memory and the names of its network are not the drill's matter.
SKIPPED = ", ".join(word for word in SKIP.split() if word != "--skip")
CHECKS = f"checks: {{boot: true, timeout: 30s, skip: [{SKIPPED}]}}\n"
FLAGS = "--steps 20 --step-time 0.05 --save-every 10"
UNTIL_TOLD = "--steps 100000 --step-time 0.2 --save-every 5 --until last"


def broken_gpu(work: Path, node: str) -> dict[str, str]:
    """A PATH whose nvidia-smi shows two healthy GPUs, and none on one node."""
    shutil.copy(SAID, work / "smi.xml")
    tool = work / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/bash\n[[ $SLURMD_NODENAME == {node} ]] && {{ echo "No devices were found"; exit 6; }}\n'
                    f"[[ $1 == nvlink ]] || exec cat {work}/smi.xml\n")
    tool.chmod(0o755)
    return {"PATH": f"{tool.parent}:{os.environ['PATH']}"}


def output(drill: Drill) -> str:
    return "".join(path.read_text() for path in drill.run_dir.glob("slurm-*.out"))


def test_a_spare_replaces_a_node_that_fails_its_check_before_the_first_step(
    sandbox: Sandbox, submit: Submitter
) -> None:
    work = make_workdir(sandbox)
    drill = submit(sandbox)(FLAGS, folder=work, extra=CHECKS, env=broken_gpu(work, "n1"),
                            overrides=("spare_nodes=1", "slurm.nodelist=n[0-2]", "slurm.gpus_per_node=2"))

    state = drill.wait_end()

    assert state.ended and state.ended.how == "completed", drill.story()
    assert [attempt.nodes for attempt in state.attempts] == [("n0", "n2")], drill.story()
    assert {attempt.job for attempt in state.attempts} == {state.jobs[0].id}, "no other job was needed"
    assert [event.data["nodes"] for event in drill.events("checks_failed")] == [["n1"]], drill.story()
    assert drill.events("node_suspected")[0].data["kind"] == "checks_failed"
    kept = drill.run_dir / runfolder.attempt_folder(1) / "checks.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    port = drill.events("attempt_started")[0].data["port"]
    said = {(one["node"], check["name"]): check["why"] for one in json.loads(kept.read_text())["nodes"]
            for check in one["checks"]}
    reached = f"port {port} of n0 can be reached"
    assert [said[node, "port"] for node in ("n0", "n1", "n2")] == [
        f"the other nodes try port {port} of this one", reached, reached]
    assert {said[node, "control"] for node in ("n0", "n1", "n2")} == {"can be read and written"}
    assert "n1 gpu_count: failed" in output(drill) and "Check Finished" in output(drill), output(drill)


def test_nodes_try_the_port_of_a_first_node_on_which_no_supervisor_runs(sandbox: Sandbox, submit: Submitter) -> None:
    work = make_workdir(sandbox)
    drill = submit(sandbox)(   # the batch host fails its check, and leads all the same
        f"{FLAGS} --die-at 8 --die-rank 1", folder=work, extra=CHECKS.replace("30s", "30s, after_failure: before"),
        env=broken_gpu(work, "n0"), overrides=("spare_nodes=1", "slurm.nodelist=n[0-2]", "slurm.gpus_per_node=2"))

    state = drill.wait_end()

    assert state.ended and state.ended.how == "completed", drill.story()
    assert [attempt.nodes for attempt in state.attempts] == [("n1", "n2")] * 2, drill.story()
    kept = json.loads((drill.run_dir / runfolder.attempt_folder(2) / "checks.json").read_text())
    port = drill.events("attempt_started")[1].data["port"]
    first, other = (check["why"] for one in kept["nodes"] for check in one["checks"] if check["name"] == "port")
    assert first == f"the other nodes try port {port} of this one", kept
    assert other in (f"port {port} of n1 can be reached",   # a busy machine starts one check after the other has ended
                     f"port {port} of n1: it was not listened on when it was tried"), kept
    assert {one["node"]: abs(one["clock_s"][0]) < 2 for one in kept["nodes"]} == {"n1": True, "n2": True}, kept


def test_too_few_nodes_that_pass_end_the_run_with_exit_code_13_and_a_table(
    sandbox: Sandbox, submit: Submitter
) -> None:
    work = make_workdir(sandbox)
    drill = submit(sandbox)(FLAGS, nodes=4, folder=work, extra=CHECKS, env=broken_gpu(work, "n1"), wait_started=False,
                            overrides=("slurm.gpus_per_node=2",))

    state = drill.wait_end()

    assert state.ended and (state.ended.how, state.ended.exit_code) == ("gave_up", 13), drill.story()
    waited = drill.as_user("wait", str(drill.run_dir))
    assert waited.returncode == 13, waited
    assert not state.attempts and "n1 (gpu_count" in state.ended.why, state.ended.why
    assert "failed  n1" in output(drill) and "Check Finished" in output(drill), output(drill)


def test_a_node_whose_helper_gives_no_answer_costs_the_timeout_and_is_used(
    sandbox: Sandbox, submit: Submitter
) -> None:
    work = make_workdir(sandbox)
    env = broken_gpu(work, "nobody")
    # The helper begins with the bash of PATH, which does not come back on one node, and ignores that it is to end.
    shell = work / "bin" / "bash"
    shell.write_text('#!/bin/sh\n[ "$SLURMD_NODENAME" = n1 ] && [ "$3" = helper ] && { trap "" TERM; sleep 600; }\n'
                     'exec /bin/bash "$@"\n')
    shell.chmod(0o755)
    drill = submit(sandbox)(FLAGS, folder=work, extra=CHECKS.replace("30s", "15s"), env=env,
                            overrides=("slurm.nodelist=n[0-1]", "slurm.gpus_per_node=2"))

    state = drill.wait_end()

    assert state.ended and state.ended.how == "completed", drill.story()
    (passed,) = drill.events("checks_passed")
    assert (passed.data["nodes"], passed.data["unknown"]) == (["n0"], ["n1"]), drill.story()
    assert [attempt.nodes for attempt in state.attempts] == [("n0", "n1")] and not state.suspects, drill.story()


def test_a_suspect_whose_place_a_spare_has_taken_is_checked_fully_beside_the_next_attempt(
    sandbox: Sandbox, submit: Submitter, installation: Installation
) -> None:
    work = make_workdir(sandbox)
    # Rank 2 dies on n1, whose log then has the driver's words. Nobody has looked at a node before.
    command = (f"{installation.trainer} {UNTIL_TOLD} --die-at 8 --die-rank 2 --ckpt ckpt "
               "${RESUME_ARGS} || { [[ $SLURM_PROCID != 2 ]] || echo 'NVRM: Xid (PCI:0000:90:00): 79, pid=42, "
               "name=python, GPU has fallen off the bus.'; exit 1; }")
    drill = submit(sandbox)(
        command=command, folder=work, env=broken_gpu(work, "n1"),
        extra=CHECKS.replace("boot: true", "boot: false, after_failure: beside"),
        overrides=("spare_nodes=1", "slurm.nodelist=n[0-2]", "slurm.gpus_per_node=2"))

    drill.wait_event("checks_failed", timeout_s=120)
    tell_last(work, 1)
    state = drill.wait_end()

    assert state.ended and state.ended.how == "completed", drill.story()
    assert [attempt.nodes for attempt in state.attempts] == [("n0", "n1"), ("n0", "n2")], drill.story()
    (failed,) = drill.events("checks_failed")
    assert (failed.data["nodes"], failed.data["after"], failed.data["level"]) == (["n1"], 1, "full"), drill.story()
    assert not [event for event in drill.events("decision") if event.data["row"] == "check_again"], drill.story()
    assert (drill.run_dir / runfolder.attempt_folder(1) / "checks-after.json").stat().st_mode & 0o777 == 0o600
    assert "checking n1 fully beside attempt 2" in output(drill) and "n1 GPU Number: 0" in output(drill), output(drill)
    why = drill.as_user("why", str(drill.run_dir), "--attempt", "1").stdout
    assert "n1: full checks after it have failed: gpu_count" in why, why


def test_the_node_whose_all_reduce_stands_still_is_replaced_before_the_first_step(
    sandbox: Sandbox, submit: Submitter
) -> None:
    work = make_workdir(sandbox)
    env = broken_gpu(work, "nobody")
    python = work / "bin" / "python"   # stands for PyTorch; tests/node/bench has the real one
    python.write_text("""#!/bin/bash
[[ $SLURMD_NODENAME == n1 ]] && kill -STOP $$
echo '{"torch": "1", "backend": "gloo", "samples": [2.0]}'
""")
    python.chmod(0o755)
    drill = submit(sandbox)(
        FLAGS, nodes=3, folder=work, env=env,
        extra=CHECKS.replace("boot: true, timeout: 30s", "boot: true, allreduce: true, timeout: 60s"),
        overrides=("spare_nodes=1", "slurm.nodelist=n[0-3]", "slurm.gpus_per_node=2"))

    state = drill.wait_end(timeout_s=120)

    assert state.ended and state.ended.how == "completed", drill.story()
    (failed,) = drill.events("checks_failed")
    assert (failed.data["nodes"], failed.data["checks"]) == (["n1"], ["allreduce"]), drill.story()
    assert [attempt.nodes for attempt in state.attempts] == [("n0", "n2", "n3")], drill.story()
    assert "AllReduce Check: failed: bus with" in output(drill), output(drill)


def test_a_suspect_that_the_next_job_did_not_get_is_checked_fully_by_a_short_job_of_its_own(
    sandbox: Sandbox, submit: Submitter, installation: Installation
) -> None:
    work = make_workdir(sandbox)
    command = (f"{installation.trainer} {UNTIL_TOLD} --die-at 8 --die-rank 1 --ckpt ckpt "
               "${RESUME_ARGS} || { [[ $SLURM_PROCID != 1 ]] || echo 'NVRM: Xid (PCI:0000:90:00): 79, pid=42, "
               "name=python, GPU has fallen off the bus.'; exit 1; }")
    drill = submit(sandbox)(
        command=command, folder=work, tasks=1, env=broken_gpu(work, "n1"),
        extra=CHECKS.replace("boot: true", "boot: false, after_failure: beside"),
        overrides=("slurm.gpus_per_node=2",))

    drill.wait_event("checks_failed", timeout_s=180)
    tell_last(work, 1)
    state = drill.wait_end()

    assert state.ended and state.ended.how == "completed", drill.story()
    first, second = state.attempts
    assert "n1" in first.nodes and "n1" not in second.nodes and first.job != second.job, drill.story()
    (failed,) = drill.events("checks_failed")
    assert (failed.data["nodes"], failed.data["after"], failed.data["level"]) == (["n1"], 1, "full"), drill.story()
    assert "by short jobs of their own" in output(drill) and "n1 GPU Number: 0" in output(drill), output(drill)
