"""The script on a real Slurm by hand, `sbatch job.sbatch`, where no supervisor can run: it still trains."""

from __future__ import annotations

import os
import re
import secrets
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import safelaunch
from safelaunch.launch.settings import PreservePlan
from safelaunch.sandbox.cluster import Sandbox
from safelaunch.script.script import render
from tests.pure.script.test_script import TEMPLATE, plan_of
from tests.runs import Installation, Submit
from tests.sandboxes import wait_until
from tests.torchbin import needs_torch
from tests.trainers.stepping import losses_until

YAML = "name: byhand\ncluster: slurm\nrun_dir: {run_dir}\ncommand: 'true'\n"
PYTHON = "/usr/bin/python3"
LIBRARY = str(Path(safelaunch.__file__).parent)


@dataclass
class ByHand:
    """A job of sl-alice from a rendered script."""

    sandbox: Sandbox
    run_dir: Path
    job: str

    @property
    def said(self) -> str:
        """The job's own output so far."""
        file = self.run_dir / f"slurm-{self.job}.out"
        return file.read_text(errors="replace") if file.exists() else ""

    def show(self) -> str:
        """The job as slurmctld has it."""
        return self.sandbox.slurm(["scontrol", "-o", "show", "job", self.job])

    def wait_said(self, text: str) -> None:
        """Return when the output holds this text."""
        wait_until(lambda: text in self.said, 120, f"{text!r} was not said:\n{self.said}")

    def wait_code(self) -> int:
        """The job's exit code, once it has ended; negative: the signal that killed its script."""
        found = None

        def has_ended() -> bool:
            nonlocal found
            found = re.search(r"JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT)\b.* ExitCode=(\d+):(\d+)", self.show())
            return found is not None

        wait_until(has_ended, 180, f"the job did not end:\n{self.said}", every_s=0.05)
        assert found is not None
        return -int(found[3]) if found[3] != "0" else int(found[2])


ByHandSubmit = Callable[..., ByHand]


@pytest.fixture
def by_hand(sandbox: Sandbox, workdir: Path) -> ByHandSubmit:
    """Submits the script of a plan as sl-alice types it; by default its supervisor's Python is nowhere."""

    def submit(command: str, yaml: str = "", *, python: str = "/nowhere/python", library: tuple[str, ...] = (),
               options: tuple[str, ...] = (), env: dict[str, str] | None = None, template: dict[str, str] = TEMPLATE,
               **changes: Any) -> ByHand:
        run_dir = workdir / "run"
        (run_dir / "control").mkdir(parents=True, exist_ok=True)
        for folder in (run_dir, run_dir / "control"):
            folder.chmod(0o777)
        # Its own id: job ids of sandboxes side by side can meet, and node-local folders are named by both.
        plan = plan_of(YAML.format(run_dir=run_dir) + yaml)._replace(run_id=secrets.token_hex(4))
        plan = plan._replace(command=command, **changes)
        script = run_dir / "job.sbatch"
        script.write_text(render(template, plan, python=python, library=library or (str(workdir),)))
        said = sandbox.run(["sbatch", "--parsable", *options, str(script)], cwd=workdir, env=env)
        assert said.returncode == 0, said.stderr
        return ByHand(sandbox, run_dir, said.stdout.strip())

    return submit


UNABLE = {
    "its Python is nowhere": ({"library": (LIBRARY,)}, "the supervisor ended with code 127"),
    "its packages are gone": ({"python": PYTHON, "library": ("/nowhere/safelaunch",)}, "/nowhere/safelaunch"),
    "its packages are broken": ({"python": PYTHON}, "no supervisor in "),
    "no local folder": ({"env": {"SAFELAUNCH_LOCAL_DIR": "/proc"}}, "no folder of its own under /proc"),
}


@pytest.mark.parametrize(("how", "why"), UNABLE.values(), ids=UNABLE.keys())
def test_without_a_supervisor_the_training_runs_and_its_exit_code_is_the_jobs(
    by_hand: ByHandSubmit, how: dict[str, Any], why: str
) -> None:
    # The bad exit ends the other task: let that one have its say first.
    command = ("echo trained $SLURM_PROCID; touch said.$SLURM_PROCID; "
               "until [[ -e said.0 ]]; do sleep 0.1; done; sleep $SLURM_PROCID; exit $((SLURM_PROCID * 7))")
    job = by_hand(command, "slurm: {nodes: 2}\n", **how)
    assert job.wait_code() == 7
    assert "[n0:0]:trained 0\n" in job.said
    assert "[n1:1]:trained 1\n" in job.said
    assert re.search(rf"training without one \(.*{re.escape(why)}", job.said), job.said
    assert "srun: error: n1: task 1: Exited with exit code 7" in job.said
    assert "the training has ended with exit code 7" in job.said
    assert not list(Path("/tmp").glob(f"safelaunch-*/*-{job.job}-n0")), "nothing is left on the node"


