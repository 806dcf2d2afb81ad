"""Format `torch`: files written by torch.save (.pt, .pth, .ckpt), one or several per step.

Today's torch.save writes a zip, whose directory comes last: a truncated file is always seen. The form before PyTorch
1.6 is a row of pickles and then the raw storages. Their lengths add up to the file's size, so truncation is seen, too.
Structure cannot tell a set of rank files that lacks its last ranks from a smaller set, nor flipped bits inside tensors.
Files without a number in their name come after the numbered ones, the newest first.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import partial

from safelaunch.core.checkpoints import archive, names
from safelaunch.core.checkpoints.model import Candidate, CheckpointTree, join
from safelaunch.core.checkpoints.pickled import Atom, LongPickle, PickleFile, TornPickle

# Deep enough for lightning_logs/version_0/checkpoints; bounded, so that no loop of links matters.
_DEEPEST = 3
# The verdict on a file whose pickles are longer than a search may walk: neither whole nor torn.
UNKNOWN = "unknown whether it is complete: its pickles are too long to be looked through"
_STORAGE = "storage"    # what the old form writes before a storage's type and key
_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C  # the first pickle of the old form; source: torch/serialization.py
# Bytes per element of the old form's storages; source: torch/storage.py
_ELEMENT_BYTES = {
    "DoubleStorage": 8, "FloatStorage": 4, "HalfStorage": 2, "BFloat16Storage": 2, "LongStorage": 8, "IntStorage": 4,
    "ShortStorage": 2, "CharStorage": 1, "ByteStorage": 1, "BoolStorage": 1, "UntypedStorage": 1,
    "ComplexFloatStorage": 8, "ComplexDoubleStorage": 16, "QInt8Storage": 1, "QUInt8Storage": 1, "QInt32Storage": 4,
}  # fmt: skip


def list_candidates(folder: CheckpointTree) -> tuple[Candidate, ...]:
    """Every torch file, those of one step folder or of one step's ranks together; finished by name or refused."""
    return tuple(_list_in(folder, "", 1))


def _list_in(folder: CheckpointTree, path: str, depth: int) -> Iterator[Candidate]:
    try:
        found = sorted(folder.names(path))
    except OSError as error:
        if not path:
            raise
        yield Candidate(path, None, "torch", refused=names.unlisted(error))
        return
    torch_files = []
    for name in found:
        inside = join(path, name)
        if folder.is_dir(inside):
            if depth < _DEEPEST and not names.is_temporary(name):
                yield from _list_in(folder, inside, depth + 1)
        elif names.is_temporary(name) and any(suffix in name.lower() for suffix in names.TORCH_SUFFIXES):
            yield Candidate(inside, names.step_in(name), "torch", refused=names.UNFINISHED)
        elif names.is_torch(name):
            torch_files.append(name)
    yield from _group(path, torch_files)


def _group(path: str, torch_files: list[str]) -> Iterator[Candidate]:
    """One candidate per step: a step folder's files belong together, and so do files that differ by their rank only."""
    base = path.rpartition("/")[2]
    if torch_files and names.is_step_folder(base):
        parts = tuple(join(path, name) for name in torch_files)
        yield Candidate(path, names.step_in(base), "torch", parts)
        return
    by_step: dict[str, list[str]] = {}
    for name in torch_files:
        by_step.setdefault(names.without_rank(name), []).append(name)
    for group in by_step.values():
        group.sort(key=lambda name: names.rank_in(name) or 0)
        parts = tuple(join(path, name) for name in group)
        yield Candidate(parts[0], names.step_in(group[0]), "torch", parts)


def judge(folder: CheckpointTree, candidate: Candidate) -> str | None:
    """What is wrong with any of the candidate's files or with the set of ranks; None when whole."""
    ranks = [rank for part in candidate.parts if (rank := names.rank_in(part.rpartition("/")[2])) is not None]
    missing = names.missing_in(ranks) if len(ranks) > 1 else []
    if missing:
        return f"no file of rank {missing[0]} of {max(ranks) + 1}"
    if candidate.parts == (candidate.path,):
        return judge_file(folder, candidate.path)
    return judge_files(folder, candidate.parts)


