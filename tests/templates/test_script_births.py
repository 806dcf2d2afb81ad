"""How job.sbatch's shell starts its supervisor, and starts it again: with a stand-in for Python, and none of Slurm."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import ANY

import pytest

import safelaunch
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import Ended as RunEnded
from safelaunch.run.io import journal
from tests.pure.script.test_script import MINIMAL, plan_of, rendered

LIBRARY = Path(safelaunch.__file__).parent
# Its arguments: -I -S injob.py lead RUN_DIR LOCAL ROLE
PYTHON = f"""#!/bin/bash
[[ $* != *pump.py* && $* != *bring* ]] || exec {sys.executable} "$@"
echo born >>"$HERE/births"
case $(wc -l <"$HERE/births") in
{{cases}}
esac
touch "$6/leader.born"
echo 7 >"$6/final"
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
    def go(*cases: str, env: dict[str, str] | None = None) -> Ended:
        """The script, with a supervisor whose n-th birth goes as the n-th case says; later ones lead."""
        table = "\n".join(f"{number}) {case} ;;" for number, case in enumerate(cases, start=1))
        for name, text in (("python", PYTHON.format(cases=table or "0) ;;")), ("srun", SRUN)):
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        for folder in ("journal", "claims", "attempts/0001"):
            (tmp_path / "run" / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / "claims" / "2").touch()
        script = rendered(plan_of(MINIMAL))
        for key, value in {"SL_RUN_DIR": f"{tmp_path}/run", "SL_KILL_FILE": f"{tmp_path}/run/control/kill",
                           "SL_PYTHON": f"{tmp_path}/python"}.items():
            old = next(line for line in script.splitlines() if line.startswith(f"{key}="))
            script = script.replace(old, f"{key}='{value}'", 1)
        script = re.sub("(?m)^SL_LIBRARY=.*$", f"SL_LIBRARY=('{LIBRARY}')", script)
        (tmp_path / "job.sbatch").write_text(script)
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HERE": str(tmp_path), "SLURMD_NODENAME": "n0",
               "SLURM_JOB_ID": "0", "SAFELAUNCH_LOCAL_DIR": f"{tmp_path}/local", **(env or {})}
        (tmp_path / "local").mkdir(exist_ok=True)
        done = subprocess.run(["bash", str(tmp_path / "job.sbatch")], env=env, cwd=tmp_path, capture_output=True,
                              text=True, timeout=400)
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
    ended = supervise('cp "$6/taken" "$HERE/told"')
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


def test_a_job_has_no_variable_of_safelaunch_that_the_submitting_shell_had(
    supervise: Supervise, tmp_path: Path
) -> None:
    forgotten = ("SAFELAUNCH_CONTAINER", "SAFELAUNCH_NEEDS", "SAFELAUNCH_WORKDIR", "SAFELAUNCH_LOCAL",
                 "SAFELAUNCH_NODE", "SAFELAUNCH_STEP", "SAFELAUNCH_TOKEN", "SAFELAUNCH_MADE_UP", "SL_CORE_KB")
    meant = {"SAFELAUNCH_RULES": "/site/rules", "SAFELAUNCH_SITE_CONFIG": "/site/site.yaml", "SL_OF_THE_USER": "yes"}
    ended = supervise('env >"$HERE/seen"', env={**dict.fromkeys(forgotten, "touch\n/made"), **meant})
    assert ended.code == 7, ended.said
    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines() if "=" in line)
    assert not set(forgotten) & set(seen)
    assert {name: seen.get(name) for name in meant} == meant and "SAFELAUNCH_LOCAL_DIR" in seen


KILLED, BORN_AND_KILLED, BROKEN = "kill -KILL $$", 'touch "$6/leader.born"; kill -KILL $$', "exit 1"


@pytest.mark.parametrize("fates", [
    pytest.param((), id="nothing happens"),
    pytest.param((KILLED,), id="killed before its birth"),
    pytest.param((KILLED, KILLED, KILLED), id="killed before its birth, three times"),
    pytest.param((BORN_AND_KILLED, KILLED, BORN_AND_KILLED), id="killed before and after it"),
])
def test_supervisor_that_is_killed_is_born_again(supervise: Supervise, fates: tuple[str, ...]) -> None:
    ended = supervise(*fates)
    assert (ended.code, ended.births, ended.trained) == (7, len(fates) + 1, False), ended.said


# Bash that collects a child as a trapped signal comes forgets the child, and waits for any other one of its own (5.2).
WARNED_AND_KILLED = 'touch "$6/leader.born"; sleep 0.1; kill -USR2 $PPID; kill -KILL $$'
FROZEN_CHMOD = """#!/bin/bash
[[ $* == *slurm-* ]] || exec /bin/chmod "$@"
for ((turn = 0; turn < 1500; turn++)); do
  (($(wc -l <"$HERE/births") < 4)) || exit 0
  sleep 0.1
done
touch "$HERE/was_waited_for"
"""


