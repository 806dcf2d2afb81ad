"""Where messages go: the entries of notify.to and notify.command.

None holds a secret. The URL of a webhook is one (who knows it can write to the channel), and train.yaml is copied into
run.json and shown by `config`. So a URL stands in a variable or in a file that is its owner's alone, and only its name
is known here.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from safelaunch.extensions.plugins import NAME_PATTERN

ENV, FILE, MAILTO, PLUGIN, COMMAND = "env", "file", "mailto", "plugin", "command"
_PATTERNS = {
    ENV: r"[A-Za-z_][A-Za-z0-9_]{0,254}",
    FILE: r"(?:~/|/)[^\x00-\x1f\x7f]{1,4000}",
    PLUGIN: NAME_PATTERN,
    MAILTO: r"[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?",
}
PATTERN = "|".join(f"{kind}:(?:{pattern})" for kind, pattern in _PATTERNS.items())


class NotSent(Exception):
    """Why a target did not take the message, without its secret."""


class NotifyTarget(NamedTuple):
    """One of them; `label` names it in logs and journal."""

    kind: str
    value: str                      # a variable's name, a path, an address, a plugin's name, a program
    arguments: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The entry as train.yaml has it; of a command its program."""
        return f"{self.kind}:{self.value}"


def why_not(text: str) -> str | None:
    """What is wrong with an entry of notify.to, without repeating it: it may be a secret. None = nothing."""
    if re.fullmatch(PATTERN, text):
        return None
    if text.partition(":")[0] not in _PATTERNS and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        return ("a URL can hold a secret, and train.yaml is copied into the run's files. Put it into a file that is "
                "yours alone (chmod 600) and write file:~/PATH, or into a variable and write env:NAME")
    return "expected env:NAME, file:/PATH, file:~/PATH, mailto:USER@HOST or plugin:NAME"


def targets(to: tuple[str, ...], command: tuple[str, ...]) -> tuple[NotifyTarget, ...]:
    """All of a run, each once."""
    found = [NotifyTarget(kind, value) for kind, _, value in (one.partition(":") for one in dict.fromkeys(to))]
    return (*found, *([NotifyTarget(COMMAND, command[0], command[1:])] if command else ()))
