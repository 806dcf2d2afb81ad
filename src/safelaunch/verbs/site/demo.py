"""safelaunch demo: trainings fail in five ways on this machine; each cause is found, told, and mended if it can be."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import click

from safelaunch.base.endings import RunEnd
from safelaunch.base.io import program, sharedfile
from safelaunch.base.model import TIMED_OUT, Event
from safelaunch.errors import SafelaunchError, UsageError
from safelaunch.run.fold.folding import fold
from safelaunch.run.io import local, runfolder
from safelaunch.run.io.runfolder import Run
from safelaunch.status import shares
from safelaunch.trainlog.steps import latest_step
from safelaunch.verbs.common import controls, runs, talk, terminal
from safelaunch.verbs.common.eventwords import describe
from safelaunch.verbs.logs.attemptlogs import find_logs
from safelaunch.verbs.logs.logfollow import Stream

PACKAGE = Path(__file__).parents[2]
# In an installed package, and in a checkout.
SOURCES = (PACKAGE / "examples" / "stories", PACKAGE.parent.parent / "examples" / "stories")
FILES = ("train.yaml", "train.py", "README.md")
VERB_DEADLINE_S = 30.0
DEADLINE_S = 90.0   # of one story; the longest, the hang, takes 30 s
POLL_S = 0.1
LAST_S = 5.0        # for the job to go, once its run has ended; it takes 0.1 s
EVERY_STEPS = 20    # lines of the training that are shown
KILL_STEP = 60      # at which the kill switch is touched
MOST_OUTPUT_BYTES = 1 << 20
WIDTH = 100         # of the talk on a wide terminal; lines in a pipe are whole
TOLD = {"attempt_started": "cyan", "failure": "red", "hang_suspected": "", "verdict": "yellow",
        "node_suspected": "yellow", "checkpoint": "", "completed": "green", "gave_up": "red", "stopped": "red"}
LOG_LINE = "          | "
WHY_LABEL = 11      # characters of a label of `why`

_PREFIX = re.compile(r"^\[[^\]\s]*\]: ?")   # [host:rank]: of the rank
_TRACEBACK = re.compile(r"Traceback \(most recent| +\S|[\w.]*(Error|Exception)\b")   # `why` shows what of it counts


@dataclass(frozen=True)
class Story:
    """What goes wrong, and how the run has to end."""

    fault: str                      # FAULT of examples/stories/train.py
    intro: str
    ends: RunEnd
    attempts: int
    sum_up: str                     # where it ended so; {failed} and {resumed} are steps
    alone: str                      # what becomes of it under sbatch without this; {saved} is the last checkpoint


_BUG = ("The same error at the same step, on one node and on another: no restart helps, and no GPU hour is lost on one "
        "more.")
_RESTART = "Failed at step {failed}, back at work from step {resumed}, and done. Nobody typed anything."
_KILL = ("One touch of a file, which every member of a group can be allowed, and the training has saved and ended. "
         "Nothing restarts it.")
STORIES = {
    "bug": Story("bug", "A bug. Rank 3 raises a KeyError at step 60, each time it comes there. It may be its node, and "
                 "one is in reserve.", RunEnd.GAVE_UP, 2, _BUG,
                 "the same error at each submission"),
    "node": Story("gpu", "A node whose GPU fails at step 60. There is no GPU here: rank 3 raises what CUDA would. One "
                  "node is in reserve.", RunEnd.COMPLETED, 2, _RESTART,
                  "ended; queued again, on the bad node"),
    "crash": Story("crash", "A crash in the middle of a checkpoint. At step 80 the process is killed while it writes, "
                   "as by a power cut.", RunEnd.COMPLETED, 2, _RESTART,
                   "ended; you look for the whole file"),
    "hang": Story("hang", "A hang. At step 60 rank 3 goes into an evaluation that the others know nothing of. No "
                  "process ends, and no line tells of it.", RunEnd.COMPLETED, 2, _RESTART,
                  "stands until its time limit"),
    "kill": Story("none", f"The kill switch. Somebody wants the run to end, and touches a file at step {KILL_STEP}.",
                  RunEnd.STOPPED, 1, _KILL, "scancel: steps after {saved} are lost"),
}
LONGEST = "hang"    # it waits for most of its time: where others are played before, it starts with the first
TABLE = "  {:<5}  {:<7}  {:<12}  {:<8}  {}"   # of 80 letters
HEAD = ("story", "noticed", "as far again", "lost", "with sbatch alone")


class Played(NamedTuple):
    """A story on the screen: whether it ended as told, its report, and its row of the table."""

    is_as_told: bool
    report: Path
    row: tuple[str, ...]


@click.command()
@click.argument("story", metavar="[STORY]", required=False, type=click.Choice(list(STORIES)))
@click.option("--dir", "folder", metavar="DIR", help="A new or empty folder for it (default: ./safelaunch-demo).")
def command(story: str | None, folder: str | None) -> int:
    """See five failures and what becomes of them, here, in a minute: no Slurm, no root, no PyTorch.

    STORY plays one of them: bug, node, crash, hang or kill.
    """
    place = _new_folder(folder)
    names = [story] if story else list(STORIES)
    _say(f"A small training in plain Python, in {place}: four ranks on two nodes, which are process groups of this "
         "machine. It saves every 20 steps.")
    started: dict[str, Run] = {}
    try:
        if LONGEST in names[1:]:
            _say(f"The {LONGEST} takes longest: it starts now, and is shown in its turn.")
            started[LONGEST] = _start(LONGEST, place)
        played = []
        for number, name in enumerate(names, 1):
            click.echo(terminal.coloured(f"\n--- {number} of {len(names)}: {name} ---", "bold"))
            _say(STORIES[name].intro)
            click.echo(terminal.coloured(f"\n$ safelaunch submit {' '.join(_words(name))}", "bold"))
            if name not in started:
                started[name] = _start(name, place)
            played.append(_play(name, started[name]))
    except BaseException:
        for run in started.values():
            if run.state().ended is None:
                controls.touch(run.dir / "control" / "kill-now")
        raise
    _close(place / names[-1], played)
    return 0 if all(one.is_as_told for one in played) else 1


def _close(folder: Path, played: Sequence[Played]) -> None:
    """What was lost and what was saved, and where to look."""
    click.echo(terminal.coloured("\nWhat was lost, and what was saved:\n", "bold"))
    for row in (HEAD, *(one.row for one in played)):
        click.echo(TABLE.format(*row).rstrip())
    click.echo("\nLook at the runs:\n")
    for words in (f"cd {folder}", "safelaunch status", "safelaunch events", "safelaunch logs | less"):
        click.echo(f"  {words}")
    click.echo("\nEach on one page, for a browser:\n")
    for one in played:
        click.echo(f"  {one.report}")
    click.echo("\nYour own training: safelaunch init")


def _words(name: str) -> list[str]:
    return ["train.yaml", "cluster=local", f"name={name}", f"env.FAULT={STORIES[name].fault}"]


def _start(name: str, place: Path) -> Run:
    """Its run, submitted in a folder of its own."""
    _lay_out(place / name)
    return runfolder.load(Path(json.loads(_type(place / name, "submit", *_words(name), "--json"))["run_dir"]))


def _play(name: str, run: Run) -> Played:
    """Show it as it happens, or happened, up to `why`."""
    story, place = STORIES[name], run.dir.parent.parent
    code = _show(run, touches=name == "kill")
    _await_job(run)
    state = run.state()
    click.echo(terminal.coloured("\n$ safelaunch why", "bold"))
    for line in _type(place, "why").split("\nread  ")[0].rstrip().splitlines():
        _say(_short(line[WHY_LABEL:], place), "  " + line[:WHY_LABEL])
    is_as_told = state.ended is not None and (state.ended.how, len(state.attempts)) == (story.ends, story.attempts)
    click.echo()
    if is_as_told:
        _say(story.sum_up.format(failed=state.attempts[0].step, resumed=state.attempts[-1].resume_step))
    else:
        _say(f"This is not how it should have ended (exit code {code}): the run's folder is {run.dir}.", style="red")
    report = place.parent / f"{name}.html"
    _type(place, "report", str(run.dir), "-o", str(report))   # its name may be an earlier demo's as well
    return Played(is_as_told, report, _row(name, run))


def _row(name: str, run: Run) -> tuple[str, ...]:
    """Its row below HEAD, from the run's own accounts."""
    events, state = run.journal().events, run.state()
    end_t = events[-1].t
    cost = shares.settle(events, state, end_t, None, None).costs
    last = next((event for event in events if event.event == "progress"), None)
    late = next((event.t - began_t for event in events if (began_t := _began_t(event, last)) is not None), None)
    again = f"{cost.seconds:.1f} s" if cost.restarts else "not needed"
    if state.ended is not None and state.ended.how == RunEnd.GAVE_UP:
        again = "it cannot"
    saved = f"step {(state.attempts[0].step or 0) // EVERY_STEPS * EVERY_STEPS}" if state.attempts else "the start"
    return (name, "" if late is None else f"{max(0.0, late):.1f} s", again, f"{cost.steps} steps",
            STORIES[name].alone.format(saved=saved))


