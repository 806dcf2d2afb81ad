"""Run as the user on the login machine: `submitter.py FILE` starts each command of a list, some at once.

The list is JSON: objects with `cwd`, `argv`, `env`, `umask` and `out`, a file for what the command says. One whose
first word is `safelaunch` runs in a fork of this process, which has imported safelaunch: that saves 0.2 s.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

AT_ONCE = 4


def main(file: str) -> None:
    tasks = json.loads(Path(file).read_text())
    if any(task["argv"][0] == "safelaunch" for task in tasks):
        import safelaunch.verbs.submit.submit  # noqa: F401
    living: dict[int, Path] = {}
    for task in tasks:
        if len(living) >= AT_ONCE:
            _collect(living)
        pid = os.fork()
        if pid == 0:
            _be(task)
        living[pid] = Path(task["out"])
    while living:
        _collect(living)


def _collect(living: dict[int, Path]) -> None:
    pid, status = os.wait()
    living.pop(pid).with_suffix(".code").write_text(str(os.waitstatus_to_exitcode(status)))


def _be(task: dict[str, Any]) -> None:
    """Become the command; never returns."""
    code = 127
    try:
        os.setsid()
        os.umask(0o022)
        out = os.open(task["out"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        err = os.open(Path(task["out"]).with_suffix(".err"), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.close(out)
        os.close(err)
        os.chdir(task["cwd"])
        os.umask(task["umask"])
        if task["argv"][0] != "safelaunch":
            os.execvpe(task["argv"][0], task["argv"], {**os.environ, **task["env"]})
        os.environ.update(task["env"])
        sys.argv = task["argv"]
        from safelaunch.cli import main as run

        run(task["argv"][1:])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException as error:   # noqa: BLE001 - the fork must not go on as its parent
        os.write(2, f"submitter: {error!r}\n".encode())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1])
