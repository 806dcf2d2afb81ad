"""Every command of safelaunch that the documents show: its verb, its subcommand and its options are there."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from safelaunch.cli import VERBS
from safelaunch.config.keys import KEYS

ROOT = Path(__file__).parent.parent
PAGES = sorted(path for pattern in ("*.md", "docs/*.md", "examples/*/README.md") for path in ROOT.glob(pattern))
OPEN = ("slurm.", "env.", "sweep.", "restart.policy.")   # tables of names that are no keys
ENDS = {"|", "||", "&&", ";", "&", ">", ">>", "2>", "→"}


def shown() -> Iterator[tuple[str, list[str]]]:
    """(page: line, the words behind `safelaunch`) of code blocks and code spans."""
    for path in PAGES:
        is_block = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.lstrip().startswith("```"):
                is_block = not is_block
                continue
            for text in [line] if is_block else re.findall("`([^`]+)`", line):
                found = re.search(r"(?:^|[\s\"'(])safelaunch ((?:[a-z]+\b|--).*)", text)
                if found and (not is_block or re.match(r"\s*(?:[$*/0-9 ]*|\w+=\S+ )*safelaunch ", text)):
                    yield f"{path.relative_to(ROOT)}:{number}", words_of(found[1])


def words_of(text: str) -> list[str]:
    """Up to the first operator of the shell; [brackets] mark what may be left out."""
    try:
        words = shlex.split(re.sub(r"[][]", " ", text), comments=True)
    except ValueError:
        words = text.split()
    end = next((index for index, word in enumerate(words) if word in ENDS or word.endswith(";")), len(words))
    return words[:end]


def why_wrong(words: list[str]) -> str:
    """What is not there; "" = it is a command."""
    verb, rest = words[0], words[1:]
    if verb in ("help", "--help", "--version"):
        return ""
    if verb not in VERBS:
        return f"no verb {verb}"
    command: click.Command = importlib.import_module(VERBS[verb][0]).command
    while isinstance(command, click.Group) and rest and (found := command.commands.get(rest[0])) is not None:
        command, rest = found, rest[1:]
    context = click.Context(command, ignore_unknown_options=command.ignore_unknown_options,
                            allow_extra_args=command.allow_extra_args)
    try:
        command.make_parser(context).parse_args(list(rest))   # which empties it
    except click.UsageError as error:
        return error.format_message()
    keys = [named[1] for word in rest if (named := re.match(r"([a-z_]+(?:\.[a-z_]+)+)=", word))]
    return "; ".join(f"no key {key}" for key in keys if key not in KEYS and not key.startswith(OPEN))


def test_every_command_that_is_shown_has_its_verb_and_options() -> None:
    found = list(shown())
    assert len(found) > 200, len(found)
    judged = [(place, words, why_wrong(words)) for place, words in found if words]
    assert [f"{place}: {' '.join(words)}: {wrong}" for place, words, wrong in judged if wrong] == []


def test_a_wrong_command_is_seen() -> None:
    for words in (["status", "--every"], ["stauts"], ["nodes", "suspect", "n1", "--whom"],
                  ["submit", "train.yaml", "restart.max=3"]):
        assert why_wrong(words), words
