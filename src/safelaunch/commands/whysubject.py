"""What `why` is asked about: log files, a folder of them, standard input, a run's attempt, any job that Slurm knows."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from safelaunch.adapters import attemptfacts, runfolder
from safelaunch.adapters.logindex import LogIndex
from safelaunch.adapters.runfolder import Run
from safelaunch.commands import events, runs, talk
from safelaunch.core.findings import Evidence
from safelaunch.core.model import Event
from safelaunch.core.state import Attempt, State
from safelaunch.errors import UsageError

LOG_NAMES = re.compile(r".\.(?:log|out|err|txt)(?:\.\d+)?(?:\.gz)?$|^(?:stdout|stderr)")
# What was done about a failure, as the journal tells it; the other kinds are for `safelaunch events`.
TOLD = ("verdict", "node_suspected", "decision", "attempt_ended", "preserved", "attempt_started", "resubmitted",
        "kill_switch", "completed", "gave_up", "stopped")
MOST_TOLD = 8


@dataclass(frozen=True)
class Subject:
    """Logs to read, and what else is known."""

    paths: tuple[Path, ...]
    evidence: Evidence = field(default_factory=Evidence)
    run: Run | None = None
    attempt: Attempt | None = None
    did: tuple[str, ...] = ()      # what safelaunch did about it
    job: str = ""
    outside: tuple[str, ...] = ()  # what is known beside the logs, in lines
    indexes: Mapping[Path, LogIndex] = field(default_factory=dict)
    layout: tuple[tuple[str, ...], int] | None = None   # nodes in order, ranks of each: its log has ranks of a node


def find_subject(words: Sequence[str], attempt: int | None) -> Subject:
    """What the words mean: files where they exist, else one run or job; raises UsageError."""
    if "" in words:
        raise UsageError("an empty name is no log", hint="without any name the newest run in this folder is meant")
    kinds: list[str] = runs.ask(lambda: [_kind(word) for word in words], " ".join(words)) if words else []
    missing = [word for word, kind in zip(words, kinds, strict=True) if kind == "name"]
    if len(words) > 1 and missing:
        raise UsageError(f"{missing[0]}: no such file", hint="several arguments must all be log files")
    if missing and ("/" in missing[0] or LOG_NAMES.search(missing[0])):
        raise UsageError(f"{missing[0]}: no such file, and no run")
    if kinds and kinds[0] not in ("name", "run"):
        if attempt is not None:
            raise UsageError("--attempt goes with a run, not with log files")
        return Subject(tuple(path for word, kind in zip(words, kinds, strict=True) for path in _files(word, kind)))
    try:
        run = runs.load(words[0] if words else None)
    except UsageError:
        if not words or not words[0].isdigit():
            raise
        return _foreign_job(words[0])
    return _of_run(run, attempt)


def _kind(word: str) -> str:
    """stdin, file, fifo, device, run, folder, name or "!" and an error; looked at by a disposable child, since the path
    may be on a frozen mount.
    """
    if word == "-" or word == "/dev/stdin":
        return "stdin"
    if word.startswith("/dev/fd/"):   # bash's <(…): the child has it not
        return "file"
    path = Path(word)
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):   # ValueError: a NUL in the name
        return "name"
    except OSError as error:
        return f"!{error.strerror}"
    if stat.S_ISDIR(mode):
        return "run" if runfolder.is_run_folder(path) else "folder"
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return "device"
    return "fifo" if stat.S_ISFIFO(mode) else "file"


def _files(word: str, kind: str) -> list[Path]:
    """The logs that a word names; raises UsageError for what is none."""
    if kind.startswith("!"):
        raise UsageError(f"{word} cannot be read: {kind[1:]}")
    if kind == "run":
        raise UsageError(f"{word} is a run", hint="ask about one run, or about log files, at a time")
    if kind == "stdin":
        _look_at_stdin()
        return [Path("-")]
    if kind == "device":
        raise UsageError(f"{word} is a device, not a log")
    if kind == "fifo":
        talk.say(f"{word} is a pipe: it is read until its writer closes it")
    if kind != "folder":
        return [Path(word)]
    found = sorted(path for path in Path(word).rglob("*") if LOG_NAMES.search(path.name) and path.is_file())
    readable = [path for path in found if os.access(path, os.R_OK)]
    if found and not readable:
        raise UsageError(f"{word}: none of its {len(found)} logs may be read by you")
    if len(readable) < len(found):
        talk.say(f"beware: {len(found) - len(readable)} of the {len(found)} logs in {word} may not be read by you")
    if not found:
        raise UsageError(f"{word} holds no logs", hint="name the files: safelaunch why FILE…")
    return readable


def _look_at_stdin() -> None:
    """Say what is waited for at a terminal; raises UsageError for a device without an end."""
    status = os.fstat(0)
    if os.isatty(0):
        talk.say("reading from the terminal; Ctrl-D ends it")
    elif stat.S_ISCHR(status.st_mode) and status.st_rdev != os.makedev(1, 3):   # /dev/null has an end at once
        raise UsageError("standard input is a device, not a log")


# --- runs -----------------------------------------------------------------------------------------------------------


def _of_run(run: Run, number: int | None) -> Subject:
    state, journal = run.state(), run.journal().events
    chosen = _choose(state.attempts, number)
    if chosen is None:
        raise UsageError(f"{run.plan.name} has no attempt{f' {number}' if number else ' yet'}{_how_far(state)}",
                         hint=f"how it is doing: safelaunch status {run.dir}")
    folder = run.dir / runfolder.attempt_folder(chosen.number)
    log = folder / "main.log"
    paths = ((log,) if log.is_file() else ()) + attemptfacts.kernel_logs(folder)
    index = attemptfacts.read_index(folder)
    from safelaunch.commands import whyevidence  # 20 ms that a mere log does not need

    evidence, outside = whyevidence.of_attempt(run, state, chosen, journal)
    return Subject(paths, evidence, run, chosen, _did(journal, chosen), chosen.job, outside,
                   {log: index} if index is not None else {}, _layout(run, chosen))


def _layout(run: Run, attempt: Attempt) -> tuple[tuple[str, ...], int] | None:
    """Whose ranks stand before the lines of the attempt's log; None = those of the training already."""
    by = run.plan.launch
    return (attempt.nodes, by.nproc_per_node) if by.by == "torchrun" and by.nproc_per_node else None


