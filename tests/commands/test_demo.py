"""safelaunch demo: the crash and the recovery, without Slurm, root or torch."""

from __future__ import annotations

import os
import pty
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import pytest

from safelaunch.cli import run
from safelaunch.sandbox import users
from tests.test_package import ROOT, fresh_venv

ARGV = [sys.executable, "-m", "safelaunch", "demo"]
STORY = ("attempt 1 starts", "step 80 loss", "the power goes out", "attempt 1 failed", "verdict on attempt 1",
         "step_000100.pt is skipped: ", "attempt 2 starts on local0 from step 80", "going on after step 80",
         "step 200 loss", "the run has completed", "Killed at step 100, back at work from step 80", "safelaunch status")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("SAFELAUNCH_LOCAL_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def assert_tells_the_story(said: str) -> None:
    words = " ".join(said.split())
    at = [words.index(text) for text in STORY]
    assert at == sorted(at), said


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


def test_the_demo_crashes_recovers_says_what_to_type_next_and_leaves_no_process(tmp_path: Path) -> None:
    done = subprocess.run(ARGV, text=True, capture_output=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert_tells_the_story(done.stdout)
    assert "\x1b" not in done.stdout
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize("no_color", [False, True], ids=["in colours", "NO_COLOR"])
def test_on_a_narrow_terminal_no_line_is_cut_in_a_word_and_the_second_demo_has_a_folder_of_its_own(
    tmp_path: Path, no_color: bool
) -> None:
    (tmp_path / "safelaunch-demo").mkdir()
    env = {**os.environ, "COLUMNS": "80", "TERM": "xterm-256color", "NO_COLOR": "1"}
    if not no_color:
        del env["NO_COLOR"]

    said = in_terminal(ARGV, env)

    assert_tells_the_story(click.unstyle(said))
    assert ("\x1b[" in said) is not no_color
    folder = str(tmp_path / "safelaunch-demo-2")
    too_wide = [line for line in click.unstyle(said).splitlines() if len(line) > 80 and folder not in line]
    assert not too_wide
    assert f"cd {folder}" in said and not any((tmp_path / "safelaunch-demo").iterdir())


def in_terminal(argv: list[str], env: dict[str, str]) -> str:
    """What a program shows on a terminal."""
    ours, its = pty.openpty()
    process = subprocess.Popen(argv, env=env, stdin=its, stdout=its, stderr=its)
    os.close(its)
    shown, end_s = b"", time.monotonic() + 60
    with suppress(OSError):   # EIO: the last process on it has closed it
        while (data := os.read(ours, 65536)) and time.monotonic() < end_s:
            shown += data
    os.close(ours)
    assert process.wait(timeout=10) == 0, shown
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
    open_folder: Path, path_without_slurm: str
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    (open_folder / "venv").mkdir()
    bin_dir = fresh_venv(open_folder / "venv", ROOT)
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

    done = subprocess.run([bin_dir / "safelaunch", "demo"], user=account.pw_uid, group=account.pw_gid, extra_groups=[],
                          cwd=home, env={"PATH": path_without_slurm, "HOME": str(home)}, text=True,
                          capture_output=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert_tells_the_story(done.stdout)
    assert processes_of(home) == []


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.py").write_text("precious")
    assert run(["demo", "--dir", "mine"]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert (tmp_path / "mine" / "train.py").read_text() == "precious"
