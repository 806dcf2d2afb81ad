"""The step that a checkpoint tells by its content: the first keys of a pickled dictionary, a small JSON text, a header.

Nothing is built or run: the pickle's opcodes move marks on a stack, so that a key of the outermost dictionary is told
from one of the optimizer's. A zero is what a training that does not count leaves there: it tells nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import NamedTuple

from safelaunch.checkpoints import archive, steps, tree, words
from safelaunch.checkpoints.model import Candidate, CheckpointTree, join
from safelaunch.checkpoints.pickled import Allowance, Atom, LongPickle, PickleFile, TornPickle

STEP_KEYS = frozenset((
    "step", "steps", "global_step", "globalstep", "iteration", "iterations", "iter", "iters", "n_iter", "iter_num",
    "num_updates", "current_step", "cur_step", "train_step", "training_step", "global_iter", "ss_steps"))
EPOCH_KEYS = frozenset(("epoch", "current_epoch", "cur_epoch", "epoch_num", "epochs_run", "ss_epoch"))
_TEXTS = ("trainer_state.json", "training_state.json", "training_step.json", "train_state.json", "state.json")
_TEXT_FOLDER = "training_state"   # LeRobot's
_MOST_TEXT_BYTES = 1 << 20
_LOCAL_HEADER_BYTES = 30
_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C  # the first pickle of torch's old form; source: torch/serialization.py
# 30 ms. The keys stand in front of the tensors, or behind those of a model of some hundred.
MOST_OPS = 30_000
# Where one of the two is found the other one is near.
_OPS_BEHIND = 60
_MARK = object()
_DICT = object()


class Told(NamedTuple):
    """What the content says, None where it says nothing; `keys`: those of the outermost dictionary that were seen."""

    step: int | None = None
    epoch: int | None = None
    keys: frozenset[str] = frozenset()

    def beside(self, step: int | None, unit: str) -> int | None:
        """The step, where a name tells this one: content beats the name; a difference of one is where a count begins.
        """
        if step is None:
            return self.step or self.epoch or None
        if any(one is not None and abs(one - step) <= 1 for one in (self.step, self.epoch)):
            return step
        return (self.epoch if unit == steps.EPOCH else self.step) or step


NOTHING = Told()


def read(folder: CheckpointTree, candidate: Candidate) -> Told:
    """What the candidate's main file, or a text beside it, says; nothing where it cannot be read."""
    try:
        if not candidate.path or folder.is_dir(candidate.path):
            told = _read_texts(folder, candidate.path)
            if told != NOTHING:
                return told
        main = min(candidate.parts or (candidate.path,), key=lambda path: (
            path.count("/"), words.main_first(path.rpartition("/")[2]), len(path), path))
        if not main or folder.is_dir(main):
            return NOTHING
        return read_safetensors(folder, main) if main.endswith(".safetensors") else read_file(folder, main)
    except (OSError, ValueError):
        return NOTHING


def _read_texts(folder: CheckpointTree, path: str) -> Told:
    for place in (path, join(path, _TEXT_FOLDER)):
        inside = folder.names(place) if place == path or folder.is_dir(place) else ()
        for name in _TEXTS:
            if name in inside and (folder.size(join(place, name)) or 0) <= _MOST_TEXT_BYTES:
                told = _told_by(tree.read_json(folder, join(place, name)))
                if told != NOTHING:
                    return told
    return NOTHING


def _told_by(said: object) -> Told:
    """What the keys of a mapping say; numbers may be texts."""
    found: dict[bool, int] = {}
    for key, value in said.items() if isinstance(said, Mapping) else ():
        is_number = (isinstance(value, int) and not isinstance(value, bool)) or (
            isinstance(value, str) and value.isdecimal() and len(value) < 18)
        if is_number and (key in STEP_KEYS or key in EPOCH_KEYS):
            found.setdefault(key in STEP_KEYS, int(value))
    return Told(found.get(True), found.get(False))


