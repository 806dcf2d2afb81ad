"""What a job script is made with besides the plan: template, interpreter, packages of the supervisor."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from safelaunch.errors import TemplateError
from safelaunch.script import scriptparts

PACKAGE = Path(__file__).parents[2]


def read_template(path: str | None) -> str | dict[str, str]:
    """The job template: the text of a site's own file, or the fragments that come with safelaunch by their names."""
    own = PACKAGE / "templates" / "slurm"
    try:
        return Path(path).read_text() if path else {name: (own / f"{name}.sh").read_text() for name in scriptparts.ALL}
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateError(f"the template {path or own} cannot be read: {error}") from error


def library() -> tuple[str, ...]:
    """Package folders that the supervisor needs beside the standard library."""
    return (str(PACKAGE),)


def umask() -> int:
    """The umask of submit, as the kernel shows it: umask(2) reads it by setting it, for all threads at once."""
    _, found, rest = Path("/proc/self/status").read_bytes().partition(b"\nUmask:\t")
    if found:
        return int(rest.partition(b"\n")[0], 8)
    before = os.umask(0o077)   # a kernel before 4.7
    os.umask(before)
    return before


def python() -> str:
    """The interpreter that submits also runs the supervisor."""
    return sys.executable
