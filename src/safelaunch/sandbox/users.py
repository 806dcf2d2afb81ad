"""The two ordinary users that jobs run as: safelaunch's users are guests, so nothing of it may need root."""

from __future__ import annotations

import grp
import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from safelaunch.base.io import modes
from safelaunch.errors import SandboxError
from safelaunch.sandbox import registry
from safelaunch.sandbox.command import run_command

USERS = ("sl-alice", "sl-bob")
TEAM = "sl-team"


@dataclass(frozen=True)
class UserAccount:
    """What it takes to become a user."""

    uid: int
    gid: int
    home: Path
    shell: str

    def become(self, argv: list[str]) -> list[str]:
        """`argv` as this user with all its groups; util-linux' setpriv executes it in place."""
        if self.uid == os.getuid():
            return argv
        return ["setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--init-groups", "--", *argv]


def ensure_users() -> None:
    """Make sl-alice and sl-bob, both in group sl-team, where they are missing. They stay when the sandbox goes.

    Sandboxes that start at the same moment wait for each other here: of two useradd for one user the second fails.
    """
    if _has_group(TEAM) and all(_has_user(name) and _is_in_team(name) for name in USERS):
        return
    with registry.locked():
        if not _has_group(TEAM):
            run_command(["groupadd", TEAM])
        for name in USERS:
            if not _has_user(name):
                own = ["--create-home", "--shell", "/bin/bash", "--user-group"]
                run_command(["useradd", *own, "--groups", TEAM, name])
            elif not _is_in_team(name):
                run_command(["usermod", "--append", "--groups", TEAM, name])


def _has_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _is_in_team(name: str) -> bool:
    team = grp.getgrnam(TEAM)
    return name in team.gr_mem or pwd.getpwnam(name).pw_gid == team.gr_gid


def account_of(name: str, homes: Path) -> UserAccount:
    """The account of this name, with its home in the sandbox (`homes`/name) if it has one there."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError as missing:
        raise SandboxError(f"no user {name!r} on this machine; a sandbox has {' and '.join(USERS)}") from missing
    inside = homes / name
    return UserAccount(entry.pw_uid, entry.pw_gid, inside if inside.is_dir() else Path(entry.pw_dir), entry.pw_shell)


def close_to_others(folder: Path) -> None:
    """Let nobody but root and the sandbox's users pass: munged itself starts only in a folder that all may pass."""
    modes.set_mode(folder, 0o750, grp.getgrnam(TEAM).gr_gid)


def make_homes(homes: Path) -> None:
    """A home for each user inside the sandbox, so that sandboxes side by side share no dot file."""
    homes.mkdir(exist_ok=True)
    for name in USERS:
        entry = pwd.getpwnam(name)
        (homes / name).mkdir(mode=0o750)
        os.lchown(homes / name, entry.pw_uid, entry.pw_gid)
