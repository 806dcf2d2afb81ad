"""What bash says of a shell text without running it."""

from __future__ import annotations

import os
import re
import subprocess

_DEADLINE_S = 5.0


def syntax_fault(text: str) -> str:
    """What bash cannot read in a script, such as "line 3: unexpected EOF …"; empty where it can or cannot be asked.

    Also for a script of another shell.
    """
    if not re.match(r"#!.*\b(?:ba|da)?sh\b", text):
        return ""
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    try:
        said = subprocess.run(["bash", "--norc", "-n"], input=text.encode(errors="surrogateescape"), env=env,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=_DEADLINE_S)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    if said.returncode == 0:
        return ""
    return said.stderr.decode(errors="replace").partition("\n")[0].removeprefix("bash: ")


def is_complete(text: str) -> bool:
    """Whether a list of commands may begin after this text. False where there is no bash, or it cannot tell."""
    # `!` stands only before a pipeline: after a `|` it is an error. Bash only warns of an open here-document. On stdin,
    # because all users see arguments in `ps`.
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    try:
        said = subprocess.run(["bash", "--norc", "-n"], input=(text + " ! :").encode(errors="surrogateescape"),
                              env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_DEADLINE_S)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False
    return said.returncode == 0 and not said.stdout
