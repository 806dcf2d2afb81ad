"""What in a user's own sbatch script cannot be supervised, each with its line, the reason and what to do; and where it
submits itself, which is no reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from safelaunch.config.scripts.sbatchlines import read_sbatch_lines, split_lines
from safelaunch.errors import Problem


class LineRule(NamedTuple):
    """A call in a part of a line, what stands behind it there, and what is said of it.

    Two patterns: one with a gap between its two halves would take the square of a long line's time.
    """

    call: str
    text: str
    behind: str = ""


_HET = ("a heterogeneous job is not built: its parts are jobs of their own, and one supervisor sees one of them; "
        "submit it with sbatch")
_CALL = r"(?:^|[\s({`!'\"])"   # what a command may stand behind, beside the ends of parts
_OPTIONS = r"(?:-[^\s({`!'\"]+\s+)*"
_FOLDERS = r"(?:/[^\s/;&|({`!'\"=]*)*/"   # they hold nothing that may stand before a path: each is tried once
# By its path, also below a variable, and where a variable is set to it.
_PATH = r"(?:^|[\s({`!'\"=])(?:\$\{?\w+\}?)?" + _FOLDERS
_END = r"(?=[\s\"']|\Z)"

REFUSALS: tuple[LineRule, ...] = (
    LineRule(rf"{_CALL}scontrol\s+{_OPTIONS}requeuehold\b",
             "scontrol requeuehold is not possible in a run; safelaunch hold keeps it until it is released"),
    LineRule(rf"{_CALL}srun\s", _HET, r"\s--(?:het|pack)-group\b"),
    LineRule(rf"{_CALL}srun\s",
             "srun --multi-prog names its programs in a file, where no node guard can stand before them; start each "
             "program by a srun of its own", r"\s--multi-prog\b"),
    LineRule(rf"{_PATH}srun{_END}",
             "srun by its path goes past safelaunch, which could then not end its ranks before the next attempt; "
             "write srun alone"),
)
_PAST = ("goes past safelaunch: if it submits this script, two jobs train at once; write sbatch alone, which is taken "
         "as the next link of this run")
_ITSELF = ("a command of Slurm by its path tells of the run's job, whose name, Command, StdOut and Restarts are not "
           "the script's, and which Slurm does not requeue; write the command alone")
# What runs the words that it is given outside of this job; where they come from a pipe or a here-document, too.
_SUBMITTED, _ELSEWHERE = "of a job", "elsewhere"
_RUNS_ELSEWHERE = re.compile(
    r"\s*(?:[({]\s*)?(?:\S*/)?(?:(?:at|batch|s?crontab)(?=\s|\Z)|env (?:-\S+ )*(?:-i|-|--ignore-environment) |"
    r"(?:ssh|tmux|screen|systemd-run|docker|podman|singularity|apptainer|enroot)\s)")
_HERE_DOCUMENT = re.compile(r"(?<!<)<<-?\s*\\?(['\"]?)(\w+)\1")
_SUBMITS = re.compile(rf"{_CALL}sbatch\b.*<<")
_LATER = f"sbatch by at, cron, tmux, ssh, env -i or in a container {_PAST}"
_WRAPPED = ("a job that only runs this script is another job, which trains beside this run: write sbatch with the "
            "script's file, which is taken as the next link of this run")
# No problems: what the stand-ins of Slurm's commands do with it (node/standin).
NOTES: tuple[LineRule, ...] = (
    LineRule(rf"{_CALL}ssh\s", f"sbatch on another host {_PAST}", r"\b(?:sbatch|scontrol\s+requeue)\b"),
    LineRule(rf"{_PATH}sbatch{_END}", f"sbatch by its path {_PAST}"),
    LineRule(rf"(?:{_CALL}|{_PATH})qsub\s", f"qsub {_PAST}"),
    LineRule(rf"{_PATH}scontrol{_END}", _ITSELF, r"\b(?:jobs?|requeue|update|write)\b"),
    LineRule(rf"{_PATH}s(?:queue|acct|cancel){_END}|=[\"']?{_FOLDERS}scontrol{_END}", _ITSELF),
    LineRule(rf"{_CALL}srun\s", "sbatch in a task is Slurm's own on all nodes but the script's: if it submits this "
             "script, two jobs train at once; call sbatch in the script itself, where it is taken as the next link of "
             "this run", rf"{_CALL}sbatch\s"),
    LineRule(rf"{_CALL}scontrol\s+{_OPTIONS}requeue\b",
             "scontrol requeue ends the script, which is started again in this run"),
    LineRule(rf"{_CALL}sbatch\s", _WRAPPED, r"--wrap[= ]?[\"']?"
             r"(?!(?:(?:\S*/)?(?:ba|z)?sh\s|source\s|\.\s)?\s*[^\s;&|]*(?:\$\{?0\b|{name}))"
             r"[^\"']*(?:\$\{?0\b|\$\{?BASH_SOURCE\b|{name})"),
    LineRule(rf"{_CALL}sbatch\s", "submits itself: taken as the next link of this run, not as another job",
             r"\$\{?0\b|\$\{?BASH_SOURCE\b|\$\{?SLURM_JOB_NAME\b|{name}"),
)
_PAST_ALREADY = frozenset(rule.text for rule in NOTES if rule.text.endswith(_PAST))
_NAMED = re.compile(   # in each of them; quickly said of a line
    "requeue|sbatch|-group|multi-prog|qsub|/s(?:run|control|queue|acct|cancel)")
# A quoted text, whatever stands in it, is one step; so are runs that mean nothing.
_STEP = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^'"\\|;&]+|[|;&]""", re.DOTALL)