def _began_t(event: Event, last: Event | None) -> float | None:
    """When that began which an event is the first to notice; None = it notices nothing."""
    found: object = None
    if event.event == "kill_switch":
        found = event.data.get("touched_t")
    elif event.event == "hang_suspected":
        found = event.t - float(event.data["silent_s"])
    elif event.event == "decision" and event.data.get("action") == "end" and last is not None:
        found = last.data.get("at_t")
    return found if isinstance(found, float) else None


def _short(text: str, place: Path) -> str:
    """Without the folder in which the demo plays."""
    return text.replace(f"{place}/", "")


def _type(place: Path, *words: str) -> str:
    """What a verb prints, typed as a user would. Raises SafelaunchError."""
    try:
        ended = program.run([sys.executable, "-m", "safelaunch", *words], VERB_DEADLINE_S, cwd=str(place))
    except OSError as error:
        raise SafelaunchError(f"safelaunch {words[0]} could not be started: {error.strerror}") from error
    if ended.code is None:
        raise SafelaunchError(f"safelaunch {words[0]} has not ended within {VERB_DEADLINE_S:.0f} s")
    if ended.code:
        said = ended.err.decode(errors="replace").strip()
        raise SafelaunchError(f"safelaunch {words[0]} ended with exit code {ended.code}: {said}")
    return ended.out.decode(errors="replace")


