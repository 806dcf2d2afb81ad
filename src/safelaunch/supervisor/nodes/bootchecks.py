"""The checks of a job's nodes before an attempt: asked, told to people, and what follows for a node that fails.

Nothing here can keep a run from its start: who cannot be asked, or does not answer in time, is unknown and is used.
Suspects are checked beside an attempt by supervisor/suspectchecks; what is told and written down of both is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safelaunch.base.model import Event, Silent
from safelaunch.decide.facts.actions import CheckNodes
from safelaunch.decide.nodes import checks
from safelaunch.decide.nodes.checks import BootResult
from safelaunch.node.checks.answer import LIGHT
from safelaunch.nodehealth.checks import show
from safelaunch.nodehealth.checks.judge import judge
from safelaunch.nodehealth.io.nodechecks import CheckedNodes, CheckQuestion, NodeChecks
from safelaunch.nodehealth.ledger import NodeEvidence
from safelaunch.nodehealth.ledgerlines import node_suspected
from safelaunch.run.plan import Plan
from safelaunch.slurm import nodefold
from safelaunch.slurm.gpus import gpu_type
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.noderound import Target
from safelaunch.supervisor.common import masterport, overlap
from safelaunch.supervisor.common.suspicion import accuse, change_exclusions
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.nodes import allreduce
from safelaunch.supervisor.state.parts import Here
from safelaunch.supervisor.state.tasks import Step, Work

POLL_S = 0.05
ADDRESSES_S = 1.0     # Slurm may need so long to tell the nodes' addresses, without which no port is tried
STARTS_S = 3.0        # of the time for all, for the helper's start and its answer
LEAST_S = 1.0
LIGHT_SHARE = 0.3      # of the time for all, where all-reduces follow
MOST_SHOWN = 4        # nodes whose checks the job's output shows one by one: those that failed, else one of all
# `setup:` may be what brings the training's Python, so its absence before that says nothing.
NEVER = ("python", "torch")
# Of a run on one node, which needs no network: a port may never have had a cable, and a host no name with an address.
ALONE = ("infiniband", "name", "port")


class CheckRound(NamedTuple):
    """One round of checks: how deep, for how long, after which failed attempt (None: none), and where it is kept."""

    level: str
    limit_s: float
    after: int | None
    folder: int             # the attempt in whose folder the file is put
    file: str = "checks.json"


def check(lead: Leader, row: str, action: CheckNodes) -> Step:
    """Check the nodes lightly, within the action's limit. The rows of decide then choose by what the journal says.
    """
    number = (lead.state.attempt.number if lead.state.attempt else 0) + 1
    limit_s = lead.plan.checks.timeout_s if action.limit_s is None else min(action.limit_s, lead.plan.checks.timeout_s)
    asking = CheckRound(LIGHT, limit_s, action.after, number)
    lead.say.decision(row, f"{action.why}, {limit_s:g} s at most")
    if lead.nodes.no_overlap is not None:
        take_in(lead, asking, nobody(action.nodes, lead.nodes.no_overlap))
        return
    has_pairs = lead.plan.checks.allreduce and action.after is None
    until_s, light_s = lead.now_s + limit_s, limit_s * LIGHT_SHARE if has_pairs else limit_s
    light_until_s, named_s = lead.now_s + light_s, lead.now_s + ADDRESSES_S
    while lead.tasks.is_running(Work.ASK_ADDRESSES) and lead.now_s < named_s and not lead.tasks.is_leaving:
        yield POLL_S
    meeting, trial = masterport.hold(lead, number, action.first, action.nodes)
    asked = ask(lead.plan, lead.here, action.nodes, LIGHT, max(LEAST_S, light_until_s - lead.now_s - STARTS_S), meeting)
    try:
        while not asked.poll() and lead.now_s < light_until_s and not lead.tasks.is_leaving:
            if trial is not None:
                trial.take()
            yield POLL_S
    finally:
        if trial is not None:
            trial.close()
    asked.stop()
    checked = asked.checked()
    masterport.keep(lead.nodes, number, meeting, checked.reports)
    if has_pairs and not lead.tasks.is_leaving:
        checked = yield from allreduce.measure(lead.here, lead.clock, lead.tasks, lead.say, checked, until_s)
    if not lead.tasks.is_leaving:
        take_in(lead, asking, checked)
    while not asked.poll() and lead.now_s < until_s + STARTS_S:   # helpers that were stopped are this one's children
        yield POLL_S


def nobody(nodes: tuple[str, ...], why: str) -> CheckedNodes:
    """No node could be asked."""
    return CheckedNodes((), tuple(Silent(node, why, is_node_mute=False) for node in nodes))


def ask(
    plan: Plan, here: Here, nodes: tuple[str, ...], level: str, limit_s: float, more: Mapping[str, Any] | None = None,
    own_job: tuple[str, ...] | None = None
) -> NodeChecks:
    """The checks, started. No attempt runs on these nodes, so the helpers may have the job's GPUs. `more`: words of the
    request. `own_job`: srun's options where each node gets a short job of its own.
    """
    wanted, job = plan.checks, here.job
    skip = [*wanted.skip, *NEVER, *(ALONE if plan.nodes == 1 else ())]
    words = {"paths": [str(Path(job.cwd) / path) for path in wanted.disk], "skip": skip,
             "control": str(here.run_dir / "control"), "gpus": plan.gpus_per_node,
             "gpu_model": gpu_type(dict(plan.sbatch)),
             "programs": list(wanted.programs), **(more or {})}
    question = CheckQuestion(dict.fromkeys(nodes, level), words, limit_s)
    if own_job is not None:
        return here.world.check(Target("", nodes, options=own_job), slurm.outside_job(job.env), question)
    return here.world.check(Target(job.id, nodes, is_local=job.is_local), job.env, question)


def take_in(lead: Leader, asking: CheckRound, checked: CheckedNodes) -> None:
    """Tell people and the journal what the answers mean."""
    silent = {one.node: one.why for one in checked.silent}
    found = checks.weigh(checked.reports, silent, lead.state.usual_failures)
    lead.files.put(asking.folder, asking.file, _as_json(checked, found, asking))
    for line in _lines(checked, found, silent, asking):
        lead.say(line)
    for why in silent.values():
        overlap.note_words(lead.job, lead.nodes, why)
    lead.journal.record(*_events(lead, found, asking))


def _events(lead: Leader, found: BootResult, asking: CheckRound) -> list[Event]:
    """What the journal keeps: who has passed, and who has failed with evidence and exclusions."""
    events, of = [], {} if asking.after is None else {"after": asking.after, "level": asking.level}
    if found.passed or found.unknown:
        events.append(lead.journal.event("checks_passed", job=lead.job.id, nodes=list(found.passed),
                                         unknown=list(found.unknown), shared=list(found.shared), **of))
    is_unused = lead.plan.checks.on_bad_node == "exclude"
    events += [lead.journal.event("checks_failed", job=lead.job.id, nodes=[one.node], why=one.why, unused=is_unused,
                                  checks=list(one.checks), **of) for one in found.failed]
    if not found.failed or not is_unused:
        return events
    suspects = () if asking.after is None else lead.nodes.blamed_by(lead.plan.run_id, asking.after)
    evidence = tuple(NodeEvidence(
        one.node, checks.kind_of(one, is_suspect=one.node in suspects), lead.now, one.why, lead.here.user,
        lead.plan.run_id, asking.folder if asking.after is None else asking.after,
        f"checks: {' '.join(one.checks)}", lead.job.cluster) for one in found.failed)
    accuse(lead.plan, lead.job, lead.files, lead.nodes, evidence)
    return [*events, *(lead.journal.event("node_suspected", **node_suspected(one)) for one in evidence),
            *change_exclusions(lead.plan, lead.job, lead.clock, lead.journal, lead.nodes)]


def _lines(checked: CheckedNodes, found: BootResult, silent: dict[str, str], asking: CheckRound) -> list[str]:
    """For the job's output: some nodes' checks one by one, then a table of all."""
    failed = {one.node for one in found.failed}
    shown = [report for report in checked.reports if report.node in failed] or list(checked.reports[:1])
    lines = [line for report in shown[:MOST_SHOWN] for line in show.log_lines(report, report.node)]
    lines += show.node_table(judge(checked.reports, silent))
    if found.shared:
        lines.append(f"failed on most nodes, which blames none of them: {', '.join(found.shared)}")
    result = f"failed on {nodefold.fold(sorted(failed))}" if failed else "no node has failed a check of its own"
    is_waited_for = asking.after is not None and asking.level == LIGHT
    then = ", task will be restarted" if is_waited_for else ""
    return [*lines, f"Check Finished after {checked.took_s:.1f} s{then}: {result}"]


def _as_json(checked: CheckedNodes, found: BootResult, asking: CheckRound) -> dict[str, Any]:
    return {"v": 1, "level": asking.level, "after": asking.after, "took_s": round(checked.took_s, 3),
            "passed": list(found.passed), "unknown": list(found.unknown),
            "failed": {one.node: one.why for one in found.failed}, "shared": list(found.shared),
            "silent": {one.node: one.why for one in checked.silent},
            "nodes": [{"node": report.node, "took_s": report.took_s, "clock_s": report.clock,
                       "notes": list(report.notes), "checks": [
                {"name": result.name, "item": result.item, "outcome": result.outcome, "why": result.why,
                 "took_s": result.took_s} for result in report.results]} for report in checked.reports]}
