"""The checks of a job's nodes before its first attempt: asked, told to people, and what follows for a node that fails.

Nothing here can keep a run from its start: who cannot be asked, or does not answer in time, is unknown and is used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safelaunch.adapters.nodechecks import CheckedNodes, CheckQuestion, NodeChecks
from safelaunch.adapters.noderound import Target
from safelaunch.core import nodefold
from safelaunch.core.checks import show
from safelaunch.core.checks.judge import judge
from safelaunch.core.decide import checks
from safelaunch.core.decide.actions import CheckNodes
from safelaunch.core.decide.checks import BootResult
from safelaunch.core.hangs.ranks import Silent
from safelaunch.core.ledger import NodeEvidence
from safelaunch.core.ledgerlines import node_suspected
from safelaunch.core.model import Event
from safelaunch.node.checks.answer import LIGHT
from safelaunch.supervisor import overlap
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.state.tasks import Step
from safelaunch.supervisor.suspicion import change_exclusions, share

POLL_S = 0.05
STARTS_S = 3.0        # of the time for all, for the helper's start and its answer
LEAST_S = 1.0
MOST_SHOWN = 4        # nodes whose checks the job's output shows one by one: those that failed, else one of all
# `setup:` may be what brings the training's Python, so its absence before that says nothing.
NEVER = ("python",)


def check(lead: Leader, row: str, action: CheckNodes) -> Step:
    """Check the nodes, within checks.timeout. The rows of core.decide then choose by what the journal says."""
    lead.tell(row, f"{action.why}, {lead.plan.checks.timeout_s:g} s at most")
    if lead.nodes.no_overlap is not None:
        why = lead.nodes.no_overlap
        _take_in(lead, CheckedNodes((), tuple(Silent(node, why, is_node_mute=False) for node in action.nodes)))
        return
    until_s = lead.now_s + lead.plan.checks.timeout_s
    asked = _ask(lead, action.nodes)
    while not asked.poll() and lead.now_s < until_s and not lead.tasks.is_leaving:
        yield POLL_S
    asked.stop()
    if not lead.tasks.is_leaving:
        _take_in(lead, asked.checked())
    while not asked.poll() and lead.now_s < until_s + STARTS_S:   # helpers that were stopped are this one's children
        yield POLL_S


def _ask(lead: Leader, nodes: tuple[str, ...]) -> NodeChecks:
    """The checks, started. No attempt runs, so the helpers may have the job's GPUs."""
    wanted, job = lead.plan.checks, lead.job
    words = {"paths": [str(Path(job.cwd) / path) for path in wanted.disk], "skip": [*wanted.skip, *NEVER],
             "gpus": lead.plan.gpus_per_node}
    question = CheckQuestion(dict.fromkeys(nodes, LIGHT), words, max(LEAST_S, wanted.timeout_s - STARTS_S))
    return lead.world.check(Target(job.id, nodes, is_local=job.is_local), job.env, question)


def _take_in(lead: Leader, checked: CheckedNodes) -> None:
    """Tell people and the journal what the answers mean."""
    number = (lead.state.attempt.number if lead.state.attempt else 0) + 1
    silent = {one.node: one.why for one in checked.silent}
    found = checks.weigh(checked.reports, silent)
    lead.put(number, "checks.json", _as_json(checked, found))
    for line in _lines(checked, found, silent):
        lead.say(line)
    for why in silent.values():
        overlap.note_words(lead, why)
    lead.record(*_events(lead, found, number))


def _events(lead: Leader, found: BootResult, number: int) -> list[Event]:
    """What the journal keeps: who has passed, and who has failed with evidence and exclusions."""
    events = []
    if found.passed or found.unknown:
        events.append(lead.writer.event("checks_passed", job=lead.job.id, nodes=list(found.passed),
                                        unknown=list(found.unknown)))
    is_unused = lead.plan.checks.on_bad_node == "exclude"
    events += [lead.writer.event("checks_failed", job=lead.job.id, nodes=[one.node], why=one.why, unused=is_unused)
               for one in found.failed]
    if not found.failed or not is_unused:
        return events
    evidence = tuple(NodeEvidence(
        one.node, "checks_failed", lead.now, one.why, lead.here.user, lead.plan.run_id, number,
        f"checks: {' '.join(one.checks)}", lead.job.cluster) for one in found.failed)
    lead.nodes.blames(evidence)
    share(lead, evidence)
    return [*events, *(lead.writer.event("node_suspected", **node_suspected(one)) for one in evidence),
            *change_exclusions(lead)]


def _lines(checked: CheckedNodes, found: BootResult, silent: dict[str, str]) -> list[str]:
    """For the job's output: some nodes' checks one by one, then a table of all."""
    failed = {one.node for one in found.failed}
    shown = [report for report in checked.reports if report.node in failed] or list(checked.reports[:1])
    lines = [line for report in shown[:MOST_SHOWN] for line in show.log_lines(report, report.node)]
    lines += show.node_table(judge(checked.reports, silent))
    if found.shared:
        lines.append(f"failed on most nodes, which blames none of them: {', '.join(found.shared)}")
    after = f"failed on {nodefold.fold(sorted(failed))}" if failed else "no node has failed a check of its own"
    return [*lines, f"Check Finished after {checked.took_s:.1f} s: {after}"]


def _as_json(checked: CheckedNodes, found: BootResult) -> dict[str, Any]:
    return {"v": 1, "took_s": round(checked.took_s, 3), "passed": list(found.passed), "unknown": list(found.unknown),
            "failed": {one.node: one.why for one in found.failed}, "shared": list(found.shared),
            "silent": {one.node: one.why for one in checked.silent},
            "nodes": [{"node": report.node, "took_s": report.took_s, "notes": list(report.notes), "checks": [
                {"name": result.name, "item": result.item, "outcome": result.outcome, "why": result.why,
                 "took_s": result.took_s} for result in report.results]} for report in checked.reports]}
