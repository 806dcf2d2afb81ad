"""Whether the training can learn where to go on from: a command that is never told starts from the beginning each time,
and nothing fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

VARIABLE = r"SAFELAUNCH_RESUME_(?:PATH|STEP)\b"
ARRAY = r"\$(?:RESUME_ARGS\b|\{[#!]?RESUME_ARGS\b)"
_ELSE = "if the training, or a script that it runs, finds its checkpoint by itself: resume.by: training"


def missing_way(command: str, setup: str, args: str) -> str | None:
    """What is wrong with a resume that the command or a script in it is to obey; None = it is told.

    Only what stands in `command` and `setup` can be seen: what a script in a file reads is its own matter.
    """
    if any(re.search(VARIABLE, code) for text in (command, setup) for code, _ in _pieces(text)):
        return None
    # RESUME_ARGS is an array of the shell that runs `command`; no program gets it, and no other shell.
    is_taken = any(re.search(ARRAY, code) for code, is_quoted in _pieces(command) if not is_quoted)
    if is_taken:
        return None if args.strip() else (
            'stays without effect: ${RESUME_ARGS} in command is empty without resume.args, such as args: "--load '
            '{path}"')
    if re.search(ARRAY, command):
        return ("reaches no training: ${RESUME_ARGS} stands in single quotes or in a comment, where it is not filled "
                f"in; put it outside of them, or read $SAFELAUNCH_RESUME_PATH; {_ELSE}")
    if args.strip():
        return ("reaches no training: command would start from the beginning each time; write ${RESUME_ARGS} into it, "
                f"such as command: python train.py ${{RESUME_ARGS}}; {_ELSE}")
    return ('reaches no training: command is never told of a checkpoint; write args: "--load {path}" beside it and '
            f"${{RESUME_ARGS}} into command, or read $SAFELAUNCH_RESUME_PATH there; {_ELSE}")


def takes_words(command: str) -> bool:
    """Whether `${RESUME_ARGS}` can simply be put behind a command: one program's words, nothing of the shell's."""
    bare = re.sub(r"'[^']*'|\"(?:\\.|[^\"\\])*\"", "", command.strip())
    return re.fullmatch(r"(?:\S*/)?python[\d.]* [^|&;<>(){}#`'\"\\\n]*", bare) is not None


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """(code, whether in single quotes) without comments; all as one piece where a here-document mixes texts."""
    if "<<" in text:
        yield text, False
        return
    start, index, quote = 0, 0, ""
    while index < len(text):
        char = text[index]
        if char == "\\" and quote != "'":
            index += 1
        elif char == "#" and not quote and (index == 0 or text[index - 1] in " \t\n;&|("):
            yield text[start:index], False
            end = text.find("\n", index)
            start = index = len(text) if end < 0 else end
            continue
        elif (quote and char == quote) or (not quote and char in "'\""):
            yield text[start:index], quote == "'"
            start, quote = index, "" if quote else char
        index += 1
    yield text[start:], quote == "'"
