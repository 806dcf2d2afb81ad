"""What stands for `srun` in a user's own script: the arguments that the real srun gets, with a fake one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import safelaunch
from tests.pure.script.test_script import MINIMAL, plan_of, rendered

LIBRARY = Path(safelaunch.__file__).parent
SECRETS = {"SAFELAUNCH_GUARD": "text", "SAFELAUNCH_TOKEN": "t0ken", "SAFELAUNCH_CONTROL": ":1"}

Srun = Callable[..., list[str]]


@pytest.fixture
def srun(tmp_path: Path) -> Iterator[Srun]:
    """`srun(word, …, NAME=value)`: the words that the real srun would get, those of the node's shell as "GUARD"."""
    (tmp_path / "bin").mkdir()
    wrapper, real, said = tmp_path / "bin" / "srun", tmp_path / "real-srun", tmp_path / "said"
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "safelaunch").symlink_to(LIBRARY)
    program = tmp_path / "job.sbatch"
    plan = plan_of(MINIMAL)
    program.write_text(rendered(plan._replace(run_dir=str(tmp_path), launch=plan.launch._replace(by="script"),
                                          srun=plan.srun._replace(wait_s=None, kill_on_bad_exit=None))))
    program.chmod(0o755)
    wrapper.symlink_to(program)
    real.write_text('#!/bin/bash\nprintf "%s\\0" "token=${SAFELAUNCH_TOKEN-}" "bare=${SAFELAUNCH_BARE-}" "$@" '
                    f'>"{said}"; printf %s "${{SAFELAUNCH_PWD-}}" >"{said}.pwd"\n')
    real.chmod(0o755)
    root = subprocess.Popen(["sleep", "600"], env={**os.environ, **SECRETS})

    def run(*words: str, stdout: Path | None = None, stderr: Path | None = None, **env: str) -> list[str]:
        log = tmp_path / "attempt-0001.log"
        with (stdout or log).open("a") as out, (stderr or log).open("a") as errors:
            subprocess.run(["bash", str(wrapper), *words], check=True, stdout=out, stderr=errors, env={
                "PATH": os.environ["PATH"], "SAFELAUNCH_SRUN": str(real), "SAFELAUNCH_WRAPPER": str(wrapper),
                "SAFELAUNCH_ROOT": str(root.pid), "SAFELAUNCH_ATTEMPT": "1",
                "SAFELAUNCH_MARK": "r.7.1", "SLURM_JOB_ID": "7", **env})
        told = said.read_text().split("\0")[:-1]
        if "safelaunch-node" in told:
            end = told.index("safelaunch-node")
            told[end - 3:end + 1] = ["GUARD"]
        return told

    yield run
    root.kill()
    root.wait()


@pytest.mark.parametrize(("words", "command_at"), [
    (["python", "train.py", "--nodes", "2"], 0),
    (["-N", "2", "-n4", "python", "x"], 3),
    (["-lN2", "--ntasks", "4", "python", "x"], 3),
    (["--ntasks-per-n", "4", "-c8", "bash", "-c", "a b"], 3),
    (["-K1", "-u", "--mpi=none", "--cpu-bind", "none", "hostname"], 5),
    (["--unbuffered", "--", "hostname"], 2),
    (["--jobid", "7", "hostname"], 2),   # the script's own job
    (["-ul", "-Jname", "-p", "gpu", "hostname"], 4),
], ids=str)
def test_the_guard_stands_before_the_command_and_nothing_is_added_to_the_users_options(
        srun: Srun, words: list[str], command_at: int) -> None:
    told = srun(*words)

    assert told[0] == "token=t0ken"
    guard = told.index("GUARD")
    assert told[guard + 1:] == words[command_at:]
    options = [word for word in words[:command_at] if word != "--"]
    assert "".join(told[2:guard]).replace("=", "") == "".join(options).replace("=", "")


@pytest.mark.parametrize("words", [
    ["--pty", "bash"], ["--version"], ["-V"], ["--jobid=8", "hostname"], ["--option-of-a-plugin", "x", "hostname"],
    ["-N1"], ["-n1", "a", ":", "-n1", "b"], ["--nt", "4", "hostname"]],   # an abbreviation of many
    ids=str)
def test_what_cannot_be_guarded_runs_as_it_is(srun: Srun, words: list[str]) -> None:
    assert srun(*words)[2:] == words


def test_within_a_step_and_without_a_supervisor_srun_is_the_plain_one(srun: Srun) -> None:
    assert srun("hostname", SAFELAUNCH_STEP="yes")[2:] == ["hostname"]
    assert srun("hostname", SAFELAUNCH_ROOT="")[2:] == ["hostname"]
    assert srun("hostname", SLURM_JOB_ID="8")[2:] == ["hostname"]   # a job that the script has submitted
    assert srun("hostname", SAFELAUNCH_ROOT="999999999")[2:] == ["hostname"]   # its guard has gone


def test_nodes_that_an_attempt_leaves_out_are_added_to_those_of_the_user(srun: Srun) -> None:
    assert srun("hostname", SAFELAUNCH_EXCLUDE="n[3-4]")[2:] == ["--exclude=n[3-4]", "GUARD", "hostname"]
    for words in (["-x", "n1"], ["-xn1"], ["--exclude=n1"], ["--exclude", "n1"]):
        assert srun(*words, "hostname", SAFELAUNCH_EXCLUDE="n3")[2:] == ["--exclude=n1,n3", "GUARD", "hostname"], words


