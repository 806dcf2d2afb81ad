"""What every verb that takes a train.yaml takes: FILE [KEY=VALUE]... [-- SBATCH FLAGS]..."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from safelaunch.config import keys
from safelaunch.config.debugpresets import PRESETS
from safelaunch.config.scripts.slurmkeys import count_flag
from safelaunch.slurm import sbatchoptions

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_Command = TypeVar("_Command", bound=Callable[..., object])


def train_file_arguments(function: _Command) -> _Command:
    """The same function with FILE and REST as arguments; see split_rest."""
    function = click.argument("rest", nargs=-1, type=click.UNPROCESSED,
                              metavar="[KEY=VALUE]... [-- SBATCH_FLAGS] [ARGUMENTS]",
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
    options = (f"slurm.{option}" for option in sbatchoptions.OPTIONS if option not in sbatchoptions.REFUSED)
    words = [*keys.KEYS, *options]
    return [f"{word}=" for word in words if word.startswith(typed)]


class TrainFileCommand(click.Command):
    """A verb with train_file_arguments. What sbatch takes before the script is taken there, too: flags, a script from
    standard input. The first `--`, which click drops, stays in `rest`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words, in the order that click takes them."""
        own = {name: parameter for parameter in self.get_params(ctx) if isinstance(parameter, click.Option)
               for name in parameter.opts}
        try:
            return super().parse_args(ctx, _in_order(args, own, is_script_waiting()))
        except click.NoSuchOption as fault:
            raise click.UsageError(f"{fault.format_message()} Flags of sbatch stand behind -- (FILE -- --qos=high), "
                                   "a script's arguments that begin with a dash behind two (FILE -- -- --lr 3)",
                                   ctx) from fault


def is_script_waiting() -> bool:
    """Whether standard input is a file or a pipe, as in `submit < job.slurm`."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:   # closed
        return False
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode)


def _in_order(args: Sequence[str], own: Mapping[str, click.Option], is_waiting: bool) -> list[str]:
    """The verb's own options, FILE (`-` where there is none), and behind `--` the flags of sbatch before FILE."""
    mine: list[str] = []
    flags: list[str] = []
    rest = list(args)
    while rest and rest[0] != "--" and len(rest[0]) > 1 and rest[0].startswith("-"):
        option = own.get(rest[0].partition("=")[0])
        if option is None and rest[0].partition("=")[0] == "--wrap":
            raise click.UsageError("there is no --wrap: write the command into a file, below #!/bin/bash, or pipe it: "
                                   "printf '#!/bin/bash\\n%s\\n' 'COMMAND' | safelaunch submit -")
        taken = (1 if option.is_flag or "=" in rest[0] else 2) if option is not None else count_flag(rest)
        if not taken:
            return list(args)   # click says what is wrong
        (mine if option is not None else flags).extend(rest[:taken])
        del rest[:taken]
    if not rest and is_waiting and "--help" not in mine and "-h" not in mine:
        rest = ["-"]
    border = rest.index("--") if "--" in rest else len(rest)
    if flags and not border and not {"--help", "-h"} & set(mine):
        raise click.UsageError(f"no FILE is named behind {' '.join(flags)}")
    behind = [*flags, *rest[border + 1:]]
    return [*mine, *rest[:border], *(["--", "--", *behind] if behind or border < len(rest) else [])]


def split_rest(rest: Sequence[str]) -> tuple[list[str], list[str]]:
    """Overrides, and the words behind `--`."""
    border = rest.index("--") if "--" in rest else len(rest)
    return list(rest[:border]), list(rest[border + 1:])
