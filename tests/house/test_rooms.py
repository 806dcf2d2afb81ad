"""The rooms of the package: what is pure by its place, how full a folder is, how large a room."""

from __future__ import annotations

from collections import Counter

from tests.house.source import Module, imported, modules

WORLD = {"os", "time", "subprocess", "pathlib", "socket", "random", "logging", "threading", "signal", "shutil"}
# Rooms that act, what other people's processes import, and names that earlier job scripts import (adapters).
ACTING = ("verbs", "supervisor", "node", "sandbox", "integrations", "callbacks", "adapters")
MOST_FILES = 20          # of one folder, its __init__ aside
MOST_OF_ALL = 0.15       # of all lines in one room


def room_of(module: Module) -> str:
    """The first folder, "" for a file on top."""
    return module.path.partition("/")[0] if "/" in module.path else ""


def is_pure(module: Module) -> bool:
    return room_of(module) not in ("", *ACTING) and "/io/" not in module.path


def touches(name: str) -> bool:
    """Whether this import is of the world."""
    return name.partition(".")[0] in WORLD or (name.startswith("safelaunch.") and ".io." in f"{name}.")


def test_what_lies_outside_of_io_touches_no_world() -> None:
    pure = [module for module in modules() if is_pure(module)]
    assert len(pure) > 200
    assert {(module.path, name) for module in pure for name in imported(module.tree) if touches(name)} == set()


def test_no_folder_is_a_heap_and_no_room_is_half_of_the_house() -> None:
    files = Counter(module.path.rpartition("/")[0] for module in modules() if not module.path.endswith("__init__.py"))
    assert {folder: count for folder, count in files.items() if count > MOST_FILES} == {}
    lines: Counter[str] = Counter()
    for module in modules():
        lines[room_of(module)] += module.text.count("\n")
    assert {room: count for room, count in lines.items() if count > MOST_OF_ALL * lines.total()} == {}
