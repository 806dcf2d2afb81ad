"""The arguments of a user's own script: which words of a command line they are, and whether the script reads any."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from safelaunch.base.nearest import nearest_word
from safelaunch.config.keys import KEYS, OPEN_SECTIONS
from safelaunch.config.scripts.slurmkeys import split_arguments
from safelaunch.config.shell.shelllines import Unclosed, split_statements

_SECTIONS = frozenset(path.partition(".")[0] for path in (*KEYS, *OPEN_SECTIONS))
_NEAR = 0.9   # spare_node=1 is a slip of the keys, lr=3 an argument
# One with a default (${2:-0}) is provided for.
_READS = re.compile(r"\$(?:[1-9@*#]|\{[1-9@*#]\}|\{[1-9]:?\?[^}]*\}?|\{[@*]:)|"
                    r"(?:\A|[;&|)]\s*|\b(?:while|until|if|do|then|else)\s+)(?P<word>getopts|shift)(?=\s|\Z)")
_NEEDLE = re.compile(r"\$\{?[1-9@*#]|getopts|shift")
_SHELL = re.compile(r"#!\s*(?:\S*/env\s+(?:-S\s+)?)?(?:\S*/)?(?:ba|da|z|k)?sh\b")
_FUNCTION = re.compile(r"(?:function\s+[\w.:-]+|[\w.:-]+\s*\(\))\s*(?:\(\))?\s*\{?")


class CommandWords(NamedTuple):
    """The words behind a script's file: KEY=VALUE, flags of sbatch, arguments."""

    keys: list[str]
    flags: list[str]
    arguments: list[str]


def sort_words(words: Sequence[str], behind: Sequence[str]) -> CommandWords:
    """`behind`: what stands behind `--`: first flags, then arguments. An argument that begins with a dash stands behind
    a second `--`.
    """
    flags, more = split_arguments(behind)
    return CommandWords([word for word in words if _is_key(word)], flags,
                        [*(word for word in words if not _is_key(word)), *more])


def _is_key(word: str) -> bool:
    path, equals, value = word.partition("=")
    head = path.partition(".")[0]
    if not equals or path in KEYS:
        return bool(equals)
    if head in _SECTIONS:
        return "." in path or value.startswith("{")
    return "_" in path and nearest_word(path, KEYS, cutoff=_NEAR) is not None


def describe_words(command: CommandWords, is_read: bool) -> list[str]:
    """What is to be said of the words."""
    found = [f"arguments of the script: {shlex.join(command.arguments)}"] if command.arguments else []
    for word in command.keys if is_read else ():
        if word.partition("=")[0] in ("name", "command", "script", "version", "args"):
            found.append(f"{word} is a key of safelaunch; for an argument of the script write it behind the dashes: "
                         f"-- {shlex.quote(word)}")
    return found


def first_reading(text: str) -> tuple[int, str] | None:
    """The line in which a shell's script first reads its arguments outside of a function, and the word there."""
    if not _NEEDLE.search(text) or not _SHELL.match(text):
        return None
    try:
        statements = split_statements(text)
    except Unclosed:
        return None
    is_inside = False
    for one in statements:
        code = re.sub(r"'[^']*'", "", one.text)
        if _FUNCTION.match(code) and not code.rstrip().endswith("}"):
            is_inside = True
        elif is_inside:
            is_inside = not code.strip().startswith("}")
        elif code.startswith("set -- ") or _FUNCTION.match(code):
            if code.startswith("set -- "):
                return None   # its own words
        elif found := _READS.search(code):
            return one.number, found["word"] or found[0]
    return None
