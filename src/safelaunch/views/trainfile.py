"""What every verb that takes a train.yaml takes: FILE [KEY=VALUE]... [-- SBATCH FLAGS]..."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from safelaunch.core.config.debugpresets import PRESETS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_Command = TypeVar("_Command", bound=Callable[..., object])


def train_file_arguments(function: _Command) -> _Command:
    """The same function with FILE and REST as arguments; see split_rest."""
    function = click.argument("rest", nargs=-1, type=click.UNPROCESSED, metavar="[KEY=VALUE]... [-- SBATCH_FLAGS]...",
                              shell_complete=_keys)(function)
    return click.argument("file", type=str, shell_complete=_files)(function)


def debug_option(function: _Command) -> _Command:
    """The same function with `debug`, names of presets; see debugpresets."""
    add = click.option("--debug", type=click.Choice(tuple(PRESETS)), multiple=True, metavar="|".join(PRESETS),
                       help="Set the variables that help to look into a failure; may be given several times.")
    return add(function)


def _files(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """The shell completes names of files by itself."""
    from click.shell_completion import CompletionItem  # only here, as below: submit has no time for it

    return [CompletionItem(typed, type="file")]


def _keys(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """The keys of train.yaml, and options of sbatch, as the start of an override."""
    from safelaunch.core.config import keys, sbatchoptions

    options = (f"slurm.{option}" for option in sbatchoptions.OPTIONS if option not in sbatchoptions.REFUSED)
    words = [*keys.KEYS, *options]
    return [f"{word}=" for word in words if word.startswith(typed)]


def split_rest(rest: Sequence[str]) -> tuple[list[str], list[str]]:
    """Overrides, and the flags after `--`, which click drops; no override starts with a dash."""
    first = next((i for i, word in enumerate(rest) if word.startswith("-")), len(rest))
    return list(rest[:first]), list(rest[first:])
