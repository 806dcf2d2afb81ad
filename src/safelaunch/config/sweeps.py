"""`sweep:` of train.yaml ▸ its points, each as a layer above the rest of the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import ClassVar, NamedTuple

from safelaunch.base.yaml.yamlnodes import ListNode, MappingNode, Node, Scalar, is_null
from safelaunch.config.kinds.kinds import Schema, WrongValue, expected, handed

ARRAY_JOB = "SLURM_ARRAY_JOB_ID"
ARRAY_TASK = "SLURM_ARRAY_TASK_ID"   # of a user's own script; "task" in names of runs
MOST_POINTS = 1000   # as MaxArraySize of slurm.conf(5) by default: beyond it somebody has made a mistake
_RANGE = r"([0-9]{1,9})-([0-9]{1,9})(?::([1-9][0-9]{0,8}))?"
_NAME = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_-]*)*"
_MOST_NAME, _LEAST_SUFFIX = 64, 24   # of keys.NAME_PATTERN; so much of it is left to the values at least
_NOT_VARIED = frozenset(("version", "name", "sweep", "max_parallel", "cluster", "script"))

PointValues = dict[str, Scalar]


def array_id(sweep: str) -> str:
    """The number by which a script's tasks know their array: the same for all of a sweep, and above all of Slurm's."""
    return str(900_000_000 + int(sweep, 16) % 99_999_999)


class SweepPoint(NamedTuple):
    """One point: its number (from 1), of how many, what is varied as it was written, and the end of its run's name."""

    number: int
    of: int
    values: tuple[tuple[str, Scalar], ...]
    suffix: str

    @property
    def texts(self) -> dict[str, str]:
        return {name: value.text for name, value in self.values}


class SweepTable:
    """A table of names and their values, or a list of points."""

    _one: ClassVar[Schema] = {"type": ["string", "number", "boolean"]}
    _some: ClassVar[Schema] = {"anyOf": [_one, {"type": "array", "items": _one, "minItems": 1}]}
    _names: ClassVar[Schema] = {"pattern": f"^({_NAME})$"}
    schema: ClassVar[Schema] = {"anyOf": [
        {"type": "object", "additionalProperties": _some, "minProperties": 1, "propertyNames": _names},
        {"type": "array", "minItems": 1, "items": {
            "type": "object", "additionalProperties": _one, "minProperties": 1, "propertyNames": _names}},
    ]}

    def read(self, node: Node) -> list[dict[str, str]]:
        """The points, as names and texts."""
        return [{name: value.text for name, value in one.items()} for one in read_points(node)]


def read_points(node: Node) -> list[PointValues]:
    """The points of the key's value, the last name varied first; raises WrongValue."""
    if isinstance(node, MappingNode):
        rows = [[(name, value) for value in _values(name, inner)] for name, inner in node.entries.items()]
        size = 1
        for row in rows:
            size *= len(row)
        _check_size(size if rows else 0)
        found = [dict(point) for point in product(*rows)]
    elif isinstance(node, ListNode):
        _check_size(len(node.items))
        found = [_point(number, item) for number, item in enumerate(node.items, 1)]
        names = [sorted(point) for point in found]
        if other := next((number for number, one in enumerate(names, 1) if one != names[0]), None):
            raise WrongValue(f"point {other} has not the names of point 1 ({', '.join(names[0])})")
    else:
        raise expected("names and their values, such as {lr: [1e-4, 3e-4], seed: 0-4}, or a list of points", node)
    for name in found[0]:
        _check_name(name)
    seen: dict[tuple[str, ...], int] = {}
    for number, point in enumerate(found, 1):
        first = seen.setdefault(tuple(point[name].text for name in sorted(point)), number)
        if first != number:
            raise WrongValue(f"points {first} and {number} are the same")
    return found