def _how_far(state: State) -> str:
    """Why a run has no attempt, as far as its journal tells."""
    if state.ended is not None:
        return f": {state.ended.how}, {state.ended.why}"
    if state.job is None:
        return ": no job of it was submitted"
    return f": job {state.job.id} has not started" if state.job.started_t is None else ""


def _choose(attempts: Sequence[Attempt], number: int | None) -> Attempt | None:
    """That attempt; without a number the newest that did not end well, else the newest."""
    if number is not None:
        return next((attempt for attempt in attempts if attempt.number == number), None)
    bad = [attempt for attempt in attempts if attempt.ended not in (None, "completed")]
    return (bad or list(attempts))[-1] if attempts else None


def _did(journal: Sequence[Event], attempt: Attempt) -> tuple[str, ...]:
    """What safelaunch saw and did from that attempt's end on, up to the next one's start."""
    told = []
    for event in journal:
        of = event.data.get("attempt")
        if event.event in TOLD and event.t >= (attempt.ended_t or attempt.started_t) - 1.0 and of != attempt.number - 1:
            if event.event == "attempt_started" and of == attempt.number:
                continue
            told.append(f"{talk.clock(event.t)} {events.describe(event)}")
            if event.event == "attempt_started":
                break
    return tuple(told[:MOST_TOLD])


# --- other people's jobs --------------------------------------------------------------------------------------------


def _foreign_job(job: str) -> Subject:
    """A job that safelaunch did not start; its output is known while Slurm remembers it (MinJobAge: 300 s)."""
    from safelaunch.commands import whyevidence

    facts = whyevidence.ask_job(job)
    paths = tuple(Path(name) for name in dict.fromkeys(facts.outputs) if Path(name).is_file())
    if not paths and facts.folder:   # sacct does not tell the output's name before Slurm 24.05
        guess = Path(facts.folder) / f"slurm-{job}.out"
        paths = (guess,) if guess.is_file() else ()
    evidence = Evidence(states=facts.states, running=facts.is_alive)
    if not paths and not facts.states:
        where = f"its output is not to be found: {', '.join(facts.outputs) or 'Slurm no longer says where it is'}"
        if facts.state == "PENDING":
            where = f"it has not started{f' ({facts.reason})' if facts.reason not in ('', 'None') else ''}"
        raise UsageError(f"job {job} is {facts.state or 'known'}; {where}", hint="name its log: safelaunch why FILE…")
    return Subject(paths, evidence, job=job, outside=(f"Slurm: job {job} is {facts.said}",) if facts.said else ())
