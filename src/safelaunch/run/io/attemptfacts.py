"""What lies in an attempt's folder beside its log: exits, stacks of a hang check, core files, kernel lines.

Supervisors wrote it: it may be torn, of another version, or another user's. What cannot be read counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safelaunch.base.io import sharedfile
from safelaunch.errors import ParseError
from safelaunch.hangs.present import LastLook
from safelaunch.run.io.runfolder import FOLDERS, MOST_NAME, attempt_folder
from safelaunch.stacks.stacktext import tell_left
from safelaunch.why.evidence import Stacks, stacks_of
from safelaunch.why.findings import TaskExit
from safelaunch.why.judge.witnesses import signal_name
from safelaunch.why.show import verdictjson
from safelaunch.why.verdict import Verdict

MOST_FRAMES = 6      # of a core, shown in a line
MOST_CORES = MOST_LEFT = 4
MOST_BYTES = 16 << 20
MOST_CODE = 1 << 31


def read_exits(folder: Path) -> tuple[tuple[TaskExit, ...], int | None]:
    """The tasks' ends in the order in which they were reported, and srun's exit code."""
    try:
        said = _read(folder / "exit.json")
        exits = tuple(TaskExit(str(task["node"]), int(task["task"]), int(task["code"]), _number(task["signal"]))
                      for task in said["tasks"])
        return exits, _number(said["srun_code"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return (), None


def read_verdict(folder: Path) -> Verdict | None:
    """The verdict by which the supervisor acted, as it wrote it; None = there is none."""
    try:
        return verdictjson.parse(_read(folder / "verdict.json"))
    except (OSError, ValueError, ParseError):
        return None


def read_stacks(folder: Path) -> tuple[Stacks, str] | None:
    """The last hang check's verdict, and a headline of where the ranks stood; None = no check, or the ranks moved."""
    try:
        said = _read(_newest_look(folder))
        verdict = said["verdict"]
        if not _is_still(verdict):
            return None
        odd = tuple((str(one["node"] or ""), one["rank"], str(one["why"])) for one in verdict["odd"])
        found = stacks_of(odd, tuple(map(str, verdict["suspects"])), str(verdict["summary"]),
                          float(verdict["confidence"]))
        return found, str(said["headline"])
    except (OSError, ValueError, KeyError, TypeError):   # ValueError: there is none
        return None


def read_look(folder: Path) -> LastLook | None:
    """The last hang check as `why` tells it of an attempt that lives; None = there was none."""
    try:
        path = _newest_look(folder)
        found = _read(path)["verdict"]
        odd = found["odd"][0] if found["odd"] else {}
        return LastLook(path.stat().st_mtime, str(found["summary"]), float(found["confidence"]), _is_still(found),
                        odd.get("rank"), odd.get("node") or None, tuple(map(str, found["suspects"])))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _newest_look(folder: Path) -> Path:
    """Raises ValueError where there is none."""
    return max(sharedfile.listing(folder / "stacks", "*/verdict.json"), key=lambda path: path.parent.name)


def _is_still(verdict: Mapping[str, Any]) -> bool:
    """Whether a check has found no sign of life."""
    return verdict["kind"] != "moving" and bool(verdict["witnesses"])


def read_cores(folder: Path) -> tuple[str, ...]:
    """A line for each core file that was found on the nodes of the attempt (supervisor.common.inspection)."""
    try:
        return tuple(tell_cores(_read(folder / "system" / "cores.json")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()


def tell_cores(facts: Mapping[str, Any]) -> list[str]:
    """What node.cores found, in lines: "core /run/core.42 of python (SIGSEGV) on n1: f (x.py:3) ← g (x.py:9)"."""
    lines = []
    for core in facts["cores"][:MOST_CORES]:
        number, node = core["signal"], core.get("node")
        signal = f" ({signal_name(number)})" if isinstance(number, int) else ""
        of = f" of {core['program']}" if core["program"] else ""
        frames = [str(frame) for frame in core["backtrace"][:MOST_FRAMES]]
        stack = " ← ".join(frames) if frames else f"no stack: {core['why']}"
        lines.append(f"core {core['path']}{of}{signal}{f' on {node}' if node else ''}: {stack}")
    return [*lines, *map(str, facts["notes"])]


def read_leftovers(folder: Path) -> tuple[str, ...]:
    """A line for each process that should not have been on a node, and for each ticket that waits there."""
    lines = []
    for name, when in (("leftovers.json", "at its start"), ("leftovers-after.json", "after it")):
        try:
            rows = _read(folder / "system" / name)["left"]
            lines += [f"left over {when} on {tell_left(str(row['node']), row)}" for row in rows[:MOST_LEFT]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return (*lines, *(f"a text for the administrators: {path}"
                      for path in sharedfile.listing(folder / "system", "ticket-*.txt")[:MOST_LEFT]))


def kernel_logs(folder: Path) -> tuple[Path, ...]:
    """Kernel lines of the nodes, in files that are named after them."""
    return tuple(filter(sharedfile.is_file, sharedfile.listing(folder / "system", "*.log")))


def closed_parts(run_dir: Path, numbers: Iterable[int]) -> tuple[str, ...]:
    """A line for each folder of a run and of these attempts that cannot be read: the rest is shown all the same."""
    names = [*FOLDERS, *(f"{attempt_folder(number)}{sub}" for number in numbers for sub in ("", "/system", "/stacks"))]
    found = ((name, sharedfile.why_closed(run_dir / name)) for name in names)
    closed = [f"{name[:MOST_NAME]} cannot be read: {why}" for name, why in found if why is not None]
    return tuple(line for line in closed if not any(line.startswith(f"{other.partition(' ')[0]}/") for other in closed))


def tell_exits(exits: Sequence[TaskExit]) -> str:
    """The first task that ended badly: "task 3 on n1 ended first (SIGSEGV)"."""
    bad = [exit for exit in exits if exit.code or exit.signal]
    if not bad:
        return ""
    first = bad[0]
    how = signal_name(first.signal) if first.signal else f"exit code {first.code}"
    return f"{first.who} ended{' first' if len(bad) > 1 else ''} ({how})"


def _number(value: Any) -> int | None:
    """An exit code or a signal; raises ValueError for what is none."""
    if value is not None and (type(value) is not int or abs(value) > MOST_CODE):
        raise ValueError(f"{value!r} is no exit code or signal")
    return value


def _read(path: Path) -> Any:
    return sharedfile.read_json(path, MOST_BYTES)
