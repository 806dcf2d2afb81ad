"""Format `pattern`: the user says how checkpoints are named, e.g. "step_{step}.pt" or "ckpt-{step}/DONE".

{step} is a number, * and ? are wild within one name. A file must not be empty, and must be a whole zip if it begins as
one. When the pattern ends in a marker (DONE, .complete, _SUCCESS, any name without suffix) the checkpoint is its
folder, and the marker may be empty. Files of torch directly in a folder are checked in either case.

What structure cannot tell: whether a file of any other form is whole. Let the trainer rename it into place, or write a
marker last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from safelaunch.checkpoints import archive, names
from safelaunch.checkpoints.formats import dcp, torchfile
from safelaunch.checkpoints.model import Candidate, CheckpointTree, join

_TOKEN = re.compile(r"\{step\}|\*|\?|\{[^{}]{0,255}\}")
_WILD = {"*": "[^/]*", "?": "[^/]"}


def list_candidates(folder: CheckpointTree, pattern: str) -> tuple[Candidate, ...]:
    """Every path that the pattern describes; raises ValueError for a pattern that means nothing."""
    words = [word for word in pattern.split("/") if word not in ("", ".")]
    if not words or ".." in words or pattern.startswith("/"):
        raise ValueError(f'checkpoint pattern "{pattern}": expected names below the folder, such as "step_{{step}}.pt"')
    compiled = [_compile(word, pattern) for word in words]
    by_marker = len(words) > 1 and _is_marker(words[-1])
    found = []
    for path, step, refused in _match(folder, "", None, compiled):
        parent, _, name = path.rpartition("/")
        if not by_marker and not words[-1].startswith(".") and names.is_temporary(name):
            refused = names.UNFINISHED
        found.append(Candidate(parent if by_marker and not refused else path, step, "pattern", (path,), refused))
    return tuple(found)


def _compile(word: str, pattern: str) -> re.Pattern[str]:
    """The regular expression of one name of the pattern."""
    unknown = [token for token in _TOKEN.findall(word) if token not in ("{step}", "*", "?")]
    if unknown:
        raise ValueError(f'checkpoint pattern "{pattern}": {unknown[0]} is unknown, only {{step}} is known')
    parts = re.split(r"(\{step\}|\*|\?)", word)
    seen = False
    text = ""
    for part in parts:
        if part == "{step}":
            text += "(?P=step)" if seen else r"(?P<step>\d+)"
            seen = True
        else:
            text += _WILD.get(part) or re.escape(part)
    return re.compile(text)


def _is_marker(word: str) -> bool:
    stem, dot, suffix = word.rpartition(".")
    return not dot or not stem or suffix.lower() in ("done", "complete", "completed", "success", "ok")


def _match(
    folder: CheckpointTree, path: str, step: int | None, words: list[re.Pattern[str]]
) -> Iterator[tuple[str, int | None, str | None]]:
    """(path, step, reason to skip) below `path` for the words that are left."""
    if not words:
        yield path, step, None
        return
    try:
        inside = sorted(folder.names(path))
    except OSError as error:
        if not path:
            raise
        yield path, step, names.unlisted(error)
        return
    for name in inside:
        found = words[0].fullmatch(name)
        if not found or (len(words) > 1 and not folder.is_dir(join(path, name))):
            continue
        said = int(found.group("step")) if "step" in words[0].groupindex else None
        if said is None or step is None or said == step:
            yield from _match(folder, join(path, name), step if said is None else said, words[1:])


def judge(folder: CheckpointTree, candidate: Candidate) -> str | None:
    """What is wrong with the file or folder, None when nothing speaks against it."""
    for part in candidate.parts:
        if part == candidate.path:
            return _judge_folder(folder, part) if folder.is_dir(part) else _judge_file(folder, part)
        if folder.size(part) is None:
            return f"the marker {part} is not a regular file"
    return _judge_folder(folder, candidate.path)


def _judge_file(folder: CheckpointTree, path: str) -> str | None:
    size = folder.size(path)
    if size is None:
        return "not a regular file"
    if not size:
        return "empty"
    if names.is_torch(path):
        return torchfile.judge_file(folder, path)
    if folder.read(path, 0, 4) == archive.MAGIC:
        return archive.judge_archive(folder, path, size)
    return None


def _judge_folder(folder: CheckpointTree, path: str) -> str | None:
    inside = sorted(folder.names(path))
    if not inside:
        return "empty folder"
    if dcp.is_like(inside):
        return dcp.judge_folder(folder, path)
    return torchfile.judge_files(folder, tuple(join(path, name) for name in inside if names.is_torch(name)))
