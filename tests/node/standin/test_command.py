"""The stubs as a script calls them: what the real command gets, with a fake one, and what the run goes on with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from safelaunch.script.io import standins
from safelaunch.slurm.sbatchoptions import LETTERS, OPTIONS

TEXT = "#!/bin/bash\nsrun python train.py\n"
FAKE = """#!/bin/bash
printf '%s\\0' "$@" >"$SAID"
cat <&0 >"$SAID.stdin"
env -0 >"$SAID.env"
echo "real ${0##*/}"
exit 3
"""


class Call(NamedTuple):
    """A command's end: what it printed, its code, and the words of the real one (None: it was not called)."""

    out: str
    code: int
    real: list[str] | None


class Script:
    """A folder as an attempt of job 7 has it; `call(word, …)` calls a command in it."""

    def __init__(self, folder: Path) -> None:
        self.here, self.bin, self.said = folder / "here", folder / "here" / "bin", folder / "said"
        self.file = folder / "job.slurm"
        for made in (self.here, folder / "real"):
            made.mkdir()
        for path in (self.here / "slurm_script", self.file):
            path.write_text(TEXT)
        (folder / "eval.slurm").write_text("#!/bin/bash\nsrun eval\n")
        for name in ("sbatch", "scontrol", "squeue", "scancel"):
            (folder / "real" / name).write_text(FAKE)
            (folder / "real" / name).chmod(0o755)
        self.folder = folder
        self.facts: dict[str, Any] = {
            "job": "7", "aliases": {}, "attempt": 1, "job_name": "train.a1b2c3d4",
            "shown": {"JobName": "train", "Command": str(self.file)}, "job_file": str(folder / "job.sbatch"),
            "script": str(self.file), "log": str(folder / "main.log"), "spool": str(self.here / "attempt-0001.log"),
            "link_env": {}, "options": {"nodes": "2"}, "text": "", "has_new_text": False, "added": ["WANDB_RUN_ID"],
            "takes": {name: option.takes for name, option in OPTIONS.items()}, "letters": LETTERS}
        standins.put(self.here, self.facts)
        self.root = subprocess.Popen(["sleep", "600"], env={"A": "1", "PATH": self.path, "SAID": str(self.said)})

    @property
    def path(self) -> str:
        return f"{self.bin}:{self.folder}/real:{os.environ['PATH']}"

    def call(self, *words: str, stdin: str = "", **env: str) -> Call:
        self.said.unlink(missing_ok=True)
        done = subprocess.run(words, cwd=self.folder, input=stdin, capture_output=True, text=True, env={
            "A": "1", "PATH": self.path, "SAID": str(self.said), "SLURM_JOB_ID": "7", "SAFELAUNCH_MARK": "r.7.1",
            "SAFELAUNCH_ROOT": str(self.root.pid), "WANDB_RUN_ID": "r", "SAFELAUNCH_STANDIN_DEBUG": "1", **env})
        assert not done.stderr, done.stderr
        real = self.said.read_text().split("\0")[:-1] if self.said.exists() else None
        return Call(done.stdout, done.returncode, real)

    def links(self) -> list[dict[str, Any]]:
        return standins.read_links(self.here, 1)

    def log(self) -> str:
        return (self.here / "attempt-0001.log").read_text()


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    made = Script(tmp_path)
    yield made
    made.root.kill()
    made.root.wait()