RESUME = "printf '<%s>' \"${RESUME_ARGS[@]}\"; echo"


def test_without_a_supervisor_it_resumes_where_an_earlier_jobs_supervisor_would_have(
    by_hand: ByHandSubmit, workdir: Path
) -> None:
    (workdir / "run").mkdir()
    (workdir / "run" / "resume.args").write_bytes("--load\0/ckpt/it's a $(blank)/é\n1\0\0".encode() + b"\xff\0")
    job = by_hand(RESUME)
    assert job.wait_code() == 0
    said = (job.run_dir / f"slurm-{job.job}.out").read_bytes()
    assert b"]:<--load></ckpt/it's a $(blank)/\xc3\xa9\n" in said
    assert b"]:1><><\xff>\n" in said


@pytest.mark.parametrize("content", [None, b""], ids=["no file", "an empty file"])
def test_without_a_supervisor_and_a_checkpoint_it_starts_with_no_argument(
    by_hand: ByHandSubmit, workdir: Path, content: bytes | None
) -> None:
    (workdir / "run").mkdir()
    if content is not None:
        (workdir / "run" / "resume.args").write_bytes(content)
    job = by_hand("echo ${#RESUME_ARGS[@]} arguments")
    assert job.wait_code() == 0
    assert "]:0 arguments" in job.said and "it resumes with" not in job.said


def test_a_run_folder_that_does_not_answer_does_not_hold_the_plain_training(
    by_hand: ByHandSubmit, workdir: Path
) -> None:
    (workdir / "run").mkdir()
    os.mkfifo(workdir / "run" / "resume.args", 0o666)   # opening it waits for ever, as on a frozen folder
    job = by_hand("echo ${#RESUME_ARGS[@]} arguments", template={
        name: text.replace("SL_PATIENCE_S=60", "SL_PATIENCE_S=1") for name, text in TEMPLATE.items()})
    assert job.wait_code() == 0
    assert "]:0 arguments" in job.said


def test_a_later_job_without_a_supervisor_goes_on_from_the_last_checkpoint(
    sandbox: Sandbox, submit: Callable[[Sandbox], Submit]
) -> None:
    drill = submit(sandbox)("--steps 15 --die-at 12 --die-attempt 1 --exit-code 3", nodes=1, tasks=1,
                            overrides=("restart.max_restarts=0",))
    drill.wait_end()
    assert max(drill.steps()) == 11

    words = ["sbatch", "--wait", "--parsable", "--export=ALL,SAFELAUNCH_LOCAL_DIR=/proc"]
    done = sandbox.run([*words, str(drill.run_dir / "job.sbatch")], cwd=drill.folder)
    said = (drill.run_dir / f"slurm-{done.stdout.strip()}.out").read_text()
    assert "no supervisor can run on this node" in said
    # It dies at step 12 again: to this trainer every job without a supervisor is a first attempt.
    assert re.findall(r"step (\d+) loss (\S+)", said) == [("11", losses_until(11)[11])]


def test_a_failed_site_is_kept_until_it_is_released(by_hand: ByHandSubmit, sandbox: Sandbox) -> None:
    job = by_hand("exit 3", preserve=PreservePlan(10_000, ("unknown",), "all"))
    job.wait_said("give back: touch")
    assert f"srun --overlap --jobid={job.job} --nodelist=NODE --pty bash" in job.said
    assert "JobState=RUNNING" in job.show()
    assert sandbox.run(["touch", str(job.run_dir / "control" / "release")]).returncode == 0
    assert job.wait_code() == 3


def test_a_training_that_ends_well_keeps_no_site(by_hand: ByHandSubmit) -> None:
    assert by_hand("true", preserve=PreservePlan(10_000, ("unknown",), "all")).wait_code() == 0


@pytest.mark.parametrize("name", ["kill", "kill-now"])
def test_a_kill_switch_that_was_touched_before_starts_nothing(by_hand: ByHandSubmit, workdir: Path, name: str) -> None:
    (workdir / "run" / "control").mkdir(parents=True)
    (workdir / "run" / "control" / name).touch()
    job = by_hand("echo trained")
    assert job.wait_code() == 12
    assert "nothing is started" in job.said
    assert "trained" not in job.said


def test_a_rank_that_is_killed_ends_the_job_with_128_and_the_signal(by_hand: ByHandSubmit) -> None:
    assert by_hand("kill -KILL $$").wait_code() == 137


def test_a_training_that_answers_term_ends_the_job_with_its_own_exit_code(
    by_hand: ByHandSubmit, sandbox: Sandbox
) -> None:
    job = by_hand("trap 'for n in 1 2 3; do sleep 0.2; echo saved $n; done; exit 0' TERM; echo up; "
                  "for n in {1..600}; do sleep 0.1; done")
    job.wait_said("[n0:0]:up")
    assert sandbox.run(["scancel", "--signal=TERM", f"{job.job}.0"]).returncode == 0
    assert job.wait_code() == 0
    assert re.findall("saved (.)", job.said) == ["1", "2", "3"]