def test_later_attempts_overlap_unless_the_user_divides_the_job_himself(srun: Srun) -> None:
    assert srun("hostname", SAFELAUNCH_ATTEMPT="2")[2] == "--overlap"
    for words in (["--exact"], ["--exclusive"]):
        assert "--overlap" not in srun(*words, "hostname", SAFELAUNCH_ATTEMPT="2")
    assert "--overlap" not in srun("hostname", SAFELAUNCH_ATTEMPT="2", SAFELAUNCH_OVERLAP="no")
    for words in (["--exact"], ["--exclusive"], ["-n1", "--exclusive"]):   # beside the step of a node that has died
        told = srun(*words, "hostname", SAFELAUNCH_ATTEMPT="2", SAFELAUNCH_OVERLAP="force")
        assert told[2] == "--overlap" and "--exact" in told and "--exclusive" not in told


def test_options_that_srun_reads_from_variables_count_as_those_of_its_command_line(srun: Srun) -> None:
    assert srun("hostname", SRUN_EXPORT_ENV="PATH,B")[2].startswith("--export=PATH,B,SAFELAUNCH_MARK,")
    assert srun("hostname", SRUN_EXPORT_ENV="ALL", SLURM_EXPORT_ENV="NONE")[2] == "--export=ALL"
    assert srun("--export=ALL", "hostname", SLURM_EXPORT_ENV="NONE")[3] == "--export=ALL"   # the last one counts
    assert srun("hostname", SLURM_LABELIO="1")[1] == "bare=yes"
    assert srun("hostname", SLURM_STDOUTMODE="x.log")[1] == "bare=yes"
    assert "--overlap" not in srun("hostname", SAFELAUNCH_ATTEMPT="2", SLURM_EXACT="1")


def test_lines_are_prefixed_only_where_they_go_to_the_attempts_log(srun: Srun, tmp_path: Path) -> None:
    assert srun("hostname")[1] == "bare="
    assert srun("hostname", stdout=tmp_path / "captured")[1] == "bare=yes"
    assert srun("hostname", stderr=tmp_path / "errors")[1] == "bare=yes", "its lines would come to the log"
    assert srun("-l", "hostname")[1] == "bare=yes"
    assert srun("-o", "x.log", "hostname")[1] == "bare=yes"


def test_an_environment_that_the_user_cuts_down_still_carries_the_mark_by_name_only(srun: Srun) -> None:
    for words, start in ((["--export=NONE"], "--export=SAFELAUNCH_MARK,"), (["--export=A=1,B"], "--export=A=1,B,")):
        told = srun(*words, "hostname")[2]
        assert told.startswith(start) and "SAFELAUNCH_MARK" in told and "t0ken" not in told
    assert srun("--export=ALL,A=1", "hostname")[2] == "--export=ALL,A=1"


@pytest.mark.parametrize(("options", "expected"), [
    ((), "/as/told"), (("--chdir=/tmp",), "/as/told"), (("--export=ALL,A=1",), "/as/told"), (("--export=NONE",), ""),
    (("--export=A=1",), ""), (("--export=A=1,PWD",), "/as/told"), (("--export=PWD=/x,A",), "/x"),
], ids=str)
def test_tasks_get_the_pwd_that_srun_passes_on_and_not_that_of_our_shells(
    srun: Srun, tmp_path: Path, options: tuple[str, ...], expected: str
) -> None:
    srun(*options, "hostname", PWD="/as/told")
    assert (tmp_path / "said.pwd").read_text() == expected


def test_the_fence_is_told_of_each_srun_whether_its_tasks_have_guards(srun: Srun, tmp_path: Path) -> None:
    notes, first = tmp_path / "attempt-0001.sruns", f"{tmp_path}/bin:{os.environ['PATH']}"
    srun("hostname", PATH=first)
    assert not notes.exists()   # no supervisor reads it
    notes.touch()

    srun("hostname", PATH=first)
    srun("--pty", "bash", PATH=first)
    srun("hostname", PATH=first, SAFELAUNCH_STEP="yes")
    srun("hostname")   # PATH was set anew, and a function has called it
    srun("hostname", PATH=first, SLURM_JOB_ID="8")   # another job's

    assert notes.read_text().split() == ["guarded", "plain", "plain", "guarded"]


def test_a_script_that_reads_its_own_log_finds_the_last_line_of_its_srun(srun: Srun, tmp_path: Path) -> None:
    spool, log = tmp_path / "attempt-0001.log", tmp_path / "attempts" / "0001" / "main.log"
    log.parent.mkdir(parents=True)
    spool.write_text("training done\n")
    waits = f"until [ -e {tmp_path}/go ]; do sleep 0.02; done; sleep 0.2"
    pump = subprocess.Popen(["bash", "-c", f"{waits}; cp {spool} {log}"])

    assert srun("hostname")[-1] == "hostname" and not log.exists()   # others do not wait
    (tmp_path / "go").touch()
    assert srun("hostname", SAFELAUNCH_OWN_LOG="yes")[-1] == "hostname"
    assert log.read_text() == "training done\n"
    pump.wait()
