"""safelaunch demo: five failures and what becomes of them, without Slurm, root or torch."""

from __future__ import annotations

import os
import pty
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import click
import pytest

from safelaunch.cli import run
from safelaunch.run.io import registry
from safelaunch.run.io.journal import read as read_journal
from safelaunch.sandbox import users
from safelaunch.verbs.site import demo
from tests.sandboxes import wait_until
from tests.test_package import Archives, fresh_venv
from tests.test_package import archives as archives

ARGV = [sys.executable, "-m", "safelaunch", "demo"]
END = ("noticed as far again lost with sbatch alone", "safelaunch status", "Your own training: safelaunch init")
STORIES = {
    "bug": ("attempt 1 starts", "step 40 loss", "attempt 1 failed", "KeyError: 'lable'",
            "attempt 2 starts on local[0,2]", "the run has given up, exit code 10",
            "on local1 and on local2: no node is to blame", "safelaunch why", "user_code: the program raised an error",
            "rank 3 on local2", "the same error at the same step"),
    "node": ("attempt 1 starts on local[0-1]", "attempt 1 failed", "gpu_hardware", "local1 is suspected",
             "attempt 2 starts on local[0,2] from step 40", "step 120 loss", "the run has completed", "suspect local1",
             "Failed at step 59, back at work from step 40"),
    "crash": ("attempt 1 starts", "step 60 loss", "the power goes out", "attempt 1 failed", "verdict on attempt 1",
              "step_000080.pt is skipped: ", "attempt 2 starts on local[0-1] from step 60", "going on after step 60",
              "step 120 loss", "the run has completed", "Failed at step 80, back at work from step 60"),
    "hang": ("attempt 1 may hang: no step for 5 s", "verdict on attempt 1: hang", "attempt 2 starts", "step 120 loss",
             "the run has completed", "hang: it stood still", "Failed at step 59, back at work from step 40"),
    "kill": ("step 60 loss", "touch runs/kill/control/kill", "the run was stopped", "cancelled: somebody ended it",
             "One touch of a file"),
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("SAFELAUNCH_LOCAL_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def assert_tells(said: str, *names: str) -> None:
    """The stories' words come in their order."""
    words, at = " ".join(said.split()), 0
    for text in (*(text for name in names for text in STORIES[name]), *END):
        assert text.lower() in words[at:].lower(), f"{text}\n{said}"
        at += words[at:].lower().index(text.lower())


def processes_of(folder: Path) -> list[str]:
    """Command lines of living processes that name this folder or work in it."""
    found = []
    for path in Path("/proc").iterdir():
        with suppress(OSError):
            if path.name.isdigit() and path.name != str(os.getpid()):
                words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if str(folder) in words or (path / "cwd").readlink().is_relative_to(folder):
                    found.append(words)
    return found


def assert_leaves_reports(folder: Path, *names: str) -> None:
    """A report of each story, and no process."""
    assert all("<svg" in (folder / f"{name}.html").read_text() for name in names)
    # It waits for five seconds for its job to go.
    wait_until(lambda: not processes_of(folder.parent), 60, f"processes are left: {processes_of(folder.parent)}")


# "crash" and "node" are played on a terminal below, "bug" and "hang" one after the other: each story once.
def test_a_story_ends_as_it_is_told_and_leaves_a_report_and_no_process(tmp_path: Path) -> None:
    done = subprocess.run([*ARGV, "kill"], text=True, capture_output=True, timeout=300)

    assert done.returncode == 0, done.stdout + done.stderr
    assert_tells(done.stdout, "kill")
    row = r"kill +\d+\.\d s +not needed +0 steps +scancel: steps after step \d+ are lost\n"
    assert re.search(row, done.stdout), done.stdout
    assert "\x1b" not in done.stdout
    assert_leaves_reports(tmp_path / "safelaunch-demo", "kill")


def test_without_a_name_all_are_played_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(demo.STORIES) == list(STORIES)
    monkeypatch.setattr(demo, "STORIES", {name: demo.STORIES[name] for name in ("bug", "hang")})

    assert run(["demo"]) == 0
    said = capsys.readouterr().out
    assert_tells(said, "bug", "hang")
    bug, hang = (re.search(rf"^  {name}  +([\d.]+) s +(\S.*?)  +(\d+) steps  +(.*)$", said, re.M)
                 for name in ("bug", "hang"))
    assert bug is not None and bug.group(2, 3, 4) == ("it cannot", "19", "the same error at each submission"), said
    assert hang is not None and hang.group(3, 4) == ("19", "stands until its time limit"), said
    assert float(hang[1]) >= 5 and float(hang[2].removesuffix(" s")) > float(hang[1]), said
    runs = (tmp_path / "safelaunch-demo" / name / "runs" / name for name in ("bug", "hang"))
    begin_t = [read_journal(run).events[0].t for run in runs]
    assert begin_t[1] < begin_t[0], "the longest starts first"
    assert "--- 2 of 2: hang ---" in said and str(tmp_path / "safelaunch-demo" / "bug.html") in said
    assert "\x1b" not in said
    assert_leaves_reports(tmp_path / "safelaunch-demo", "bug", "hang")


def test_a_story_that_ends_otherwise_is_said_and_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "STORIES", {"bug": replace(demo.STORIES["bug"], fault="none")})

    assert run(["demo", "bug"]) == 1
    assert "This is not how it should have ended (exit code 0)" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "no_color"), [("crash", False), ("node", True)], ids=["in colours", "NO_COLOR"])