def _new_folder(wanted: str | None) -> Path:
    """A new folder for the runs."""
    place = Path(wanted).absolute() if wanted else _free(Path.cwd() / "safelaunch-demo")
    try:
        place.mkdir(parents=True, exist_ok=True)
        if any(place.iterdir()):
            raise UsageError(f"{place} is not empty", hint="choose another folder: --dir DIR")
        if place.stat().st_uid != os.geteuid():   # its owner could exchange train.yaml, which is run here
            raise UsageError(f"{place} belongs to somebody else", hint="choose another folder: --dir DIR")
    except OSError as error:
        raise UsageError(f"the demo cannot be put into {place}: {error.strerror}",
                         hint="choose another folder: --dir DIR") from error
    return place


def _lay_out(place: Path) -> None:
    """The example, in a folder of this story."""
    source = next((path for path in SOURCES if (path / "train.yaml").is_file()), None)
    if source is None:
        raise SafelaunchError(f"the example is missing from this installation: {SOURCES[0]}")
    try:
        place.mkdir()
        for name in FILES:
            shutil.copyfile(source / name, place / name)
    except OSError as error:
        raise UsageError(f"the demo cannot be put into {place}: {error.strerror}",
                         hint="choose another folder: --dir DIR") from error


def _free(wanted: Path) -> Path:
    """`wanted`, or the first of its name with a number that is not there."""
    numbered = (wanted.with_name(f"{wanted.name}-{number}") for number in range(2, 10_000))
    return wanted if not wanted.exists() else next(path for path in numbered if not path.exists())


