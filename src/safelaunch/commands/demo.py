"""safelaunch demo: a training is killed during a checkpoint and restarts, on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import click

from safelaunch.adapters import local, program, runfolder, sharedfile
from safelaunch.adapters.runfolder import Run
from safelaunch.core.endings import RunEnd
from safelaunch.core.folding import fold
from safelaunch.core.model import TIMED_OUT, Event
from safelaunch.core.progress.steps import latest_step
from safelaunch.core.state import State
from safelaunch.errors import SafelaunchError, UsageError
from safelaunch.views import controls, runs, talk
from safelaunch.views.attemptlogs import find_logs
from safelaunch.views.eventwords import describe
from safelaunch.views.logfollow import Stream

PACKAGE = Path(__file__).parent.parent
# In an installed package, and in a checkout.
SOURCES = (PACKAGE / "examples" / "quickstart", PACKAGE.parent.parent / "examples" / "quickstart")
FILES = ("train.yaml", "train.py", "README.md")
SUBMIT_DEADLINE_S = 30.0
DEADLINE_S = 60.0   # it takes 7 s here
POLL_S = 0.1
LAST_S = 5.0        # for the job to go, once its run has ended; it takes 0.1 s
EVERY_STEPS = 20    # lines of the training that are shown
MOST_OUTPUT_BYTES = 1 << 20
WIDTH = 100         # of the talk on a wide terminal; lines in a pipe are whole
TOLD = {"attempt_started": "cyan", "failure": "red", "verdict": "yellow", "checkpoint": None, "completed": "green",
        "gave_up": "red", "stopped": "red"}   # which events, in which colour

_PREFIX = re.compile(r"^\[[^\]\s]*\]: ?")   # [host:rank]: of the one rank there is


@click.command()
@click.option("--dir", "folder", metavar="DIR", help="A new or empty folder for it (default: ./safelaunch-demo).")
def command(folder: str | None) -> int:
    """See a crash and the recovery from it, here, in a minute: no Slurm, no root, no PyTorch."""
    place = _lay_out(folder)
    _say(f"A small training in plain Python, in {place}. It saves every 20 steps, and in the middle of the checkpoint "
         "of step 100 it is killed, as by a power cut. Watch what happens then.")
    click.echo(_style("\n$ safelaunch submit train.yaml cluster=local", bold=True))
    run = _submit(place)
    try:
        code = _show(run)
    except KeyboardInterrupt:
        controls.touch(run.dir / "control" / "kill-now")
        raise
    _await_job(run)
    click.echo("\nLook at the run:\n")
    for words in (f"cd {place}", f"safelaunch status {os.path.relpath(run.dir, place)}", "safelaunch events",
                  "safelaunch logs | less"):
        click.echo(f"  {words}")
    click.echo("\nYour own training: safelaunch init")
    return code


def _lay_out(wanted: str | None) -> Path:
    """A new folder with the example in it."""
    source = next((path for path in SOURCES if (path / "train.yaml").is_file()), None)
    if source is None:
        raise SafelaunchError(f"the example is missing from this installation: {SOURCES[0]}")
    place = Path(wanted).absolute() if wanted else _free(Path.cwd() / "safelaunch-demo")
    try:
        place.mkdir(parents=True, exist_ok=True)
        if any(place.iterdir()):
            raise UsageError(f"{place} is not empty", hint="choose another folder: --dir DIR")
        for name in FILES:
            shutil.copyfile(source / name, place / name)
    except OSError as error:
        raise UsageError(f"the demo cannot be put into {place}: {error.strerror}",
                         hint="choose another folder: --dir DIR") from error
    return place


def _free(wanted: Path) -> Path:
    """`wanted`, or the first of its name with a number that is not there."""
    numbered = (wanted.with_name(f"{wanted.name}-{number}") for number in range(2, 10_000))
    return wanted if not wanted.exists() else next(path for path in numbered if not path.exists())


def _submit(place: Path) -> Run:
    """The run, submitted as a user would, by a process of its own."""
    argv = [sys.executable, "-m", "safelaunch", "submit", "train.yaml", "cluster=local", "--json"]
    try:
        ended = program.run(argv, SUBMIT_DEADLINE_S, cwd=str(place))
    except OSError as error:
        raise SafelaunchError(f"safelaunch submit could not be started: {error.strerror}") from error
    if ended.code is None:
        raise SafelaunchError(f"safelaunch submit has not ended within {SUBMIT_DEADLINE_S:.0f} s")
    if ended.code:
        said = ended.err.decode(errors="replace").strip()
        raise SafelaunchError(f"safelaunch submit ended with exit code {ended.code}: {said}")
    return runfolder.load(Path(json.loads(ended.out)["run_dir"]))


def _show(run: Run) -> int:
    """The run's exit code, after its events were shown as they happened."""
    watch, told, show = runs.JournalWatch(run.dir), 0, _Show(run)
    end_s = show.begin_s + DEADLINE_S
    while time.monotonic() < end_s:
        journal = watch.poll()
        time.sleep(POLL_S)   # the log's pump is 0.02 s behind: with this pause what came before an event is shown first
        if journal is not None:
            for event in journal.events[told:]:
                show.event(event)
            told = len(journal.events)
            state = fold(journal.events)
            if state.ended is not None:
                _sum_up(state)
                return state.ended.exit_code
        show.log()
    controls.touch(run.dir / "control" / "kill-now")
    talk.say(f"it should have ended within {DEADLINE_S:.0f} s, and is stopped; why: safelaunch events {run.dir}")
    return TIMED_OUT


