"""A file of recorded texts: `### NAME job=ID` and the lines that follow, up to the next such head."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
FROM_SOURCE = FOLDER / "from_source"   # releases that were not to be had: ends alone, each file names its source
_HEAD = re.compile(r"^### (?P<name>\S+) job=(?P<job>\S*)(?: rc=(?P<rc>\S+))?$", re.MULTILINE)


@dataclass(frozen=True)
class Text:
    """What Slurm said in one situation: of `job`, with exit code `rc` where a command said it."""

    release: str
    name: str
    job: str
    rc: int | None
    text: str


def load(path: Path) -> tuple[Text, ...]:
    """All texts of one file; its name is the release: 22.05.txt."""
    content = path.read_text()
    heads = list(_HEAD.finditer(content))
    ends = [head.start() for head in heads[1:]] + [len(content)]
    return tuple(
        Text(path.stem, head["name"], head["job"], int(head["rc"]) if head["rc"] else None,
             content[head.end() + 1:end]) for head, end in zip(heads, ends, strict=True))


def load_all() -> tuple[Text, ...]:
    """The texts of all releases, recorded and from source, the oldest first."""
    files = sorted([*FOLDER.glob("*.txt"), *FROM_SOURCE.glob("*.txt")], key=lambda path: path.name)
    return tuple(text for path in files for text in load(path))


def render(name: str, job: str, rc: int | None, text: str) -> str:
    """One text with its head, as `load` reads it."""
    said = text if not text or text.endswith("\n") else text + "\n"
    return f"### {name} job={job}{'' if rc is None else f' rc={rc}'}\n{said}"
