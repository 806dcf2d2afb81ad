"""What a test run starts outside a sandbox ends with it, even where the run is killed: no fixture cleans up then.

A reaper, one for each pytest (xdist) worker that needs it, holds the read end of a pipe of the worker's. The pipe ends
with the worker, however that dies, and the reaper ends what carries the worker's mark in its environment. Seen before:
a guard and its rank that computed for 90 minutes after the run was killed.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import uuid

NAME = "TEST_RUN_OF_SAFELAUNCH"   # a job keeps no unknown SAFELAUNCH_ variable
REAPER = """
import os, signal, sys, time
sys.stdin.buffer.read()
mark = os.fsencode(sys.argv[1])
for _ in range(200):   # one that sleeps in a frozen folder dies later
    left = False
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/" + name + "/environ", "rb") as environ:   # empty for a zombie
                if mark in environ.read().split(b"\\0"):
                    left = True
                    os.kill(int(name), signal.SIGKILL)
        except OSError:
            pass
    if not left:
        break
    time.sleep(0.05)
"""

_reapers: list[subprocess.Popen[bytes]] = []   # one that is collected as garbage would close the pipe


@functools.cache
def leased() -> dict[str, str]:
    """For the environment of a process that is to end with this test run; its children inherit it."""
    mark = uuid.uuid4().hex
    # In a session of its own, and without the mark: whoever ends the run's whole process group leaves it alone.
    reaper = subprocess.Popen([sys.executable, "-I", "-S", "-c", REAPER, f"{NAME}={mark}"], stdin=subprocess.PIPE,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd="/",
                              env={key: value for key, value in os.environ.items() if key != NAME})
    _reapers.append(reaper)
    return {NAME: mark}
