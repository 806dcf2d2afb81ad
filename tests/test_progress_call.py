"""safelaunch.progress(step): for a training whose lines name no step; it can do no harm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from safelaunch.trainlog.figures import measure
from safelaunch.trainlog.lines import listen
from safelaunch.trainlog.steps import latest_step

SRC = Path(__file__).parent.parent / "src"
INSIDE = {"SAFELAUNCH_ATTEMPT": "1", "RANK": "0"}


def run(code: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key not in (*INSIDE, "SLURM_PROCID")}
    return subprocess.run([sys.executable, "-S", "-c", code], env={**kept, **env, "PYTHONPATH": str(SRC)}, timeout=60,
                          text=True, capture_output=True, check=False)


def test_one_line_names_the_step_and_the_loss() -> None:
    said = run("import safelaunch; safelaunch.progress(7, 0.25)", INSIDE)
    assert (said.stdout, said.stderr) == ("safelaunch: step 7 loss 0.25\n", "")
    text = f"[n0:0]:{said.stdout}".encode()
    assert latest_step(text, "auto") == latest_step(text, r"batch=(\d+)") == listen(text).step == 7
    assert measure(text).loss == 0.25


def test_a_line_a_second_is_enough() -> None:
    code = ("import safelaunch, sys, time\nbegun_s = time.monotonic()\n"
            "for step in range(100000): safelaunch.progress(step)\nprint(time.monotonic() - begun_s, file=sys.stderr)")
    said = run(code, INSIDE)
    assert said.stdout.startswith("safelaunch: step 0\n")
    assert len(said.stdout.splitlines()) <= 1 + float(said.stderr)


@pytest.mark.parametrize(
    "env", [{}, {**INSIDE, "RANK": "3"}, {"SAFELAUNCH_ATTEMPT": "1", "SLURM_PROCID": "1"}],
    ids=["no run", "another rank", "another task"])
def test_nothing_is_said_where_nobody_listens(env: dict[str, str]) -> None:
    assert run("import safelaunch; safelaunch.progress(7)", env).stdout == ""


@pytest.mark.parametrize("call", [
    "safelaunch.progress(None)", "safelaunch.progress('x', loss='y')", "safelaunch.progress(1, [])",
    "import sys; sys.stdout = None; safelaunch.progress(1)",
    "import sys; sys.stdout.close(); safelaunch.progress(1)",
    "import os, sys; os.close(1); safelaunch.progress(1); sys.stdout = None",
])
def test_it_never_raises(call: str) -> None:
    said = run(f"import safelaunch; {call}; print('goes on', file=__import__('sys').stderr)", INSIDE)
    assert (said.returncode, said.stderr) == (0, "goes on\n")


def test_the_file_alone_does_the_same_where_safelaunch_is_not_installed(tmp_path: Path) -> None:
    """As it is installed by the folder progress/, or copied beside a training."""
    for source in (SRC / "safelaunch" / "safelaunch_progress.py", SRC.parent / "progress" / "safelaunch_progress.py"):
        (tmp_path / "safelaunch_progress.py").write_bytes(source.read_bytes())
        code = "import safelaunch_progress as it, sys; it.progress(7, 0.25); print('safelaunch' in sys.modules)"
        done = subprocess.run([sys.executable, "-S", "-c", code], cwd=tmp_path, timeout=60, text=True,
                              env={**INSIDE, "PYTHONPATH": str(tmp_path)}, capture_output=True, check=False)
        assert (done.stdout, done.stderr) == ("safelaunch: step 7 loss 0.25\nFalse\n", "")


def test_its_own_distribution_brings_nothing_along() -> None:
    text = (SRC.parent / "progress" / "pyproject.toml").read_text()
    assert 'name = "safelaunch-progress"' in text and "\ndependencies" not in text


def test_it_imports_nothing_but_the_standard_library() -> None:
    code = ("import sys; import safelaunch; safelaunch.progress(1)\n"
            "print(sorted({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)))")
    assert run(code, INSIDE).stdout.splitlines()[-1] == "['__main__', 'safelaunch']"