def _show(run: Run, touches: bool) -> int:
    """The run's exit code, after its events were shown as they happened. `touches`: its kill switch, on the way."""
    watch, told, show = runs.JournalWatch(run.dir), 0, _Show(run)
    end_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < end_s:
        journal = watch.poll()
        time.sleep(POLL_S)   # the log's pump is 0.02 s behind: with this pause what came before an event is shown first
        if journal is not None:
            for event in journal.events[told:]:
                show.event(event)
            told = len(journal.events)
            state = fold(journal.events)
            if state.ended is not None:
                return state.ended.exit_code
        show.log()
        if touches and show.step >= KILL_STEP:
            touches = False
            switch = run.dir / "control" / "kill"
            click.echo(terminal.coloured(f"\n$ touch {os.path.relpath(switch, run.dir.parent.parent)}", "bold"))
            controls.touch(switch)
    controls.touch(run.dir / "control" / "kill-now")
    talk.say(f"it should have ended within {DEADLINE_S:.0f} s, and is stopped; why: safelaunch events {run.dir}")
    return TIMED_OUT


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
        self._begin_t = run.state().submitted_t or time.time()
        self._stream: Stream | None = None
        self._attempt = 0
        self._skipped = 0
        self.step = 0

    def event(self, event: Event) -> None:
        """Show an event, after the log lines before it."""
        if event.event in ("failure", "hang_suspected", "attempt_ended"):
            self.log()
        if event.event in TOLD:
            text = describe(event)
            if event.event == "attempt_started" and event.data.get("resume_step") is not None:
                text = text.partition(":")[0]   # the reason is on the screen
            self._tell(text, event.t, TOLD[event.event])
        if event.event == "attempt_started":
            self._attempt, self._stream = int(event.data["attempt"]), None
        if event.event == "attempt_ended":
            self._tell_skipped(event.t)

    def log(self) -> None:
        """Show what the training has written: every 20th step, and all other lines."""
        now_s = time.monotonic()
        if self._stream is None:
            log = next((log for log in find_logs(self._run, fold(())) if log.number == self._attempt), None)
            self._stream = Stream(log, 0, None, now_s) if log is not None else None
        for line in (self._stream.read(now_s) if self._stream else b"").splitlines():
            step = latest_step(line, self._run.plan.step_pattern)
            self.step = step or self.step
            text = talk.clean(_PREFIX.sub("", line.decode(errors="replace")))
            if (step is None and not _TRACEBACK.match(text)) or (step is not None and step % EVERY_STEPS == 0):
                _say(text, LOG_LINE)

    def _tell_skipped(self, at_t: float) -> None:
        """Skipped checkpoints, with the reason from the job's own output."""
        output = sharedfile.read_start(self._run.dir / "job.out", MOST_OUTPUT_BYTES).decode(errors="replace")
        said = [line for line in output.splitlines() if " is skipped: " in line]
        for line in said[self._skipped:]:
            self._tell(talk.clean(line.split(": ", 1)[1]), at_t)
        self._skipped = len(said)

    def _tell(self, text: str, at_t: float, colour: str = "") -> None:
        _say(_short(text, self._run.dir.parent.parent), f"{at_t - self._begin_t:6.1f} s  ", f"bold {colour}")


def _say(text: str, before: str = "", style: str = "") -> None:
    """A sentence, folded to the width of a terminal after its prefix."""
    lines = [text]
    if talk.is_for_person():
        width = min(WIDTH, shutil.get_terminal_size().columns) - len(before)
        lines = textwrap.wrap(text, max(width, 20), break_long_words=False, break_on_hyphens=False) or [""]
    for number, line in enumerate(lines):
        click.echo((before if number == 0 else " " * len(before)) + terminal.coloured(line, style))
