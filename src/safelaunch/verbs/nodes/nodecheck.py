"""safelaunch nodes check: can a training be started on these nodes?"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from safelaunch.base.model import CHECK_FAILED
from safelaunch.errors import UsageError
from safelaunch.extensions.io import plugins
from safelaunch.guard.io import job
from safelaunch.node.checks.answer import ISOLATE
from safelaunch.node.checks.table import CHECKS
from safelaunch.node.host import short_host
from safelaunch.nodehealth.checks import show
from safelaunch.nodehealth.checks.judge import JudgedNodes, NodeState, judge
from safelaunch.nodehealth.checks.results import CheckReport
from safelaunch.nodehealth.io.nodechecks import CheckedNodes, CheckQuestion, NodeChecks
from safelaunch.run.io.clustername import FederatedName
from safelaunch.slurm import nodefold, slurmtext
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.noderound import Target
from safelaunch.verbs.common import talk

SQUEUE_DEADLINE_S = 10.0
BAD = (NodeState.FAILED, NodeState.NO_ANSWER)


@dataclass(frozen=True)
class Asked:
    """What was typed."""

    nodes: tuple[str, ...]
    is_local: bool
    level: str
    paths: tuple[str, ...]
    skip: tuple[str, ...]
    gpus: int | None
    deadline_s: int | None
    srun: tuple[str, ...]


def check_nodes(asked: Asked, as_json: bool) -> int:
    """The exit code: 0, or CHECK_FAILED where a node has failed or has not answered."""
    programs, notes = plugins.load_checks()
    names = [*(check.name for check in CHECKS), *programs]
    unknown = set(asked.skip) - set(names)
    if unknown:
        raise UsageError(f"--skip: no check is called {sorted(unknown)[0]}", hint=f"there are: {', '.join(names)}")
    for note in notes:
        talk.say(note)
    env = slurm.outside_job(os.environ)
    target = find_target("check", asked.nodes, asked.is_local, asked.srun, env)
    if target.has_gpus and asked.gpus:
        talk.say("a step of this job may hold its GPUs: GPUs are not counted")
    words: dict[str, object] = {"paths": [str(Path(path).absolute()) for path in asked.paths], "skip": list(asked.skip),
                             "gpus": None if target.has_gpus else asked.gpus,
                             "programs": [{"name": name, **asdict(one)} for name, one in programs.items()]}
    question = CheckQuestion(dict.fromkeys(target.nodes, asked.level), words, asked.deadline_s)
    checked = NodeChecks(target, env, question).wait()
    judged = judge(checked.reports, {one.node: one.why for one in checked.silent})
    is_good = all(one.state not in BAD for one in judged.nodes)
    if as_json:
        talk.emit_json(_as_json(judged, checked, asked.level, is_good))
    else:
        _print(judged, checked, is_good)
        if asked.level == ISOLATE:
            talk.say(show.isolation(checked.reports))
    return 0 if is_good else CHECK_FAILED


def find_target(verb: str, nodes: tuple[str, ...], is_local: bool, srun: tuple[str, ...],
                env: Mapping[str, str]) -> Target:
    """Where to look: here, beside this job's steps, or by a short job on each node. Raises UsageError."""
    if is_local:
        if nodes:
            raise UsageError("--local looks at this machine alone: name no nodes with it")
        return Target("", (short_host(),), is_local=True)
    try:
        here = job.current(os.environ)
    except KeyError:
        if not nodes:
            raise UsageError("which nodes? outside of a job name them, or say --local for this machine",
                             hint=f"safelaunch nodes {verb} n[1-4]") from None
        return Target("", nodes, options=(*_this_cluster(env), *srun))
    if not set(nodes) <= set(here.nodes):
        return Target("", nodes, options=(*_this_cluster(env), *srun))
    return Target(here.id, nodes or here.nodes, has_gpus=_are_gpus_taken(here.id, env))


def _this_cluster(env: Mapping[str, str]) -> tuple[str, ...]:
    """srun's option that keeps a job in its cluster. In a federation, it would start on any that has a free node of
    that name (22.05, measured).
    """
    name = FederatedName(env).name()
    return (f"--clusters={name}",) if name else ()


def _are_gpus_taken(job_id: str, env: Mapping[str, str]) -> bool:
    """Whether a step of the job may hold its GPUs: a helper step that wants some would wait for it."""
    result = slurm.run(slurm.squeue_steps(job_id), env, SQUEUE_DEADLINE_S)
    return not result.is_ok or bool(slurmtext.parse_steps(result.stdout))


def _print(judged: JudgedNodes, checked: CheckedNodes, is_good: bool) -> None:
    if len(judged.nodes) == 1 and checked.reports:
        click.echo("\n".join(show.check_table(checked.reports[0])))
        click.echo()
    click.echo("\n".join(show.node_table(judged)))
    bad = [one.node for one in judged.nodes if one.state in BAD]
    left = "no node failed" if is_good else f"not to be used: {nodefold.fold(bad)}"
    talk.say(f"{len(judged.nodes)} node{'s' if len(judged.nodes) > 1 else ''}, {checked.took_s:.1f} s: {left}")


def _as_json(judged: JudgedNodes, checked: CheckedNodes, level: str, is_good: bool) -> dict[str, object]:
    reports = {report.node: report for report in checked.reports}
    return {"v": 1, "ok": is_good, "level": level, "took_s": round(checked.took_s, 3), "ties": list(judged.ties),
            "nodes": [{"node": one.node, "state": one.state.value, "reasons": list(one.reasons),
                       **_of_report(reports.get(one.node))} for one in judged.nodes]}


def _of_report(report: CheckReport | None) -> dict[str, object]:
    if report is None:
        return {"took_s": None, "clock_s": None, "notes": [], "checks": []}
    return {"took_s": report.took_s, "clock_s": report.clock, "notes": list(report.notes),
            "checks": [_of_result(result._asdict()) for result in report.results]}


def _of_result(row: Mapping[str, Any]) -> dict[str, object]:
    """Without the modules of a Python, which are thousands; their digest stays."""
    return {**row, "facts": {key: value for key, value in row["facts"].items() if key != "modules"}}


def sruns_own(argv: Sequence[str]) -> tuple[str, ...]:
    """The words after `--` as options of srun; raises UsageError for others."""
    wrong = next((word for word in argv if not word.startswith("-")), None)
    if wrong is not None:
        raise UsageError(f"{wrong!r} is no option of srun", hint="write options as one word: --partition=gpu")
    return tuple(argv)
