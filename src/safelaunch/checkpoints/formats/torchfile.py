"""Format `torch`: files written by torch.save or pickle, one or several per step, and folders of them.

What a file is shows in its content: .pt, .pth and .ckpt are taken for torch's by their name, and of any other pattern
of names one file is looked at (.tar, .bin, .pkl, no suffix).

Today's torch.save writes a zip, whose directory comes last: a truncated file is always seen. The form before PyTorch
1.6 is a row of pickles and then the raw storages. Their lengths add up to the file's size, so truncation is seen, too.
Structure cannot tell a set of rank files that lacks its last ranks from a smaller set, nor flipped bits inside tensors.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from functools import partial

from safelaunch.checkpoints import archive, filesets, names, steps, words
from safelaunch.checkpoints.model import Candidate, CheckpointTree, join
from safelaunch.checkpoints.pickled import Atom, LongPickle, PickleFile, TornPickle

# What is no file of torch, whatever stands in it; all others are known by their content.
_OTHER_FORM = re.compile(
    r"\.(?:txt|json|jsonl|ya?ml|toml|csv|tsv|log|out|err|md|py|sh|cfg|ini|html?|xml|png|jpe?g|gif|svg|mp4|wav|pdf|ply|obj"
    r"|safetensors|npz|npy|h5|hdf5|parquet|arrow|distcp|metadata|index|onnx|gguf|lock|gz|xz|zst|proto|pbtxt)$",
    re.IGNORECASE)
_SAID = frozenset(("ckpt", "checkpoint", "checkpoints", "snapshot"))
SPEECHBRAIN = "CKPT.yaml"   # stands in each of its checkpoints
_PICKLE_PROTOCOLS = (b"\2", b"\3", b"\4", b"\5")
_DIGITS = re.compile(r"\d+")
# Of one search: each pattern of names costs one small read.
_MOST_READ = 64
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
    """Every step's files of torch or pickle, and every step's folder of them; finished by name or refused."""
    return tuple(filesets.list_candidates(folder, filesets.FileForm(
        "torch", _Claim(), names.TORCH_SUFFIXES, lambda _, path, inside: bool(path) and SPEECHBRAIN in inside)))


class _Claim:
    """Which names are files of torch: by their suffix, else by the content of one file of each pattern."""

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}

    def __call__(self, folder: CheckpointTree, path: str, inside: Sequence[str]) -> list[str]:
        """Those of a folder's names; the newest of a pattern is read first."""
        inside = [name for name in inside if not words.is_vocabulary(name)]
        doubtful = [name for name in inside if not names.is_torch(name) and not _OTHER_FORM.search(name)]
        read = steps.read_names(doubtful)
        is_part = names.is_step_folder(path.rpartition("/")[2])
        has_model = is_part or "config.json" in inside or (bool(doubtful) and any(
            folder.is_dir(join(path, name)) and names.is_step_folder(name) for name in folder.names(path)))
        found = [name for name in inside if names.is_torch(name)]
        if SPEECHBRAIN in inside:   # its counters are texts
            found = [name for name in found if looks_like(folder, join(path, name)) is not False]
        has_steps = not has_model and any(named.step is not None for named in steps.read_names(found).values())
        for name in sorted(doubtful, key=lambda name: read[name].order, reverse=True):
            # Beside files with a step a state may have any name.
            is_meant = is_part or read[name].step is not None or _is_said(name, has_model) or (
                has_steps and not words.is_aside(name))
            if is_meant and self._check_torch(folder, join(path, name)):
                found.append(name)
        return sorted(found)

    def _check_torch(self, folder: CheckpointTree, path: str) -> bool:
        pattern = _DIGITS.sub("#", path)
        if pattern not in self._known:
            if len(self._known) >= _MOST_READ:
                return False
            known = looks_like(folder, path)
            if known is None:
                return False
            self._known[pattern] = known
        return self._known[pattern]


def _is_said(name: str, has_model: bool) -> bool:
    """Whether an unnumbered name is a checkpoint's; a model beside checkpoints is a training's end."""
    return not _SAID.isdisjoint(words.words_of(name)) or words.is_copy(name) or (
        not has_model and words.is_of_training(name))


def looks_like(folder: CheckpointTree, path: str) -> bool | None:
    """Whether the file begins as one of torch or pickle, or is an archive of such; None for an empty or unreadable one.
    """
    try:
        size = folder.size(path)
        if not size:
            return None
        head = folder.read(path, 0, 2)
        if head == archive.MAGIC[:2]:
            return any(name.endswith(("data.pkl", *names.TORCH_SUFFIXES)) for name in archive.list_names(
                folder, path, size))
        return head[:1] == b"\x80" and head[1:] in _PICKLE_PROTOCOLS
    except OSError:
        return None


def judge(folder: CheckpointTree, candidate: Candidate) -> str | None:
    """What is wrong with any of the candidate's files or with the set of ranks; None when whole."""
    if missing := names.missing_ranks(candidate.parts):
        return missing
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
