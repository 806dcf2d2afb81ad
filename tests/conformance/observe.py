"""What one side of a script has come to, read from its folder and from Slurm once no job of it is left."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from safelaunch.errors import RunFolderError
from safelaunch.run.fold.state import State
from safelaunch.run.io import runfolder
from tests.conformance.differences import expand
from tests.conformance.place import PLAIN, Side

PREFIX = re.compile(r"^\[[^][\s]*:\d+\]:", re.MULTILINE)
OWN_FILES = frozenset({"rank", "train.py"})


@dataclass
class Probe:
    """What a script, or a task of it, was started with."""

    facts: list[str]
    environment: dict[str, str]


@dataclass
class Observed:
    """One side."""

    side: Side
    jobs: list[dict[str, str]] = field(default_factory=list)     # fields of scontrol show job, the oldest first
    runs: list[State] = field(default_factory=list)
    end: str = ""
    output: list[str] = field(default_factory=list)
    has_output: bool = True    # False: the script has removed its log, or sbatch was to write none
    files: dict[str, str] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    logs: frozenset[str] = frozenset()     # files that are links into the run folder
    scripts: list[Probe] = field(default_factory=list)
    tasks: list[Probe] = field(default_factory=list)
    is_late: bool = False

    @property
    def said(self) -> str:
        """What the command of the submission said."""
        out = self.side.said
        return out.read_text(errors="replace") + out.with_suffix(".err").read_text(errors="replace")

    @property
    def hosts(self) -> list[str]:
        """The nodes of its jobs, each once, in the jobs' order."""
        lists = [job.get("NodeList", "") for job in self.jobs]
        found = [f"n{number}" for text in lists for part in re.findall(r"n(\d+)|n\[([\d,-]+)\]", text)
                 for number in expand(part[0] or part[1])]
        return list(dict.fromkeys(found))

    @property
    def submit_code(self) -> int:
        """Of that command."""
        return int(self.side.said.with_suffix(".code").read_text())


def observe(side: Side, records: Iterable[Mapping[str, str]], is_late: bool) -> Observed:
    """All of it; `records` are those of the jobs that ran in the side's folder."""
    seen = Observed(side, is_late=is_late)
    seen.jobs = sorted((dict(one) for one in records if side.owns(one["JobId"], one.get("WorkDir", ""))),
                       key=lambda one: int(one["JobId"]))
    if side.name == PLAIN:
        seen.end = " ".join(sorted({_plain_end(job) for job in seen.jobs}))
        own = str(side.folder / side.case.file)   # not what its children write: that is compared with the files
        logs = {job[key] for job in seen.jobs if job.get("Command", "").startswith(own)
                for key in ("StdOut", "StdErr") if key in job}
    else:
        runs = list(_runs(side.folder))
        seen.runs = [state for _, state in runs]
        seen.end = " ".join(sorted({_run_end(folder, state) for folder, state in runs}))
        logs = {str(path) for folder, _ in runs for path in (folder / "attempts").glob("*/main.log")}
    found = [_moved(Path(log), side.folder) for log in sorted(logs)]
    seen.has_output = all(path.is_file() for path in found)
    seen.output = [line for path in found for line in _lines(path)]
    paths = list(_tree(side.folder))
    seen.files = {name: _content(path) for name, path in paths}
    seen.modes = {name: f"{path.stat().st_mode & 0o777:o}" for name, path in paths if path.exists()}
    seen.logs = frozenset(name for name, path in paths if path.is_symlink() and "/runs/" in str(path.resolve()))
    probes = side.room / "probe"
    seen.scripts = [_probe(path) for path in sorted(probes.glob("script.*.facts"))]
    seen.tasks = [_probe(path) for path in sorted(probes.glob("step.*.facts"))]
    return seen


def _plain_end(job: Mapping[str, str]) -> str:
    code, _, signal = job.get("ExitCode", "0:0").partition(":")
    if job["JobState"] == "COMPLETED":
        return "completed"
    if job["JobState"] == "FAILED":
        return f"failed {int(code) or 128 + int(signal)}"
    return job["JobState"].lower()


def _run_end(folder: Path, state: State) -> str:
    if state.ended is None:
        return "no end"
    if state.ended.how == "completed":
        return "completed"
    if state.ended.how == "stopped":
        return "stopped"
    try:
        told = json.loads((folder / "attempts" / "0001" / "exit.json").read_text())
    except FileNotFoundError:
        return f"{state.ended.how} without an attempt"
    own = told["srun_code"]   # of the script, where a task of it had another one
    return f"failed {told['exit_code'] if own is None else own}"


def _runs(folder: Path) -> Iterable[tuple[Path, State]]:
    for path in sorted(folder.rglob("run.json")):
        try:
            yield path.parent, runfolder.load(path.parent).state()
        except RunFolderError:
            continue


def _lines(log: Path) -> list[str]:
    return PREFIX.sub("", log.read_text(errors="replace")).splitlines() if log.is_file() else []


def _moved(log: Path, folder: Path) -> Path:
    """Where a log is that its script has moved to another folder."""
    return log if log.exists() else next(folder.rglob(log.name), log)


def _tree(folder: Path) -> Iterable[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name not in OWN_FILES and not name.startswith("runs/"):
            yield name, path


def _content(path: Path) -> str:
    if path.is_symlink() and not path.exists():
        return f"a link to {path.readlink()}"
    if not path.is_file():
        return "folder" if path.is_dir() else "a pipe"
    return PREFIX.sub("", path.read_bytes().decode(errors="backslashreplace"))


def _probe(facts: Path) -> Probe:
    pairs = facts.with_suffix(".environ").read_bytes().decode(errors="surrogateescape").split("\0")
    return Probe(facts.read_text().splitlines(), dict(_pair(pair) for pair in pairs if pair))


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def parse_records(text: str) -> list[dict[str, str]]:
    """Of `scontrol show job -o`: field → value; values may hold blanks, names do not."""
    found = []
    for line in text.splitlines():
        words = re.split(r"(?:^|\s+)([A-Z][\w:/*.]*?)=", line)[1:]
        if words:
            found.append(dict(zip(words[::2], words[1::2], strict=True)))
    return found
