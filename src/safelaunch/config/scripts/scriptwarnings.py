"""What in a script looks like an option of sbatch, and is none, or means something else than it looks like."""

from __future__ import annotations

import re
from collections.abc import Sequence

from safelaunch.config.scripts.sbatchlines import MAGIC, read_sbatch_lines, split_lines

_LATE = ("#SBATCH behind the first command (line {}), where sbatch reads no option: {} is not asked for; move it above "
         "that line")
_COMMENT = "{!r} is a comment, and no option: sbatch reads only lines that begin with #SBATCH and a blank"
_DOLLAR = ("sbatch fills in no variable in a #SBATCH line: {} stay as written. In the name of a file %u is the "
           "user, %x the job's name, %j its id; other options stand behind the file: -- --job-name=\"$NAME\"")
# "# SBATCH", "##SBATCH", " #SBATCH", "#SBATCH--nodes", "#sbatch", "#SBTACH": what a person may have meant for options.
_ALIKE = re.compile(r"(?:\s*#[#\s]*SBATCH\b|#S(?:BTACH|BACTH|ABTCH|BATH|BATCHH?)\b|#sbatch\b)\s*-", re.IGNORECASE)
_WORTH = re.compile(r"#\s*SB|#(?:\$|@|COBALT|MSUB|OAR|PJM)\s", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:\{[^}]*\}?|\w+|\([^)]*\)?)")
_OTHERS = (   # what other schedulers read
    (re.compile(r"#\$ -[a-zA-Z]"), "#$ lines are Grid Engine's"),
    (re.compile(r"#COBALT\s"), "#COBALT lines are Cobalt's"),
    (re.compile(r"#MSUB\s"), "#MSUB lines are Moab's"), (re.compile(r"#OAR\s"), "#OAR lines are OAR's"),
    (re.compile(r"#PJM\s"), "#PJM lines are Fujitsu's"), (re.compile(r"#@ *\w+ *="), "#@ lines are LoadLeveler's"))
_HOME = re.compile(r"(?:\A|\A--[\w-]+=|\A-\w)(~[^\s]*)")
_TILDE = ("sbatch does not expand ~: {} is looked for in a folder named {}; write the whole path, or give the option "
          "behind the file, where the shell expands it: -- --output ~/…")


def find_warnings(text: str, file: str) -> list[str]:
    """One sentence for each line, in their order."""
    if not _WORTH.search(text):
        return []
    lines = split_lines(text)
    first = next((number for number, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")),
                 len(lines) + 1)
    found = [*_in_head(lines[:first - 1], text), *_behind(lines, first)]
    return [f"{file}:{number}: {said}" for number, said in found]


def _in_head(lines: Sequence[str], text: str) -> list[tuple[int, str]]:
    found = []
    for number, line in enumerate(lines, 1):
        if _ALIKE.match(line) and not line.startswith(MAGIC):
            found.append((number, _COMMENT.format(line.strip()[:60])))
        else:
            found += [(number, f"{whose}: sbatch does not read them")
                      for pattern, whose in _OTHERS if pattern.match(line)]
    found += [(one.number, _TILDE.format(match[1], match[1].partition("/")[0])) for one in read_sbatch_lines(text)
              for word in one.words if (match := _HOME.match(word))]
    variables = [(one.number, match[0]) for one in read_sbatch_lines(text) for word in one.words
                 for match in _VARIABLE.finditer(word)]
    if variables:
        shown = ", ".join(f"{variable} (line {number})" for number, variable in dict.fromkeys(variables))
        found.append((variables[0][0], _DOLLAR.format(shown)))
    return sorted(found)


def _behind(lines: Sequence[str], first: int) -> list[tuple[int, str]]:
    """#SBATCH lines that sbatch never reaches, without those in a here-document: a script that writes one."""
    found, end = [], ""
    for number, line in enumerate(lines[first - 1:], first):
        if end:
            end = "" if line.strip() == end else end
        elif line.startswith(MAGIC) and (what := line[len(MAGIC):].strip()):
            found.append((number, _LATE.format(first, what[:60])))
        elif here := re.search(r"<<-?\s*\\?['\"]?(\w+)", line) if "<<" in line else None:
            end = here[1]
    return found
