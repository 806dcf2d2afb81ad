"""Other sbatch options for the later jobs of a run (`safelaunch change`): its own script stays as it was submitted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from safelaunch.errors import UsageError
from safelaunch.script.script import time_limit_s


class LaterKey(NamedTuple):
    """What of a job may be changed: sbatch's option, and scontrol's field for a job that waits."""

    option: str
    field: str


KEYS = {"time": LaterKey("time", "TimeLimit"), "partition": LaterKey("partition", "Partition"),
        "qos": LaterKey("qos", "QOS"), "account": LaterKey("account", "Account")}
_VALUE = r"[A-Za-z0-9_.,:@+-]+"


def parse(arguments: Iterable[str], before: Mapping[str, str]) -> dict[str, str]:
    """The changes after these words, such as "time=2:00:00"; an empty value takes one back. Raises UsageError."""
    changes = dict(before)
    for word in arguments:
        name, equals, value = word.removeprefix("slurm.").partition("=")
        if not equals or name not in KEYS:
            raise UsageError(f"{word}: expected {', '.join(f'{key}=…' for key in KEYS)}",
                             hint="anything else takes a new run: safelaunch stop, then safelaunch submit")
        if not value:
            changes.pop(name, None)
        elif not re.fullmatch(_VALUE, value) or (name == "time" and time_limit_s(value) is None):
            raise UsageError(f"{word}: " + ("expected a time as sbatch takes it: 30, 2:00:00 or 1-12:00:00"
                                            if name == "time" else f"no {name} is called so"))
        else:
            changes[name] = value
    return changes


def clean(found: object) -> dict[str, str]:
    """The changes in what a file holds; what this version does not know is left out."""
    known = found if isinstance(found, dict) else {}
    return {name: value for name, value in known.items()
            if name in KEYS and isinstance(value, str) and re.fullmatch(_VALUE, value)}


def options(changes: Mapping[str, str]) -> list[str]:
    """sbatch's words for a later job."""
    return [f"--{KEYS[name].option}={value}" for name, value in changes.items()]


def fields(changes: Mapping[str, str], before: Mapping[str, str], own: Mapping[str, str | None]) -> dict[str, str]:
    """scontrol's words for a job that waits: what is changed, and of what is taken back the run's `own` value."""
    back = {name: own.get(KEYS[name].option) for name in before if name not in changes}
    return {KEYS[name].field: value for name, value in {**back, **changes}.items() if value}


def tell(changes: Mapping[str, str]) -> str:
    """For people: "time 2:00:00, partition long"."""
    return ", ".join(f"{name} {value}" for name, value in changes.items())


def in_partition(sbatch: tuple[tuple[str, str | None], ...], actual: str) -> tuple[tuple[str, str | None], ...]:
    """The options of a job that Slurm has started in the partition `actual`, which may have been changed."""
    return tuple((name, actual) if name == "partition" and actual and value and actual not in value.split(",")
                 else (name, value) for name, value in sbatch)