def sweep_points(tree: MappingNode, is_key: frozenset[str]) -> list[SweepPoint]:
    """The points of a tree with `sweep`; [] where there is none, or a wrong one: the table of keys reads it, too, and
    says so. `is_key`: the keys of train.yaml.
    """
    node = tree.entries.get("sweep")
    if node is None or is_null(node):
        return []
    try:
        found = read_points(node)
    except WrongValue:
        return []
    name = tree.entries.get("name")
    base = name.text if isinstance(name, Scalar) and "${" not in name.text else ""
    suffixes = _suffixes(found, max(_LEAST_SUFFIX, _MOST_NAME - 1 - len(base)))
    return [SweepPoint(number, len(found), tuple(point.items()), suffix)
            for number, (point, suffix) in enumerate(zip(found, suffixes, strict=True), 1)]


def with_point(tree: MappingNode, point: SweepPoint, is_key: frozenset[str]) -> Iterator[tuple[str, Node]]:
    """(key, value) of all that a point sets: its variables, its keys, and the name of its run."""
    for name, value in point.values:
        yield (name if is_key_of(name, is_key) else f"env.{name}"), value
    base = tree.entries.get("name")
    if isinstance(base, Scalar):
        yield "name", Scalar(f"{base.text}-{point.suffix}", f"{base.text}-{point.suffix}", False, base.origin)


def is_key_of(name: str, is_key: frozenset[str]) -> bool:
    """Whether a name of a sweep is a key of train.yaml; else it is a variable."""
    return name in is_key or "." in name


def shared_folders(folders: Sequence[str | None]) -> tuple[int, int] | None:
    """Two points (from 1) that would write into one folder; None = there are none."""
    first: dict[str, int] = {}
    for number, folder in enumerate(folders, 1):
        if folder is not None and first.setdefault(folder, number) != number:
            return first[folder], number
    return None


def _check_size(size: int) -> None:
    if not 1 <= size <= MOST_POINTS:
        raise WrongValue(f"expected 1 to {MOST_POINTS} points, got {size}")


def _check_name(name: str) -> None:
    if name.partition(".")[0] in _NOT_VARIED:
        raise WrongValue(f"{name}: cannot be varied; a variable of the training needs another name")
    if not re.fullmatch(_NAME, name):
        raise WrongValue(f"{name}: neither a key of train.yaml nor a name that a variable can have")


def _values(name: str, node: Node) -> list[Scalar]:
    """The values of one name: those of a list, the numbers of a range such as 0-4, or the one that is there."""
    if isinstance(node, ListNode):
        if not node.items:
            raise WrongValue(f"{name}: expected at least one value")
        return [_value(name, item) for item in node.items]
    one = _value(name, node)
    found = re.fullmatch(_RANGE, one.text) if one.plain else None
    if found is None:
        return [one]
    first, last, by = int(found[1]), int(found[2]), int(found[3] or 1)
    if first > last:
        raise WrongValue(f"{name}: {one.text}: the range ends below its start")
    _check_size((last - first) // by + 1)
    return [Scalar(number, str(number), True, one.origin) for number in range(first, last + 1, by)]


def _value(name: str, node: Node) -> Scalar:
    if not isinstance(node, Scalar) or node.value is None:
        raise WrongValue(f"{name}: {expected('a value, a list of values, or a range such as 0-4', node)}")
    handed(node.text, name)
    return node


def _point(number: int, node: Node) -> PointValues:
    if not isinstance(node, MappingNode) or not node.entries:
        raise WrongValue(f"point {number}: {expected('names and their values, such as {lr: 1e-4, seed: 2}', node)}")
    return {name: _value(name, value) for name, value in node.entries.items()}


def _suffixes(points: Sequence[Mapping[str, Scalar]], most: int) -> list[str]:
    """The end of each run's name: `lr3e-4-seed2`; with the points' numbers where one is too long, or like another."""
    varied = [name for name in points[0] if any(point[name].text != points[0][name].text for point in points)]
    names = ["-".join(f"{'task' if name == ARRAY_TASK else name.rpartition('.')[2]}{point[name].text}"
                      for name in varied or points[0])
             for point in points]
    names = [re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-") for name in names]
    if len(set(names)) == len(names) and max(map(len, names)) <= most:
        return names
    return [f"{name[:most - len(str(number)) - 1].rstrip('-.')}-{number}" for number, name in enumerate(names, 1)]
