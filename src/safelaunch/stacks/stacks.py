"""Stacks of many ranks folded into groups: what a hundred thousand processes do, in three lines. They are normalised
first (addresses and generated names go, Python's line numbers stay). Then equal ones are folded, as ClusterShell folds
equal outputs of nodes. Several samples of a rank tell one that moves from one that is stuck.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from safelaunch.stacks.ranks import KernelPlace, ObservedRank, Stack

STUCK, MOVING, UNREADABLE, GONE = "stuck", "moving", "unreadable", "gone"   # a public contract: stacks --json

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
# Names that differ in each process: tempfile's folders and files, TorchInductor's and Triton's hashes, pids in paths.
_MADE_UP = re.compile(r"\btmp[a-z0-9_]{6,8}\b|\bc[a-z2-7]{40,52}\b|\b[0-9a-f]{12,64}\b|(?<=[/_-])\d{4,}(?=[/_.)-])"
                      r"|(?<=<ipython-input-)[^>]+")
_IMPORT = ("(<frozen importlib", "_call_with_frames_removed")
_PYTHON = re.compile(r"\.py:\d+\)$")
_FRAME = re.compile(r"^(?P<name>.{0,300}?) \((?P<file>.{0,4096}?)(?::(?P<line>\d{1,12}))?\)$")
# Frames between the program and what it waits in, which do not help people; by file, or by name.
_PLUMBING_FILES = ("torch/distributed/c10d_logger.py", "threading.py", "queue.py", "selectors.py", "runpy.py",
                   "torch/utils/_contextlib.py", "torch/nn/modules/module.py", "contextlib.py", "functools.py",
                   "multiprocessing/connection.py", "multiprocessing/queues.py", "torch/_tensor.py",
                   "torch/autograd/__init__.py", "torch/_dynamo/eval_frame.py", "socket.py",
                   "torch/distributed/elastic/multiprocessing/errors/__init__.py")
_LOADER = "torch/utils/data/dataloader.py"
_LABEL_FRAMES = 3


class RankGroup(NamedTuple):
    """Ranks that do the same. `where`: what the kernel adds, such as "D state in write() on /gpfs"; `stack` of moving
    ranks: what all samples have in common.
    """

    kind: str
    stack: Stack
    where: str
    ranks: tuple[ObservedRank, ...]

    @property
    def size(self) -> int:
        return len(self.ranks)

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(rank.node for rank in self.ranks))

    @property
    def numbers(self) -> str:
        """Their numbers, folded: "0-379,384"."""
        return fold_numbers(rank.number for rank in self.ranks if rank.number is not None)

    def tell(self, doing: str) -> str:
        """For people: "380 ranks: broadcast ← _bcast_pipe_scalar ← eval_batch"; `doing`: its stack's label."""
        noun = "unreadable" if self.kind == UNREADABLE else "rank" if self.size == 1 else "ranks"
        if self.kind == MOVING:
            doing = f"moving in {doing}" if doing else "moving"
        known = list(filter(None, (self.where, doing))) or [self.ranks[0].why.partition(":")[0] or "nothing is known"]
        return f"{self.size} {noun}: {' · '.join(known)}"


def doing(kind: str) -> str:
    """A group's kind for people: samples a moment apart show that a rank stands still, not that it is stuck."""
    return "standing still" if kind == STUCK else kind


def fold(ranks: Iterable[ObservedRank]) -> tuple[RankGroup, ...]:
    """The groups of ranks that do the same, the largest first."""
    folder = _Folder()
    found: dict[tuple[str, Stack, str], list[ObservedRank]] = {}
    for rank in ranks:
        found.setdefault(folder.key(rank), []).append(rank)
    groups = [RankGroup(*key, tuple(sorted(members, key=_order))) for key, members in _join_moving(found).items()]
    return tuple(sorted(groups, key=lambda group: (-group.size, _order(group.ranks[0]))))


class _Folder:
    """Keys of ranks. Stacks of one read are interned, so each is normalised once and found again by its identity."""

    def __init__(self) -> None:
        self._normal: dict[Stack, Stack] = {}
        self._of_samples: dict[tuple[int, ...], tuple[tuple[Stack, ...], str, Stack]] = {}
        self._texts: dict[str, str] = {}

    def key(self, rank: ObservedRank) -> tuple[str, Stack, str]:
        samples = rank.samples
        identity = tuple(map(id, samples))
        known = self._of_samples.get(identity)
        if known is None:
            known = self._of_samples[identity] = (samples, *self._judge(samples))   # kept alive: ids are given again
        kind = GONE if rank.is_gone else known[1]
        return kind, known[2], describe_where(rank)

    def _judge(self, samples: tuple[Stack, ...]) -> tuple[str, Stack]:
        stacks = [self._normalise(stack) for stack in samples]
        if not stacks:
            return UNREADABLE, ()
        if all(stack == stacks[0] for stack in stacks):
            return STUCK, stacks[0]
        return MOVING, common_root(stacks)

    def _normalise(self, stack: Stack) -> Stack:
        if stack not in self._normal:
            normal = normalise(stack, self._texts)
            self._normal[stack] = self._normal.setdefault(normal, normal)
        return self._normal[stack]


