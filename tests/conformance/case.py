"""A script of the suite with what belongs to it, read from the collections in scripts/*.txt.

A collection holds scripts of one group. Each begins with `=== NAME`, then come lines `KEY: VALUE`, a line `---`, and
the script's text. Keys, all but `shape` optional:

    shape     what the script does, for the table of docs/conformance.md
    options   of sbatch's command line; safelaunch gets the same, as `options_as` says
    args      arguments of the script, split as a shell does
    env       variables of the submission, NAME=VALUE, split as a shell does
    umask     of the submission
    also      other files of the folder: NAME=collection's script of that name, or a file of cases/
    fault     variables that make a fault: the script runs a second time, under safelaunch alone, with them
    end       what that run must come to (`oracles.py`)
    says      a regex of what `submit` says of what differs, or why it refuses: the script need not be equal then
    limit     seconds
    alone     the script takes whole nodes: it runs without others
    short     the script belongs to the short form, in `make test`
    overrides KEY=VALUE for safelaunch alone
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS, CASES, PROGRAMS = HERE / "scripts", HERE / "cases", HERE / "programs"
PUBLIC = HERE.parent / "pure" / "config" / "jobscripts"   # shapes of public scripts, which other tests read, too
KEYS = frozenset(("shape", "options", "args", "env", "umask", "also", "fault", "end", "says", "limit", "alone",
                  "short", "overrides", "probe", "file"))
LIMIT_S = 150.0   # a matter of the machine's load; scripts end by themselves
FAULT = "faulted"   # the suffix of the case that is a script under its fault


@dataclass(frozen=True)
class Case:
    """One script, and how it is submitted."""

    name: str
    group: str
    text: str
    shape: str = ""
    options: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    umask: int = 0o022
    also: tuple[tuple[str, str], ...] = ()
    fault: tuple[tuple[str, str], ...] = ()
    end: tuple[str, ...] = ()
    says: str = ""
    limit_s: float = LIMIT_S
    is_alone: bool = False
    is_short: bool = False
    overrides: tuple[str, ...] = ()
    has_probe: bool = True
    file: str = "job.slurm"
    is_faulted: bool = field(default=False)

    @property
    def is_array(self) -> bool:
        """Whether it is many jobs at once."""
        return bool(re.search(r"^#SBATCH.*\s(--array|-a)|^-(-array|a)|^SBATCH_ARRAY_INX$", "\n".join(
            (self.text, *self.options, *(name for name, _ in self.env))), re.MULTILINE))

    @property
    def has_oracle(self) -> bool:
        """Whether it runs under safelaunch alone, and its own oracle judges."""
        return self.is_faulted


def read_all() -> list[Case]:
    """Every script of the collections; one with a fault twice."""
    return [case for path in sorted(SCRIPTS.glob("*.txt")) for case in read_collection(path)]


def read_collection(path: Path) -> Iterator[Case]:
    """The scripts of one file."""
    parts = re.split(r"^=== (\S+)$\n", path.read_text(), flags=re.MULTILINE)[1:]
    for name, rest in zip(parts[::2], parts[1::2], strict=True):
        head, _, text = rest.partition("---\n")
        yield from both(_read(path.stem, name, head, text.strip("\n") + "\n" if text.strip() else ""))


def both(case: Case) -> Iterator[Case]:
    """The case as it is, where it must be as under sbatch, and under its fault."""
    if not case.end or case.fault:
        yield case
    if case.end:
        yield replace(case, name=f"{case.name}-{FAULT}" if case.fault else case.name,
                      env=(*case.env, *case.fault), is_faulted=True, has_probe=False)


def _read(group: str, name: str, head: str, text: str) -> Case:
    said: dict[str, str] = {}
    for line in head.splitlines():
        key, colon, value = line.partition(":")
        if not colon or key not in KEYS:
            raise ValueError(f"{group}.txt: {name}: {line!r}: expected one of {', '.join(sorted(KEYS))}, and a colon")
        said[key] = value.strip()
    if not text:
        text = next(path for path in (CASES / name, PUBLIC / name) if path.exists()).read_text()
    text = text.replace("FILL\n", ("x" * 79 + "\n") * 5_000)   # a script of 400 kB
    if text.startswith("\\x"):   # one that no text file can hold
        text = text.encode().decode("unicode_escape").encode("latin-1").decode()
    return Case(
        name, group, text, shape=said.get("shape", ""),
        options=tuple(shlex.split(said.get("options", ""))), args=tuple(shlex.split(said.get("args", ""))),
        env=_pairs(said.get("env", "")), umask=int(said.get("umask", "22"), 8), also=_pairs(said.get("also", "")),
        fault=_pairs(said.get("fault", "")), end=tuple(filter(None, map(str.strip, said.get("end", "").split(";")))),
        says=said.get("says", ""), limit_s=float(said.get("limit", LIMIT_S)), is_alone="alone" in said,
        is_short="short" in said, overrides=tuple(shlex.split(said.get("overrides", ""))),
        has_probe=said.get("probe") != "no" and bool(re.match(r"#!\s*\S*/(env )?(ba|da|)sh\b", text)),
        file=said.get("file", "job.slurm"))


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    words = (word.partition("=") for word in shlex.split(text))
    return tuple((name, value.replace("\\n", "\n")) for name, _, value in words)
