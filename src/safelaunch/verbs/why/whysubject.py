"""What `why` is asked about: log files, a folder of them, standard input; runs and jobs are `whyrun`'s."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from safelaunch.base.io.probe import run_in_child
from safelaunch.errors import RunFolderError, UsageError
from safelaunch.run.io.runpath import is_run_folder
from safelaunch.verbs.common import talk
from safelaunch.why.findings import OutsideEvidence
from safelaunch.why.judge.ends import judge_end
from safelaunch.why.verdict import Verdict

if TYPE_CHECKING:
    from safelaunch.decide.budget.policy import Response
    from safelaunch.hangs.present import Present
    from safelaunch.run.fold.state import Attempt
    from safelaunch.run.io.runfolder import Run

FOLDER_DEADLINE_S = 10.0   # a sick parallel filesystem answers in seconds; one that needs longer is frozen
MOST_OTHERS = 20_000       # files and folders beside the logs: a checkpoint has 10,000, a home or a system far more
NAME_LOGS = "name the logs, or a folder that holds little else: safelaunch why FILE…"
LOG_NAMES = re.compile(r".\.(?:log|out|err|txt)(?:\.\d+)?(?:\.gz)?$|^(?:stdout|stderr)")


@dataclass(frozen=True)
class Subject:
    """Logs to read, and what else is known."""

    paths: tuple[Path, ...]
    evidence: OutsideEvidence = field(default_factory=OutsideEvidence)
    run: Run | None = None
    attempt: Attempt | None = None
    did: tuple[str, ...] = ()      # what safelaunch did about it
    when: str = ""                 # the time of the failure, as the journal has it
    job: str = ""
    follows: str = ""              # what its policy makes of it
    ended: str = ""                # when, and how
    outside: tuple[str, ...] = ()  # what is known beside the logs, in lines
    layout: tuple[tuple[str, ...], int] | None = None   # nodes in order, ranks of each: its log has ranks of a node
    policy: Mapping[str, Response] = field(default_factory=dict)   # the run's, by category
    recorded: Verdict | None = None   # by which the supervisor acted
    present: Present | None = None    # what the run's newest attempt does, where it lives
    is_lost: bool = False             # the attempt's job is over, though the journal has no end
    lost: str = ""                    # the same of a later attempt's job: what Slurm says of the run

    @property
    def is_of_present(self) -> bool:
        """Whether it is about an attempt that lives."""
        return self.present is not None and self.attempt is not None and self.attempt.number == self.present.attempt

    @property
    def is_open(self) -> bool:
        """Whether the logs have to say how it ended: no journal does."""
        return self.evidence.end is None or judge_end(self.evidence.end) is None


def find_files(words: Sequence[str], attempt: int | None) -> Subject | None:
    """The log files that the words name; None = they mean one run or job. Raises UsageError."""
    if "" in words:
        raise UsageError("an empty name is not a log", hint="without a name, it takes the newest run in this folder")
    kinds = _kinds(words)
    missing = [word for word, kind in zip(words, kinds, strict=True) if kind == "name"]
    if len(words) > 1 and missing:
        raise UsageError(f"{missing[0]}: no such file", hint="several arguments must all be log files")
    if missing and ("/" in missing[0] or LOG_NAMES.search(missing[0])):
        raise UsageError(f"{missing[0]}: no such file, and no run")
    if not kinds or kinds[0] in ("name", "run"):
        return None
    if attempt is not None:
        raise UsageError("--attempt goes with a run, not with log files")
    return Subject(tuple(path for word, kind in zip(words, kinds, strict=True) for path in _files(word, kind)))


def _kinds(words: Sequence[str]) -> list[str]:
    """What each argument is, read by a disposable child: a path may be on a frozen mount."""
    if not words:
        return []
    answer = run_in_child(lambda: [_kind(word) for word in words], FOLDER_DEADLINE_S)
    if answer.value is None:
        why = f"does not answer for {FOLDER_DEADLINE_S:.0f} s: its filesystem is frozen or slow" if answer.late else (
            f"cannot be read: {answer.error}")
        raise RunFolderError(f"{' '.join(words)} {why}")
    return answer.value


def _kind(word: str) -> str:
    """stdin, file, fifo, device, run, folder, name, or "!" and an error."""
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
        return "run" if is_run_folder(path) else "folder"
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return "device"
    return "fifo" if stat.S_ISFIFO(mode) else "file"


def _files(word: str, kind: str) -> list[Path]:
    """The logs that an argument names; raises UsageError for others."""
    if kind.startswith("!"):
        raise UsageError(f"{word} cannot be read: {kind[1:]}")
    if kind == "run":
        raise UsageError(f"{word} is a run", hint="ask about one run, or about log files, at a time")
    if kind == "stdin":
        _check_stdin()
        return [Path("-")]
    if kind == "device":
        raise UsageError(f"{word} is a device, not a log")
    if kind == "fifo":
        talk.say(f"{word} is a pipe: it is read until its writer closes it")
    if kind != "folder":
        return [Path(word)]
    found = _logs_below(Path(word))
    readable = [path for path in found if os.access(path, os.R_OK)]
    if found and not readable:
        raise UsageError(f"{word}: none of its {len(found)} logs are readable for you")
    if len(readable) < len(found):
        talk.say(f"warning: you may not read {len(found) - len(readable)} of the {len(found)} logs in {word}")
    if not found:
        raise UsageError(f"{word} has no logs", hint="name the files: safelaunch why FILE…")
    return readable


def _logs_below(folder: Path) -> list[Path]:
    """The logs in a folder and all below it, found by a disposable child."""
    answer = run_in_child(lambda: _search(folder), FOLDER_DEADLINE_S)
    if answer.late:
        raise UsageError(f"{folder} was not searched within {FOLDER_DEADLINE_S:.0f} s: it is very slow, or frozen",
                         hint=NAME_LOGS)
    if not answer.is_ok:
        raise UsageError(f"{folder} cannot be searched: {answer.error}")
    if answer.value is None:
        raise UsageError(f"{folder} is not a folder of logs: it has over {MOST_OTHERS} other files", hint=NAME_LOGS)
    return [Path(path) for path in answer.value]


def _search(folder: Path) -> list[str] | None:
    """The logs' paths; None = there is too much else: "/" or a home would take minutes, and not be meant."""
    found: list[str] = []
    others = 0
    for root, folders, names in os.walk(folder):
        logs = [name for name in names if LOG_NAMES.search(name)]
        others += len(names) - len(logs) + len(folders)
        if others > MOST_OTHERS:
            return None
        found += filter(os.path.isfile, (os.path.join(root, name) for name in logs))   # noqa: PTH118 - plain strings
    return sorted(found)


def _check_stdin() -> None:
    """Say what is waited for at a terminal; raises UsageError for a device without an end."""
    status = os.fstat(0)
    if os.isatty(0):
        talk.say("reading from the terminal; Ctrl-D ends it")
    elif stat.S_ISCHR(status.st_mode) and status.st_rdev != os.makedev(1, 3):   # /dev/null has an end at once
        raise UsageError("standard input is a device, not a log")
