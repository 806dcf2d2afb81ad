"""The other host's part in a check of a shared folder: it says what it sees there, and when.

Runs as `python3 -I -S -c TEXT` on a node: one JSON object a line on stdin, one answer a line on stdout. Its own folder
is `folder`; standard library only, Python 3.9.
"""

import contextlib
import json
import os
import sys
import time

POLL_S = 0.05


def read(path: str) -> "str | None":
    """The file's text as this host sees it; None = it sees none."""
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        return None


def wait(path: str, wanted: str, for_s: float) -> "float | None":
    """Seconds until the text is seen; None = not in time."""
    begun_s = time.monotonic()
    while True:
        if read(path) == wanted:
            return time.monotonic() - begun_s
        if time.monotonic() - begun_s > for_s:
            return None
        time.sleep(POLL_S)


def afresh(path: str) -> "str | None":
    """What is seen right after this host has changed the folder: see node.fresh.see."""
    name = "%s/.look.%s.%d" % (os.path.dirname(path), os.uname().nodename, os.getpid())
    with contextlib.suppress(OSError):
        try:
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        finally:
            os.unlink(name)
    return read(path)


def claim(path: str) -> bool:
    """Whether this host won the name: see adapters.shared, publish."""
    mine = "%s.%s.%d" % (path, os.uname().nodename, os.getpid())
    with open(mine, "w") as draft:
        draft.write(mine)
        draft.flush()
        os.fsync(draft.fileno())
    try:
        os.link(mine, path)
        return True
    except FileExistsError:
        return os.stat(mine).st_nlink == 2 or read(path) == mine
    finally:
        os.unlink(mine)


def answer(asked: "dict[str, object]") -> object:
    """What a line asks for."""
    do, path = asked["do"], str(asked.get("path", ""))
    if do == "host":
        return os.uname().nodename
    if do == "read":
        return read(path)
    if do == "wait":
        return wait(path, str(asked["wanted"]), float(str(asked["for_s"])))
    if do == "afresh":
        return afresh(path)
    if do == "claim":
        return claim(path)
    raise ValueError("unknown: %s" % do)


def main() -> None:
    """Answer until nobody asks any more."""
    for line in sys.stdin:
        try:
            told = {"value": answer(json.loads(line))}
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            told = {"error": "%s: %s" % (type(error).__name__, error)}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
