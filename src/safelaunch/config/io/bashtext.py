"""What bash says of a shell text without running it."""

from __future__ import annotations

import os
import re

from safelaunch.base.io import program
from safelaunch.base.io.program import ProgramEnd

_DEADLINE_S = 5.0


def syntax_fault(text: str) -> str:
    """What bash cannot read in a script, such as "line 3: unexpected EOF …"; empty where it can or cannot be asked.

    Also for a script of another shell.
    """
    if not re.match(r"#!.*\b(?:ba|da)?sh\b", text):
        return ""
    ended = _read(text)
    if ended is None or not ended.code:
        return ""
    return ended.err.decode(errors="replace").partition("\n")[0].removeprefix("bash: ")


def is_complete(text: str) -> bool:
    """Whether a list of commands may begin after this text. False where there is no bash, or it cannot tell."""
    # `!` stands only before a pipeline: after a `|` it is an error. Bash only warns of an open here-document.
    ended = _read(text + " ! :")
    return ended is not None and ended.code == 0 and not ended.out and not ended.err


def _read(text: str) -> ProgramEnd | None:
    """How bash ends that reads a text; None where there is none. On stdin: all users see arguments in `ps`."""
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    try:
        return program.run(["bash", "--norc", "-n"], _DEADLINE_S, env=env, stdin=text.encode(errors="surrogateescape"))
    except (OSError, ValueError):
        return None
