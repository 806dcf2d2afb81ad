"""The sandbox's users and their group are made once, whoever asks for them at the same moment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from safelaunch.sandbox.users import TEAM, USERS
from tests.sandboxes import skip_unless_able

# An /etc of its own, in which nobody has heard of the sandbox's users and homes lie elsewhere.
OWN_MACHINE = """
set -e
cp -a /etc "$1/etc"
for table in passwd shadow group gshadow subuid subgid; do
  [ ! -e "$1/etc/$table" ] || sed -i /sl-/d "$1/etc/$table"
done
printf 'HOME=%s\\nCREATE_MAIL_SPOOL=no\\n' "$1" >>"$1/etc/default/useradd"
mount --make-rprivate /
mount --bind "$1/etc" /etc
shift
exec "$@"
"""
# Forked once all is imported, and held back by a pipe: they ask at the same moment.
ASK_AT_ONCE = """
import os, sys
from safelaunch.sandbox.users import ensure_users
held, gate = os.pipe()
def ask():
    os.close(gate)
    os.read(held, 1)
    ensure_users()
    os._exit(0)
asking = [os.fork() or ask() for _ in range(8)]
os.close(gate)
sys.exit(sum(os.waitpid(one, 0)[1] != 0 for one in asking))
"""
SHOW = "import grp, pwd, sys; print([pwd.getpwnam(n).pw_shell for n in sys.argv[2:]], grp.getgrnam(sys.argv[1]).gr_mem)"


@pytest.fixture
def machine(tmp_path: Path) -> list[str]:
    """What goes before a command that is to find no users of the sandbox."""
    skip_unless_able()
    return ["unshare", "--mount", "bash", "-c", OWN_MACHINE, "bash", str(tmp_path)]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="makes users in a mount namespace of its own")
@pytest.mark.parametrize("before", ["", f"groupadd {TEAM}", f"groupadd {TEAM}; useradd --create-home {USERS[0]}"],
                         ids=["nothing", "the group", "one user outside the group"])
def test_users_that_many_processes_ask_for_at_once_are_made_once(machine: list[str], before: str) -> None:
    both = f'{before}\n"$1" -c "$2" && "$1" -c "$3" {TEAM} {" ".join(USERS)}'
    done = subprocess.run([*machine, "bash", "-c", both, "bash", sys.executable, ASK_AT_ONCE, SHOW],
                          check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.strip()
    shell = "/bin/sh" if before.endswith(USERS[0]) else "/bin/bash"
    assert shown == f"{[shell, '/bin/bash']} {list(USERS)}"
