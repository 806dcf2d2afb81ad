"""safelaunch completion: what a shell needs to complete verbs, options, runs and keys. The work is click's."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

VARIABLE = "_SAFELAUNCH_COMPLETE"   # click's own name for it: what the shell's function sets
SHELLS = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/config.fish"}
_LINES = {"bash": 'eval "$(safelaunch completion bash)"', "zsh": 'eval "$(safelaunch completion zsh)"',
          "fish": "safelaunch completion fish | source"}


class Verbs(click.Group):
    """All verbs, of which only the typed one is imported."""

    def __init__(self, verbs: Mapping[str, tuple[str, str]]) -> None:
        super().__init__("safelaunch", help="sbatch for long trainings: supervises the job, finds why it failed, and "
                         "restarts it from its last checkpoint.")
        self._verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the order of --help."""
        return list(self._verbs)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """A verb's own parser; None: no verb of that name."""
        return self.load(name) if name in self._verbs else None

    def load(self, name: str) -> click.Command:
        """The parser of a verb that there is."""
        command: click.Command = importlib.import_module(self._verbs[name][0]).command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The verbs that begin so. No verb is imported for its line of help: all of them take 0.4 s."""
        return [CompletionItem(name, help=line) for name, (_, line) in self._verbs.items()
                if name.startswith(incomplete)]


@click.command(epilog="Add the line to the shell's start file: " +
               "; ".join(f"{_LINES[shell]} ({file})" for shell, file in SHELLS.items()) + ".")
@click.argument("shell", type=click.Choice(tuple(SHELLS)))
def command(shell: str) -> int:
    """Print the code that makes a shell complete verbs, options, names of runs and keys of train.yaml."""
    click.echo(_of_shell(shell, click.Group("safelaunch")).source())
    return 0


def complete(verbs: Mapping[str, tuple[str, str]], instruction: str) -> int:
    """Print completions for the words in COMP_WORDS.

    `instruction`: the value of VARIABLE, one of "bash_complete", "zsh_complete", "fish_complete".
    """
    shell = instruction.partition("_")[0]
    try:
        click.echo(_of_shell(shell, Verbs(verbs)).complete())
    except (KeyError, ValueError):   # COMP_WORDS or COMP_CWORD is missing, or no number
        return 1
    return 0


def _of_shell(shell: str, group: click.Group) -> ShellComplete:
    found: Any = get_completion_class(shell)
    made: ShellComplete = found(group, {}, "safelaunch", VARIABLE)
    return made
