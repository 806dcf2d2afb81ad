"""Format `safetensors`: files of Hugging Face's format, one or several per step, and folders of model weights.

A file is a length, a JSON header, and the tensors' bytes without gaps. The header says where each tensor ends, so one
that stops early is always seen. Source: the format's description in the safetensors repository. Sharded weights have an
index that names every tensor's file: all files must be there and hold the tensors that the index gives them.

What structure cannot tell: damaged or zeroed bytes inside a tensor. The format has no checksum.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from safelaunch.checkpoints import filesets, names, tree
from safelaunch.checkpoints.formats import torchfile
from safelaunch.checkpoints.model import Candidate, CheckpointTree, join

SUFFIX = ".safetensors"
# Below a step's folder.
_DEEPEST = 3
# The library refuses longer ones; source: MAX_HEADER_SIZE in safetensors/src/tensor.rs.
_MOST_HEADER_BYTES = 100_000_000
MOST_PARSED_BYTES = 32 << 20   # 300,000 tensors; in memory it can take ten times as much
# The number stands in a name, and each one is looked for.
_MOST_SHARDS = 1_000_000
_SHARD = re.compile(r"(.+)-(\d+)-of-(\d+)(\.safetensors|\.bin)")
_INDEX = re.compile(r".+\.(?:safetensors|bin)\.index(?:\.[\w-]+)?\.json")


def list_candidates(folder: CheckpointTree) -> tuple[Candidate, ...]:
    """Every step's folder with such files, every folder of a model, and every other step's files."""
    return tuple(filesets.list_candidates(folder, filesets.FileForm("safetensors", _claim, (SUFFIX,), _judge_model)))


def _claim(folder: CheckpointTree, path: str, inside: Sequence[str]) -> list[str]:
    return [name for name in inside if name.endswith(SUFFIX)]


def _judge_model(folder: CheckpointTree, path: str, inside: Sequence[str]) -> bool | None:
    """Whether a folder holds one model; None for what the end of a training leaves beside its checkpoints."""
    if "config.json" not in inside and not any(map(is_part, inside)):
        return False
    beside = any(names.is_step_folder(name) and folder.is_dir(join(path, name)) for name in folder.names(path))
    return None if beside else True


def is_part(name: str) -> bool:
    """Whether a file of this name is one of several that hold a model together, or their index."""
    return _SHARD.fullmatch(name) is not None or _INDEX.fullmatch(name) is not None


def judge(folder: CheckpointTree, candidate: Candidate) -> str | None:
    """What is wrong with the candidate's files, None when whole."""
    if folder.is_dir(candidate.path):
        return judge_tree(folder, candidate.path)
    if missing := names.missing_ranks(candidate.parts):
        return missing
    for part in candidate.parts:
        reason = judge_file(folder, part)
        if reason:
            return reason if part == candidate.path else f"{part}: {reason}"
    return None


def judge_tree(folder: CheckpointTree, path: str) -> str | None:
    """What is wrong with the files of a step's folder and of those in it, None when whole."""
    for place in tree.walk(folder, _DEEPEST, path):
        reason = place.unlisted or judge_folder(folder, place.path, place.names)
        if reason:
            below = place.path[len(path) + 1 :]
            return f"{below}/{reason}" if below else reason
    return None


def judge_folder(folder: CheckpointTree, path: str, inside: Iterable[str]) -> str | None:
    """What is wrong with the files of a folder of weights, None when whole; each is read once."""
    judged: set[str] = set()
    reason = _judge_shards(folder, path, set(inside), judged)
    return reason or judge_files(folder, path, [name for name in inside if name not in judged])