def judge_files(folder: CheckpointTree, paths: tuple[str, ...]) -> str | None:
    """What is wrong with the first damaged file, named, or with one that stands under another's name."""
    stems = {without_suffixes(path) for path in paths}
    for path in paths:
        reason = judge_file(folder, path) or judge_name(folder, path, stems)
        if reason:
            return f"{path}: {reason}"
    return None


def without_suffixes(path: str) -> str:
    """A file's name as torch.save writes it into the file."""
    return path.rpartition("/")[2].rpartition(".")[0]


def judge_name(folder: CheckpointTree, path: str, stems: Container[str]) -> str | None:
    """Why a torch file is another one of the same checkpoint: it was saved under that one's name."""
    saved_as = archive.top_of(folder, path)
    if saved_as and saved_as != without_suffixes(path) and saved_as in stems:
        return f"holds what was saved as {saved_as}"
    return None


def judge_file(folder: CheckpointTree, path: str) -> str | None:
    """What is wrong with one torch file, None when its structure is whole."""
    size = folder.size(path)
    if size is None:
        return "not a regular file"
    if not size:
        return "empty"
    head = folder.read(path, 0, 4)
    if head == archive.MAGIC:
        return archive.judge_archive(folder, path, size)
    if head.startswith(b"\x80"):
        return _judge_pickles(folder, path, size)
    return "neither a zip archive nor a pickle"


def _judge_pickles(folder: CheckpointTree, path: str, size: int) -> str | None:
    """What is wrong with a file of pickles: plain ones fill it, torch's old form goes on with storages."""
    file = PickleFile(partial(folder.read, path), size, folder.allowance.share())
    try:
        end = file.end_of(0)
        if next((atom.value for atom in file.walk(0, _is_recalled) if atom.value is not None), None) == _MAGIC_NUMBER:
            return _judge_old_form(folder, path, size, file, end)
        while end < size:
            end = file.end_of(end)
    except TornPickle as error:
        return f"truncated: {error}"
    except LongPickle:
        return UNKNOWN
    return None


def _is_recalled(text: str) -> bool:
    return text == _STORAGE or text.rpartition(" ")[2] in _ELEMENT_BYTES


def _judge_old_form(folder: CheckpointTree, path: str, size: int, file: PickleFile, at: int) -> str | None:
    """What is wrong with a file of torch's old form: pickles (version, system, object, keys), then the storages."""
    element_bytes: dict[str, int] = {}
    for _ in range(3):
        at = _note_storages(file.walk(at, _is_recalled), element_bytes)
    keys: list[str] = []
    for atom in file.walk(at, _is_recalled):
        at = atom.end
        if isinstance(atom.value, str):
            keys.append(atom.value)
    for key in keys:
        elements = int.from_bytes(folder.read(path, at, 8), "little")
        if key not in element_bytes:
            return f"a storage of unknown type: {key}"
        at += 8 + elements * element_bytes[key]
    if at != size:
        return f"truncated: its storages end at byte {at} of {size}"
    return None


def _note_storages(atoms: Iterator[Atom], element_bytes: dict[str, int]) -> int:
    """The offset behind the pickle; adds the element size of every storage key that it names by a persistent id.

    A persistent id is the tuple ("storage", type, key, place, elements, view).
    """
    end = 0
    recent: list[str | int] = []
    for atom in atoms:
        end = atom.end
        if atom.value == _STORAGE:
            recent = []
        elif atom.value is not None and len(recent) < 2:
            recent.append(atom.value)
        elif atom.op == "BINPERSID" and len(recent) > 1:
            kind = str(recent[0]).rpartition(" ")[2]
            if kind in _ELEMENT_BYTES:
                element_bytes[str(recent[1])] = _ELEMENT_BYTES[kind]
    return end
