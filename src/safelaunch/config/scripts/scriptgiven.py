"""The options that count more than a script's own lines: the environment's, and above them the command line's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from safelaunch.base.yaml.yamlnodes import MappingNode, Origin
from safelaunch.config.layers import COMMAND_LINE
from safelaunch.config.scripts.sbatchvariables import ENVIRONMENT, kept_for_script, read_variables
from safelaunch.config.scripts.scriptlayer import ReadScript, take_options
from safelaunch.config.scripts.slurmkeys import literal, split_flags
from safelaunch.slurm.sbatchoptions import GivenOption


class Above(NamedTuple):
    """All of them, and the layers that they become."""

    options: list[GivenOption]
    environment: ReadScript
    command_line: ReadScript
    kept: MappingNode   # variables for the script's own shell


def read_above(text: str, environ: Mapping[str, str], flags: Sequence[str]) -> Above:
    """Of the script with this text."""
    variables = list(read_variables(environ))
    found, faults = split_flags(flags)
    line = [*(GivenOption(COMMAND_LINE, f"--{name}", name, value) for name, value in found),
            *(GivenOption(COMMAND_LINE, flag, "", None, fault) for flag, fault in faults)]
    return Above([*variables, *line], take_options(variables, text, frozenset(one.name for one in line)),
                 take_options(line, text), _kept(environ))


def _kept(environ: Mapping[str, str]) -> MappingNode:
    place = Origin(ENVIRONMENT, "", 0, 0)
    env = {name: literal(value, place) for name, value in kept_for_script(environ).items()}
    return MappingNode({"env": MappingNode(env, place)} if env else {}, place)