def is_alive(pid: int) -> bool:
    """Whether it runs; nobody may have reaped it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_batch_script_of_the_own_job_is_the_scripts_own_text(script: Script) -> None:
    (script.here / "slurm_script").write_text(TEXT)
    assert script.call("scontrol", "write", "batch_script", "7", "-") == Call(TEXT, 0, None)
    told = script.call("scontrol", "write", "batch_script", "7")
    assert told == Call("batch script for job 7 written to slurm-7.sh\n", 0, None)
    assert (script.folder / "slurm-7.sh").read_text() == TEXT
    assert script.call("scontrol", "write", "batch_script", "8", "-").real == ["write", "batch_script", "8", "-"]


def test_a_signal_for_the_batch_shell_is_the_scripts(script: Script) -> None:
    for words in ("-b -s USR1 7", "--batch --signal=USR1 7", "-bs 10 7", "--signal SIGUSR1 7 --bat"):
        text = f"trap 'echo caught' USR1; scancel {words}; echo end"
        told = script.call("bash", "-c", 'export SAFELAUNCH_ROOT=$$; bash -c "$1"; exit', "bash", text)
        assert told == Call("caught\nend\n", 0, None), words
    for words in ("-s USR1 7", "-b -s USR1 8", "-b 7"):
        assert script.call("scancel", *words.split()).real == words.split()


def test_a_job_that_gets_another_name_keeps_it_for_itself(script: Script) -> None:
    assert script.call("scontrol", "update", "jobid=7", "name=b") == Call("", 0, None)
    told = script.call("scontrol", "update", "job", "7", "JobName=c", "comment=d")
    assert told.real == ["update", "jobid=7", "comment=d"]
    assert json.loads((script.bin / "own.json").read_text())["shown"]["JobName"] == "c"
    assert script.call("scontrol", "update", "jobid=8", "name=b").real == ["update", "jobid=8", "name=b"]


def test_a_task_that_submits_the_script_again_makes_the_next_link(script: Script) -> None:
    assert script.call("sbatch", "job.slurm", SAFELAUNCH_STEP="yes").real is None
    assert [link["kind"] for link in script.links()] == ["sbatch"]


SELF: tuple[Callable[[Script], list[str]], ...] = (
    lambda script: ["sbatch", "job.slurm"],
    lambda script: ["sbatch", str(script.file)],
    lambda script: ["sbatch", str(script.here / "slurm_script")],
    lambda script: ["sbatch", "/var/spool/slurmd/job7/slurm_script"],
    lambda script: ["sbatch", str(script.folder / "job.sbatch")],
    lambda script: ["bash", "-c", 'ME=job.slurm; $(command -v sbatch) "$ME"'],
    lambda script: [sys.executable, "-c", "import subprocess; subprocess.run(['sbatch', 'job.slurm'], check=True)"],
    lambda script: ["sbatch", "--wrap", "bash job.slurm"],
    lambda script: ["bash", "-c", "sbatch <job.slurm"],
    lambda script: ["bash", "-c", "cp job.slurm copy.slurm; sbatch copy.slurm"],
)


@pytest.mark.parametrize("number", range(len(SELF)))
def test_a_script_that_submits_itself_is_the_next_link_and_no_job(script: Script, number: int) -> None:
    told = script.call(*SELF[number](script))

    (link,) = script.links()
    assert told == Call(f"Submitted batch job {link['id']}\n", 0, None)
    assert (link["kind"], link["when"], link["args"]) == ("sbatch", "any", [])
    assert set(link["env"]) <= {"LC_CTYPE"}   # set by a Python of the user's (PEP 538)
    assert "job.slurm goes on as the next link of this run" in script.log()


def test_a_link_has_the_arguments_variables_and_names_that_its_sbatch_gave(script: Script) -> None:
    told = script.call("bash", "-c", "export B=2; sbatch --parsable -J part2 -dafterok:7 --time=9 --export=ALL,C=3 "
                                     "job.slurm 2 'a b'")

    (link,) = script.links()
    assert told.out == f"{link['id']}\n"
    assert (link["when"], link["args"], link["options"]) == ("ok", ["2", "a b"], {"job-name": "part2"})
    assert link["env"] == {"B": "2", "C": "3"}
    assert "--time=9 is not followed" in script.log()


def test_a_script_that_was_changed_goes_on_with_its_new_text(script: Script) -> None:
    script.file.write_text(TEXT.replace("train", "train2"))
    script.call("sbatch", "job.slurm")
    assert script.links()[0]["text"] == TEXT.replace("train", "train2")


def test_the_same_link_twice_is_one_and_it_can_be_taken_back(script: Script) -> None:
    first, second = (script.call("sbatch", "--parsable", "job.slurm").out.strip() for _ in range(2))
    assert first == second and len(script.links()) == 1 and script.log().count("next link") == 1

    assert script.call("scancel", first) == Call("", 0, None)
    assert script.links() == []


@pytest.mark.parametrize("words", [
    ["eval.slurm"], ["--wrap", "hostname"], ["--container-image=x", "job.slurm"], ["--array=0-3", "job.slurm"],
    ["--begin=now+1day", "job.slurm"], ["-d", "afterok:8", "job.slurm"], ["--test-only", "job.slurm"], ["absent.slurm"],
], ids=str)
def test_another_job_goes_to_slurm_without_what_is_this_runs(script: Script, words: list[str]) -> None:
    assert script.call("sbatch", *words, SAFELAUNCH_STEP="") == Call("real sbatch\n", 3, words)

    env = dict(word.partition("=")[::2] for word in Path(f"{script.said}.env").read_text().split("\0") if word)
    assert not [name for name in env if name.startswith(("SAFELAUNCH", "WANDB"))] and env["A"] == "1"
    assert str(script.bin) not in env["PATH"].split(":") and not script.links()


def test_a_question_is_no_submission(script: Script) -> None:
    assert script.call("sbatch", "--version").real == ["--version"]
    assert not (script.here / "attempt-0001.log").exists()


def test_what_another_job_has_on_stdin_is_not_lost(script: Script) -> None:
    assert script.call("sbatch", "-N1", stdin="#!/bin/sh\nhostname\n").real == ["-N1"]
    assert Path(f"{script.said}.stdin").read_text() == "#!/bin/sh\nhostname\n"


def test_in_another_job_and_without_facts_each_command_is_the_real_one(script: Script) -> None:
    for name in ("sbatch", "scontrol", "squeue", "scancel"):
        assert script.call(name, "7", SLURM_JOB_ID="8") == Call(f"real {name}\n", 3, ["7"])
    assert script.call("scontrol", "show", "job", "7", SAFELAUNCH_STEP="yes").real == ["show", "job", "7"]
    (script.bin / "own.json").write_text("{")
    for name in ("sbatch", "scontrol", "squeue", "scancel"):
        done = subprocess.run([name, "x"], capture_output=True, text=True, check=False,
                              env={"PATH": script.path, "SAID": str(script.said)})
        assert (done.stdout, done.stderr, done.returncode) == (f"real {name}\n", "", 3)


def test_scontrol_requeue_ends_the_script_and_is_a_link(script: Script) -> None:
    ended = subprocess.Popen(["bash", "-c", "bash -c 'sleep 600 & echo $!; wait'; exit $?"], stdout=subprocess.PIPE,
                             text=True)
    assert ended.stdout is not None
    child = int(ended.stdout.readline())

    assert script.call("scontrol", "requeue", "7", SAFELAUNCH_ROOT=str(ended.pid)) == Call("", 0, None)

    assert ended.wait(60) == 128 + 15 and not is_alive(child)
    assert [link["kind"] for link in script.links()] == ["requeue"]
    ended.stdout.close()


def test_the_log_is_whole_before_a_script_is_told_its_name(script: Script) -> None:
    (script.here / "attempt-0001.log").write_text("line\n")
    pump = subprocess.Popen(["bash", "-c", f"sleep 0.2; cp {script.here}/attempt-0001.log {script.folder}/main.log"])
    script.call("scontrol", "show", "job", "7")
    assert (script.folder / "main.log").read_text() == "line\n"
    pump.wait()


def test_facts_are_written_anew_for_each_attempt(script: Script) -> None:
    standins.put(script.here, {**script.facts, "job": "9"})
    assert json.loads((script.bin / "own.json").read_text())["job"] == "9"


def test_what_is_about_no_job_is_the_real_commands_without_a_look_at_the_attempt(script: Script) -> None:
    (script.bin / "own.json").unlink()   # a look would tell that on stderr
    assert script.call("scontrol", "show", "hostnames", "n[1-2]").real == ["show", "hostnames", "n[1-2]"]
