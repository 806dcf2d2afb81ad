"""What `why` is asked about: log files, a folder of them, standard input, a run's attempt, any job that Slurm knows."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safelaunch.adapters import runfolder, slurm
from safelaunch.adapters.runfolder import Run
from safelaunch.commands import events, runs, talk
from safelaunch.core.findings import Evidence, TaskExit
from safelaunch.core.model import Event
from safelaunch.core.slurmtext import parse_ending
from safelaunch.core.state import Attempt
from safelaunch.errors import RunFolderError, UsageError

LOG_NAMES = re.compile(r".\.(?:log|out|err|txt)(?:\.\d+)?(?:\.gz)?$|^(?:stdout|stderr)")
SCONTROL_DEADLINE_S = 4.0
TAIL_BYTES = 64 << 10
# What was done about a failure, as the journal tells it; the other kinds are for `safelaunch events`.
TOLD = ("verdict", "node_suspected", "decision", "attempt_ended", "preserved", "attempt_started", "resubmitted",
        "kill_switch", "completed", "gave_up", "stopped")
MOST_TOLD = 8
_ENDINGS = ("time_limit", "preempted", "cancelled")


@dataclass(frozen=True)
class Subject:
    """Logs to read, and what else is known."""

    paths: tuple[Path, ...]
    evidence: Evidence = field(default_factory=Evidence)
    run: Run | None = None
    attempt: Attempt | None = None
    did: tuple[str, ...] = ()      # what safelaunch did about it
    job: str = ""


def find_subject(words: Sequence[str], attempt: int | None) -> Subject:
    """What the words mean: files where they exist, else one run or job; raises UsageError."""
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
    """stdin, file, run, folder or name; looked at by a disposable child, since the path may be on a frozen mount."""
    if word == "-":
        return "stdin"
    if word.startswith("/dev/fd/"):   # bash's <(…): the child has it not
        return "file"
    path = Path(word)
    if path.is_dir():
        return "run" if runfolder.is_run_folder(path) else "folder"
    return "file" if path.exists() else "name"


def _files(word: str, kind: str) -> list[Path]:
    if kind == "run":
        raise UsageError(f"{word} is a run", hint="ask about one run, or about log files, at a time")
    if kind != "folder":
        return [Path(word)]
    found = sorted(path for path in Path(word).rglob("*") if LOG_NAMES.search(path.name) and path.is_file())
    if not found:
        raise UsageError(f"{word} holds no logs", hint="name the files: safelaunch why FILE…")
    return found


# --- runs -----------------------------------------------------------------------------------------------------------


def _of_run(run: Run, number: int | None) -> Subject:
    state, journal = run.state(), run.journal().events
    chosen = _choose(state.attempts, number)
    if chosen is None:
        raise UsageError(f"{run.plan.name} has no attempt{f' {number}' if number else ' yet'}",
                         hint=f"how it is doing: safelaunch status {run.dir}")
    log = run.dir / runfolder.attempt_folder(chosen.number) / "main.log"
    return Subject((log,) if log.exists() else (), _evidence(run, chosen, journal, chosen == state.attempts[-1]), run,
                   chosen, _did(journal, chosen), chosen.job)


def _choose(attempts: Sequence[Attempt], number: int | None) -> Attempt | None:
    """That attempt; without a number the newest that did not end well, else the newest."""
    if number is not None:
        return next((attempt for attempt in attempts if attempt.number == number), None)
    bad = [attempt for attempt in attempts if attempt.ended not in (None, "completed")]
    return (bad or list(attempts))[-1] if attempts else None


def _evidence(run: Run, attempt: Attempt, journal: Sequence[Event], is_newest: bool) -> Evidence:
    """What run folder and journal say beside the log."""
    exits, srun_code = _exits(run.dir / runfolder.attempt_folder(attempt.number) / "exit.json")
    mine = [event.data for event in journal if event.event == "verdict" and event.data.get("attempt") == attempt.number]
    said = str(mine[-1].get("category")) if mine else ""
    ending = said if said in _ENDINGS else None
    if ending is None and is_newest:
        word = parse_ending(_job_output(run, attempt), attempt.job)
        ending = word if word in _ENDINGS else None
    end_t = attempt.ended_t if attempt.ended_t is not None else float("inf")
    lost = tuple((str(event.data.get("node")), str(event.data.get("why", ""))) for event in journal
                 if event.event == "node_suspected" and attempt.started_t <= event.t <= end_t)
    return Evidence(exits=exits, lost=lost if attempt.ended == "lost" or said == "node_failure" else (), ending=ending,
                    srun_code=srun_code, states=("COMPLETED",) if attempt.ended == "completed" else (),
                    running=attempt.ended is None)


def _exits(path: Path) -> tuple[tuple[TaskExit, ...], int | None]:
    """exit.json's tasks, and srun's code; nothing where there is no such file or it is of another form."""
    try:
        said: Any = json.loads(path.read_bytes())
        return (tuple(TaskExit(str(task["node"]), int(task["task"]), int(task["code"]), task["signal"])
                      for task in said["tasks"]), said["srun_code"])
    except (OSError, ValueError, KeyError, TypeError):
        return (), None


def _job_output(run: Run, attempt: Attempt) -> str:
    """The end of the job's own output, where slurmstepd says why it ended the job."""
    for path in (run.dir / f"slurm-{attempt.job}.out", run.dir / "job.out"):
        try:
            with path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
                return file.read().decode(errors="replace")
        except OSError:
            continue
    return ""


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
    """A job that safelaunch did not start, while Slurm still knows where its output is (MinJobAge: 300 s)."""
    result = slurm.run(("scontrol", "show", "job", "--oneliner", job), slurm.outside_job(os.environ),
                       SCONTROL_DEADLINE_S)
    if not result.is_ok:
        said = result.stderr.strip() or "Slurm does not answer"
        raise RunFolderError(f"no run and no job {job} is known here: {said}",
                             hint="name its log: safelaunch why FILE…")
    facts = dict(re.findall(r"(\w+)=(\S+)", result.stdout))
    names = dict.fromkeys(facts.get(key, "") for key in ("StdOut", "StdErr"))
    paths = tuple(Path(name) for name in names if name.startswith("/") and Path(name).is_file())
    if not paths:
        raise UsageError(f"the output of job {job} is not to be found: {', '.join(names)}",
                         hint="name its log: safelaunch why FILE…")
    state = facts.get("JobState", "")
    return Subject(paths, Evidence(states=(state,) if state else (), running=state in ("RUNNING", "PENDING")), job=job)