def test_a_background_process_does_not_keep_the_job(by_hand: ByHandSubmit) -> None:
    """One that held the output would, under proctrack/linuxproc, keep a plain srun as well (tried)."""
    assert by_hand("sleep 1000 >/dev/null 2>&1 & exit 4").wait_code() == 4


def test_the_warning_before_the_time_limit_does_not_end_the_training(by_hand: ByHandSubmit, sandbox: Sandbox) -> None:
    job = by_hand("echo up; while [[ ! -e done ]]; do sleep 0.1; done; exit 9")
    job.wait_said("up")
    assert sandbox.run(["scancel", "--batch", "--signal=USR2", job.job]).returncode == 0
    (job.run_dir.parent / "done").touch()
    assert job.wait_code() == 9


def test_srun_starts_one_task_for_each_gpu_with_torchs_variables(by_hand: ByHandSubmit) -> None:
    job = by_hand("echo rank $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $(hostname -s) $MASTER_ADDR:$MASTER_PORT",
                  "slurm: {nodes: 2, gpus_per_node: 2, cpus_per_task: 1}\n")
    assert job.wait_code() == 0
    said = sorted(re.findall(r"\[(n\d:\d)\]:rank (\S+ \S+ \S+) (\S+):(\d+)", job.said))
    assert [line[:2] for line in said] == [
        (f"n{rank // 2}:{rank}", f"{rank}/4 {rank % 2}/2 n{rank // 2}") for rank in range(4)]
    assert len({line[2:] for line in said}) == 1, "one address for all"


def test_under_export_none_the_training_still_finds_its_path(by_hand: ByHandSubmit) -> None:
    job = by_hand("echo path $PATH; env | grep -c ^SLURM_EXPORT_ENV", options=("--export=NONE",))
    assert job.wait_code() == 1, "grep finds no SLURM_EXPORT_ENV"
    assert re.search(r"path .*/usr/bin", job.said)


def test_the_steps_tasks_get_the_cpus_that_were_asked_for(by_hand: ByHandSubmit) -> None:
    job = by_hand("scontrol show step $SLURM_JOB_ID.$SLURM_STEP_ID", "slurm: {nodes: 1, cpus_per_task: 3}\n")
    assert job.wait_code() == 0
    assert re.search(r"CPUs=3 ", job.said), job.said


def test_an_attempt_on_fewer_nodes_than_the_job_has_counts_its_own(by_hand: ByHandSubmit) -> None:
    job = by_hand("echo $SLURM_NNODES $SLURM_NODEID $SLURM_NTASKS", options=("--nodes=3",))
    assert job.wait_code() == 0
    assert re.findall(r"\]:(.*)", job.said) == ["1 0 1"]


def test_the_training_has_the_submitters_umask_and_folder(by_hand: ByHandSubmit, workdir: Path) -> None:
    job = by_hand("umask; pwd")
    assert job.wait_code() == 0
    assert re.findall(r"\]:(.*)", job.said) == ["0022", str(workdir)]


@pytest.mark.torch
@needs_torch
def test_torchrun_names_host_and_rank_on_every_line_and_each_node_its_own(
    by_hand: ByHandSubmit, workdir: Path, installation: Installation
) -> None:
    bin_dir = workdir / "bin"   # where the venv lies in a closed folder, the installation is its way in
    bin_dir.mkdir()
    torchrun = bin_dir / "torchrun"
    torchrun.write_text(f'#!/bin/bash\nexec {shlex.quote(str(installation.python))} -m torch.distributed.run "$@"\n')
    torchrun.chmod(0o755)
    job = by_hand("echo out $RANK/$WORLD_SIZE; echo err $RANK >&2; touch said.$RANK\n"
                  "if ((RANK < 3)); then exec sleep 600; fi\n"
                  "until [[ -e said.0 && -e said.1 && -e said.2 ]]; do sleep 0.1; done; sleep 1; exit 5",
                  "slurm: {nodes: 2}\nlaunch: {with: torchrun, nproc_per_node: 2}\n",
                  setup=f"export OMP_NUM_THREADS=1 PATH={shlex.quote(str(bin_dir))}:$PATH")
    assert job.wait_code() in (1, 143), "torchrun's own code for a failed rank, or for the TERM that followed"
    for rank in range(4):
        prefix = rf"\[n{rank // 2}:{rank % 2}\]:"   # torchrun prints the local rank
        assert re.search(rf"^{prefix}out {rank}/4$", job.said, re.MULTILINE), job.said
        assert re.search(rf"^{prefix}err {rank}$", job.said, re.MULTILINE), job.said
