"""The error tree.

SafelaunchError               exit code 70 unless a branch says otherwise
├── UsageError                2   a command line that cannot be obeyed
├── ConfigError               2   train.yaml and its overrides; holds every problem found, each with its place
├── TemplateError             2   a site's template that cannot be used
├── ParseError                70  text from outside (Slurm, journal, checkpoint) of an unknown form
├── SlurmError                    a Slurm command that failed
│   ├── SlurmRefused          3   Slurm answered, and said no
│   └── SlurmUnreachable      4   no answer; whether the act happened is unknown
├── RunFolderError            2   a run folder that cannot be made, read or written
├── SandboxError              2   a sandbox that cannot start; names the packages that are missing
└── WaitTimedOut              124 `wait` ran out of time; a TimeoutError, too
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class SafelaunchError(Exception):
    """Root of the tree; `exit_code` is what the command line ends with, `hint` the next thing to type."""

    exit_code = 70

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(SafelaunchError):
    """A command line that cannot be obeyed."""

    exit_code = 2


class Problem(NamedTuple):
    """One mistake in a config: its place (1-based; 0 = unknown), the key, and what to do."""

    file: str
    line: int
    column: int
    key: str
    text: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.key}: {self.text}" if self.key else f"{place}: {self.text}"


class ConfigError(SafelaunchError):
    """Every problem of a config at once."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem], *, hint: str | None = None) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)), hint=hint)


class TemplateError(SafelaunchError):
    """A template that cannot be used."""

    exit_code = 2


class ParseError(SafelaunchError):
    """Text from outside of an unknown form."""


class SlurmError(SafelaunchError):
    """A Slurm command that failed, with its output."""

    def __init__(
        self, message: str, *, argv: Sequence[str], returncode: int | None, stdout: str = "", stderr: str = "",
        hint: str | None = None,
    ) -> None:
        said = (stderr or stdout).strip()
        super().__init__(f"{message}: {said}" if said else message, hint=hint)
        self.argv = tuple(argv)
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr


class SlurmRefused(SlurmError):
    """Slurm answered, and refused."""

    exit_code = 3


class SlurmUnreachable(SlurmError):
    """No answer: whether the act happened is unknown."""

    exit_code = 4


class RunFolderError(SafelaunchError):
    """A run folder that cannot be made, read or written."""

    exit_code = 2


class SandboxError(SafelaunchError):
    """A sandbox that cannot start or be found."""

    exit_code = 2


class WaitTimedOut(SafelaunchError, TimeoutError):
    """`wait` ran out of time."""

    exit_code = 124
