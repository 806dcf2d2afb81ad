"""`safelaunch stacks` where there is nothing to look at, and its documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from safelaunch.commands import stacks
from safelaunch.commands.stacks import command
from safelaunch.core.hangs import stacktext
from safelaunch.core.hangs import verdict as hangverdict
from safelaunch.core.hangs.stacks import fold
from safelaunch.core.hangs.verdict import judge_hang
from tests.core.stack_values import rank, reports
from tests.localruns import type_safelaunch

DOCS = (Path(__file__).parents[2] / "docs" / "stacks.md").read_text()


def rows(head: str) -> list[str]:
    """First cells of the table with this head."""
    body = DOCS.partition(f"{head}\n")[2].partition("\n\n")[0].splitlines()[1:]
    return [row.split("|")[1] for row in body]


def words(cells: list[str]) -> set[str]:
    return {word for cell in cells for word in re.findall("`([^`]+)`", cell)}


def test_every_key_of_the_object_is_documented() -> None:
    found = reports(rank(0))
    said = stacktext.to_public(fold(found[0].ranks), judge_hang(found), found, [], 0.1)
    assert words(rows("| key | value |")) - {"representative"} == set(said)
    for row in (said["verdict"], said["groups"][0], said["groups"][0]["representative"], said["nodes"][0]):
        assert set(row) <= set(re.findall(r"\w+", DOCS.partition("## The object")[2]))


def test_every_option_is_documented() -> None:
    options = {name for option in command.params for name in option.opts if name.startswith("--")}
    assert options == {word.split()[0].split("=")[0] for word in words(rows("| option | what it does |"))}


def test_every_kind_and_witness_is_documented() -> None:
    text = Path(hangverdict.__file__).read_text()
    kinds = set(re.findall(r'HangVerdict\(\s*"(\w+)"', text))
    assert kinds == words(rows("| kind | when | suspects |"))
    assert set(re.findall(r'\("(\w+)", (?:looked|any|len|scene)', text)) <= set(re.findall(r"\w+", DOCS))


@pytest.mark.parametrize(
    ("argv", "said"),
    [(["no-such-run"], "no run is known as 'no-such-run'"), (["--parallel", "tp=0", "x"], "--parallel tp=0"),
     ([], "there is no run in this folder")],
    ids=["unknown run", "sizes", "empty folder"])
def test_question_that_cannot_be_obeyed_is_refused(
    argv: list[str], said: str, tmp_path: Path, local_env: dict[str, str]
) -> None:
    done = type_safelaunch(["stacks", *argv], tmp_path, local_env)
    assert done.returncode == 2 and said in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("verdict    deadlock: rank 5 on n1 is in save_extra while 15 wait in all_reduce",
         ["verdict    deadlock: rank 5 on n1 is in", "           save_extra while 15 wait in",
          "           all_reduce"]),
        ("15 stuck · ranks 0-4,6-15 · n[0-3] · 0% of a core", [
            "15 stuck · ranks 0-4,6-15 · n[0-3] · 0%", "    of a core"]),
        ("    all_reduce (torch/distributed/distributed_c10d.py:5)", [
            "    all_reduce", "        (torch/distributed/distributed_c10d.py:5)"]),
        ("short", ["short"]),
    ],
    ids=["a row", "a group", "a frame", "what fits"])
def test_line_is_folded_for_a_narrow_terminal(line: str, lines: list[str]) -> None:
    assert stacks._fit(line, 40).splitlines() == lines
    assert stacks._fit(line, 0) == line
