"""`safelaunch stacks` where there is nothing to look at, and its documents."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from safelaunch.stacks import loading, stacktext
from safelaunch.stacks import verdict as hangverdict
from safelaunch.stacks.io.collect import Collected
from safelaunch.stacks.stacks import fold
from safelaunch.stacks.verdict import judge_hang
from safelaunch.verbs.jobs import stacks
from safelaunch.verbs.jobs.stacks import command
from tests.localruns import type_safelaunch
from tests.pure.hangs.stack_values import rank, reports

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
    text = Path(hangverdict.__file__).read_text() + Path(loading.__file__).read_text()
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


SECRETS = ("hunter2seven", "hf_9aZ8bY7cX6dW5eV4fU3gT2")
LEFT = {"pid": 7, "user": "bob", "whose": "nobody", "state": "S", "name": "python", "job": "", "mark": "", "rss_mb": 5,
        "gpus": [], "gpu_mb": 0.0, "ended": None, "why": "", "cmd": f"python serve.py --password {SECRETS[0]} "}


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_secrets_in_command_lines_and_stacks_are_not_shown(
    as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stack = (f"login (hub.py:3) token: '{SECRETS[1]}'", "<module> (train.py:9)")
    found = tuple(reports(rank(0, stack), left=(LEFT,)))
    collected = Collected(found, (), {"n0": json.dumps({"left": [LEFT], "stack": stack})}, 0.1)
    stacks._show(collected, None, as_json, False, False)
    stacks._write_raw(tmp_path / "raw", collected)
    raw = [path.read_text() for path in sorted((tmp_path / "raw").iterdir())]
    assert json.loads(raw[0])["left"][0]["pid"] == 7
    for text in (capsys.readouterr().out, *raw):
        assert "***" in text and not any(secret in text for secret in SECRETS), text


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
