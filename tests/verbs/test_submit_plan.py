"""submit on a terminal: a plan and a question. In a script: neither, and Slurm is asked nothing more."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import click
import pytest

from safelaunch.config.io.configfiles import read_config
from safelaunch.run.io.clustername import ClusterName
from safelaunch.run.io.provenance import GitFacts
from safelaunch.verbs.submit import submitplan, submitting
from tests import deadlines
from tests.handmade import fake_command

SAFELAUNCH = [sys.executable, deadlines.__file__]
START = "sbatch: Job 14001 to start at 2030-11-25T08:14:35 using 2 processors on nodes n[0-1] in partition main"
SBATCH = f"""echo "$*" >>"$HOME/calls"
if [[ $1 == --test-only ]]; then echo '{START}' >&2; else echo 12; fi"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a train.yaml, and a Slurm that takes every job."""
    fake_command(tmp_path / "bin", "sbatch", SBATCH)
    fake_command(tmp_path / "bin", "scontrol", "echo ClusterName = here")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    (tmp_path / "site.yaml").touch()
    monkeypatch.setenv("SAFELAUNCH_SITE_CONFIG", str(tmp_path / "site.yaml"))
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("train.yaml").write_text("command: sleep 9\nslurm: {nodes: 2, time: '1:00:00'}\nlaunch: {with: srun}\n")
    return tmp_path


def on_terminal(answer: str, *words: str, meanwhile: Callable[[], object] = lambda: None) -> tuple[int, str]:
    """Exit code and what is shown of `submit` on a terminal, where a person answers its question; `meanwhile` happens
    while the plan is read.
    """
    ours, its = pty.openpty()
    process = subprocess.Popen([*SAFELAUNCH, "submit", "train.yaml", *words], stdin=its, stdout=its, stderr=its,
                               start_new_session=True)
    os.close(its)
    shown, is_answered = b"", False
    with suppress(OSError):   # EIO: the last process on it has closed it
        while data := os.read(ours, 65536):
            shown += data
            if b"submit it?" in shown and not is_answered:
                meanwhile()
                os.write(ours, f"{answer}\n".encode())
                is_answered = True
    os.close(ours)
    return process.wait(timeout=60), click.unstyle(shown.decode().replace("\r\n", "\n"))


def calls(place: Path) -> list[str]:
    return (place / "calls").read_text().splitlines() if (place / "calls").exists() else []


def test_a_no_on_a_terminal_submits_nothing_and_leaves_nothing(place: Path) -> None:
    code, shown = on_terminal("n")
    assert code == 130 and "nothing was submitted" in shown
    assert [call.split()[0] for call in calls(place)] == ["--test-only"] and not (place / "runs").exists()
    rows = {line.partition(" ")[0] for line in shown.splitlines() if line[:1].strip()}
    assert {"run", "at", "resume", "excluded", "start"} <= rows, shown
    assert "2.0 node hours a job" in shown and "on n[0-1] in partition main" in " ".join(shown.split())


def test_a_yes_on_a_terminal_submits_it(place: Path) -> None:
    code, shown = on_terminal("")
    assert code == 0 and "Submitted batch job 12" in shown, shown
    assert [call.split()[0] for call in calls(place)] == ["--test-only", "--parsable"]


@pytest.mark.parametrize("is_edited", [True, False], ids=["edited", "as it was"])
def test_code_that_is_edited_while_the_plan_is_read_is_recorded_as_it_is_submitted(
    place: Path, is_edited: bool
) -> None:
    for words in (["init", "-q"], ["add", "train.yaml"],
                  ["-c", "user.name=x", "-c", "user.email=x@site", "commit", "-qm", "first"]):
        subprocess.run(["git", *words], check=True)
    code, shown = on_terminal("", meanwhile=(lambda: Path("train.yaml").write_text("late: 1\n")) if is_edited else int)
    assert code == 0 and ("the code has changed since the plan was shown" in shown) == is_edited, shown
    recorded = (next(place.glob("runs/*/run.json")).read_text() + "".join(
        path.read_text() for path in place.glob("runs/*/git.json")))
    assert ("+late: 1" in recorded) == is_edited


@pytest.mark.parametrize("words", [("-y",), ("--json",)])
def test_with_yes_or_json_a_terminal_is_asked_nothing(place: Path, words: tuple[str, ...]) -> None:
    code, shown = on_terminal("n", *words)
    assert code == 0 and "submit it?" not in shown and "at most" not in shown
    assert [call.split()[0] for call in calls(place)] == ["--parsable"]


def test_a_script_is_asked_nothing_and_slurm_nothing_more_than_before(place: Path) -> None:
    done = subprocess.run([*SAFELAUNCH, "submit", "train.yaml"], capture_output=True, text=True, check=True)
    assert done.stdout == "Submitted batch job 12\n" and "at most" not in done.stderr
    assert [call.split()[0] for call in calls(place)] == ["--parsable"]


@pytest.mark.parametrize("closed", ["<&-", "2>&-"])
def test_a_program_that_has_closed_its_streams_submits_as_well(place: Path, closed: str) -> None:
    """Daemons close stdin; Python then has None for it."""
    done = subprocess.run(["bash", "-c", f'"$@" {closed}', "bash", *SAFELAUNCH, "submit", "train.yaml"],
                          capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "Submitted batch job 12\n"), done.stderr


def test_a_slurm_that_does_not_answer_is_unknown_after_the_deadline(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitplan, "START_S", 0.3)
    fake_command(place / "bin", "sbatch", "exec sleep 60")
    plan, text = submitting.render(read_config("train.yaml", [], []).settings, "1a2b3c4d")
    git = GitFacts(str(place))
    lines = submitplan.lines(plan, text, "2 nodes", str(place), git, ClusterName(os.environ).name())
    git.close()
    assert any("unknown: Slurm gave no answer" in line for line in map(click.unstyle, lines)), lines


def test_the_plan_tries_the_script_itself_and_needs_no_room_in_tmp(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(place / "missing"))
    monkeypatch.setattr(tempfile, "tempdir", str(place / "missing"))
    fake_command(place / "bin", "sbatch", f'cat >"$HOME/tried"; {SBATCH}')
    plan, text = submitting.render(read_config("train.yaml", [], []).settings, "1a2b3c4d")
    git = GitFacts(str(place))
    lines = submitplan.lines(plan, text, "2 nodes", str(place), git, ClusterName(os.environ).name())
    git.close()
    assert "on n[0-1] in partition main" in " ".join(" ".join(map(click.unstyle, lines)).split()), lines
    assert (place / "tried").read_text() == text
