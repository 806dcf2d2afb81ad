"""What bash says of a shell text without running it."""

from __future__ import annotations

import os
import subprocess

_DEADLINE_S = 5.0


def is_complete(text: str) -> bool:
    """Whether a list of commands may begin behind this text. False where there is no bash, or it cannot tell."""
    # `!` stands only before a pipeline: behind a `|` it is an error. On stdin: arguments are seen by all in `ps`.
    # A here-document that is still open is no error, but bash warns of it.
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    try:
        said = subprocess.run(["bash", "--norc", "-n"], input=(text + " ! :").encode(errors="surrogateescape"),
                              env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_DEADLINE_S)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False
    return said.returncode == 0 and not said.stdout