def find_refusals(text: str, file: str) -> list[Problem]:
    """Everything in a script that is refused, in the order of its lines."""
    het = [Problem(file, line.number, 1, "#SBATCH", _HET) for line in read_sbatch_lines(text)
           if line.words[:1] in (("hetjob",), ("packjob",))]
    return [*het, *(Problem(file, number, 1, "", said) for number, said in _find(REFUSALS, text, file))]


def find_submissions(text: str, file: str) -> list[str]:
    """Each line that submits a job in words that tell whether it is the script itself."""
    own = re.compile(rf"(?:^|[\s/\"']){_name(file)}|\$\{{?0\b")
    found = dict(_find(NOTES, text, file))
    for number, line, place in _places(text) if _NAMED.search(text) else ():
        if place == _SUBMITTED and own.search(line):
            found[number] = _WRAPPED
        elif place == _ELSEWHERE and "sbatch" in line and found.get(number) not in _PAST_ALREADY:
            found[number] = _LATER
    return [f"{file}:{number}: {said}" for number, said in sorted(found.items())]


def _places(text: str) -> Iterator[tuple[int, str, str]]:
    """Lines that do not run in this script: what runs them, of a command's own words or of its here-document."""
    until = place = ""
    for number, line in _code(text):
        if until:
            if line.strip() == until:
                until = ""
            else:
                yield number, line, place
        elif "<<" in line or "sbatch" in line:
            place = _ELSEWHERE if any(_RUNS_ELSEWHERE.match(part) for part in _parts(line)) else (
                _SUBMITTED if _SUBMITS.search(line) else "")
            if place == _ELSEWHERE:
                yield number, line, place
            document = _HERE_DOCUMENT.search(line) if place else None
            until = document[2] if document else ""


def _name(file: str) -> str:
    return re.escape(file.rpartition("/")[2]) or r"\Z."


def _find(rules: tuple[LineRule, ...], text: str, file: str) -> Iterator[tuple[int, str]]:
    name = _name(file)
    for number, line in _code(text) if _NAMED.search(text) else ():
        if not _NAMED.search(line):
            continue
        parts = list(_parts(line))
        said = next((rule.text for rule in rules if any(_has(rule, part, name) for part in parts)), None)
        if said is not None:
            yield number, said


def _has(rule: LineRule, part: str, name: str) -> bool:
    """Whether the call stands there, and behind the first one what belongs to it."""
    call = re.search(rule.call, part)
    behind = re.compile(rule.behind.replace("{name}", name))
    return call is not None and behind.search(part, call.end() - 1) is not None


def _parts(line: str) -> Iterator[str]:
    """What stands between `|`, `;` and `&` outside of quotes."""
    start = 0
    for step in _STEP.finditer(line):
        if step[0] in "|;&":
            yield line[start:step.start()]
            start = step.end()
    yield line[start:]


def _code(text: str) -> Iterator[tuple[int, str]]:
    """Lines of code with their numbers, continued ones joined, comments left out."""
    lines = split_lines(text)
    index = 0
    while index < len(lines):
        first, parts = index + 1, [lines[index]]
        while parts[-1].endswith("\\") and index + 1 < len(lines):
            index += 1
            parts[-1:] = parts[-1][:-1], lines[index]
        index += 1
        line = " ".join(parts)
        if not line.lstrip().startswith("#"):
            yield first, re.sub(r"(?:^|\s)#.*", "", line) if "#" in line else line
