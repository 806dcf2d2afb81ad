"""How job.sbatch's shell starts its supervisor, and starts it again: with a stand-in for Python, and none of Slurm."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

TEMPLATE = Path(__file__).parent.parent.parent / "templates" / "slurm" / "job.sbatch"
# Its arguments: -I -S -c CODE LIBRARY RUN_DIR LOCAL ROLE
PYTHON = """#!/bin/bash
echo born >>"$HERE/births"
case $(wc -l <"$HERE/births") in
{cases}
esac
touch "$7/leader.born"
echo 7 >"$7/final"
exit 7
"""
SRUN = """#!/bin/bash
echo trained >>"$HERE/trained"
"""


@dataclass
class Ended:
    """How a job's script ended."""

    code: int
    births: int
    trained: bool
    said: str


Supervise = Callable[..., Ended]   # how each birth goes → how the script ended


@pytest.fixture
def supervise(tmp_path: Path) -> Supervise:
    def go(*cases: str) -> Ended:
        """The script, with a supervisor whose n-th birth goes as the n-th case says; later ones lead."""
        table = "\n".join(f"{number}) {case} ;;" for number, case in enumerate(cases, start=1))
        for name, text in (("python", PYTHON.format(cases=table or "0) ;;")), ("srun", SRUN)):
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        (tmp_path / "library").touch()
        script = TEMPLATE.read_text()
        for key, value in {"SL_RUN_DIR": f"{tmp_path}/run", "SL_KILL_FILE": f"{tmp_path}/run/control/kill",
                           "SL_PYTHON": f"{tmp_path}/python"}.items():
            old = next(line for line in script.splitlines() if line.startswith(f"{key}="))
            script = script.replace(old, f"{key}='{value}'", 1)
        script = script.replace("SL_LIBRARY=()", f"SL_LIBRARY=('{tmp_path}/library')", 1)
        (tmp_path / "job.sbatch").write_text(script)
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HERE": str(tmp_path), "SAFELAUNCH_LOCAL_DIR": f"{tmp_path}/local"}
        (tmp_path / "local").mkdir(exist_ok=True)
        done = subprocess.run(["bash", str(tmp_path / "job.sbatch")], env=env, cwd=tmp_path, capture_output=True,
                              text=True, timeout=120)
        births = (tmp_path / "births").read_text().count("born")
        return Ended(done.returncode, births, (tmp_path / "trained").exists(), done.stdout + done.stderr)

    return go


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder away: needs root")
def test_a_folder_under_this_users_name_that_is_somebody_elses_costs_no_supervisor(
    supervise: Supervise, tmp_path: Path
) -> None:
    taken = tmp_path / "local" / f"safelaunch-{os.getuid()}"
    taken.mkdir(parents=True)
    os.chown(taken, 60002, 60002)
    ended = supervise('cp "$7/taken" "$HERE/told"')
    assert (ended.code, ended.births, ended.trained) == (7, 1, False), ended.said
    assert f"BEWARE: {taken} on this node belongs to" in ended.said
    assert (tmp_path / "told").read_text() == f"{taken}\n"
    assert list(taken.iterdir()) == [] and list(taken.parent.iterdir()) == [taken]


def test_an_own_folder_that_others_could_write_is_closed(supervise: Supervise, tmp_path: Path) -> None:
    own = tmp_path / "local" / f"safelaunch-{os.getuid()}"
    own.mkdir(parents=True)
    own.chmod(0o777)
    assert supervise().code == 7
    assert own.stat().st_mode & 0o777 == 0o700


KILLED, BORN_AND_KILLED, BROKEN = "kill -KILL $$", 'touch "$7/leader.born"; kill -KILL $$', "exit 1"


@pytest.mark.parametrize("fates", [
    pytest.param((), id="nothing happens"),
    pytest.param((KILLED,), id="killed before its birth"),
    pytest.param((KILLED, KILLED, KILLED), id="killed before its birth, three times"),
    pytest.param((BORN_AND_KILLED, KILLED, BORN_AND_KILLED), id="killed before and after it"),
])
def test_supervisor_that_is_killed_is_born_again(supervise: Supervise, fates: tuple[str, ...]) -> None:
    ended = supervise(*fates)
    assert (ended.code, ended.births, ended.trained) == (7, len(fates) + 1, False), ended.said


@pytest.mark.parametrize(("fates", "births"), [
    pytest.param((KILLED,) * 9, 5, id="killed each time"),
    pytest.param((BROKEN,) * 9, 1, id="its packages are broken"),
    pytest.param((KILLED, BROKEN), 2, id="killed, then broken"),
])
def test_training_runs_plainly_where_no_supervisor_is_born(
    supervise: Supervise, fates: tuple[str, ...], births: int
) -> None:
    ended = supervise(*fates)
    assert (ended.code, ended.births, ended.trained) == (0, births, True), ended.said
    assert "training without one" in ended.said
