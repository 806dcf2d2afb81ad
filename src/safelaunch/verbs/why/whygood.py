"""What good logs of the same command say: of a run's earlier attempts, and of this user's earlier runs of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from safelaunch.base.endings import GOOD_ENDS
from safelaunch.base.io import sharedfile
from safelaunch.base.io.probe import run_in_child
from safelaunch.errors import RunFolderError
from safelaunch.run.fold.state import Attempt
from safelaunch.run.io import registry, runfolder
from safelaunch.run.io.runfolder import Run
from safelaunch.why import usual

MOST_LOGS = 3
MOST_RUNS = 20             # of the newest, that are looked at
HEAD_BYTES, TAIL_BYTES = 1 << 19, 1 << 20   # of a log: its start, and its end
DEADLINE_S = 3.0           # a person waits; without an answer nothing is compared


def read(run: Run, attempt: Attempt | None) -> tuple[str, ...]:
    """The lines of the newest good logs, each as why.read.usual has them; none where their folders do not answer."""
    number = attempt.number if attempt is not None else None
    answer = run_in_child(lambda: [_lines_of(path) for path in islice(_logs(run, number), MOST_LOGS)], DEADLINE_S)
    return tuple(filter(None, answer.value or ()))


def _logs(run: Run, number: int | None) -> Iterator[Path]:
    yield from _of_run(run, number)
    for entry in islice(registry.entries(), MOST_RUNS):
        try:
            other = runfolder.load(entry.dir)
            if other.dir.resolve() != run.dir.resolve() and other.plan.command == run.plan.command:
                yield from _of_run(other, None)
        except (OSError, RunFolderError):
            continue


def _of_run(run: Run, before: int | None) -> Iterator[Path]:
    """The logs of its attempts that ended well, the newest first."""
    for attempt in reversed(run.state(partly=True).attempts):
        log = run.dir / runfolder.attempt_folder(attempt.number) / "main.log"
        if attempt.ended in GOOD_ENDS and (before is None or attempt.number < before) and sharedfile.is_file(log):
            yield log


def _lines_of(log: Path) -> str:
    try:
        head, tail = sharedfile.read_start(log, HEAD_BYTES), sharedfile.read_end(log, TAIL_BYTES)
    except OSError:
        return ""
    return usual.read_good(head + b"\n" + tail)