def _sum_up(state: State) -> None:
    """What has happened, in one sentence, if it went as planned."""
    if state.ended is None or state.ended.how != RunEnd.COMPLETED or len(state.attempts) != 2:
        return
    first, second = state.attempts
    click.echo()
    _say(f"Killed at step {first.step}, back at work from step {second.resume_step}, and done. Nobody typed anything.")


def _await_job(run: Run) -> None:
    """Return when the job has gone: its last act is to tidy up."""
    end_s = time.monotonic() + LAST_S
    job = run.state().job
    while job is not None and local.is_alive(run.dir, job.id) and time.monotonic() < end_s:
        time.sleep(POLL_S)


class _Show:
    """What is on the screen so far."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.begin_s = time.monotonic()
        self._stream: Stream | None = None
        self._attempt = 0
        self._skipped = 0

    def event(self, event: Event) -> None:
        """Show an event, after the log lines before it."""
        if event.event in ("failure", "attempt_ended"):
            self.log()
        if event.event in TOLD:
            text = describe(event)
            if event.event == "attempt_started" and event.data.get("resume_step") is not None:
                text = text.partition(":")[0]   # the reason is on the screen
            self._tell(text, TOLD[event.event])
        if event.event == "attempt_started":
            self._attempt, self._stream = int(event.data["attempt"]), None
        if event.event == "attempt_ended":
            self._tell_skipped()

    def log(self) -> None:
        """Show what the training has written: every 20th step, and all other lines."""
        now_s = time.monotonic()
        if self._stream is None:
            log = next((log for log in find_logs(self._run, fold(())) if log.number == self._attempt), None)
            self._stream = Stream(log, 0, None, now_s) if log is not None else None
        for line in (self._stream.read(now_s) if self._stream else b"").splitlines():
            step = latest_step(line, self._run.plan.step_pattern)
            if step is None or step % EVERY_STEPS == 0:
                _say(talk.clean(_PREFIX.sub("", line.decode(errors="replace"))), "          | ")

    def _tell_skipped(self) -> None:
        """Skipped checkpoints, with the reason from the job's own output."""
        output = sharedfile.read_start(self._run.dir / "job.out", MOST_OUTPUT_BYTES).decode(errors="replace")
        said = [line for line in output.splitlines() if " is skipped: " in line]
        for line in said[self._skipped:]:
            self._tell(talk.clean(line.split(": ", 1)[1]))
        self._skipped = len(said)

    def _tell(self, text: str, colour: str | None = None) -> None:
        text = text.replace(f"{self._run.dir.parent.parent}/", "")
        clock = f"{time.monotonic() - self.begin_s:6.1f} s  "
        _say(text, clock, fg=colour, bold=True)


def _say(text: str, before: str = "", **how: Any) -> None:
    """A sentence, folded to the width of a terminal after its prefix."""
    lines = [text]
    if talk.is_for_person():
        width = min(WIDTH, shutil.get_terminal_size().columns) - len(before)
        lines = textwrap.wrap(text, max(width, 20), break_long_words=False, break_on_hyphens=False)
    for number, line in enumerate(lines):
        click.echo((before if number == 0 else " " * len(before)) + _style(line, **how))


def _style(text: str, **how: Any) -> str:
    return text if "NO_COLOR" in os.environ or not talk.is_for_person() else click.style(text, **how)
