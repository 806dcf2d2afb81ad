"""The search for the node that slows a run down: its nodes measured between two attempts, and the proof afterwards."""

from __future__ import annotations

from typing import Any

from safelaunch.base.model import Event
from safelaunch.base.numbers import figure
from safelaunch.decide.facts.actions import BenchNodes
from safelaunch.decide.nodes.slowness import BENCH_S
from safelaunch.nodehealth.ledger import DISPROVED, NodeEvidence
from safelaunch.nodehealth.ledgerlines import node_suspected
from safelaunch.nodehealth.slow.bench import JudgedSpeed, Speed, speed_table
from safelaunch.nodehealth.slow.fleet import TOLERANCE
from safelaunch.nodehealth.slow.pace import LogPace, newest_s
from safelaunch.run.plan import Plan
from safelaunch.run.slowsearch import judge_swap
from safelaunch.slurm.io.noderound import Target
from safelaunch.supervisor.common.suspicion import accuse, change_exclusions
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.nodes import Nodes
from safelaunch.supervisor.state.parts import Here
from safelaunch.supervisor.state.ports import FolderPort
from safelaunch.supervisor.state.tasks import Step

POLL_S = 0.2
ENDS_S = 3.0          # for helpers that were stopped to end
EACH_S = 120.0        # of a node's measurements
DISKS = ("disk_write", "disk_read")   # they depend on who else uses them, and name no slow node
MOST_SHOWN = 8        # rows of the table in the job's output, the worst first
MOST_WHY = 300


def bench(lead: Leader, row: str, action: BenchNodes) -> Step:
    """Measure the nodes, within BENCH_S; the rows of decide then choose by what the journal says."""
    lead.say.decision(row, f"{action.why}, {BENCH_S:g} s at most")
    if lead.nodes.no_overlap is not None:
        _take_in(lead, action.nodes, (), lead.nodes.no_overlap)
        return
    from safelaunch.nodehealth.io.nodebench import BenchQuestion  # few trainings ever become slow

    start_s = lead.now_s
    asked = lead.world.bench(Target(lead.job.id, action.nodes, is_local=lead.job.is_local), lead.job.env,
                             BenchQuestion({"paths": [], "skip": list(DISKS)}, EACH_S), TOLERANCE)
    while not asked.poll() and lead.now_s < start_s + BENCH_S and not lead.tasks.is_leaving:
        yield POLL_S
    asked.stop()
    until_s = lead.now_s + ENDS_S
    while not asked.poll() and lead.now_s < until_s:   # one that was stopped holds a GPU that the next attempt needs
        yield POLL_S
    if not lead.tasks.is_leaving:
        judged = asked.judged()
        _take_in(lead, action.nodes, judged, "" if judged else f"they have not all answered within {BENCH_S:g} s")


def _take_in(lead: Leader, nodes: tuple[str, ...], judged: tuple[JudgedSpeed, ...], why_not: str) -> None:
    """Tell people and the journal what the measurements mean."""
    slower = lead.state.slower
    if slower is None:   # a leader before this one has written its end down meanwhile
        return
    number = lead.state.attempt.number if lead.state.attempt else 0
    slow = {one.node: "; ".join(one.reasons)[:MOST_WHY] for one in judged if one.speed is Speed.SLOW}
    evidence = tuple(NodeEvidence(node, "slow", lead.now, why, lead.here.user, lead.plan.run_id, number + 1, "",
                                  lead.job.cluster) for node, why in slow.items())
    if evidence:
        accuse(lead.plan, lead.job, lead.files, lead.nodes, evidence)
    said = _say(slow, judged, why_not)
    events = [lead.journal.event("nodes_benched", job=lead.job.id, attempt=number, drop_t=slower.t, nodes=list(nodes),
                                 slow=slow, why=said),
              *(lead.journal.event("node_suspected", **node_suspected(one)) for one in evidence)]
    lead.journal.record(*events, *change_exclusions(lead.plan, lead.job, lead.clock, lead.journal, lead.nodes))
    if judged:
        lead.files.put(number + 1, "bench.json", _as_json(judged))
    for line in speed_table(judged)[:MOST_SHOWN + 1] if judged else ():
        lead.say(line)
    lead.say(said)


def _say(slow: dict[str, str], judged: tuple[JudgedSpeed, ...], why_not: str) -> str:
    if why_not:
        return f"the nodes could not be compared: {why_not}; the run goes on as before until its speed changes again"
    if slow:
        return f"slow: {'; '.join(f'{node} ({why})' for node, why in slow.items())}"
    return (f"none of {len(judged)} nodes is slow: steps take longer for another reason; the run goes on as before "
            "until its speed changes again")


def judge(lead: Leader, number: int, known: LogPace) -> None:
    """The swap as the last proof: has the speed come back without the nodes that were found slow?"""
    search, live = lead.state.search, lead.running.live
    if live is None:
        return
    last = lead.state.attempt
    won = judge_swap(search, number, live.nodes, step=None if last is None else last.step,
                     lasts=lead.state.slower is not None, values=known.values, now_s=newest_s(known))
    if won is None:
        return
    names = [node for node, _ in search.slow]
    level_s = lead.state.pace.level_s if lead.state.pace is not None else search.to_s
    text = (f"without {', '.join(names)} steps take {figure(level_s, 4)} s; they took {figure(search.from_s, 4)} s "
            f"before the drop, and {figure(search.to_s, 4)} s in it")
    events = [lead.journal.event("swap_judged", attempt=number, nodes=names, won=won, level_s=level_s,
                                 from_s=search.from_s, to_s=search.to_s)]
    if won:
        lead.journal.record(*events)
        lead.say(f"the speed has come back: {text}")
        return
    lead.journal.record(*events,
                        *_withdraw(lead.plan, lead.here, lead.clock, lead.journal, lead.files, lead.nodes, number))
    lead.say(f"the speed has not come back: {text}. What was measured against them is taken back")


def _withdraw(
    plan: Plan, here: Here, clock: Clock, journal: LeaderJournal, files: FolderPort, nodes: Nodes, number: int
) -> list[Event]:
    """They were slow in the measurements, and are not what slows the run down."""
    why = "the speed did not come back without it"
    slow = dict(journal.state.search.slow)
    found = tuple(NodeEvidence(node, DISPROVED, clock.now, why, here.user, plan.run_id, number, "",
                               here.job.cluster) for node in slow)
    accuse(plan, here.job, files, nodes, found)
    return [*(journal.event("evidence_withdrawn", **node_suspected(one), of=slow[one.node]) for one in found),
            *change_exclusions(plan, here.job, clock, journal, nodes)]


def _as_json(judged: tuple[JudgedSpeed, ...]) -> dict[str, Any]:
    return {"v": 1, "tolerance": TOLERANCE, "nodes": [
        {"node": one.node, "verdict": one.speed.value, "reasons": list(one.reasons),
         "measurements": [result._asdict() for result in one.results]} for one in judged]}
