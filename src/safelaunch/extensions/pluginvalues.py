"""The shape of each plugin: the public classes of safelaunch.plugins, and how those that are data are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from safelaunch.extensions.plugins import NoPlugin
from safelaunch.launch.launchers import call_fault

if TYPE_CHECKING:
    from safelaunch.checkpoints.model import Candidate, CheckpointTree
    from safelaunch.notify.message import Message

MOST_PROGRAM_BYTES = 16 << 10   # the request to a node is one variable: 128 KiB (execve(2), MAX_ARG_STRLEN)
MOST_CHECK_S = 60.0
LEVELS = ("light", "full")


@dataclass(frozen=True)
class CheckPlugin:
    """A check of nodes: the text of a Python program (standard library, 3.9) that each node runs in a child of its own.
    The last line that it prints is its answer: "ok: …", "failed: …", "skipped: …" or "unknown: …".
    """

    program: str
    deadline_s: float = 10.0     # then the node has failed it
    level: str = "light"         # full: not before each attempt


@dataclass(frozen=True)
class LauncherPlugin:
    """A launcher: the words of launch.call, which start the ranks of one node and number them."""

    call: tuple[str, ...]
    doc: str = ""


# Of a group and a name: the value of a plugin that is not broken, if it is data; raises NoPlugin.
FindPlugin = Callable[[str, str], CheckPlugin | LauncherPlugin | None]


class CheckpointFormat(Protocol):
    """A layout of checkpoints. Both only read; they raise OSError where the folder cannot be read."""

    def candidates(self, folder: CheckpointTree) -> Iterable[Candidate]:
        """All that look like checkpoints of this layout, complete or not."""
        ...

    def judge(self, folder: CheckpointTree, candidate: Candidate) -> str | None:
        """Why a candidate is not complete; None = it is."""
        ...


class Notifier(Protocol):
    """Sends a message to people, within 20 s. Whatever it raises is a failure; the words of NotSent are shown."""

    def __call__(self, message: Message, env: Mapping[str, str]) -> None:
        """Send it. `env`: the variables of the job."""
        ...


def read_check(raw: Mapping[str, object]) -> CheckPlugin:
    """The check of its plain values; raises NoPlugin."""
    _refuse_others(raw, ("program", "deadline_s", "level"))
    program, deadline_s, level = raw.get("program"), raw.get("deadline_s", 10.0), raw.get("level", "light")
    if not isinstance(program, str) or not program.strip() or "\0" in program:
        raise NoPlugin("program: expected the text of a Python program")
    if len(program.encode()) > MOST_PROGRAM_BYTES:
        raise NoPlugin(f"program: longer than {MOST_PROGRAM_BYTES >> 10} KiB")
    try:
        compile(program, "program", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise NoPlugin(f"program: {error}") from error
    if isinstance(deadline_s, bool) or not isinstance(deadline_s, int | float) or not 0 < deadline_s <= MOST_CHECK_S:
        raise NoPlugin(f"deadline_s: expected seconds up to {MOST_CHECK_S:g}")
    if level not in LEVELS:
        raise NoPlugin(f"level: expected one of {', '.join(LEVELS)}")
    return CheckPlugin(program, float(deadline_s), str(level))


def read_launcher(raw: Mapping[str, object]) -> LauncherPlugin:
    """The launcher of its plain values; raises NoPlugin."""
    _refuse_others(raw, ("call", "doc"))
    call, doc = raw.get("call"), raw.get("doc", "")
    if not isinstance(call, list | tuple) or not all(isinstance(word, str) for word in call):
        raise NoPlugin("call: expected a list of words")
    if fault := call_fault(call):
        raise NoPlugin(f"call: {fault}")
    return LauncherPlugin(tuple(call), doc if isinstance(doc, str) else "")


def _refuse_others(raw: Mapping[str, object], known: tuple[str, ...]) -> None:
    if other := next((key for key in raw if key not in known), None):
        raise NoPlugin(f"{other}: unknown; known are {', '.join(known)}")
