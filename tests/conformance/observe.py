"""What one side of a script has come to, read from its folder and from Slurm once no job of it is left."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from safelaunch.adapters import runfolder
from safelaunch.core.state import State
from safelaunch.errors import RunFolderError
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
    files: dict[str, str] = field(default_factory=dict)
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
        logs = {job[key] for job in seen.jobs for key in ("StdOut", "StdErr") if key in job}
    else:
        runs = list(_runs(side.folder))
        seen.runs = [state for _, state in runs]
        seen.end = " ".join(sorted({_run_end(folder, state) for folder, state in runs}))
        logs = {str(path) for folder, _ in runs for path in (folder / "attempts").glob("*/main.log")}
    seen.output = [line for log in sorted(logs) for line in _lines(Path(log))]
    seen.files = dict(_tree(side.folder))
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
    try:
        return PREFIX.sub("", log.read_text(errors="replace")).splitlines()
    except FileNotFoundError:
        return ["(no output)"]


def _tree(folder: Path) -> Iterable[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name in OWN_FILES or name.startswith("runs/"):
            continue
        if path.is_symlink() and not path.exists():
            yield name, f"a link to {path.readlink()}"
        elif path.is_dir():
            yield name, f"{path.stat().st_mode & 0o777:o} folder"
        else:
            text = path.read_bytes().decode(errors="backslashreplace")
            yield name, f"{path.stat().st_mode & 0o777:o}\n{PREFIX.sub('', text)}"


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
