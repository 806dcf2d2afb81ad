"""What in a user's own sbatch script cannot be supervised, each with its line, the reason and what to do; and where it
submits itself, which is no reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from safelaunch.core.config.sbatchlines import read_sbatch_lines, split_lines
from safelaunch.core.config.shelllines import MOST_SEARCHED
from safelaunch.errors import Problem


class LineRule(NamedTuple):
    """A pattern of one line of code, and what is said of it."""

    pattern: str
    text: str


_HET = ("a heterogeneous job is not built: its parts are jobs of their own, and one supervisor sees one of them; "
        "submit it with sbatch")
_CALL = r"(?:^|[\s;&|({`!'\"])"   # what a command may stand behind

REFUSALS: tuple[LineRule, ...] = (
    LineRule(rf"{_CALL}scontrol\s+(?:-\S+\s+)*requeuehold\b",
             "scontrol requeuehold is not possible in a run; safelaunch hold keeps it until it is released"),
    LineRule(rf"{_CALL}srun\s[^|;&]*--(?:het|pack)-group\b", _HET),
    LineRule(rf"{_CALL}srun\s[^|;&]*--multi-prog\b",
             "srun --multi-prog names its programs in a file, where no node guard can stand before them; start each "
             "program by a srun of its own"),
    LineRule(rf"{_CALL}/[^\s;&|]*/srun\s",
             "srun by its path goes past safelaunch, which could then not end its ranks before the next attempt; "
             "write srun alone"),
)
_PAST = ("goes past safelaunch: if it submits this script, two jobs train at once; write sbatch alone, which is taken "
         "as the next link of this run")
# No problems: what the stand-ins of Slurm's commands do with it (node/standin).
NOTES: tuple[LineRule, ...] = (
    LineRule(rf"{_CALL}ssh\s[^|;&]*\b(?:sbatch|scontrol\s+requeue)\b", f"sbatch on another host {_PAST}"),
    LineRule(rf"{_CALL}/[^\s;&|]*/sbatch\s", f"sbatch by its path {_PAST}"),
    LineRule(rf"{_CALL}scontrol\s+(?:-\S+\s+)*requeue\b",
             "scontrol requeue ends the script, which is started again in this run"),
    LineRule(rf"{_CALL}sbatch\s[^|;&]*(?:\$\{{?0\b|\$\{{?BASH_SOURCE\b|\$\{{?SLURM_JOB_NAME\b|{{name}})",
             "submits itself: taken as the next link of this run, not as another job"),
)
_NAMED = re.compile("requeue|sbatch|-group|multi-prog|/srun")   # in each of them; quickly said of a line


def find_refusals(text: str, file: str) -> list[Problem]:
    """Everything in a script that is refused, in the order of its lines."""
    het = [Problem(file, line.number, 1, "#SBATCH", _HET) for line in read_sbatch_lines(text)
           if line.words[:1] in (("hetjob",), ("packjob",))]
    return [*het, *(Problem(file, number, 1, "", said) for number, said in _find(REFUSALS, text, file))]


def find_submissions(text: str, file: str) -> list[str]:
    """Each line that submits a job in words that tell whether it is the script itself."""
    return [f"{file}:{number}: {said}" for number, said in _find(NOTES, text, file)]


def _find(rules: tuple[LineRule, ...], text: str, file: str) -> Iterator[tuple[int, str]]:
    name = re.escape(file.rpartition("/")[2]) or r"\Z."
    for number, line in _code(text) if _NAMED.search(text) else ():
        if not _NAMED.search(line):
            continue
        found = next((rule for rule in rules if re.search(rule.pattern.replace("{name}", name), line)), None)
        if found is not None:
            yield number, found.text


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
        line = " ".join(parts)[:MOST_SEARCHED]
        if not line.lstrip().startswith("#"):
            yield first, re.sub(r"(?:^|\s)#.*", "", line) if "#" in line else line
