"""Runs on sites that differ: each test is a row of docs/sites.md."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import check_nothing_left, long_only, wait_standby
from tests.runs import ALICE, Drill, Submitter
from tests.sandboxes import make_workdir
from tests.trainers.steps import losses_until

STEPS = 60
FLAGS = f"--steps {STEPS} --step-time 0.05 --save-every 10 --lockstep sync --stamp-dir stamps"
LONG_FLAGS = FLAGS.replace(str(STEPS), "2000", 1)
MakeSandbox = Callable[..., Sandbox]


def kill_a_rank(drill: Drill, step: int = 15) -> None:
    """A rank of the attempt dies, once a checkpoint is there."""
    drill.wait_step(step)
    drill.kill(drill.ranks()[-1], signal.SIGKILL)


def completes(drill: Drill, *, restarts: int = 1, steps: int = STEPS) -> None:
    """The run completes in the same job after so many restarts in place, from a checkpoint."""
    state = drill.wait_end()
    assert state.ended and (state.ended.how, state.ended.exit_code) == ("completed", 0), drill.story()
    assert state.restarts == restarts, drill.story()
    assert drill.losses() == losses_until(steps), drill.story()
    if restarts:
        assert state.attempts[-1].resume_step, drill.story()
    assert len(drill.events("job_started")) == 1, drill.story()
    check_nothing_left(drill)


def test_where_srun_and_sbatch_are_scripts_that_print_and_a_task_prolog_prints_a_crash_is_restarted(
    own_sandbox: MakeSandbox, submit: Submitter
) -> None:
    """And people see no nodes and no jobs of others, and nodes have no homes."""
    site = ("srun-banner", "sbatch-banner", "task-prolog", "private-data", "no-home")
    drill = submit(own_sandbox(2, site=site))(FLAGS)
    kill_a_rank(drill)
    completes(drill)
    assert "have a nice day" in drill.log(1) and "srun of this site" in drill.log(1)
    assert drill.events("via_chosen")[0].data["via"] == "successor"


def test_where_tmp_is_noexec_and_texts_are_in_other_tongues_a_crash_is_restarted(
    own_sandbox: MakeSandbox, submit: Submitter
) -> None:
    sandbox = own_sandbox(2, site=("tmp-noexec",))
    folder = make_workdir(sandbox, "größe 訓練")
    drill = submit(sandbox)(FLAGS, folder=folder, env={"LC_ALL": "POSIX", "LANG": "C", "TZ": "Pacific/Chatham"})
    kill_a_rank(drill)
    completes(drill)


def test_where_nodes_have_no_python_the_training_runs_as_srun_would_run_it(
    own_sandbox: MakeSandbox, submit: Submitter
) -> None:
    sandbox = own_sandbox(2, site=("no-python",))
    drill = submit(sandbox)(command="echo trained on $(hostname -s) as $SLURM_PROCID; exit 3", wait_started=False)
    drill.wait_for(lambda: not drill.jobs(), 60, "the job did not end")
    said = (drill.run_dir / f"slurm-{drill.job}.out").read_text()
    assert sorted(re.findall(r"trained on (n\d) as (\d)", said)) == [("n0", "0"), ("n0", "1"), ("n1", "2"), ("n1", "3")]
    assert "ExitCode=3:0" in sandbox.slurm(["scontrol", "show", "job", drill.job])
    assert "training without one" in said


def test_where_bash_prints_at_its_start_and_prologs_are_slow_a_crash_is_restarted(
    own_sandbox: MakeSandbox, submit: Submitter
) -> None:
    """And whose login shell is tcsh, who closes all files to others, on a site with LaunchParameters."""
    launching = {"LaunchParameters": "use_interactive_step,mpir_use_nodeaddr,enable_nss_slurm"}
    sandbox = own_sandbox(2, site=("slow-prolog",), conf=launching)
    noisy = sandbox.dir / "work" / "noisy.sh"
    noisy.write_text("""umask 077; echo "welcome"; echo '{"left": [], "v": 1}'\n""")
    home = sandbox.dir / "home" / ALICE
    (home / ".bashrc").write_text("echo 'from .bashrc'; exec true\n")
    drill = submit(sandbox)(FLAGS, env={"BASH_ENV": str(noisy), "SHELL": "/usr/bin/tcsh"})
    kill_a_rank(drill)
    completes(drill)
    assert "welcome" in drill.log(1)


def test_where_tmp_is_full_from_the_start_the_supervisor_lives_in_another_place(
    own_sandbox: MakeSandbox, submit: Submitter
) -> None:
    sandbox = own_sandbox(2, site=("tmp-small",))
    for node in sandbox.nodes:
        fill(sandbox.dir / "node-tmp" / node)
    drill = submit(sandbox)(FLAGS)
    kill_a_rank(drill)
    completes(drill)


@long_only
def test_where_the_network_of_the_nodes_names_is_closed_the_standby_takes_over_by_another_one(
    own_sandbox: MakeSandbox, submit: Submitter
) -> None:
    sandbox = own_sandbox(3, netns=True, site=("two-networks",))
    drill = submit(sandbox)(LONG_FLAGS, extra="spare_nodes: 1\n")
    wait_standby(drill)
    drill.wait_step(15)
    sandbox.crash(drill.events("job_started")[0].data["batch_host"])
    drill.wait_event("took_over", timeout_s=60)
    drill.wait_event("attempt_started", 2)
    number = drill.events("attempt_started")[1].data["attempt"]
    drill.wait_step(30, attempt=number)
    stops(drill)


@pytest.mark.parametrize("word", [pytest.param("overlap-refused", marks=long_only), "overlap-ignored"])
def test_where_steps_cannot_overlap_a_crash_is_restarted_without_helper_steps(
    own_sandbox: MakeSandbox, submit: Submitter, word: str
) -> None:
    drill = submit(own_sandbox(2, site=(word,)))(FLAGS)
    kill_a_rank(drill)
    state = drill.wait_end(180)
    assert state.ended and state.ended.how == "completed", drill.story()
    assert drill.losses() == losses_until(STEPS), drill.story()
    assert not drill.events("node_lost") and len(drill.events("job_started")) == 1, drill.story()
    said = (drill.run_dir / f"slurm-{drill.job}.out").read_text()
    assert "no step can run beside the training on this cluster" in said, drill.story()
    check_nothing_left(drill)


@long_only
def test_where_a_user_may_have_one_job_only_the_job_is_requeued(own_sandbox: MakeSandbox, submit: Submitter) -> None:
    sandbox = own_sandbox(2, accounting=True, conf={"AccountingStorageEnforce": "limits,qos"})
    sandbox.slurm(["sacctmgr", "-i", "modify", "user", "sl-alice", "set", "MaxSubmitJobs=1"])
    drill = submit(sandbox)(LONG_FLAGS, overrides=("kill_switch.grace=1s",))
    kill_a_rank(drill)
    drill.wait_event("attempt_started", 2)
    drill.wait_step(60)
    drill.kill(drill.leader(), signal.SIGUSR2)   # the warning of the time limit
    drill.wait_event("via_chosen", timeout_s=200)
    assert drill.events("via_chosen")[-1].data["via"] == "requeue", drill.story()
    drill.wait_event("attempt_started", 3, timeout_s=200)
    assert [event.data["job"] for event in drill.events("job_started")] == [drill.job, drill.job]
    stops(drill)


def fill(folder: Path) -> None:
    """Leave no byte of space there."""
    with suppress(OSError), (folder / "full").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def stops(drill: Drill) -> None:
    """Enough has been seen; nothing of the run is left."""
    drill.as_user("stop", "--now", str(drill.run_dir))
    drill.wait_end()
    check_nothing_left(drill)
