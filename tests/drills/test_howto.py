"""The commands of docs/howto.md, typed on the local cluster while there is something to see, to hold and to end."""

from __future__ import annotations

import os
import shlex
from functools import partial
from pathlib import Path

import pytest

from safelaunch.cli import run as type_here
from safelaunch.verbs.common.runs import newest_below
from tests.localruns import LocalRun, type_safelaunch, write_yaml
from tests.test_commands_shown import ROOT, shown

# Command → a word that it says, in the order of typing. RUN is the newest run: the first one fails once and goes on.
TYPED = {
    "submit train.yaml": "Submitted batch job",
    "status RUN": "running",
    "why RUN": "too many values to unpack",
    "events RUN": "attempt 2 starts on local0 from step 5",
    "logs RUN --first-error": "ValueError: too many values to unpack",
    "policy RUN": "user_code",
    "why RUN --ticket": "Subject: ",
    "nodes": "no node is excluded",
    "nodes suspect n7 --why 'ECC errors, ticket 1234'": "n7 is excluded",
    "nodes clear n7 --why 'board replaced'": "n7 is cleared",
    "stacks RUN": "1 of 1 nodes answered",
    "shell RUN NODE": "exit",
    "hold RUN": "is on hold",
    "resume RUN": "goes on",
    "doctor": "caution",
    "check --site FOLDER": "fit for run folders",
    "notify --test train.yaml": "sent",
    "stop --checkpoint RUN": "",
    "submit --debug nccl train.yaml": "Submitted batch job",
    "stop RUN": "",
    "submit train.yaml again": "Submitted batch job",
    "stop --now RUN": "",
}
# Not here, and why; the tests that type them.
ELSEWHERE = {
    "nodes bench n 1-48": ("needs nodes of a Slurm", "drills/test_nodebench.py"),
    "nodes bench": ("needs nodes of a Slurm", "drills/test_nodebench.py"),
    "nodes check --level isolate n3": ("needs a node of a Slurm", "drills/test_nodechecks.py"),
    "attach JOBID": ("needs a job of sbatch", "drills/test_attach.py"),
    "why JOBID": ("needs a job of sbatch", "drills/test_why.py"),
    "stacks JOBID": ("needs a job of sbatch", "drills/test_stacks.py"),
    "watch --once": ("asks Slurm", "drills/test_watch.py"),
    "watch": ("ends by a signal only", "drills/test_watch.py"),
    "change RUN time=2-00:00:00 partition=long": ("is typed there", "verbs/test_change.py"),
    "checkpoints RUN": ("is typed there", "verbs/test_init.py"),
    "clean": ("is typed there", "verbs/test_clean.py"),
    "clean --yes": ("is typed there", "verbs/test_clean.py"),
    "completion": ("is typed there", "verbs/test_completion.py"),
    "help WORDS": ("is typed there", "verbs/test_help.py"),
    "logs RUN": ("is typed there", "verbs/test_logs.py"),
    "logs RUN -f": ("is typed there", "verbs/test_logs.py"),
    "progress LOG": ("is typed there", "verbs/test_progress.py"),
    "report RUN": ("is typed there", "verbs/test_report.py"),
    "restart RUN": ("is typed there", "drills/test_restart.py"),
    "save RUN": ("needs a training that listens", "test_callbacks.py"),
    "stacks RUN --gpus": ("is typed there", "verbs/test_stacks.py"),
    "status --all": ("is typed there", "verbs/test_status.py"),
    "submit --here train.yaml": ("is typed there", "verbs/test_secrets.py"),
    "submit train.yaml resume.dir=ckpt2": ("is typed there", "verbs/test_samefolder.py"),
    "submit train.yaml resume.step=4000": ("is typed there", "drills/test_restart.py"),
    "wait RUN": ("is typed there", "verbs/test_wait.py"),
    "why RUN --attempt N": ("is typed there", "verbs/test_why.py"),
}
NAMED = {"stop", "submit"}   # as verbs, within a sentence


def makes_steps(run: LocalRun, attempt: int) -> bool:
    return " loss " in run.log(attempt)


def test_every_command_of_the_page_is_typed_here_or_elsewhere() -> None:
    page = {shlex.join(words) for place, words in shown() if place.startswith("docs/howto.md:")}
    assert page == {*TYPED, *ELSEWHERE, *NAMED} - {"submit train.yaml again"}
    for command, (_, name) in ELSEWHERE.items():
        verb = command.split()[0]
        assert f'"{verb}"' in (ROOT / "tests" / name).read_text(), f"{name} types no {verb}"


@pytest.fixture
def here(tmp_path: Path, local_env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a train.yaml, on a machine that seems to have no Slurm."""
    for key in set(os.environ) - set(local_env):
        monkeypatch.delenv(key)
    for key, value in local_env.items():
        monkeypatch.setenv(key, value)
    monkeypatch.chdir(tmp_path)
    write_yaml(tmp_path, "--steps 100000 --step-time 0.02 --save-every 5 --die-at 8 --raise --handle-usr2")
    with (tmp_path / "train.yaml").open("a") as file:
        file.write("notify: {command: [/bin/true]}\n")
    return tmp_path


def test_they_do_what_the_page_says(
    here: Path, local_env: dict[str, str], local_runs: list[LocalRun], capfd: pytest.CaptureFixture[str]
) -> None:
    for command, word in TYPED.items():
        known = {"NODE": "local0", "FOLDER": str(here), "RUN": str(local_runs[-1].run_dir) if local_runs else ""}
        words = [known.get(one, one) for one in shlex.split(command.removesuffix(" again"))]
        if words[0] == "shell":   # it becomes one
            done = type_safelaunch(words, here, local_env)
            code, said = done.returncode, done.stdout + done.stderr
        else:
            code, said = type_here(words), "".join(capfd.readouterr())
        print(command, code, said)
        assert code == 0 and word in said, f"{command}: {code}: {said}"
        if words[0] == "submit":
            newest = newest_below(here)
            assert newest is not None
            local_runs.append(LocalRun(here, newest, local_env))
            attempt = 1 if local_runs[1:] else 2
            local_runs[-1].wait_for(partial(makes_steps, local_runs[-1], attempt), 60, "no step was made")
        if words[0] == "stop":
            assert local_runs[-1].wait_end().how == "stopped"