def _judge_shards(folder: CheckpointTree, path: str, present: set[str], judged: set[str]) -> str | None:
    """What is missing of the files that hold a model together: by the numbers in their names, and by their index."""
    shards = [found for name in sorted(present) if (found := _SHARD.fullmatch(name))]
    for stem, count, suffix in sorted({found.group(1, 3, 4) for found in shards}):
        if int(count) > _MOST_SHARDS:
            return f"{stem}: {count} shards are more than anybody writes"
        for number in range(1, int(count) + 1):
            wanted = f"{stem}-{number:0{len(count)}d}-of-{count}{suffix}"
            if wanted not in present:
                return f"{wanted} is missing"
    indexes = [name for name in sorted(present) if _INDEX.fullmatch(name)]
    if shards and not indexes:
        return f"no {shards[0].group(1)}{shards[0].group(4)}.index.json: the save has not finished"
    for name in indexes:
        reason = _judge_index(folder, path, name, present, judged)
        if reason:
            return f"{name}: {reason}"
    return None


def _judge_index(folder: CheckpointTree, path: str, name: str, present: set[str], judged: set[str]) -> str | None:
    """What is wrong with an index: each file that it names must be there and hold the tensors that it is said to.

    Adds the files that are whole to `judged`.
    """
    try:
        said = tree.read_json(folder, join(path, name))
        files = {} if said is None else said["weight_map"]
        tensors: dict[str, set[str]] = {}
        for tensor, file in files.items():
            tensors.setdefault(str(file), set()).add(tensor)
    except ValueError as error:
        return str(error)
    except (KeyError, TypeError, AttributeError):
        return "no weight_map"
    for file, wanted in sorted(tensors.items()):
        if file not in present:
            return f"{file} is missing"
        if file.endswith(SUFFIX):
            header = _read_header(folder, join(path, file))
            if isinstance(header, str):
                return f"{file}: {header}"
            if lost := wanted - set(header):
                return f"{file} does not hold {min(lost)}"
            judged.add(file)
    return None


def judge_files(folder: CheckpointTree, path: str, inside: Sequence[str]) -> str | None:
    """What is wrong with the first damaged file of the forms that are known; others are not judged."""
    stems = {torchfile.without_suffixes(name) for name in inside}
    for name in inside:
        if not names.is_temporary(name) and not folder.is_dir(join(path, name)):
            reason = judge_any(folder, join(path, name)) or torchfile.judge_name(folder, join(path, name), stems)
            if reason:
                return f"{name}: {reason}"
    return None


def judge_any(folder: CheckpointTree, path: str) -> str | None:
    """What is wrong with a file whose suffix says how it is written; None when whole, or when nothing is known."""
    if path.endswith(SUFFIX):
        return judge_file(folder, path)
    if path.endswith(".json"):
        return tree.judge_json(folder, path)
    if path.endswith((".bin", ".pkl")) or names.is_torch(path):
        return torchfile.judge_file(folder, path)
    return None


def judge_file(folder: CheckpointTree, path: str) -> str | None:
    """What is wrong with one file, None when its tensors fill it to the last byte."""
    header = _read_header(folder, path)
    return header if isinstance(header, str) else None


def _read_header(folder: CheckpointTree, path: str) -> dict[str, object] | str:
    """The header of a whole file, or what is wrong with it."""
    size = folder.size(path)
    if not size:
        return "not a regular file" if size is None else "empty"
    length = int.from_bytes(folder.read(path, 0, 8), "little")
    if size < 8 or not 1 < length <= _MOST_HEADER_BYTES:
        return "truncated or no safetensors file: its first 8 bytes are no length of a header"
    if 8 + length > size:
        return f"truncated: its header needs byte {8 + length} of a file of {size}"
    if length > MOST_PARSED_BYTES:
        return f"not checked: its header has {length >> 20} MiB"
    try:
        header = tree.parse_json(folder.read(path, 8, length))
        spans = sorted(tuple(told["data_offsets"]) for name, told in header.items() if name != "__metadata__")
        end = 0
        for start, stop in spans:
            if start != end or stop < start:
                return f"its header leaves bytes {end} to {start} of the tensors to nobody"
            end = stop
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "its header is no description of tensors"
    if 8 + length + end != size:
        return f"truncated: {size} of {8 + length + end} bytes" if size < 8 + length + end else "bytes follow its end"
    return header  # type: ignore[no-any-return]
