"""What a package can add by entry points (docs/plugins.md): the groups. Their values: extensions.pluginvalues.

Plugins that are data (rules, checks, launchers) are read once, where a person types, and written into the run. Those
that are code (checkpoint formats, notifiers) run in disposable children only, in a job in those of its supervisor.
"""

from __future__ import annotations

from typing import NoReturn

RULES, CHECKS, LAUNCHERS = "safelaunch.rules", "safelaunch.checks", "safelaunch.launchers"
FORMATS, NOTIFIERS = "safelaunch.checkpoint_formats", "safelaunch.notifiers"


# Each group of entry points, and what each of them gives.
GROUPS = {
    RULES: "a mapping of rules for `why`",
    CHECKS: "a CheckPlugin: a program that looks at a node",
    LAUNCHERS: "a LauncherPlugin: the words that start the ranks of a node",
    FORMATS: "a CheckpointFormat: candidates and judge",
    NOTIFIERS: "a Notifier: a function of a message and an environment",
}
# Of checkpoints.latest, which imports all of them; a test compares the two.
BUILT_IN_FORMATS = ("auto", "torch", "dcp", "deepspeed", "megatron", "nemo", "nanotron", "hf", "lightning",
                    "safetensors", "orbax", "pattern")
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
MOST_CHECKS = 4


class NoPlugin(Exception):
    """Why a plugin cannot be used, in words for people."""


def no_plugins(group: str, name: str) -> NoReturn:
    """Where none are looked for."""
    raise NoPlugin(f'no plugin "{name}" is installed (safelaunch plugins)')
