"""What a Python traceback says: its frames, whose they are, and whether anybody minds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_FRAME = re.compile(r'^[\s|+]{0,400}File "(?P<path>[^"]{0,4096})", line (?P<line>\d{1,12})(?:, in (?P<function>.*))?')
# Cython's modules name their sources from where they were built: "cupy/cuda/function.pyx" (seen on an H100).
_LIBRARY = re.compile(r"site-packages/|dist-packages/|/lib/python\d|<frozen |lib/python3|^[^/].{0,400}\.p(?:yx|xd)$")
# Who prints a traceback and goes on: the interpreter at exit and in __del__, logging, warnings that show their place.
_IGNORED = re.compile(
    r"Exception ignored in|--- Logging error ---|Error in atexit|Exception in atexit|Error in sys\.excepthook"
    r"|--- Call stack|Exception in thread (?:ChkStopThr|NetStatThr|IntMsgThr|SystemMonitor)")   # wandb's own threads
# What stands before a traceback of an error that was caught, or before a fatal one by chance: most logs hold warnings.
_PLAYED_DOWN = re.compile(r"(?i)ignoring|ignored|non-fatal|will retry|retrying|falling back|skipping|warning\b"
                          r"|the following (?:error|exception):")
_THREAD = re.compile(
    r"Exception in thread |Exception in callback|Task exception was never retrieved|Exception in \w+ ?Thread")


class TracebackFrame(NamedTuple):
    """One frame of a traceback; `code` is its source line, when the traceback shows it."""

    path: str
    line: int
    function: str
    code: str

    @property
    def is_user(self) -> bool:
        """Whether the frame is the user's own code, as far as its path tells."""
        return not _LIBRARY.search(self.path)


def parse_frames(block: Sequence[str]) -> tuple[TracebackFrame, ...]:
    """The frames of a traceback, outermost first."""
    frames = []
    for number, line in enumerate(block):
        match = _FRAME.match(line)
        if match is not None:
            after = block[number + 1] if number + 1 < len(block) - 1 else ""
            code = "" if _FRAME.match(after) else after.strip()
            frames.append(TracebackFrame(match["path"], int(match["line"]), match["function"] or "", code))
    return tuple(frames)


def find_user_frame(block: Sequence[str]) -> TracebackFrame | None:
    """The deepest frame that is not a library's; None = there is none."""
    return next((frame for frame in reversed(parse_frames(block)) if frame.is_user), None)


def is_ignored(block: Sequence[str]) -> bool:
    """Whether whoever printed the traceback says that it goes on."""
    return bool(block) and not block[0].startswith("Traceback") and _IGNORED.search(block[0]) is not None


def is_played_down(block: Sequence[str]) -> bool:
    """Whether the line before the traceback sounds as if nobody minds."""
    return bool(block) and not block[0].startswith("Traceback") and _PLAYED_DOWN.search(block[0]) is not None


def is_of_thread(block: Sequence[str]) -> bool:
    """Whether the exception ended a thread or a callback only."""
    return bool(block) and _THREAD.search(block[0]) is not None
