"""The search for the node that slows a run down: its nodes measured between two attempts, and the proof afterwards."""

from __future__ import annotations

from typing import Any

from safelaunch.base.model import Event
from safelaunch.base.numbers import figure
from safelaunch.decide.facts.actions import BenchNodes
from safelaunch.decide.nodes.slowness import BENCH_S
from safelaunch.nodehealth.io.nodebench import BenchQuestion
from safelaunch.nodehealth.ledger import DISPROVED, NodeEvidence
from safelaunch.nodehealth.ledgerlines import node_suspected
from safelaunch.nodehealth.slow.bench import JudgedSpeed, Speed, speed_table
from safelaunch.nodehealth.slow.fleet import TOLERANCE
from safelaunch.nodehealth.slow.pace import LogPace, newest_s
from safelaunch.run.slowsearch import judge_swap
from safelaunch.slurm.io.noderound import Target
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.ports import Say
from safelaunch.supervisor.state.suspicion import Suspicions
from safelaunch.supervisor.state.tasks import BackgroundTasks, Step

POLL_S = 0.2
ENDS_S = 3.0          # for helpers that were stopped to end
EACH_S = 120.0        # of a node's measurements
DISKS = ("disk_write", "disk_read")   # they depend on who else uses them, and name no slow node
MOST_SHOWN = 8        # rows of the table in the job's output, the worst first
MOST_WHY = 300


def bench(suspects: Suspicions, tasks: BackgroundTasks, say: Say, row: str, action: BenchNodes) -> Step:
    """Measure the nodes, within BENCH_S; the rows of decide then choose by what the journal says."""
    here, clock = suspects.here, suspects.clock
    say.decision(row, f"{action.why}, {BENCH_S:g} s at most")
    if suspects.nodes.no_overlap is not None:
        _take_in(suspects, say, action.nodes, (), suspects.nodes.no_overlap)
        return
    start_s = clock.now_s
    asked = here.world.bench(Target(here.job.id, action.nodes, is_local=here.job.is_local), here.job.env,
                             BenchQuestion({"paths": [], "skip": list(DISKS)}, EACH_S), TOLERANCE)
    while not asked.poll() and clock.now_s < start_s + BENCH_S and not tasks.is_leaving:
        yield POLL_S
    asked.stop()
    until_s = clock.now_s + ENDS_S
    while not asked.poll() and clock.now_s < until_s:   # one that was stopped holds a GPU that the next attempt needs
        yield POLL_S
    if not tasks.is_leaving:
        judged = asked.judged()
        why_not = "" if judged else f"they have not all answered within {BENCH_S:g} s"
        _take_in(suspects, say, action.nodes, judged, why_not)


def _take_in(
    suspects: Suspicions, say: Say, nodes: tuple[str, ...], judged: tuple[JudgedSpeed, ...], why_not: str
) -> None:
    """Tell people and the journal what the measurements mean."""
    here, journal, slower = suspects.here, suspects.journal, suspects.journal.state.slower
    if slower is None:   # a leader before this one has written its end down meanwhile
        return
    number = journal.state.attempt.number if journal.state.attempt else 0
    slow = {one.node: "; ".join(one.reasons)[:MOST_WHY] for one in judged if one.speed is Speed.SLOW}
    evidence = tuple(NodeEvidence(node, "slow", suspects.clock.now, why, here.user, here.plan.run_id, number + 1,
                                  "", here.job.cluster) for node, why in slow.items())
    if evidence:
        suspects.accuse(evidence)
    said = _say(slow, judged, why_not)
    events = [journal.event("nodes_benched", job=here.job.id, attempt=number, drop_t=slower.t, nodes=list(nodes),
                            slow=slow, why=said),
              *(journal.event("node_suspected", **node_suspected(one)) for one in evidence)]
    journal.record(*events, *suspects.change_exclusions())
    if judged:
        suspects.files.put(number + 1, "bench.json", _as_json(judged))
    for line in speed_table(judged)[:MOST_SHOWN + 1] if judged else ():
        say(line)
    say(said)


def _say(slow: dict[str, str], judged: tuple[JudgedSpeed, ...], why_not: str) -> str:
    if why_not:
        return f"the nodes could not be compared: {why_not}; the run goes on as before until its speed changes again"
    if slow:
        return f"slow: {'; '.join(f'{node} ({why})' for node, why in slow.items())}"
    return (f"none of {len(judged)} nodes is slow: steps take longer for another reason; the run goes on as before "
            "until its speed changes again")


def judge(suspects: Suspicions, running: RunningAttempt, say: Say, number: int, known: LogPace) -> None:
    """The swap as the last proof: has the speed come back without the nodes that were found slow?"""
    journal, state, live = suspects.journal, suspects.journal.state, running.live
    search = state.search
    if live is None:
        return
    last = state.attempt
    won = judge_swap(search, number, live.nodes, step=None if last is None else last.step,
                     lasts=state.slower is not None, values=known.values, now_s=newest_s(known))
    if won is None:
        return
    names = [node for node, _ in search.slow]
    level_s = state.pace.level_s if state.pace is not None else search.to_s
    text = (f"without {', '.join(names)} steps take {figure(level_s, 4)} s; they took {figure(search.from_s, 4)} s "
            f"before the drop, and {figure(search.to_s, 4)} s in it")
    event = journal.event("swap_judged", attempt=number, nodes=names, won=won, level_s=level_s, from_s=search.from_s,
                          to_s=search.to_s)
    if won:
        journal.record(event)
        say(f"the speed has come back: {text}")
        return
    journal.record(event, *_withdraw(suspects, number))
    say(f"the speed has not come back: {text}. What was measured against them is taken back")


def _withdraw(suspects: Suspicions, number: int) -> list[Event]:
    """They were slow in the measurements, and are not what slows the run down."""
    here, journal = suspects.here, suspects.journal
    why = "the speed did not come back without it"
    slow = dict(journal.state.search.slow)
    found = tuple(NodeEvidence(node, DISPROVED, suspects.clock.now, why, here.user, here.plan.run_id, number, "",
                               here.job.cluster) for node in slow)
    suspects.accuse(found)
    return [*(journal.event("evidence_withdrawn", **node_suspected(one), of=slow[one.node]) for one in found),
            *suspects.change_exclusions()]


def _as_json(judged: tuple[JudgedSpeed, ...]) -> dict[str, Any]:
    return {"v": 1, "tolerance": TOLERANCE, "nodes": [
        {"node": one.node, "verdict": one.speed.value, "reasons": list(one.reasons),
         "measurements": [result._asdict() for result in one.results]} for one in judged]}
