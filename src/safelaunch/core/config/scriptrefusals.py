"""What in a user's own sbatch script cannot be supervised, each with its line, the reason and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from safelaunch.core.config.sbatchlines import read_sbatch_lines, split_lines
from safelaunch.core.records import NamedTuple
from safelaunch.errors import Problem


class Refusal(NamedTuple):
    """A pattern of one line of code, and what is said of it."""

    pattern: str
    text: str


_HET = ("a heterogeneous job is not built: its parts are jobs of their own, and one supervisor sees one of them; "
        "submit it with sbatch")
_CALL = r"(?:^|[\s;&|({`!'\"])"   # what a command may stand behind
_AGAIN = ("{} starts the job again by itself, and safelaunch restarts it too: two jobs of one run would write the same "
          "checkpoints. So take it out of the script: safelaunch does it (see restart: in docs/train-yaml.md)")

REFUSALS: tuple[Refusal, ...] = (
    Refusal(rf"{_CALL}scontrol\s+(?:-\S+\s+)*(?:requeue|requeuehold)\b", _AGAIN.format("scontrol requeue")),
    Refusal(rf"{_CALL}sbatch\s[^|;&]*(?:\$\{{?0\b|\$\{{?BASH_SOURCE\b|\$\{{?SLURM_JOB_NAME\b|{{name}})",
            _AGAIN.format("this sbatch")),
    Refusal(rf"{_CALL}srun\s[^|;&]*--(?:het|pack)-group\b", _HET),
    Refusal(rf"{_CALL}srun\s[^|;&]*--multi-prog\b",
            "srun --multi-prog names its programs in a file, where no node guard can stand before them; start each "
            "program by a srun of its own"),
    Refusal(rf"{_CALL}/[^\s;&|]*/srun\s",
            "srun by its path goes past safelaunch, which could then not end its ranks before the next attempt; "
            "write srun alone"),
)
_NAMED = re.compile("requeue|sbatch|-group|multi-prog|/srun")   # in each of them; quickly said of a line


def find_refusals(text: str, file: str) -> list[Problem]:
    """Everything in a script that is refused, in the order of its lines."""
    found = [Problem(file, line.number, 1, "#SBATCH", _HET) for line in read_sbatch_lines(text)
             if line.words[:1] in (("hetjob",), ("packjob",))]
    name = re.escape(file.rpartition("/")[2]) or r"\Z."
    for number, line in _code(text) if _NAMED.search(text) else ():
        if not _NAMED.search(line):
            continue
        for refusal in REFUSALS:
            if re.search(refusal.pattern.replace("{name}", name), line):
                found.append(Problem(file, number, 1, "", refusal.text))
                break
    return found


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
