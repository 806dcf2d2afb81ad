"""A user's own sbatch script under safelaunch, on a real Slurm."""

from __future__ import annotations

import json
import os
import re
import signal
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import FLAGS, check_completes, crash, long_only, wait_standby
from tests.runs import ALICE, Drill, Installation, comm_of, environ_of, parent_of
from tests.sandboxes import make_workdir
from tests.torchbin import make_torch_bin, needs_torch

Script = Callable[..., Drill]


@pytest.fixture
def script(installation: Installation, sandbox: Sandbox) -> Iterator[Script]:
    """`script(body, nodes=2)` submits a script as sl-alice."""

    def go(body: str, nodes: int = 2, *overrides: str, tasks: int = 1, folder: Path | None = None,
           shell: str = "/bin/bash -l") -> Drill:
        work = folder or make_workdir(sandbox)
        own = {**installation.env, "XDG_STATE_HOME": f"{work}/.state"}
        text = f"#!{shell}\n#SBATCH -J own -N {nodes} --ntasks-per-node={tasks} -t 30\n#SBATCH --outp=%j.log\n"
        (work / "job.slurm").write_text(text + textwrap.dedent(body).replace("TRAINER", installation.trainer))
        done = sandbox.run([*installation.argv, "submit", "job.slurm", "--json", *overrides], cwd=work, user=ALICE,
                           env=own, timeout_s=180)
        assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
        told = json.loads(done.stdout)
        told = told.get("runs", [told])[0]   # of an array
        return Drill(sandbox, installation, work, Path(told["run_dir"]), told["job"], [done.stderr], own)

    yield go


def test_a_script_whose_rank_is_killed_starts_again_and_its_own_sruns_are_guarded(script: Script) -> None:
    drill = script("""\
        cat ${SAFELAUNCH_WRAPPER%/bin/srun}/attempt-0001.sruns | paste -sd+
        head=$(srun -N1 -n1 bash -c 'echo head of $SLURM_STEP_NUM_TASKS')
        echo "captured <$head> $SLURM_NNODES attempt $SAFELAUNCH_ATTEMPT token <${SAFELAUNCH_TOKEN-}>"
        train() { timeout 1h srun --export=ALL bash -c \\
          "RANK=\\$SLURM_PROCID TRAINER --steps 40 --step-time 0.2 --ckpt ckpt"; }
        train
        echo "ended at $(date)"
        """)   # its login shell sets PATH anew
    drill.wait_step(3, 1)
    assert "captured <head of 1> 2 attempt 1 token <>" in drill.log(1), drill.story() + drill.log(1)
    ranks = drill.ranks()
    assert len(ranks) == 2, drill.story() + drill.log(1)
    guards = {guard for pid in ranks for guard in ancestors(pid)
              if comm_of(guard).startswith("python") and b"exec(compiled(" in cmdline(guard)}
    assert len(guards) == 2, drill.log(1)
    marks = [environ_of(pid).count(b"SAFELAUNCH_MARK=") for pid in ranks]
    assert marks == [1, 1]

    drill.kill(next(pid for pid in ranks if b"\0SLURMD_NODENAME=n1\0" in environ_of(pid)))

    drill.wait_step(1, 2)
    assert "ended at " in drill.log(1), drill.log(1)   # with 0: no word on the training's end
    verdict = drill.wait_event("verdict").data
    assert (verdict["node"], verdict["task"], verdict["suspects"]) == ("n1", 1, ["n1"]), drill.story()
    assert "]:step 1 " in drill.log(2), drill.log(2)
    assert "guarded+guarded\n" in drill.log(2), drill.log(2)   # what the fence knows of the first attempt's sruns
    (drill.run_dir / "control" / "kill").touch()
    state = drill.wait_end()
    assert state.ended is not None and state.ended.how == "stopped", drill.story()
    assert not drill.ranks()


def test_a_long_script_has_its_arguments_in_every_attempt(script: Script) -> None:
    typed = ["a b", "it's", "", "$HOME ${X}", "two\nlines", "ünï"]
    drill = script(f"""\
        cat >/dev/null <<'END'
        {'x' * 99}
        """ + f"{'x' * 99}\n" * 2_000 + """\nEND
        printf '%s|' "$#" "$@" >>args.out
        [[ $SAFELAUNCH_ATTEMPT == 2 ]]
        """.replace("        ", ""), 1, "restart.backoff=0s", *typed, "--", "--", "-x", shell="/bin/bash")

    assert drill.wait_end().ended is not None, drill.story()
    assert (drill.folder / "args.out").read_text() == "|".join(["7", *typed, "-x", ""]) * 2, drill.log(1)


