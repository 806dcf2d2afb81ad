"""Runs on sites that differ: each test is a row of docs/sites.md."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from safelaunch.sandbox import sites
from safelaunch.sandbox.cluster import Sandbox
from safelaunch.slurm import slurmwords
from tests.drills.proofs import FLAGS, check_nothing_left, finish, long_only, wait_standby
from tests.drills.test_nodechecks import SKIP
from tests.drills.test_via import watch_hurried
from tests.runs import ALICE, Drill, Installation, Submitter
from tests.sandboxes import make_workdir
from tests.trainers.stepping import losses_until
from tests.users import open_paths

MakeSandbox = Callable[..., Sandbox]


def kill_a_rank(drill: Drill, step: int = 15) -> None:
    """A rank of the attempt dies, once a checkpoint is there."""
    drill.wait_step(step)
    drill.kill(drill.ranks()[-1], signal.SIGKILL)


def completes(drill: Drill) -> None:
    """The run completes in the same job after a restart in place, from a checkpoint."""
    last = finish(drill)
    state = drill.wait_end()
    assert state.ended and (state.ended.how, state.ended.exit_code) == ("completed", 0), drill.story()
    assert state.restarts == 1, drill.story()
    assert drill.losses() == losses_until(last), drill.story()
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


def test_where_the_login_shell_is_csh_files_are_open_to_all_and_tmpdir_is_not_there_a_crash_is_restarted(
    own_sandbox: MakeSandbox, submit: Submitter
) -> None:
    sandbox = own_sandbox(2, site=("csh",))
    assert "csh" in sandbox.run(["srun", "getent", "passwd", ALICE], user=ALICE).stdout
    before = os.umask(0)   # sbatch hands it on to the job
    try:
        drill = submit(sandbox)(FLAGS, env={"TMPDIR": "/nonexistent/job"})
    finally:
        os.umask(before)
    kill_a_rank(drill)
    completes(drill)
    assert open_paths(drill.run_dir) == []
    assert all(path.stat().st_mode & 0o002 for path in (drill.folder / "ckpt").glob("*.pt")), "not the user's umask"


@long_only
def test_where_slurmctld_does_not_find_the_host_of_an_srun_by_name_nodes_are_checked_and_a_crash_is_restarted(
    own_sandbox: MakeSandbox, submit: Submitter, installation: Installation
) -> None:
    """The checks' srun runs on a login host. Debian's slurmctld may answer nobody for 10 s as its job ends."""
    sandbox = own_sandbox(2, site=("unknown-hosts",))
    checks = sandbox.run([*installation.argv, "nodes", "check", "n[0-1]", "--json", *SKIP.split()], user=ALICE,
                         cwd=make_workdir(sandbox), env=installation.env, timeout_s=180)
    assert (checks.returncode, json.loads(checks.stdout)["ok"]) == (0, True), f"{checks.stdout}{checks.stderr}"
    drill = submit(sandbox)(FLAGS)
    kill_a_rank(drill)
    completes(drill)
    asked = "attempt number" in (sandbox.dir / "log" / "slurmctld.log").read_text()
    print(f"slurmctld {'asked again' if asked else 'did not ask'} for a host that it did not find")


@long_only
def test_node_whose_prolog_fails_is_left_out_by_slurm_and_the_run_goes_on(
    own_sandbox: MakeSandbox, submit: Submitter
) -> None:
    sandbox = own_sandbox(3, site=("prolog-fails",))
    (sandbox.dir / "bad-n1").touch()
    drill = submit(sandbox)(FLAGS, wait_started=False)
    drill.wait_event("attempt_started", timeout_s=200)
    drill.wait_step(15)
    first, second = drill.state().attempts
    assert (first.ended, first.category, drill.state().excluded) == ("lost", "node_failure", ("n1",)), drill.story()
    assert second.job != first.job and "n1" not in second.nodes, drill.story()
    assert [event.data["node"] for event in drill.events("node_lost")] == ["n1"], drill.story()
    stops(drill)


@long_only
def test_job_whose_batch_hosts_prolog_fails_is_followed_by_another_where_a_watch_runs(
    own_sandbox: MakeSandbox, submit: Submitter
) -> None:
    """Nothing of ours has run in it; Slurm calls it cancelled, which no person did."""
    sandbox = own_sandbox(3, site=("prolog-fails",))
    if not is_known_by_output(sandbox):
        pytest.skip("this Slurm leaves no trace of it")
    (sandbox.dir / "bad-n0").touch()
    drill = submit(sandbox)(FLAGS, wait_started=False)
    drill.wait_for(lambda: not drill.jobs(), 60, "the first job lives on")
    watch = watch_hurried(drill)
    try:
        drill.wait_event("attempt_started", timeout_s=120)
    finally:
        watch.terminate()
        watch.communicate(timeout=60)
    attempt = drill.state().attempts[0]
    assert attempt.job != drill.job and "n0" not in attempt.nodes, drill.story()
    stops(drill)


@long_only
def test_where_a_site_makes_the_time_limit_shorter_the_run_goes_on_in_the_next_job(
    own_sandbox: MakeSandbox, submit: Submitter
) -> None:
    drill = submit(own_sandbox(2, site=("time-limit",)))(f"{FLAGS} --handle-usr2")
    second = drill.wait_event("attempt_started", 2, timeout_s=150)
    assert second.data["job"] != drill.job and second.data["resume_step"] > 0, drill.story()
    assert drill.state().attempts[0].ended == "interrupted" and drill.state().restarts == 0, drill.story()
    stops(drill)


@long_only
@pytest.mark.parametrize("limit", ["MaxJobs=1", "GrpTRES=node=2"])
def test_where_a_user_may_run_one_job_only_the_next_one_waits_for_it(
    own_sandbox: MakeSandbox, submit: Submitter, limit: str
) -> None:
    sandbox = own_sandbox(3, accounting=True, conf={"AccountingStorageEnforce": "limits,qos"})
    sandbox.slurm(["sacctmgr", "-i", "modify", "user", "sl-alice", "set", limit])
    drill = submit(sandbox)(FLAGS, overrides=("kill_switch.grace=1s",))
    drill.wait_event("submitted", 2)
    drill.wait_step(15)
    drill.kill(drill.leader(), signal.SIGUSR2)   # the warning of the time limit
    second = drill.wait_event("attempt_started", 2, timeout_s=120)
    assert second.data["job"] != drill.job and drill.state().restarts == 0, drill.story()
    stops(drill)


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
def test_where_each_job_has_a_tmp_of_its_own_a_crash_is_restarted_and_the_standby_takes_over(
    own_sandbox: MakeSandbox, submit: Submitter
) -> None:
    if sites.is_chroot():
        pytest.skip("slurmstepd cannot join a job's mounts in a chroot")
    sandbox = own_sandbox(3, site=("tmp-per-job",))
    drill = submit(sandbox)(FLAGS, extra="spare_nodes: 1\n")
    assert not drill.local_dirs_files("leader.out"), "it lives in this machine's /tmp"
    wait_standby(drill)
    kill_a_rank(drill)
    drill.wait_event("attempt_started", 2)
    drill.wait_step(30, attempt=2)
    sandbox.crash(drill.events("job_started")[0].data["batch_host"])
    drill.wait_event("took_over", timeout_s=60)
    drill.wait_event("attempt_started", 3)
    drill.wait_step(60, attempt=3)
    stops(drill)


@long_only
def test_where_the_network_of_the_nodes_names_is_closed_the_standby_takes_over_by_another_one(
    own_sandbox: MakeSandbox, submit: Submitter
) -> None:
    sandbox = own_sandbox(3, netns=True, site=("two-networks",))
    drill = submit(sandbox)(FLAGS, extra="spare_nodes: 1\n")
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
    last = finish(drill)
    state = drill.wait_end()
    assert state.ended and state.ended.how == "completed", drill.story()
    assert drill.losses() == losses_until(last), drill.story()
    assert not drill.events("node_lost") and len(drill.events("job_started")) == 1, drill.story()
    said = (drill.run_dir / f"slurm-{drill.job}.out").read_text()
    # From 24.11 on a standby that comes after the relaunch waits without a word.
    assert "no step can run beside the training on this cluster" in said or not drill.events("standby_started"), said
    check_nothing_left(drill)


@long_only
def test_where_a_user_may_have_one_job_only_the_job_is_requeued(own_sandbox: MakeSandbox, submit: Submitter) -> None:
    sandbox = own_sandbox(2, accounting=True, conf={"AccountingStorageEnforce": "limits,qos", "JobRequeue": "0"})
    sandbox.slurm(["sacctmgr", "-i", "modify", "user", "sl-alice", "set", "MaxSubmitJobs=1"])
    drill = submit(sandbox)(FLAGS, overrides=("kill_switch.grace=1s",))
    kill_a_rank(drill)
    drill.wait_event("attempt_started", 2)
    drill.wait_step(60)
    drill.kill(drill.leader(), signal.SIGUSR2)   # the warning of the time limit
    drill.wait_event("via_chosen", timeout_s=200)
    assert drill.events("via_chosen")[-1].data["via"] == "requeue", drill.story()
    drill.wait_event("attempt_started", 3, timeout_s=200)
    assert [event.data["job"] for event in drill.events("job_started")] == [drill.job, drill.job]
    stops(drill)


def is_known_by_output(sandbox: Sandbox) -> bool:
    """Whether this Slurm writes of the batch host's failed Prolog (slurm.slurmwords.PROLOG_FAILED_FIRST)."""
    version = slurmwords.parse_version(sandbox.slurm(["sinfo", "--version"])) or ""
    return any(row.since <= version[:5] <= row.until for row in slurmwords.PROLOG_FAILED_FIRST)


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
