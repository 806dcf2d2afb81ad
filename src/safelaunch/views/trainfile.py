"""What every verb that takes a train.yaml takes: FILE [KEY=VALUE]... [-- SBATCH FLAGS]..."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., object])


def train_file_arguments(function: _Command) -> _Command:
    """The same function with FILE and REST as arguments; see split_rest."""
    function = click.argument("rest", nargs=-1, type=click.UNPROCESSED, metavar="[KEY=VALUE]... [-- SBATCH_FLAGS]...")(
        function
    )
    return click.argument("file", type=str)(function)


def split_rest(rest: Sequence[str]) -> tuple[list[str], list[str]]:
    """Overrides, and the flags after `--`, which click drops; no override starts with a dash."""
    first = next((i for i, word in enumerate(rest) if word.startswith("-")), len(rest))
    return list(rest[:first]), list(rest[first:])
