"""The node guard as one text, and compiled in advance by the Python that starts it on each node: 9 ms of each restart.

The text is the modules of node/guard, and what they need of node, in one namespace. The code is made beside the first
attempt, on the batch host, and travels with the text. A node with another Python, or with damaged code, compiles the
text.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from safelaunch.base.io.program import ProgramRun
from safelaunch.node.light import LATER

NODE = Path(__file__).parents[2] / "node"
# Each after those that it imports.
PARTS = ("light.py", "host.py", "fresh.py", "guard/protocol.py", "guard/link.py", "guard/fence.py", "guard/switch.py",
         "guard/processes.py", "guard/kernel.py", "guard/record.py", "guard/orphan.py", "guard/main.py")
_FUTURE = "from __future__ import annotations\n"
# Docstrings, comments, imports for types only, imports of each other, and what the guard imports by itself once
# its launcher runs.
_LEFT_OUT = re.compile(r'^ *\"\"\".*?\"\"\"\n|^from (?:__future__|safelaunch\.node\S*) import (?:\([^)]*\)|[^\n]*)\n'
                       r"|^ *#[^\n]*\n|^TYPE_CHECKING = False\nif TYPE_CHECKING:\n(?:    [^\n]*\n|\n(?=    ))+"
                       rf"|^import (?:{'|'.join(LATER)})\n", re.MULTILINE | re.DOTALL)
PYTHON = "/usr/bin/python3"   # job.sbatch tries it first
MOST_BYTES = 100_000          # 57,000 by Python 3.11, 61,000 by 3.14; a variable takes 128 kB (execve(2))
COMPILE_S = 60.0              # 0.1 s are usual; a guard without it compiles the text itself
# One that no guard can have makes nothing: a script's guard is started by it without another look at its version.
COMPILE = """import binascii, marshal, sys, zlib
if sys.version_info < (3, 9):
    sys.exit(1)
code = zlib.compress(marshal.dumps(compile(sys.stdin.buffer.read(), "guard", "exec", optimize=2)))
magic = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER.hex()   # of the bytecode, as at the head of a .pyc file
sys.stdout.write(magic + " " + sys.version.replace("\\n", " ") + "\\n")
sys.stdout.write(binascii.b2a_base64(code, newline=False).decode())"""


@cache
def guard_text() -> str:
    """What `python3 -I -S -c` runs on a node: it needs no file there, and no other module of ours."""
    return _FUTURE + "".join(_LEFT_OUT.sub("", (NODE / part).read_text()) for part in PARTS)


class GuardCode:
    """Compiles the guard's text once, and never waits for it."""

    def __init__(self, read: Callable[[], str] = guard_text) -> None:
        self._read = read
        self._compiler: ProgramRun | None = None
        self._text = ""

    def env(self) -> dict[str, str]:
        """What the guards' environment has of it so far: nothing at the first attempt."""
        if self._compiler is None:
            self._begin()
        elif not self._text and (ended := self._compiler.poll()) is not None and ended.code == 0:
            self._text = ended.out.decode("ascii", "replace")
        return {"SAFELAUNCH_GUARD_CODE": self._text} if 0 < len(self._text) < MOST_BYTES else {}

    def _begin(self) -> None:
        with contextlib.suppress(OSError):
            self._compiler = ProgramRun([PYTHON, "-I", "-S", "-c", COMPILE], COMPILE_S, stdin=self._read().encode())
