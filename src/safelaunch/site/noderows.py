"""What a small job's nodes and the way to a folder mean for a run: node.site.sitelook's answers in, rows out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from safelaunch.nodehealth.checks.judge import JudgedNodes, NodeState
from safelaunch.nodehealth.checks.results import FAILED, OK, CheckReport, CheckResult
from safelaunch.site.sitefolder import CAUTION, NOT_SAFE, UNKNOWN, SiteRow
from safelaunch.site.sitefolder import OK as FINE
from safelaunch.slurm import nodefold

NO_PYTHON = "no Python 3.9 on this node"   # slurm.io.noderound, for a node whose Pythons are older
MOST_SHOWN = 3


@dataclass(frozen=True)
class NodeAnswers:
    """What nodes said. `silent`: who gave no answer, and why. `met`: what two said of a connection between them."""

    reports: tuple[CheckReport, ...]
    silent: Mapping[str, str]
    met: tuple[CheckReport, ...] = ()


@dataclass(frozen=True)
class TeamAccess:
    """How a group gets to a folder; `closed`: those on the way that do not let it pass. `trouble`: why nobody knows."""

    group: str
    is_member: bool = False
    closed: tuple[str, ...] = ()
    trouble: str = ""


@dataclass(frozen=True)
class NodeMeaning:
    """What one look says of a run where it went well, and where it did not."""

    fine: str
    bad: str
    setting: str = ""
    verdict: str = CAUTION


NO_STEPS = ("no standby and no helper steps. A hang check sees no ranks, and a silent node delays a restart until "
            "Slurm gives it up. What remains: restarts in place by the guards, and the next job")
# The checks of node.site.sitelook, in this order.
MEANINGS: dict[str, NodeMeaning] = {
    "interpreter": NodeMeaning("supervisor and guards run under it", "no supervisor: the training runs as under plain "
                               "srun", "ask for Python 3.9 or newer on the nodes", NOT_SAFE),
    "local": NodeMeaning("a supervisor keeps its own files there", "no supervisor finds a place for its files",
                         "name one: SAFELAUNCH_LOCAL_DIR", NOT_SAFE),
    "squeue": NodeMeaning("a supervisor asks Slurm about its jobs", "a supervisor learns nothing of its jobs from "
                          "Slurm: the journal and the guards are left", "ask for Slurm's commands on the nodes"),
    "scontrol": NodeMeaning("a supervisor updates and requeues its jobs", "no job can be requeued from a node, and a "
                            "queued one not be told of lost nodes",
                            "restart: {via: auto}; safelaunch watch --once in cron on a login node"),
    "sbatch": NodeMeaning("a supervisor queues the next job", "no next job can be queued from a node; what remains: "
                          "this job is requeued, or a watch queues the next one",
                          "restart: {via: auto}; safelaunch watch --once in cron on a login node"),
    "overlap": NodeMeaning("standby, hang checks and `shell` run beside the training", NO_STEPS),
    "ptrace": NodeMeaning("py-spy can read the stacks of ranks", "py-spy cannot read the stacks of ranks; what "
                          "remains: states, calls and NCCL's own dumps", "in the training: prctl(PR_SET_PTRACER, "
                          "PR_SET_PTRACER_ANY); or ask for kernel.yama.ptrace_scope=0"),
}


def judge_nodes(answers: NodeAnswers) -> tuple[SiteRow, ...]:
    """A row for each look, over all nodes; the worst of them first in it."""
    rows = [row for name, meaning in MEANINGS.items() if (row := _over_all(name, meaning, answers.reports))]
    return (*_silent(answers), *rows, *_met(answers.met))


def _over_all(name: str, meaning: NodeMeaning, reports: Sequence[CheckReport]) -> SiteRow | None:
    found = [(report.node, result) for report in reports for result in report.results if result.name == name]
    if not found:
        return None
    title = f"nodes: {name}"
    bad = [(node, result) for node, result in found if result.outcome == FAILED]
    if bad:
        return SiteRow(title, meaning.verdict, _told(bad), meaning.bad, meaning.setting)
    odd = [(node, result) for node, result in found if result.outcome != OK]
    if odd:
        return SiteRow(title, UNKNOWN, _told(odd), "it could not be looked at")
    return SiteRow(title, FINE, _told(found), meaning.fine)


def _told(found: Sequence[tuple[str, CheckResult]]) -> str:
    """n[0-1]: works; n2: no such program."""
    groups: dict[str, list[str]] = {}
    for node, result in found:
        groups.setdefault(result.why, []).append(node)
    return "; ".join(f"{nodefold.fold(nodes)}: {why}" for why, nodes in list(groups.items())[:MOST_SHOWN])


def _silent(answers: NodeAnswers) -> list[SiteRow]:
    rows = [SiteRow("nodes: answer", UNKNOWN, f"{node}: {why}", "what it lets a run do is not known")
            for node, why in list(answers.silent.items())[:MOST_SHOWN]]
    old = [report.node for report in answers.reports if NO_PYTHON in report.notes]
    if old:
        meaning = MEANINGS["interpreter"]
        rows.append(SiteRow("nodes: interpreter", meaning.verdict, f"{nodefold.fold(old)}: {NO_PYTHON}", meaning.bad,
                            meaning.setting))
    failed = [report for report in answers.reports if report.notes and NO_PYTHON not in report.notes]
    return rows + [SiteRow("nodes: answer", UNKNOWN, f"{report.node}: {report.notes[0]}",
                           "what it lets a run do is not known") for report in failed[:MOST_SHOWN]]


def _met(met: Sequence[CheckReport]) -> list[SiteRow]:
    results = [(report.node, result) for report in met for result in report.results if result.name == "peer"]
    failed = [one for one in results if one[1].outcome == FAILED]
    if failed:
        return [SiteRow("nodes: ports", NOT_SAFE, _told(failed), "guards cannot reach the supervisor, nor ranks each "
                        "other: a training of several nodes does not start", "ask which ports are open between nodes")]
    well = [one for one in results if one[1].outcome == OK]
    return [SiteRow("nodes: ports", FINE, _told(well), "guards and ranks reach each other")] if well else []


def judge_team(team: TeamAccess) -> SiteRow:
    """The row of a group's way to the folder."""
    if team.trouble:
        return SiteRow("team", UNKNOWN, team.trouble, "whether teammates get to a run is not known")
    if not team.is_member:
        return SiteRow("team", CAUTION, f"you are not in the group {team.group}", "no run of yours can be theirs, too",
                       "kill_switch: {group: …} names a group that `id` shows")
    if team.closed:
        return SiteRow("team", CAUTION, f"{team.closed[-1]} does not let {team.group} pass", "teammates cannot "
                       "read a run, nor end it",
                       f"chgrp {team.group} DIR && chmod g+x DIR, or setfacl -m g:{team.group}:x DIR")
    return SiteRow("team", FINE, f"{team.group} gets to the folder", "teammates can read and end a run",
                   f"kill_switch: {{group: {team.group}}}")


def judge_checks(judged: JudgedNodes) -> tuple[SiteRow, ...]:
    """Rows of the nodes' own checks (`safelaunch nodes check`): those that failed, else that none did; and what differs
    between the nodes, such as their clocks.
    """
    bad = [one for one in judged.nodes if one.state is not NodeState.GOOD]
    ties = tuple(SiteRow("nodes: checks", CAUTION, tie, "the nodes differ, and which is right is not known")
                 for tie in judged.ties[:MOST_SHOWN])
    if not bad and not ties:
        return (SiteRow("nodes: checks", FINE, f"{len(judged.nodes)} nodes passed", "a training can start there"),)
    return tuple(SiteRow("nodes: checks", CAUTION, f"{one.node}: {one.state.value}: {'; '.join(one.reasons)}",
                         "it says more: safelaunch nodes check " + one.node, "checks: {boot: true}, spare_nodes: 1")
                 for one in bad[:MOST_SHOWN]) + ties
