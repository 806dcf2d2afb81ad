"""Commands on the sandbox's login machine, as an ordinary user would type them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from safelaunch.sandbox import daemons, users


def start(
    folder: Path, argv: Sequence[str], user: str, env: Mapping[str, str], cwd: Path | None
) -> subprocess.Popen[str]:
    """The command just begun, in a session of its own, with pipes for stdout and stderr and nothing to read."""
    account = users.account_of(user, folder / "home")
    own = {"HOME": str(account.home), "USER": user, "LOGNAME": user, "SHELL": account.shell}
    return subprocess.Popen(
        daemons.machine(folder, daemons.LOGIN).enter(account.become(list(argv))),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        env={**daemons.environment(folder), **own, **env}, cwd=cwd or account.home, start_new_session=True,
    )  # fmt: skip


def finish(process: subprocess.Popen[str], argv: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """All it said and its exit code; after `timeout_s` its session is killed and TimeoutExpired raised."""
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as late:
        # The whole group: a child that holds the pipes would keep us waiting after its parent's death.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate(timeout=5)
        raise subprocess.TimeoutExpired(list(argv), timeout_s, stdout, stderr) from late
    return subprocess.CompletedProcess(list(argv), process.returncode, stdout, stderr)
