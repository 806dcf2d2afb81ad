"""The stand-in for srun: what it makes of a command line. What it starts: see tests/templates/test_script_node.py."""

from __future__ import annotations

import pytest

from safelaunch.node.localrun import Tasks, expand, parse

OURS = ["--nodelist=local[0-1]", "--nodes=2", "--ntasks=4", "--ntasks-per-node=2", "--wait=60", "--kill-on-bad-exit=1",
        "--overlap"]
COMMAND = ["bash", "-c", "echo --nodes=9", "safelaunch-node", "--load", "bash", "-c"]


@pytest.mark.parametrize(
    "extra",
    [
        [],
        ["--hint=nomultithread"],
        ["-m", "block"],
        ["-mblock", "-v", "--cpu-bind", "verbose", "-u"],
        ["--container-image", "/images/bash", "--", "-c"],
        ["--comment", "bash"],
    ],
    ids=["none", "long", "short with a word", "many", "container", "a value that is bash"],
)
def test_flags_that_mean_nothing_here_are_skipped_with_their_values(extra: list[str]) -> None:
    options, command = parse([*OURS, *extra, *COMMAND])
    assert command == COMMAND
    assert options == {"--nodelist": "local[0-1]", "--nodes": "2", "--ntasks-per-node": "2", "--kill-on-bad-exit": "1"}


def test_the_templates_own_options_win_over_those_of_srun_extra() -> None:
    assert parse([*OURS, "--nodes=7", *COMMAND])[0]["--nodes"] == "2"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("local0", ["local0"]),
        ("local[0-2]", ["local0", "local1", "local2"]),
        ("local[0,2-3]", ["local0", "local2", "local3"]),
        ("local0,local2", ["local0", "local2"]),
    ],
)
def test_a_node_list_is_expanded(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(("nodes", "told"), [(["local0", "local1"], "4 2 2(x2)\n" * 4), (["local0"], "2 2 2\n" * 2)])
def test_tasks_are_told_how_many_there_are_on_each_node(
    nodes: list[str], told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    # Lightning refuses the first number without the second, ft_launcher the job's id without the third.
    words = "echo $SLURM_NTASKS $SLURM_NTASKS_PER_NODE $SLURM_TASKS_PER_NODE"
    tasks = Tasks(nodes, 2, ["sh", "-c", words], 1)
    assert {process.wait(60) for process in tasks.processes} == {0}
    assert capfd.readouterr().out == told
