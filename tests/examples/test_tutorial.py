"""The tutorial as a newcomer types it: every command of docs/tutorial.md, in order, in one shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def commands() -> str:
    """The shell blocks of the tutorial."""
    return "".join(re.findall(r"^```bash\n(.*?)^```$", (ROOT / "docs" / "tutorial.md").read_text(), re.M | re.S))


def test_every_command_of_the_tutorial_does_what_the_tutorial_says(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("runs", "checkpoints"))
    env = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SAFELAUNCH_"))}
    env |= {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}
    said = subprocess.run(["bash", "-euo", "pipefail", "-c", commands()], cwd=tmp_path, env=env, text=True, timeout=600,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert said.returncode == 0, said.stdout
    for words in ("2 on local0, from step 80, completed", "step_000100.pt is skipped: truncated",
                  "--- attempt 1 failed after", "the report is in report.html", "exit code 12: stopped on request",
                  "would make ", "sine.yaml: ok"):
        assert words in said.stdout, f"{words} is not in\n{said.stdout}"
    assert "<svg" in (tmp_path / "examples" / "quickstart" / "report.html").read_text()
