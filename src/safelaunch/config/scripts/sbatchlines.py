"""The #SBATCH lines of a script, as sbatch reads them. Source: src/sbatch/opt.c of Slurm 22.05.

- A line counts when it begins with `#SBATCH`, blanks before it forbidden: `##SBATCH` and ` #SBATCH` are comments.
- sbatch stops at the first line that holds a command, and never reads on.
- Quotes group, a backslash takes the next character as it is (within quotes, too; without them it
  does not keep a blank), an unquoted # starts a comment.
"""

from __future__ import annotations

from typing import NamedTuple

MAGIC = "#SBATCH"


class SbatchLine(NamedTuple):
    """One line of a script for sbatch; `fault`: why sbatch could not read it."""

    number: int              # from 1
    words: tuple[str, ...]
    fault: str = ""


def read_sbatch_lines(text: str) -> list[SbatchLine]:
    """The lines for sbatch, in order."""
    found = []
    for number, line in enumerate(split_lines(text), 1):
        if line.startswith(MAGIC):
            found.append(_read(number, line[len(MAGIC):]))
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return found


def split_lines(text: str) -> list[str]:
    """The lines of a script, however its editor ends them."""
    return text.replace("\r\n", "\n").split("\n")


def _read(number: int, rest: str) -> SbatchLine:
    try:
        return SbatchLine(number, tuple(split_words(rest)))
    except ValueError as error:
        return SbatchLine(number, (), str(error))


def split_words(text: str) -> list[str]:
    """The words of one line; raises ValueError where a quote stays open."""
    words: list[str] = []
    word, is_open, quote, index = "", False, "", 0
    while index < len(text):
        char = text[index]
        index += 1
        if char == "\\" and index < len(text) and (quote or not text[index].isspace()):
            word, is_open, index = word + text[index], True, index + 1
        elif quote and char == quote:
            quote = ""
        elif quote:
            word += char
        elif char in "'\"":
            quote, is_open = char, True
        elif char == "#":
            break
        elif char.isspace():
            words, word, is_open = [*words, word] if is_open else words, "", False
        else:
            word, is_open = word + char, True
    if quote:
        raise ValueError(f"a {quote} has no end")
    return [*words, word] if is_open else words