def normalise(stack: Stack, known: dict[str, str] | None = None) -> Stack:
    """A stack as it would be in any other rank's process; `known` remembers frames."""
    texts = {} if known is None else known
    frames: list[str] = []
    for frame in stack:
        text = texts.get(frame)
        if text is None:
            text = texts[frame] = _normalise_frame(frame)
        if text and not (frames and frames[-1] == text == "import"):
            frames.append(text)
    # Above the program's first frame is the interpreter's own start.
    last = max((place for place, text in enumerate(frames) if _PYTHON.search(text)), default=len(frames))
    return tuple(frames[:last + 1])


def _normalise_frame(frame: str) -> str:
    if any(word in frame for word in _IMPORT):
        return "import"
    text = _MADE_UP.sub("*", _ADDRESS.sub("*", frame))
    return text if _PYTHON.search(text) else re.sub(r":\d+\)$", ")", text)   # a native line moves with the build


def common_root(stacks: Sequence[Stack]) -> Stack:
    """The outermost frames that all have in common."""
    shortest = min(map(len, stacks))
    count = 0
    while count < shortest and len({stack[-1 - count] for stack in stacks}) == 1:
        count += 1
    return stacks[0][len(stacks[0]) - count:]


def _join_moving(found: dict[tuple[str, Stack, str], list[ObservedRank]]) -> dict[tuple[str, Stack, str],
                                                                                  list[ObservedRank]]:
    """The same with all ranks that move in one program as one group: each was caught elsewhere."""
    joined: dict[tuple[str, Stack, str], list[ObservedRank]] = {}
    moving: dict[tuple[str, str], tuple[list[Stack], list[ObservedRank]]] = {}
    for (kind, stack, where), members in found.items():
        if kind != MOVING:
            joined[kind, stack, where] = members
            continue
        stacks, ranks = moving.setdefault((stack[-1] if stack else "", where), ([], []))
        stacks.append(stack)
        ranks.extend(members)
    for (_, where), (stacks, ranks) in moving.items():
        joined[MOVING, common_root(stacks), where] = ranks
    return joined


def is_importing(rank: ObservedRank) -> bool:
    """Whether a sample shows it importing a module, as all do for seconds after their start."""
    return any(word in frame for stack in rank.samples for frame in stack for word in _IMPORT)


def describe_where(rank: ObservedRank) -> str:
    """What the kernel adds to a stack: "D state in write() on /gpfs", "stopped"; "" for a rank that runs or sleeps."""
    if rank.is_gone:
        return "ended during this look" if rank.has_just_ended else "has ended (zombie)"
    place = rank.stuck_in
    if place is not None:
        return describe_place(place, "D state" if place is rank.main else f"D state of thread {place.name}")
    return "stopped" if rank.is_stopped else ""


def describe_place(place: KernelPlace, what: str) -> str:
    """`what` with the call and the mount, as far as they are known."""
    call = f" in {place.call}()" if place.call else f" in {place.wchan}" if place.wchan else ""
    return f"{what}{call}{f' on {place.mount}' if place.mount else ''}"


def fold_numbers(numbers: Iterable[int]) -> str:
    """Numbers as ranges: "0-379,384"."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def split_frame(frame: str) -> tuple[str, str]:
    """(function, file) of a frame's text."""
    match = _FRAME.match(frame)
    return (match["name"], match["file"]) if match else (frame, "")


def is_plumbing(frame: str) -> bool:
    """Whether a frame does not help people: it is between the program and what that waits in."""
    name, file = split_frame(frame)
    return file in _PLUMBING_FILES or name in ("_try_get_data", "import")


def tell_groups(groups: Sequence[RankGroup]) -> list[str]:
    """Each group in a line."""
    return [group.tell(doing) for group, doing in zip(groups, labels(groups), strict=True)]


def labels(groups: Sequence[RankGroup]) -> list[str]:
    """Each group's label: functions, and where these are the same in two of them, the line of the innermost one."""
    by_functions = [label(group.stack) for group in groups]
    often = Counter(by_functions)
    return [label(group.stack, has_line=True) if often[words] > 1 else words
            for group, words in zip(groups, by_functions, strict=True)]


def label(stack: Stack, *, has_line: bool = False) -> str:
    """The frames that say most, innermost first: "broadcast ← _bcast_pipe_scalar ← eval_batch"."""
    words: list[str] = []
    for frame in stack:
        name, file = split_frame(frame)
        if is_plumbing(frame):
            continue
        if file == _LOADER:   # of its frames the innermost one says it all
            word = name.rpartition(".")[2] if "DataLoader" not in words and not words else "DataLoader"
            words += [] if "DataLoader" in words else [word, "DataLoader"] if word != "DataLoader" else [word]
        else:
            words.append(name.rpartition(".")[2] if not name.startswith("<") else name)
            if has_line and len(words) == 1:
                words[0] += frame[len(name):]
        if len(words) >= _LABEL_FRAMES:
            break
    if not words and stack:
        words = [split_frame(frame)[0] for frame in stack[:_LABEL_FRAMES]]
    return " ← ".join(words[:_LABEL_FRAMES])


def _order(rank: ObservedRank) -> tuple[int, str, int]:
    return (1 << 60 if rank.number is None else rank.number, rank.node, rank.pid)
