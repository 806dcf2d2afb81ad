"""What a job script is made with besides the plan: template, interpreter, packages of the supervisor."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from safelaunch.errors import TemplateError

PACKAGE = Path(__file__).parent.parent


def read_template(path: str | None) -> str:
    """The job template's text: a site's own file, or the one that comes with safelaunch."""
    file = Path(path) if path else PACKAGE / "templates" / "slurm" / "job.sbatch"
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateError(f"the template {file} cannot be read: {error}") from error


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