def cmdline(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def ancestors(pid: int) -> list[int]:
    """Its parents, up to the node's first process."""
    found = []
    while pid > 1:
        pid = parent_of(pid)
        found.append(pid)
    return found[:-1]


def test_what_an_srun_past_the_wrapper_leaves_is_ended_before_its_script_starts_again(script: Script) -> None:
    drill = script("""\
        echo "left: $(pgrep -fc "^sleep 601.$SLURM_JOB_ID")"
        if [[ $SAFELAUNCH_ATTEMPT == 2 ]]; then echo 'ended well'; exit 0; fi
        srun true
        "$SAFELAUNCH_SRUN" bash -c 'touch runs; exec sleep 601.$SLURM_JOB_ID' &
        until [[ -e runs ]]; do sleep 0.1; done
        sleep 1   # before, slurmstepd itself would end it
        kill -9 $(pgrep -P $!) $!
        exit 3
        """, 1, "restart.backoff=0s", shell="/bin/bash")

    state = drill.wait_end()

    assert state.ended is not None and state.ended.how == "completed", drill.story()
    assert "left: 0\n" in drill.log(2) and "ended well" in drill.log(2), drill.log(2)


def test_tasks_whose_srun_was_killed_are_ended_before_their_script_starts_again(script: Script) -> None:
    drill = script("""\
        echo "left: $(pgrep -fc "^sleep 600.$SLURM_JOB_ID")"
        [[ $SAFELAUNCH_ATTEMPT == 1 ]] || exit 0
        srun bash -c 'touch runs.$SLURM_PROCID; exec sleep 600.$SLURM_JOB_ID' &
        until [[ -e runs.0 && -e runs.1 ]]; do sleep 0.1; done
        kill -9 $(pgrep -P $!) $!
        exit 3
        """, 2, "restart.backoff=0s", shell="/bin/bash")

    state = drill.wait_end()

    assert state.ended is not None and state.ended.how == "completed", drill.story()
    assert [attempt.nodes for attempt in state.attempts] == [("n0", "n1"), ("n0", "n1")], drill.story()
    assert "left: 0\n" in drill.log(2), drill.log(2)


def test_a_rank_without_a_guard_is_named_by_its_sruns_words_and_without_them_no_node_is_blamed(script: Script) -> None:
    drill = script("""\
        case $SAFELAUNCH_ATTEMPT in
        1) "$SAFELAUNCH_SRUN" -K bash -c '((SLURM_PROCID)) && kill -9 $$; exec sleep 60' ;;
        2) "$SAFELAUNCH_SRUN" -K --quiet bash -c '((SLURM_PROCID)) && exit 3; exec sleep 60' 2>/dev/null ;;
        esac
        """, 2, "restart.backoff=0s", "restart.max_restarts=5", shell="/bin/bash")

    state = drill.wait_end()

    assert state.ended is not None and len(state.attempts) >= 2, drill.story()
    first, second = (event.data for event in drill.events("verdict")[:2])
    assert (first["node"], first["task"], first["suspects"]) == ("n1", 1, ["n1"]), drill.story()
    assert (second["node"], second["task"], second["suspects"]) == (None, None, []), drill.story()
    assert "the script ended with exit code 143" in second["summary"], drill.story()


def test_a_script_with_a_spare_node_sees_and_uses_the_attempts_nodes_only(script: Script) -> None:
    drill = script("""\
        echo "nodes $SLURM_NNODES of $SLURM_JOB_NODELIST job $SLURM_JOB_NAME"
        bash <<'END'
        srun --export=NONE -n 1 /bin/bash -c 'echo "mark ${SAFELAUNCH_MARK:+kept} on $SLURMD_NODENAME of $SLURM_NNODES"'
        END
        """, 1, "spare_nodes=1")

    state = drill.wait_end()

    assert state.ended is not None and state.ended.how == "completed", drill.story() + drill.log(1)
    assert "nodes 1 of n0 job own" in drill.log(1), drill.log(1)
    assert "[n0:0]:mark kept on n0 of 1" in drill.log(1), drill.log(1)


def test_tasks_and_gpus_of_the_whole_job_are_the_scripts_own_beside_a_spare_and_after_a_restart(script: Script) -> None:
    drill = script("""\
        #SBATCH -n 3 --gpus=4
        echo "sees $SLURM_NTASKS $SLURM_NPROCS $SLURM_TASKS_PER_NODE $SLURM_GPUS ${SLURM_NTASKS_PER_NODE-none}"
        srun bash -c 'IFS=,; set -- $CUDA_VISIBLE_DEVICES; echo "task of $SLURM_NTASKS with $# GPUs"
          exit $((SAFELAUNCH_ATTEMPT == 1))'
        """, 2, "slurm.ntasks_per_node=null", "spare_nodes=1", "restart.backoff=0s", shell="/bin/bash")

    state = drill.wait_end()

    assert state.ended is not None and state.ended.how == "completed", drill.story() + drill.log(1)
    assert len(state.attempts) == 2, drill.story()
    for number in (1, 2):
        log = drill.log(number)
        assert "sees 3 3 2,1 4 none" in log and log.count("task of 3 with 2 GPUs") == 3, log


def test_a_script_that_hangs_is_seen_and_ended_and_its_standby_goes_on_when_the_batch_host_dies(
    script: Script, sandbox: Sandbox
) -> None:
    drill = script(f"""\
        load=${{SAFELAUNCH_RESUME_PATH:+--load $SAFELAUNCH_RESUME_PATH}}
        srun --export=ALL bash -c "RANK=\\$SLURM_PROCID TRAINER {FLAGS} --ckpt ckpt $load"
        """, 2, "spare_nodes=1", "resume.dir=ckpt", "resume.format=torch", "hang.no_progress=15s")
    drill.wait_step(25)
    stopped = drill.ranks()[-1]
    os.kill(stopped, signal.SIGSTOP)
    said = drill.as_user("stacks", str(drill.run_dir)).stdout
    found = drill.wait_event("verdict", timeout_s=240)

    assert "is stopped" in said and str(stopped) in said, said
    assert re.search(r"wait_for_all( \(\S+\))? ← train_one_step", said), said   # with its place where both stand there
    assert found.data["category"] == "hang" and "stopped" in found.data["summary"], drill.story()
    second = drill.wait_event("attempt_started", 2, timeout_s=60)
    assert second.data["resume_step"] >= 20, drill.story()
    drill.wait_step(int(second.data["resume_step"]) + 25, 2)
    wait_standby(drill)
    host = drill.state().attempts[1].nodes[0]

    crash(sandbox, host)
    third = drill.wait_event("attempt_started", 3, timeout_s=90)

    assert third.data["job"] == second.data["job"] and host not in third.data["nodes"], drill.story()
    assert third.host != second.host and third.data["resume_step"] > second.data["resume_step"], drill.story()
    drill.wait_step(int(third.data["resume_step"]) + 5, 3)
    check_completes(drill, has_lost_log_end=True)


@long_only
@needs_torch
@pytest.mark.torch
def test_torchrun_without_srun_in_a_script_of_several_tasks_is_restarted_and_stopped_by_its_ranks(
    script: Script, sandbox: Sandbox, installation: Installation
) -> None:
    work = make_workdir(sandbox)
    bin_dir = make_torch_bin(work / "bin", installation)
    drill = script(f"""\
        export PATH={bin_dir}:$PATH
        torchrun --nproc_per_node $SLURM_NTASKS_PER_NODE --master_addr 127.0.0.1 \\
          --master_port $((20000 + SLURM_JOB_ID % 10000)) --tee 3 --no-python TRAINER \\
          --handle-usr2 --steps 100000 --step-time 0.05 --save-every 10 --ckpt ckpt
        """, 1, "restart.backoff=0s", tasks=2, folder=work)
    drill.wait_step(5, 1, timeout_s=180)
    ranks = [pid for pid in drill.ranks() if b"\0LOCAL_RANK=" in environ_of(pid)]   # torchrun names the trainer, too
    assert len(ranks) == 2, drill.story() + drill.log(1)
    said = drill.as_user("stacks", str(drill.run_dir)).stdout
    assert "train_one_step" in said and "torch/distributed" not in said, said

    drill.kill(ranks[0])
    drill.wait_step(5, 2, timeout_s=180)
    (drill.run_dir / "control" / "kill").touch()

    ended = drill.wait_end().ended
    assert ended is not None and ended.how == "stopped", drill.story()
    assert drill.log(2).count("stopped on request after step") == 2, drill.log(2)
    assert not drill.ranks()
