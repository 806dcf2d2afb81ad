"""safelaunch watch: looks after all runs from outside their jobs, where no supervisor can."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from safelaunch.base.model import DONE, UNREACHABLE
from safelaunch.run.io import clustername
from safelaunch.supervisor.io.world import World
from safelaunch.verbs.common import runs, talk
from safelaunch.watch.io import memory as watchmemory
from safelaunch.watch.io.watcher import Watcher

TICK_S = 60.0      # four heartbeats
GAP_S = 0.6        # between two calls of Slurm: never more than two a second
SAVE_EVERY_S = 600.0


@click.command()
@click.argument("which", nargs=-1, metavar="[RUN]...", shell_complete=runs.complete_run)
@click.option("--once", is_flag=True, help="One tick, for cron or scrontab; exit code 4 when Slurm gives no answer.")
@click.option("--dry-run", is_flag=True, help="Report only, do nothing.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object instead of each line.")
def command(which: tuple[str, ...], once: bool, dry_run: bool, as_json: bool) -> int:
    """Look after runs from outside their jobs: all of yours, or the named ones.

    Finds jobs without a script, jobs that vanished, jobs that can never start, and goes on with the run.
    """
    teller = _WatchPrinter(as_json)
    named = tuple((str(run.dir), run.plan.job_name) for run in map(runs.load, which))
    host, cluster = socket.gethostname().split(".")[0], clustername.unasked(os.environ)
    file = watchmemory.file(cluster or host)
    memory = watchmemory.load(file)
    watcher = Watcher(World(), dict(os.environ), host, teller, memory, named, only_watch=dry_run,
                      cluster=cluster or _remembered_cluster(memory))
    if once:
        drive(watcher, file)
        teller.tell_rest(watcher)
        if not watcher.memory.runs:
            talk.say("you have no runs to watch")
        _save(watcher, file)
        return UNREACHABLE if watcher.is_blind else DONE
    if not watcher.named:
        talk.say("watching all your runs; Ctrl-C ends the watch, and no run")
    with Interrupt() as interrupt:
        _watch(watcher, file, interrupt)
    return DONE


def _remembered_cluster(memory: watchmemory.Memory) -> str:
    """This cluster's name, for which a line of cron does not ask Slurm each time."""
    scontrol = shutil.which("scontrol") or ""
    if not memory.cluster or memory.scontrol != scontrol:
        memory.cluster, memory.scontrol = clustername.here(), scontrol
    return memory.cluster


class Interrupt:
    """Ctrl-C, which Python itself can lose or delay. A KeyboardInterrupt within a __del__ is printed and forgotten. A
    signal right before a blocking system call is handled after it. (Both seen: a watch that went on.) Here the C
    handler writes a byte, which stays and ends the wait.
    """

    def __init__(self) -> None:
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def __enter__(self) -> Interrupt:
        self._before = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        return self

    def __exit__(self, *why: object) -> None:
        signal.set_wakeup_fd(self._before)
        os.close(self._woken)
        os.close(self._wake)

    def pause(self, seconds: float) -> None:
        """Wait; raises KeyboardInterrupt after a Ctrl-C, also after one of long ago."""
        if select.select([self._woken], [], [], seconds)[0]:
            raise KeyboardInterrupt


def drive(watcher: Watcher, file: Path, pause: Callable[[float], None] = time.sleep) -> None:
    """Run a tick: its commands one after the other, with a pause that Slurm's controller is owed; then its messages.
    What is to be told is saved before: another watch tells it where this one is killed meanwhile.
    """
    asking, result = watcher.tick(), None
    while True:
        try:
            command = next(asking) if result is None else asking.send(result)
        except StopIteration:
            break
        result = command.wait()
        pause(GAP_S)
    if watcher.has_to_tell:
        _save(watcher, file)
    for pause_s in watcher.tell_people():
        pause(pause_s)


def _watch(watcher: Watcher, file: Path, interrupt: Interrupt) -> None:
    """Tick for ever."""
    saved_s = time.monotonic()
    try:
        while True:
            started_s = time.monotonic()
            drive(watcher, file, interrupt.pause)
            if started_s - saved_s >= SAVE_EVERY_S:
                _save(watcher, file)
                saved_s = started_s
            interrupt.pause(max(0.0, TICK_S - (time.monotonic() - started_s)))
    finally:
        _save(watcher, file)


def _save(watcher: Watcher, file: Path) -> None:
    """A full or read-only home delays the next tick by minutes, and costs no run."""
    try:
        watcher.memory.save(file)
    except OSError as error:
        talk.say(f"the state of the watch could not be saved in {file}: {error.strerror}")


class _WatchPrinter:
    """Prints what the watch tells, a line each: a PULSE of each run, and what was done."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._told: set[str] = set()

    def __call__(self, kind: str, dir: str, text: str) -> None:
        """Print one line."""
        name = Path(dir).name if dir else ""
        if kind == "pulse":
            self._told.add(dir)
        if self._as_json:
            talk.emit_json({"v": 1, "t": round(time.time(), 3), "kind": kind, "run": name, "run_dir": dir,
                            "text": text})
        else:
            word = {"pulse": "PULSE", "act": "ACT", "blind": "BLIND"}[kind]
            is_verb = text.startswith(("is ", "has ", "belongs ", "cannot "))
            subject = f"{name}{' ' if is_verb else ': '}" if name else ""
            click.echo(talk.clean(f"[{talk.stamp(time.time())}] {word}: {subject}{text}"))
        sys.stdout.flush()

    def tell_rest(self, watcher: Watcher) -> None:
        """Print a PULSE of every run that has not ended and was not printed yet."""
        now_s = watcher.world.now_s()
        for dir, known in _wanted(watcher):
            if known.row and dir not in self._told:
                self("pulse", dir, watcher.sentence(known, now_s))


def _wanted(watcher: Watcher) -> Sequence[tuple[str, watchmemory.Known]]:
    dirs = {dir for dir, _ in watcher.named}
    return [(dir, known) for dir, known in watcher.runs.items() if not dirs or dir in dirs]
