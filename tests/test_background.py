"""The test run itself in the background: what it starts must still hear Ctrl-C and a hang-up."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

ASK = """import subprocess, tests.conftest
print(subprocess.run(["grep", "SigIgn", "/proc/self/status"], capture_output=True, text=True, check=True).stdout)"""


def test_what_tests_start_does_not_inherit_the_ignored_signals_of_a_run_in_the_background() -> None:
    said = subprocess.run(
        ["bash", "-c", "trap '' INT HUP; exec \"$@\"", "bash", sys.executable, "-c", ASK],
        cwd=Path(__file__).parent.parent, check=True, capture_output=True, text=True, timeout=60).stdout
    ignored = int(said.split()[1], 16)
    assert not ignored & (1 << signal.SIGINT - 1 | 1 << signal.SIGHUP - 1), said
