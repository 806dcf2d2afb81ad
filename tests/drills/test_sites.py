"""Runs on sites that differ: each test is a row of docs/sites.md."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import check_nothing_left
from tests.runs import Drill, Submitter
from tests.sandboxes import make_workdir
from tests.trainers.steps import losses_until

STEPS = 60
FLAGS = f"--steps {STEPS} --step-time 0.05 --save-every 10 --lockstep sync --stamp-dir stamps"
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