def read_safetensors(folder: CheckpointTree, path: str) -> Told:
    """What the header's own texts say."""
    length = int.from_bytes(folder.read(path, 0, 8), "little")
    if length > _MOST_TEXT_BYTES:
        return NOTHING
    header = tree.parse_json(folder.read(path, 8, length))
    return _told_by(header.get("__metadata__")) if isinstance(header, Mapping) else NOTHING


def read_file(folder: CheckpointTree, path: str, most_ops: int = MOST_OPS) -> Told:
    """What the outermost dictionary in a file of torch or pickle says."""
    head = folder.read(path, 0, _LOCAL_HEADER_BYTES)
    size = folder.size(path) or 0
    start = 0
    if head.startswith(archive.MAGIC) and len(head) == _LOCAL_HEADER_BYTES:
        start = _LOCAL_HEADER_BYTES + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
    elif not head.startswith(b"\x80"):
        return NOTHING
    file = PickleFile(partial(folder.read, path), size, Allowance(most_ops, folder.allowance))
    reader = _KeyReader()
    try:
        if not start and any(atom.value == _MAGIC_NUMBER for atom in file.walk(0, _is_key)):
            for _ in range(3):
                start = file.end_of(start)
        for atom in file.walk(start, _is_key):
            if not reader.take(atom):
                break
    except (TornPickle, LongPickle):
        pass
    return Told(reader.found.get(True), reader.found.get(False), frozenset(reader.keys))


def _is_key(text: str) -> bool:
    return text in STEP_KEYS or text in EPOCH_KEYS


@cache
def _effects() -> Mapping[str, tuple[int, bool, int]]:
    """By opcode: (values it takes, whether it takes all down to the mark, values it leaves)."""
    import pickletools

    found = {}
    for op in pickletools.opcodes:
        takes_slice = pickletools.markobject in op.stack_before
        before = op.stack_before.index(pickletools.markobject) if takes_slice else len(op.stack_before)
        found[op.name] = (before, takes_slice, len(op.stack_after))
    return found


class _KeyReader:
    """The stack of a pickle whose outermost value is a dictionary."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.found: dict[bool, int] = {}
        self._stack: list[object] = []
        self._marks = 0
        self._pending: tuple[str, int] | None = None
        self._left = MOST_OPS

    def take(self, atom: Atom) -> bool:
        """Whether to go on behind this opcode."""
        self._settle(atom)
        takes, to_mark, leaves = _effects()[atom.op]
        stack = self._stack
        if to_mark:
            while stack and stack.pop() is not _MARK:
                pass
            self._marks -= 1
        if takes:
            del stack[max(0, len(stack) - takes):]
        if atom.op == "MARK":
            self._marks += 1
            stack.append(_MARK)
        elif atom.op == "EMPTY_DICT":
            stack.append(_DICT)
        else:
            stack.extend([atom.value] * leaves)
            if to_mark or takes:   # a dictionary that is filled is still one
                self._keep_outermost(atom.op)
        self._note()
        self._left -= 1
        return self._left > 0 and (not stack or stack[0] is _DICT or atom.op in ("PROTO", "FRAME"))

    def _keep_outermost(self, op: str) -> None:
        if op in ("SETITEMS", "SETITEM") and len(self._stack) == 1:
            self._stack[0] = _DICT

    def _note(self) -> None:
        """Keep a key of the outermost dictionary, and a number that may be its value."""
        stack = self._stack
        if len(stack) < 2 or stack[0] is not _DICT or self._marks > 1:
            return
        is_value = len(stack) == 3 if self._marks == 0 else stack[1] is _MARK and len(stack) >= 4 and not len(stack) % 2
        if is_value and isinstance(stack[-2], str):
            self.keys.add(stack[-2])
            if isinstance(stack[-1], int):
                self._pending = (stack[-2], stack[-1])

    def _settle(self, atom: Atom) -> None:
        """The number is the value itself where the next opcode brings the next key or ends the dictionary."""
        if self._pending is not None and (isinstance(atom.value, str) or atom.op in ("SETITEMS", "SETITEM")):
            key, number = self._pending
            if _is_key(key) and 0 <= number < 1 << 48:
                self.found.setdefault(key in STEP_KEYS, number)
                self._left = min(self._left, _OPS_BEHIND)
        self._pending = None