def test_supervisor_that_is_killed_as_a_signal_comes_is_born_again_while_the_run_folder_is_frozen(
    supervise: Supervise, tmp_path: Path
) -> None:
    (tmp_path / "births").touch()
    (tmp_path / "chmod").write_text(FROZEN_CHMOD)
    (tmp_path / "chmod").chmod(0o755)
    ended = supervise(*[WARNED_AND_KILLED] * 3)
    assert (ended.code, ended.births, ended.trained) == (7, 4, False), ended.said
    assert not (tmp_path / "was_waited_for").exists()


@pytest.mark.parametrize(("fates", "births"), [
    pytest.param((KILLED,) * 9, 5, id="killed each time"),
    pytest.param((BROKEN,) * 9, 1, id="its packages are broken"),
    pytest.param((KILLED, BROKEN), 2, id="killed, then broken"),
])
def test_training_runs_plainly_where_no_supervisor_is_born(
    supervise: Supervise, tmp_path: Path, fates: tuple[str, ...], births: int
) -> None:
    ended = supervise(*fates)
    assert (ended.code, ended.births, ended.trained) == (0, births, True), ended.said
    assert "training without one" in ended.said
    why = "job 0 ended with exit code 0, without a supervisor"
    assert fold(journal.read(tmp_path / "run").events).ended == RunEnded("completed", 0, why, ANY)


# What a supervisor leaves that has launched an attempt, and whose pump and courier have not lived, either.
LAUNCHED = f"""
import sys
sys.path.insert(0, {str(LIBRARY.parent)!r})
from pathlib import Path
from safelaunch.run.io.outbox import APPEND, Outbox
from safelaunch.run.journal import render
from safelaunch.base.model import Event
local, run_dir = map(Path, sys.argv[1:])
(local / "attempt-0001.running").write_text(f"{{local}}/attempt-0001.exit\\n")
(local / "spool").mkdir()
started = Event(1.0, 1, 1, "n0", "job_started", {{"job": "0", "nodes": ["n0"]}})
Outbox.create(local / "spool", run_dir).add(APPEND, "journal/000001-n0-1.jsonl", render(started))
"""
LAUNCHES = f'''
{sys.executable} "$HERE/launched.py" "$6" "$5"
{{ for n in $(seq 3000); do echo "line $n"; ((n % 1000)) || sleep 0.5; done >"$6/attempt-0001.log"
   echo 5 >"$6/attempt-0001.exit"; }} </dev/null >/dev/null 2>&1 &
touch "$6/leader.born"
kill -KILL $$
'''


def test_after_five_deaths_the_log_arrives_whole_and_the_script_writes_the_end_down(
    supervise: Supervise, tmp_path: Path
) -> None:
    (tmp_path / "launched.py").write_text(LAUNCHED)
    ended = supervise(LAUNCHES, *[KILLED] * 4)
    assert (ended.code, ended.births, ended.trained) == (5, 5, False), ended.said
    log = (tmp_path / "run" / "attempts" / "0001" / "main.log").read_text()
    assert log == "".join(f"line {n}\n" for n in range(1, 3001))
    state = fold(journal.read(tmp_path / "run").events)
    assert (state.leader, state.failed_alone) == ("n0", ("0", 5)), "what waited for the courier has come as well"
    assert not list((tmp_path / "local").glob("*/*")), "nothing is left on the node"


def test_after_five_deaths_a_script_whose_job_is_led_from_another_node_stands_by(
    supervise: Supervise, tmp_path: Path
) -> None:
    """Its end would be that of the job, and of what the other one has started since."""
    (tmp_path / "launched.py").write_text(LAUNCHED)
    (tmp_path / "run" / "claims").mkdir(parents=True)
    for number, (host, action) in enumerate((("n0", f"{journal.LEAD}0"), ("n1", f"{journal.LEAD}0"),
                                             ("n1", f"{journal.LAUNCH}2")), start=3):
        (tmp_path / "run" / "claims" / str(number)).write_bytes(
            journal.render_claim(number, host, action, 1.0))
    ended = supervise(LAUNCHES, *[KILLED] * 4, 'cat "$6/role" >"$HERE/became"; echo 75 >"$6/final"; exit 75')
    assert (ended.code, ended.births, ended.trained) == (75, 6, False), ended.said
    assert (tmp_path / "became").read_text() == "standby\n"
    assert (tmp_path / "run" / "attempts" / "0001" / "main.log").read_text().endswith("line 3000\n")
    assert fold(journal.read(tmp_path / "run").events).failed_alone is None
