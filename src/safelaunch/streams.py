"""stdout and stderr in any state: closed, full, a pipe without a reader, a narrow encoding.

None of that may end in a traceback. What cannot be written to stdout ends the verb by an exception of its own.
Click takes a broken pipe for an error, and an OSError of any other file looks the same as one of stdout.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any, TextIO


class ReaderGone(Exception):
    """Nobody reads stdout any more."""


class Unwritable(Exception):
    """stdout takes no more: its disk is full, say."""


class _Out(io.FileIO):
    """stdout's descriptor, with errors of its own."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError as error:
            raise ReaderGone from error
        except OSError as error:
            raise Unwritable(error.strerror) from error


class _Talk(io.FileIO):
    """stderr's descriptor. What cannot be written there is lost."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def secure() -> None:
    """Make stdout and stderr such that no write to them ends in a traceback."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:   # `>&-`: the next file to be opened would be taken for stdout
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = _text(_Out(1, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Talk(2, "w", closefd=False), sys.stderr, is_talk=True)


def silence() -> None:
    """Let what may still lie in stdout's buffer go nowhere: the interpreter flushes it at its end."""
    os.close(1)   # first, for a limit on open files may leave no other; and 1 is what is given out next
    with contextlib.suppress(OSError):
        os.open(os.devnull, os.O_WRONLY)


def _text(raw: io.FileIO, like: TextIO | None, *, is_talk: bool = False) -> TextIO:
    """A text stream over the descriptor; what its encoding does not know is written as an escape."""
    errors = getattr(like, "errors", None) or "strict"
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=getattr(like, "encoding", None) or "utf-8",
        errors="backslashreplace" if errors == "strict" else errors,
        line_buffering=is_talk or raw.isatty(), write_through=bool(getattr(like, "write_through", False)))
