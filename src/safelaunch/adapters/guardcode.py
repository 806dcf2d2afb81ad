"""The node guard compiled ahead, by the Python that starts it on each node: 9 ms that no restart has to wait for.

It is made beside the first attempt, on the batch host, and goes along with the readable text. A node whose Python is
not the very same, or to which it comes damaged, compiles the text.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

PYTHON = "/usr/bin/python3"   # job.sbatch tries it first
MOST_BYTES = 60_000           # 40,000 are usual; a pipe takes 64 kB, a variable 128 (execve(2), MAX_ARG_STRLEN)
COMPILE = """import binascii, marshal, sys, zlib
code = zlib.compress(marshal.dumps(compile(sys.stdin.buffer.read(), "guard", "exec", optimize=2)))
magic = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER.hex()   # of the bytecode, as at the head of a .pyc file
sys.stdout.write(magic + " " + sys.version.replace("\\n", " ") + "\\n")
sys.stdout.write(binascii.b2a_base64(code, newline=False).decode())"""


class GuardCode:
    """Compiles a text once, and never waits for it."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self._compiler: subprocess.Popen[bytes] | None = None
        self._text = ""

    def env(self) -> dict[str, str]:
        """What the guards' environment has of it by now: nothing at the first attempt."""
        if self._compiler is None:
            self._begin()
        elif not self._text and self._compiler.poll() == 0 and self._compiler.stdout is not None:
            with self._compiler.stdout as out:
                self._text = out.read().decode("ascii", "replace")
        return {"SAFELAUNCH_GUARD_CODE": self._text} if 0 < len(self._text) < MOST_BYTES else {}

    def _begin(self) -> None:
        """The pipe holds all of the answer, so that the compiler ends by itself."""
        with contextlib.suppress(OSError), self._source.open("rb") as source:
            self._compiler = subprocess.Popen([PYTHON, "-I", "-S", "-c", COMPILE], stdin=source, cwd="/",
                                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
