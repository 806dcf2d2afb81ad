"""What a Python traceback says: its frames, whether anybody minds, and the category of its exception."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_FRAME = re.compile(r'^\s*[|+ ]*File "(?P<path>[^"]*)", line (?P<line>\d+)(?:, in (?P<function>.*))?')
_LIBRARY = re.compile(r"site-packages/|dist-packages/|/lib/python\d|<frozen |lib/python3")
# Who prints a traceback and goes on: the interpreter at exit and in __del__, logging, warnings that show their place.
_IGNORED = re.compile(
    r"Exception ignored in|--- Logging error ---|Error in atexit|Exception in atexit|Error in sys\.excepthook"
    r"|--- Call stack|Exception in thread (?:ChkStopThr|NetStatThr|IntMsgThr|SystemMonitor)")   # wandb's own threads
# What stands before a traceback of an error that was caught, or before a fatal one by chance: most logs hold warnings.
_PLAYED_DOWN = re.compile(r"(?i)ignoring|ignored|non-fatal|will retry|retrying|falling back|skipping|warning\b")
_THREAD = re.compile(
    r"Exception in thread |Exception in callback|Task exception was never retrieved|Exception in \w+ ?Thread")


class Frame(NamedTuple):
    """One frame of a traceback; `code` is its source line, when the traceback shows it."""

    path: str
    line: int
    function: str
    code: str

    @property
    def is_user(self) -> bool:
        """Whether the frame is the user's own code, as far as its path tells."""
        return not _LIBRARY.search(self.path)


class Reading(NamedTuple):
    """What an exception means."""

    category: str
    weight: float
    action: str = ""


def parse_frames(block: Sequence[str]) -> tuple[Frame, ...]:
    """The frames of a traceback, outermost first."""
    frames = []
    for number, line in enumerate(block):
        match = _FRAME.match(line)
        if match is not None:
            after = block[number + 1] if number + 1 < len(block) - 1 else ""
            code = "" if _FRAME.match(after) else after.strip()
            frames.append(Frame(match["path"], int(match["line"]), match["function"] or "", code))
    return tuple(frames)


def find_user_frame(block: Sequence[str]) -> Frame | None:
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


# The exception's last name → what it means when no rule knows its text; the weights are how often that holds.
_TYPES = {
    "AssertionError": Reading("user_code", 0.62),
    "AttributeError": Reading("user_code", 0.74),
    "NameError": Reading("user_code", 0.86),
    "UnboundLocalError": Reading("user_code", 0.86),
    "TypeError": Reading("user_code", 0.76),
    "IndexError": Reading("user_code", 0.74),
    "KeyError": Reading("user_code", 0.66),
    "ValueError": Reading("user_code", 0.64),
    "ZeroDivisionError": Reading("user_code", 0.78),
    "RecursionError": Reading("user_code", 0.8),
    "NotImplementedError": Reading("user_code", 0.62),
    "SyntaxError": Reading("user_code", 0.82),
    "IndentationError": Reading("user_code", 0.85),
    "TabError": Reading("user_code", 0.85),
    "StopIteration": Reading("data", 0.5),
    "EOFError": Reading("data", 0.45),
    "OverflowError": Reading("user_code", 0.6),
    "FileExistsError": Reading("user_code", 0.6),
    "FileNotFoundError": Reading("config", 0.62),
    "NotADirectoryError": Reading("config", 0.6),
    "IsADirectoryError": Reading("config", 0.6),
    "PermissionError": Reading("config", 0.55),
    "ModuleNotFoundError": Reading("environment", 0.88),
    "ImportError": Reading("environment", 0.72),
    "MemoryError": Reading("host_oom", 0.8),
    "OutOfMemoryError": Reading("cuda_oom", 0.82),
    "OSError": Reading("storage", 0.42),
    "BlockingIOError": Reading("storage", 0.45),
    "TimeoutError": Reading("hang", 0.42),
    "ConnectionError": Reading("network", 0.42),
    "ConnectionRefusedError": Reading("network", 0.5),
    "ConnectionResetError": Reading("network", 0.35),
    "BrokenPipeError": Reading("network", 0.25),
    "UnicodeDecodeError": Reading("data", 0.6),
    "JSONDecodeError": Reading("data", 0.55),
    "KeyboardInterrupt": Reading("cancelled", 0.7),
    "SystemExit": Reading("user_code", 0.2),
    "CalledProcessError": Reading("user_code", 0.2),
    "JaxRuntimeError": Reading("user_code", 0.4),
    "XlaRuntimeError": Reading("user_code", 0.4),
    "RuntimeError": Reading("user_code", 0.56),
}
_OTHER = Reading("user_code", 0.5)