def test_on_a_narrow_terminal_no_line_is_cut_in_a_word_and_the_second_demo_has_a_folder_of_its_own(
    tmp_path: Path, name: str, no_color: bool
) -> None:
    (tmp_path / "safelaunch-demo").mkdir()
    earlier = tmp_path / "elsewhere" / name
    earlier.mkdir(parents=True)
    (earlier / "run.json").write_text("{}")
    assert registry.register(earlier, name, "ab", "1"), "another run of that name"
    env = {**os.environ, "COLUMNS": "80", "TERM": "xterm-256color", "NO_COLOR": "1"}
    if not no_color:
        del env["NO_COLOR"]

    said = in_terminal([*ARGV, name], env)

    assert_tells(click.unstyle(said), name)
    assert ("\x1b[" in said) is not no_color
    folder = str(tmp_path / "safelaunch-demo-2")
    too_wide = [line for line in click.unstyle(said).splitlines() if len(line) > 80 and folder not in line]
    assert not too_wide
    assert f"cd {folder}" in said and not any((tmp_path / "safelaunch-demo").iterdir())
    assert_leaves_reports(tmp_path / "safelaunch-demo-2", name)


def in_terminal(argv: list[str], env: dict[str, str]) -> str:
    """What a program shows on a terminal."""
    ours, its = pty.openpty()
    process = subprocess.Popen(argv, env=env, stdin=its, stdout=its, stderr=its)
    os.close(its)
    shown, end_s = b"", time.monotonic() + 300
    with suppress(OSError):   # EIO: the last process on it has closed it
        while (data := os.read(ours, 65536)) and time.monotonic() < end_s:
            shown += data
    os.close(ours)
    assert process.wait(timeout=60) == 0, shown
    return shown.decode().replace("\r\n", "\n")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="safelaunch-demo-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.root
def test_an_ordinary_user_sees_it_from_a_fresh_installation_where_there_is_no_slurm(
    open_folder: Path, path_without_slurm: str, archives: Archives
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    (open_folder / "venv").mkdir()
    bin_dir = fresh_venv(open_folder / "venv", archives.wheel)
    users.ensure_users()
    account = pwd.getpwnam("sl-alice")
    home = open_folder / "home"
    home.mkdir()
    shutil.chown(home, account.pw_uid)
    try:
        is_open = subprocess.run([bin_dir / "python", "-c", "import click, yaml"], user=account.pw_uid,
                                 group=account.pw_gid, extra_groups=[], cwd="/", capture_output=True).returncode == 0
    except PermissionError:   # the interpreter itself lies in root's home, as pyenv's do
        is_open = False
    if not is_open:
        pytest.skip("the Python that the tests run with, or its packages, are out of ordinary users' reach")

    done = subprocess.run([bin_dir / "safelaunch", "demo", "kill"], user=account.pw_uid, group=account.pw_gid,
                          extra_groups=[], cwd=home, env={"PATH": path_without_slurm, "HOME": str(home)}, text=True,
                          capture_output=True, timeout=300)

    assert done.returncode == 0, done.stderr
    assert_tells(done.stdout, "kill")
    wait_until(lambda: not processes_of(home), 60, "processes are left")


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.py").write_text("precious")
    assert run(["demo", "--dir", "mine"]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert (tmp_path / "mine" / "train.py").read_text() == "precious"


@pytest.mark.root
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its owner could have exchanged the train.yaml that is submitted there."""
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    assert run(["demo", "--dir", str(tmp_path / "theirs"), "bug"]) == 2
    assert "theirs belongs to somebody else" in capsys.readouterr().err
    assert not any((tmp_path / "theirs").iterdir())
