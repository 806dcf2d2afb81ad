"""Which failures may be run once more, alone: those of a few drills and tests that need a real Slurm, and no others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MARKED = "@pytest.mark.slurm\n"
FAILS = "def test_fails_{n}(): assert False\n"
PASSES = "def test_passes(): pass\n"
ERRS = "@pytest.fixture\ndef broken(): raise OSError\n" + MARKED + "def test_fails_0(broken): pass\n"
DIES = MARKED + "def test_dies(): import os; os._exit(3)\n"


def run_tests(folder: Path, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(f"import pytest\n{code}")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  slurm: x\n  timed: x\n")
    # Without the plugins of other packages, which take most of the time: Hydra's alone imports all of it.
    # With a root of its own for temporary folders: pytest closes the one that it finds to other users, whom tests have.
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
           "PYTEST_DEBUG_TEMPROOT": str(folder)}
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "xdist.plugin", *words]
    return subprocess.run(argv, cwd=folder, env=env, check=False, capture_output=True, text=True, timeout=300)


def first_run(folder: Path, code: str, workers: int = 0) -> tuple[int, list[str], str]:
    """Exit code, names for the second chance, and what was printed."""
    file = folder / "again"
    done = run_tests(folder, code, "-n", str(workers), "-p", "tests.secondchance", "--second-chance", str(file))
    return done.returncode, file.read_text().splitlines(), done.stdout + done.stderr


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("code", [PASSES + MARKED + FAILS.format(n=0), PASSES + ERRS], ids=["failure", "error"])
def test_failed_test_that_needs_slurm_is_to_be_run_again(tmp_path: Path, code: str, workers: int) -> None:
    status, again, said = first_run(tmp_path, code, workers)
    assert (status, again) == (0, ["test_it.py::test_fails_0"]), said
    assert "failed beside others: test_it.py::test_fails_0" in said and "1 passed" in said


@pytest.mark.parametrize("code", [
    FAILS.format(n=0),
    MARKED + FAILS.format(n=0) + FAILS.format(n=1),
    "".join(MARKED + FAILS.format(n=n) for n in range(6)),
    PASSES + "raise OSError\n",
], ids=["needs no Slurm", "one of them needs no Slurm", "six", "not even collected"])
def test_other_failures_get_no_second_chance(tmp_path: Path, code: str) -> None:
    status, again, said = first_run(tmp_path, code)
    assert status in (1, 2) and again == [], said


def test_failed_test_that_is_marked_as_timed_is_to_be_run_again(tmp_path: Path) -> None:
    status, again, said = first_run(tmp_path, MARKED.replace("slurm", "timed") + FAILS.format(n=0))
    assert (status, again) == (0, ["test_it.py::test_fails_0"]), said


def test_failed_drill_on_the_local_cluster_is_to_be_run_again(tmp_path: Path) -> None:
    (tmp_path / "drills").mkdir()
    (tmp_path / "drills" / "test_local.py").write_text(FAILS.format(n=0))
    status, again, said = first_run(tmp_path, PASSES)
    assert (status, again) == (0, ["drills/test_local.py::test_fails_0"]), said


def test_worker_that_dies_gets_no_second_chance(tmp_path: Path) -> None:
    status, again, said = first_run(tmp_path, DIES + PASSES, workers=2)
    assert (status, again) == (1, []), said


def test_names_are_read_back_from_the_file(tmp_path: Path) -> None:
    odd = "@pytest.mark.parametrize('x', [1, 2], ids=['a b [c]', '@d'])\n" + MARKED + "def test_odd(x): assert 0\n"
    _, again, said = first_run(tmp_path, odd + PASSES)
    assert len(again) == 2, said
    alone = run_tests(tmp_path, odd.replace("assert 0", "pass") + PASSES, "-n", "0", "@again")
    assert alone.returncode == 0 and "2 passed" in alone.stdout, alone.stdout + alone.stderr