# What the message or the place of an exception adds. The first that fits wins.
_MESSAGES = (
    (r"(?i)can(?:'|no)t find (?:a )?(?:dataset|data file)|(?:data|dataset|split)\b.{0,40}(?:not found|does not exist"
     r"|is empty)", Reading("data", 0.58, "fix_config")),
    (r"(?i)checkpoint.{0,60}(?:not found|does not exist|missing|corrupt|invalid)|(?:no|missing) checkpoint",
     Reading("checkpoint", 0.66)),
    (r"(?i)(?:config|argument|option|flag|hyper-?param|setting)\w*\b.{0,60}(?:invalid|missing|must|required|unknown"
     r"|unsupported|not supported|expected|should)", Reading("config", 0.6)),
    (r"(?i)(?:out of memory|failed to allocate)", Reading("cuda_oom", 0.6)),
    (r"(?i)version\b.{0,60}(?:required|mismatch|incompatible|not supported|too old|expected)|requires \S+ ?[><=]=",
     Reading("version_mismatch", 0.64)),
    (r"(?i)please (?:pip )?install|is not installed|not installed|try installing|pip install",
     Reading("environment", 0.74)),
)
_COMPILED = tuple((re.compile(pattern), reading) for pattern, reading in _MESSAGES)
# The types that programs raise on purpose, about settings and data as well as about themselves.
_ABOUT_SETTINGS = frozenset(
    {"AssertionError", "ValueError", "RuntimeError", "KeyError", "Exception", "NotImplementedError"})
_ARGUMENT_PLACE = re.compile(r"(?:^|/)(?:arguments?|args|config\w*|configuration\w*|options|cli|settings)\.py$")
_ARGUMENT_FUNCTION = re.compile(
    r"validate_?args|parse_?args|check_?(?:args|config)|__post_init__|validate|load_config|from_args")
_STORE = re.compile(r"torch/distributed/elastic/rendezvous/")
_LOADER = re.compile(r"torch/utils/data/|tensorflow/python/data/|webdataset/|litdata/|streaming/base/")
_DATA_PLACE = re.compile(r"(?:^|/)\w*(?:data|dataset|loader|collat|sampler)\w*\.py$")


def read_exception(kind: str, message: str, block: Sequence[str]) -> Reading:
    """The category of an exception that no rule knows by its text, from its type, message and frames."""
    name = kind.rsplit(".", 1)[-1]
    known = _TYPES.get(name)
    if known is not None and known.category not in ("user_code", "config", "data"):
        return known
    if known is not None and name not in _ABOUT_SETTINGS:
        return known
    for pattern, reading in _COMPILED:
        if pattern.search(message):
            return reading
    frames = parse_frames(block)
    deepest = frames[-1] if frames else None
    if deepest is not None and name in _ABOUT_SETTINGS:
        if _ARGUMENT_PLACE.search(deepest.path) or _ARGUMENT_FUNCTION.search(deepest.function):
            return Reading("config", 0.66)
        if _DATA_PLACE.search(deepest.path) and deepest.is_user and name in _ABOUT_SETTINGS:
            return Reading("data", 0.52, "fix_user_code")
    if (known is None or name == "RuntimeError") and any(_STORE.search(frame.path) for frame in frames):
        return Reading("rendezvous", 0.5, "restart")   # the words of a socket, of the store below torchrun
    if known is None and any(_LOADER.search(frame.path) for frame in frames):
        return Reading("data", 0.55, "fix_user_code")   # a decoder's own exception, raised while a sample was read
    return known or _OTHER
