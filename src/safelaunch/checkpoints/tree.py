"""The folders below the one that is searched, and the small texts in them."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator
from typing import Any, NamedTuple

from safelaunch.checkpoints import names
from safelaunch.checkpoints.model import CheckpointTree, join

# What holds checkpoints: a search may begin far above them, beside data sets of a million folders.
_HOLDER = re.compile(r"checkpoints?|ckpts?|weights|lightning_logs|version_\d+", re.IGNORECASE)
_ANY_NAME_TO_LEVEL = 2
# A trainer_state.json with the log of a long training has some MB; a larger text is judged by its last bytes.
MOST_CONTAINERS = 1_000_000   # of a text that is parsed: two bytes of it take 64 in memory
_MOST_JSON_BYTES = 16 << 20


class FolderNames(NamedTuple):
    """A folder and the names in it; `unlisted` says why there are none."""

    path: str
    names: tuple[str, ...]
    unlisted: str | None = None

    @property
    def base(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> str:
        return self.path.rpartition("/")[0]


def walk(folder: CheckpointTree, deepest: int, top: str = "") -> Iterator[FolderNames]:
    """`top` itself and the folders below it to that depth, parents first; one with a temporary name is not entered.

    Below the folder that is searched, from the third level on, only folders that are named as checkpoints are, or as
    what holds them. Raises OSError when `top` cannot be listed.
    """
    yield FolderNames(top, tuple(sorted(folder.names(top))))
    yield from _below(folder, top, deepest, is_part=top != "")


def may_hold(path: str) -> bool:
    """Whether a checkpoint may be that folder or lie in it, by its name, its parent's and how deep it is."""
    *above, name = path.split("/")
    return len(above) < _ANY_NAME_TO_LEVEL or names.is_step_folder(name) or any(
        _HOLDER.fullmatch(one) for one in (name, above[-1]))


def _below(folder: CheckpointTree, path: str, deeper: int, is_part: bool) -> Iterator[FolderNames]:
    for name in sorted(folder.names(path)) if deeper > 0 else ():
        inside = join(path, name)
        if not folder.is_dir(inside) or (not is_part and not may_hold(inside)):
            continue
        try:
            yield FolderNames(inside, tuple(sorted(folder.names(inside))))
        except OSError as error:
            yield FolderNames(inside, (), names.unlisted(error))
            continue
        if not names.is_temporary(name):
            yield from _below(folder, inside, deeper - 1, is_part)


def owner_of(path: str) -> str:
    """The step's folder that the path lies in, the uppermost one; the path itself without one."""
    words = path.split("/")
    above = (number for number, word in enumerate(words, 1) if names.is_step_folder(word))
    return "/".join(words[: next(above, len(words))])


def folders_above(path: str) -> Iterator[str]:
    """The folders that the path lies in, the nearest first; without the one that is searched."""
    while path := path.rpartition("/")[0]:
        yield path


def is_within(path: str, taken: Container[str]) -> bool:
    """Whether the path or a folder above it is taken."""
    while path:
        if path in taken:
            return True
        path = path.rpartition("/")[0]
    return False


def read_json(folder: CheckpointTree, path: str) -> Any:
    """The value in a JSON file, None in a file that is larger than what is read; raises ValueError when it is torn."""
    size = folder.size(path)
    if not size:
        raise ValueError("not a regular file" if size is None else "empty")
    if size > _MOST_JSON_BYTES:
        if folder.read(path, -64, 64).rstrip()[-1:] not in (b"}", b"]"):
            raise ValueError("truncated: its last byte does not end a JSON text")
        return None
    return parse_json(folder.read(path, 0, size))


def parse_json(text: bytes) -> Any:
    """The value of a JSON text; raises ValueError when it is torn."""
    if text.count(b"{") + text.count(b"[") > MOST_CONTAINERS:
        raise ValueError(f"not checked: it holds more than {MOST_CONTAINERS} objects and lists")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"truncated: {error}") from None


def judge_json(folder: CheckpointTree, path: str) -> str | None:
    """What is wrong with a JSON file, None when it can be read to its end."""
    try:
        read_json(folder, path)
    except ValueError as error:
        return str(error)
    return None
