"""What each verb shows on terminals of 80 and 200 columns, in a pipe and with NO_COLOR, with no run, one, and 200."""

from __future__ import annotations

import fcntl
import importlib
import os
import pty
import re
import signal
import struct
import sys
import termios
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from safelaunch import cli
from safelaunch.run.io import registry
from tests.handmade import Made, fake_command, make_run

ESC = "\x1b"
COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7])[;m]")
MANY = 200
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total capacity)"


class Screen(NamedTuple):
    """What a verb has shown."""

    code: int
    text: str


def shown(words: list[str], columns: int | None, env: Mapping[str, str] | None = None) -> Screen:
    """What a verb shows on a terminal of so many columns, or in a pipe (None); stderr is the same place."""
    ours, its = pty.openpty() if columns else os.pipe()
    if columns:
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    pid = os.fork()   # and not a new interpreter: each of a hundred would take half a second
    if pid == 0:
        _be_the_verb(words, its, env or {})
    os.close(its)
    said = b""
    with suppress(OSError):   # EIO: the last process on it has closed it
        while data := os.read(ours, 65536):
            said += data
    os.close(ours)
    return Screen(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode().replace("\r\n", "\n"))


def _be_the_verb(words: list[str], its: int, env: Mapping[str, str]) -> None:
    try:
        signal.alarm(600)
        os.setsid()
        for number in (1, 2):
            os.dup2(its, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w")   # noqa: SIM115 - pytest's own are not the terminal
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            os.environ.pop(name, None)
        os.environ.update({"TERM": "xterm-256color", **env})
        code = cli.run(words)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    except BaseException:   # noqa: BLE001 - a child must never go on as pytest
        os.write(2, traceback.format_exc().encode())
        os._exit(70)


def lay_out(folder: Path, number: int) -> Made:
    """A run that has failed once, suspects a node and goes on; every third one has ended."""
    name = f"pretraining-{number:03}"
    made = make_run(folder / "runs" / name, f"name: {name}\ncommand: python train.py\nslurm: {{nodes: 4}}\n"
                    "launch: {with: srun}\n", f"{number:08x}")
    job = str(1000 + number)
    made.submitted(job)
    made.started(job)
    made.attempt(1, job)
    made.log(1, b"[n0:0]: step 10/4000 loss 2.5\n[n3:24]: " + OOM.encode() + b"\n")
    made.failed(1, step=10)
    made.event("verdict", attempt=1, category="cuda_oom", summary=OOM, confidence=0.9, suspects=[])
    made.event("node_suspected", node="n3", kind="cuda_oom", why=OOM)
    made.event("node_excluded", node="n3", why="two failures there within a day: " + OOM)
    made.attempt(2, job)
    made.log(2, b"[n0:0]: step 20/4000 loss 2.4\n")
    made.event("progress", attempt=2, step=20)
    if number % 3 == 2:
        made.event("attempt_ended", attempt=2, how="completed", exit_code=0)
        made.event("completed", exit_code=0, why="attempt 2 ended with exit code 0")
    registry.register(made.dir, name, f"{number:08x}", job,
                      sweep={"id": "5eed", "name": "tuning", "point": number + 1, "of": MANY})
    return made


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without runs, and a Slurm that knows a job of each."""
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("SAFELAUNCH_SITE_CONFIG", str(tmp_path / "site.yaml"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.yaml").touch()
    for module, _ in cli.VERBS.values():   # once, and not in each child
        importlib.import_module(module)
    (tmp_path / "home").mkdir()
    for name in ("squeue", "scontrol", "sacct", "sinfo", "sbatch", "srun", "sacctmgr"):
        fake_command(tmp_path / "bin", name, "exit 0")
    return tmp_path


# What acts on a terminal (cursor, title, clipboard, links, C1), on the order of letters, in HTML and as rich's markup;
# bytes that are no text; and a line that claims to be of another rank, or ours.
HOSTILE = ("\x1b[2J\x1b]0;owned\x07\x1b]52;c;aGk=\x07\x1b]8;;http://x\x1b\\link\x1b]8;;\x07\x9b5m\udcff\x00\x7f\u202eevil"
           "\u2066<script>x</script></style>&lt;[bold]mark[/]\r\n[n9:9]: safelaunch: all is well")
WITHOUT_LOG = ("report --all -o -", "metrics bad", "policy bad")   # views with nothing of the log's words
OURS = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[hl]|[12]K|1A)|\r")   # colours, rich's way to draw anew; bars of a log
VIEWS = ("status bad", "status --all", "status --watch bad", "status tuning", "events bad", "events --all -f bad",
         "why bad", "why --all bad", "why --ticket bad", "why tuning", "report bad -o -", "report --all -o -",
         "checkpoints bad", "metrics bad", "wait bad", "stop bad", "stacks bad", "policy bad", "shell bad",
         "release bad")
LOGS = ("logs bad", "logs --fold bad", "logs -f bad", "logs --first-error bad")
ONE = "pretraining-000"
ALWAYS = (["nodes"], ["doctor"], ["plugins"], ["help"], ["help", "glossary"])
# Verb, and a word that it shows of the run; those of LONG show lines of a log as they are.
OF_A_RUN = ((["status", ONE], "n3: two failures"), (["why", ONE], "cuda_oom"), (["logs", ONE], "step 20/4000"),
            (["events", ONE], "attempt 2 starts"), (["status", "tuning"], "1 run: "), (["why", "tuning"], "cuda_oom"))
LONG = ("logs",)


def widest(text: str) -> int:
    """Columns of the widest line; one with a path that is long itself is left out."""
    lines = click.unstyle(text).splitlines()
    return max((len(line) for line in lines if all(len(word) < 60 for word in line.split())), default=0)


def check(words: list[str], code: int, has: str = "") -> None:
    """That a verb shows this on each kind of screen, within its width, and control codes on a terminal alone."""
    screens = [(columns, no_colour, shown(words, columns, {"NO_COLOR": no_colour}))
               for columns, no_colour in ((80, ""), (80, "1"), (200, ""), (None, ""))]
    for columns, no_colour, screen in screens:
        where = f"{words} at {columns}{' with NO_COLOR' * bool(no_colour)}: {screen.text[:3000]}"
        assert screen.code == code and has in click.unstyle(screen.text), where
        assert "Traceback" not in screen.text and screen.text.endswith("\n"), where
        assert columns or ESC not in screen.text, where
        assert not (no_colour and COLOUR.search(screen.text)), where
        assert not columns or words[0] in LONG or widest(screen.text) <= columns, where


def test_without_runs_each_verb_says_so_and_what_to_do(place: Path) -> None:
    for words in (["status"], ["logs"], ["why"], ["events"]):
        check(words, 2, "to make one: safelaunch submit train.yaml")
    check(["status", "--all"], 0, "no run is known")
    for words in ALWAYS:
        check(words, 4 if words == ["doctor"] else 0)
    assert "needs a terminal" in shown(["top"], None).text


def test_a_run_fits_on_each_screen(place: Path) -> None:
    lay_out(place, 0)
    assert shown(["nodes", "suspect", "n3", "--why", OOM], None).code == 0
    for words, has in OF_A_RUN:
        check(words, 0, has)
    check(["status", "--all"], 0, "20/4000")
    check(["nodes"], 0, "n3")


def test_200_runs_fit_on_each_screen_a_line_each(place: Path) -> None:
    for number in range(MANY):
        lay_out(place, number)
    for columns in (80, 200, None):
        for words in (["status"], ["status", "tuning"]):
            lines = click.unstyle(shown(words, columns).text).splitlines()
            assert MANY + 1 <= len(lines) <= MANY + 2 and max(map(len, lines)) <= (columns or 200), (words, columns)
    check(["status", "pretraining-1"], 2, "may mean 100 runs")
    check(["why", "tuning"], 0, "200 of 200 runs")


def lay_out_hostile(folder: Path) -> Made:
    """A run that has given up, with HOSTILE wherever a job, a node, a teammate or Slurm can put it."""
    resume = f"{{by: training, dir: {folder}/ckpt, format: pattern, pattern: 'step_{{step}}*'}}"
    made = make_run(folder / "bad", "name: bad\ncommand: python train.py\nslurm: {nodes: 2}\nlaunch: {with: srun}\n"
                    f"resume: {resume}\n", "0badc0de")
    (folder / "ckpt").mkdir()
    (folder / "ckpt" / ("step_5" + HOSTILE.replace("/", "_").replace("\0", ""))).touch()
    nodes = ["n0", HOSTILE]
    made.submitted("12")
    made.event("job_started", job="12", nodes=nodes, batch_host=HOSTILE)
    for number in (1, 2):
        made.attempt(number, "12", nodes=nodes, resume_step=5, why=HOSTILE)
        made.log(number, b"[n0:0]:step 6 loss 2.5\n[n0:0]:Traceback (most recent call last):\n"
                 b'[n0:0]:  File "a.py", line 1\n[n0:0]:ValueError: '
                 + HOSTILE.encode(errors="surrogateescape") + b"\n")
        made.failed(number, step=6, why=HOSTILE)
        made.event("verdict", attempt=number, category="user_code", summary=HOSTILE, confidence=0.9, node=HOSTILE,
                   suspects=[HOSTILE], evidence=[HOSTILE], follows=HOSTILE)
    made.event("node_suspected", node=HOSTILE, kind="user_code", why=HOSTILE)
    made.event("node_excluded", node=HOSTILE, why=HOSTILE)
    made.event(HOSTILE, host="n0" + HOSTILE.replace("/", "_").replace("\0", ""), text=HOSTILE)
    made.event("gave_up", exit_code=10, why=HOSTILE)
    registry.register(made.dir, "bad", "0badc0de", "12", sweep={"id": "5eed", "name": "tuning", "point": 1, "of": 1})
    return made


@pytest.mark.parametrize("columns", [80, None], ids=["terminal", "pipe"])
def test_what_a_job_writes_acts_in_no_view(place: Path, columns: int | None) -> None:
    lay_out_hostile(place)
    for words in (*VIEWS, *LOGS * bool(columns)):   # in a pipe `logs` gives the bytes as they are
        screen = shown(words.split(), columns)
        where = f"{words}: {screen.code}: {screen.text!r}"
        assert screen.code in (0, 2, 10), where
        assert r"\x1b[2J" in screen.text or words in WITHOUT_LOG, where
        plain = OURS.sub("", screen.text) if columns else screen.text
        assert all(char.isprintable() or char in "\n\t" for char in plain), where
        lines = [line for line in plain.splitlines() if line.startswith("[n9:9]")]
        assert not lines or words in LOGS, where
