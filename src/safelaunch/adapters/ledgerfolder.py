"""Where the ledger is: all that most submissions want to know of it."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

from safelaunch.core.plan import Suspects


def folder_of(suspects: Suspects, env: Mapping[str, str]) -> Path:
    """Where the ledger of a run lies: `suspects.ledger`, else in the user's state folder. Raises OSError.

    The state folder: XDG Base Directory Specification, which wants an absolute path.
    """
    home = env.get("HOME", "")
    if suspects.ledger is not None:
        wanted = suspects.ledger
        if wanted.startswith("~/") and home.startswith("/"):
            wanted = f"{home}/{wanted[2:]}"
        if not wanted.startswith("/"):
            raise OSError(errno.EINVAL, f"suspects.ledger: {wanted} is no absolute path")
        return Path(wanted)
    state = env.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        if not home.startswith("/"):
            raise OSError(errno.ENOENT, "no place for the ledger: HOME is not set")
        state = f"{home}/.local/state"
    return Path(state) / "safelaunch" / "nodes"
