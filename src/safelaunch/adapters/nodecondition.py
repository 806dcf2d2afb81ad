"""What all nodes of a job show while a training runs on them (node.condition), asked at once (adapters.noderound)."""

from __future__ import annotations

from collections.abc import Mapping

from safelaunch.adapters.nodechecks import ANSWER_S
from safelaunch.adapters.noderound import NodeProgram, NodeRound, Target
from safelaunch.adapters.slurm import Command, StartCommand
from safelaunch.core.checks.results import CheckReport, parse_report

MODULES = ("children", "host", "checks.answer", "checks.smi", "condition")
DEADLINE_S = 20.0


def look_at_nodes(target: Target, env: Mapping[str, str], begin: StartCommand = Command) -> NodeRound[CheckReport]:
    """The round, started; poll it. It gives way to the training."""
    return NodeRound(target, env, NodeProgram(MODULES, is_urgent=False), deadline_s=DEADLINE_S + ANSWER_S,
                     ask=lambda node: {"node": node}, read=parse_report, begin=begin)
