"""The short form: some scripts of each group, and a few generated ones, under sbatch and under safelaunch."""

from __future__ import annotations

import os

import pytest

from tests.conformance.case import read_all
from tests.conformance.grammar import script_of
from tests.conformance.place import a_place
from tests.conformance.runner import run_all
from tests.runs import Installation

LONG = os.environ.get("SAFELAUNCH_LONG") == "1"
GENERATED = range(1, 9 if LONG else 5)
# A script takes 3 s of processor time. Of these a neighbour in the short form shows the same.
IN_LONG = {
    "itself-stdout": "itself-moves-its-log", "itself-restart-count": "itself-restart-count-faulted",
    "options-tasks-per-node-alias": "options-uneven-tasks", "shell-here-document": "shell-strict",
    "srun-plain": "training-plain", "srun-capture": "srun-stdin",
    "training-python-without-srun": "training-python-without-srun-faulted",
    "options-chdir": "options-command-line-wins", "shell-umask-ulimit": "shell-strict",
}


@pytest.mark.slurm
@pytest.mark.root
def test_scripts_behave_as_under_sbatch_or_submit_says_what_does_not(installation: Installation) -> None:
    short = {case.name: case for case in read_all() if case.is_short}
    assert {*IN_LONG, *IN_LONG.values()} <= short.keys()
    cases = [*(case for name, case in short.items() if LONG or name not in IN_LONG), *map(script_of, GENERATED)]
    with a_place(installation) as place:
        results = list(run_all(place, cases))

    assert {result.case.name for result in results} == {case.name for case in cases}
    bad = {result.case.name: [*map(str, result.differences), *result.wrongs] for result in results if result.is_bad}
    assert not bad, "\n".join(f"{name}: {'; '.join(what)}" for name, what in bad.items())
