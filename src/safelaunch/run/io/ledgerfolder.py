"""Where the ledger is: all that most submissions want to know of it. And the folder of what outlives a run."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from safelaunch.launch.settings import Suspects


def folder_of(suspects: Suspects, env: Mapping[str, str]) -> Path:
    """Where the ledger of a run lies: `suspects.ledger`, else in the user's state folder. Raises OSError."""
    if suspects.ledger is not None:
        wanted, home = suspects.ledger, env.get("HOME", "")
        if wanted.startswith("~/") and home.startswith("/"):
            wanted = f"{home}/{wanted[2:]}"
        if not wanted.startswith("/"):
            raise OSError(errno.EINVAL, f"suspects.ledger: {wanted} is no absolute path")
        return Path(wanted)
    return state_folder(env) / "nodes"


def state_folder(env: Mapping[str, str]) -> Path:
    """The user's state folder: XDG Base Directory Specification, which wants an absolute path. Raises OSError."""
    state, home = env.get("XDG_STATE_HOME", ""), env.get("HOME", "")
    if not state.startswith("/"):
        if not home.startswith("/"):
            raise OSError(errno.ENOENT, "no place for the ledger: HOME is not set")
        state = f"{home}/.local/state"
    return Path(state) / "safelaunch"
