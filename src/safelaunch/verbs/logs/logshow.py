"""What `logs` writes: the bytes of the logs, with a line between two attempts; on a terminal coloured and harmless."""

from __future__ import annotations

import codecs
import re
import zlib
from typing import BinaryIO

import click

from safelaunch.base.plaintext import clean
from safelaunch.verbs.common import talk, terminal
from safelaunch.verbs.logs.attemptlogs import AttemptLog
from safelaunch.verbs.logs.rankfold import PREFIX
from safelaunch.verbs.logs.separator import further_lines, separator

_COLOURS = ("cyan", "green", "yellow", "blue", "magenta", "bright_cyan", "bright_green", "bright_yellow", "bright_blue",
            "bright_magenta")   # red is for errors
# Kept on a terminal: colours (SGR of ECMA-48), which change nothing but how text looks, and what parts lines.
_PIECE = re.compile(r"(\x1b\[[0-9;]{0,40}m|[\r\n\t])")
_RESET = "\x1b[0m"


class LogWriter:
    """The stream that all parts go to, in order."""

    def __init__(self, out: BinaryIO, is_terminal: bool, has_colour: bool) -> None:
        self._out, self._is_terminal, self._has_colour = out, is_terminal, has_colour
        self._shown: list[int] = []
        self._is_line_open = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def write(self, log: AttemptLog, data: bytes) -> None:
        """The next piece of that attempt's log."""
        if not self._shown or log.number != self._shown[-1]:
            self._begin(log)
        if not data:
            return
        self._out.write(self._for_terminal(data) if self._is_terminal else data)
        self._is_line_open = not data.endswith(b"\n")

    def _begin(self, log: AttemptLog) -> None:
        """Say whose the next lines are: of the first log on stderr, between two in the text itself."""
        if not self._shown:
            talk.say(log.header)
        else:
            is_back = log.number in self._shown
            line = further_lines(log.number) if is_back else separator(log.before, log.number, log.attempt, talk.span)
            if self._has_colour:
                line = terminal.styled(line, "dim")
            self._out.write(b"\n" * self._is_line_open + line.encode() + b"\n")
        self._is_line_open = False
        self._decoder.reset()
        self._shown.append(log.number)

    def _for_terminal(self, data: bytes) -> bytes:
        lines = data.splitlines(keepends=True) if b"\r" not in data else re.findall(rb"[^\n]*\n|[^\n]+", data)
        return b"".join(map(self._line, lines, (self._is_line_open, *[False] * (len(lines) - 1))))

    def _line(self, line: bytes, is_open: bool) -> bytes:
        """With its host's colour, and without what could act on a terminal; `is_open`: it goes on a line."""
        found = PREFIX.match(line) if self._has_colour and not is_open else None
        head = ""
        if found is not None:
            head = click.style(clean(found[1].decode(errors="surrogateescape")), fg=colour_of(found[2]))
            line = line[found.end(1):]
        text = "".join(part if _PIECE.fullmatch(part) else clean(part)
                       for part in _PIECE.split(self._decoder.decode(line)))
        if "\x1b" in text:   # a colour of the job ends with its line
            body = text.rstrip("\n")
            text = f"{body}{_RESET}{text[len(body):]}"
        return (head + text).encode(errors="backslashreplace")


def colour_of(host: bytes) -> str:
    """The same for a host in every log and on every day."""
    return _COLOURS[zlib.crc32(host) % len(_COLOURS)]
