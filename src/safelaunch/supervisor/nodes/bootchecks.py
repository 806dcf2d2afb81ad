"""The checks of a job's nodes before an attempt: asked, told to people, and what follows for a node that fails.

Nothing here can keep a run from its start: who cannot be asked, or does not answer in time, is unknown and is used.
Suspects are checked beside an attempt by supervisor/suspectchecks; what is told and written down of both is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from safelaunch.slurm import nodefold
from safelaunch.slurm.gpus import gpu_type
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.noderound import Target
from safelaunch.supervisor.common import masterport
from safelaunch.supervisor.nodes import allreduce
from safelaunch.supervisor.state.helpers import Helpers
from safelaunch.supervisor.state.ports import Here, Say
from safelaunch.supervisor.state.suspicion import Suspicions
from safelaunch.supervisor.state.tasks import BackgroundTasks, Step, Work

POLL_S = 0.05
ADDRESSES_S = 2.0     # Slurm may need so long to tell the nodes' addresses, which come behind the first sbatch (Pace)
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


def check(
    suspects: Suspicions, helpers: Helpers, address_of: Callable[[str], str | None], tasks: BackgroundTasks, say: Say,
    row: str, action: CheckNodes
) -> Step:
    """Check the nodes lightly, within the action's limit. The rows of decide then choose by what the journal says.
    """
    here, clock, last, wanted = suspects.here, suspects.clock, suspects.journal.state.attempt, suspects.here.plan.checks
    number = (last.number if last else 0) + 1
    limit_s = wanted.timeout_s if action.limit_s is None else min(action.limit_s, wanted.timeout_s)
    asking = CheckRound(LIGHT, limit_s, action.after, number)
    say.decision(row, f"{action.why}, {limit_s:g} s at most")
    if helpers.nodes.no_overlap is not None:
        take_in(suspects, helpers, say, asking, nobody(action.nodes, helpers.nodes.no_overlap))
        return
    has_pairs = wanted.allreduce and action.after is None
    until_s, light_s = clock.now_s + limit_s, limit_s * LIGHT_SHARE if has_pairs else limit_s
    light_until_s, named_s = clock.now_s + light_s, clock.now_s + ADDRESSES_S
    while tasks.is_running(Work.ASK_ADDRESSES) and clock.now_s < named_s and not tasks.is_leaving:
        yield POLL_S
    meeting, trial = masterport.hold(here, helpers.nodes, address_of, number, action.first, action.nodes)
    asked = ask(here, action.nodes, LIGHT, max(LEAST_S, light_until_s - clock.now_s - STARTS_S), meeting)
    try:
        while not asked.poll() and clock.now_s < light_until_s and not tasks.is_leaving:
            if trial is not None:
                trial.take()
            yield POLL_S
    finally:
        if trial is not None:
            trial.close()
    asked.stop()
    checked = asked.checked()
    masterport.keep(helpers.nodes, number, meeting, checked.reports)
    if has_pairs and not tasks.is_leaving:
        checked = yield from allreduce.measure(here, clock, tasks, say, checked, until_s)
    if not tasks.is_leaving:
        take_in(suspects, helpers, say, asking, checked)
    while not asked.poll() and clock.now_s < until_s + STARTS_S:   # helpers that were stopped are this one's children
        yield POLL_S


def nobody(nodes: tuple[str, ...], why: str) -> CheckedNodes:
    """No node could be asked."""
    return CheckedNodes((), tuple(Silent(node, why, is_node_mute=False) for node in nodes))


def ask(
    here: Here, nodes: tuple[str, ...], level: str, limit_s: float, more: Mapping[str, Any] | None = None,
    own_job: tuple[str, ...] | None = None
) -> NodeChecks:
    """The checks, started. No attempt runs on these nodes, so the helpers may have the job's GPUs. `more`: words of the
    request. `own_job`: srun's options where each node gets a short job of its own.
    """
    wanted, job = here.plan.checks, here.job
    skip = [*wanted.skip, *NEVER, *(ALONE if here.plan.nodes == 1 else ())]
    words = {"paths": [str(Path(job.cwd) / path) for path in wanted.disk], "skip": skip,
             "control": str(here.run_dir / "control"), "gpus": here.plan.gpus_per_node,
             "gpu_model": gpu_type(dict(here.plan.sbatch)),
             "programs": list(wanted.programs), **(more or {})}
    question = CheckQuestion(dict.fromkeys(nodes, level), words, limit_s)
    if own_job is not None:
        return here.world.check(Target("", nodes, options=own_job), slurm.outside_job(job.env), question)
    return here.world.check(Target(job.id, nodes, is_local=job.is_local), job.env, question)


def take_in(suspects: Suspicions, helpers: Helpers, say: Say, asking: CheckRound, checked: CheckedNodes) -> None:
    """Tell people and the journal what the answers mean."""
    silent = {one.node: one.why for one in checked.silent}
    found = checks.weigh(checked.reports, silent, suspects.journal.state.usual_failures)
    suspects.files.put(asking.folder, asking.file, _as_json(checked, found, asking))
    for line in _lines(checked, found, silent, asking):
        say(line)
    for why in silent.values():
        helpers.note_words(why)
    suspects.journal.record(*_events(suspects, found, asking))


def _events(suspects: Suspicions, found: BootResult, asking: CheckRound) -> list[Event]:
    """What the journal keeps: who has passed, and who has failed with evidence and exclusions."""
    here, journal, plan = suspects.here, suspects.journal, suspects.here.plan
    events, of = [], {} if asking.after is None else {"after": asking.after, "level": asking.level}
    if found.passed or found.unknown:
        events.append(journal.event("checks_passed", job=here.job.id, nodes=list(found.passed),
                                         unknown=list(found.unknown), shared=list(found.shared), **of))
    is_unused = plan.checks.on_bad_node == "exclude"
    events += [journal.event("checks_failed", job=here.job.id, nodes=[one.node], why=one.why, unused=is_unused,
                                  checks=list(one.checks), **of) for one in found.failed]
    if not found.failed or not is_unused:
        return events
    blamed = () if asking.after is None else suspects.nodes.blamed_by(plan.run_id, asking.after)
    evidence = tuple(NodeEvidence(
        one.node, checks.kind_of(one, is_suspect=one.node in blamed), suspects.clock.now, one.why, here.user,
        plan.run_id, asking.folder if asking.after is None else asking.after,
        f"checks: {' '.join(one.checks)}", here.job.cluster) for one in found.failed)
    suspects.accuse(evidence)
    return [*events, *(journal.event("node_suspected", **node_suspected(one)) for one in evidence),
            *suspects.change_exclusions()]


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
