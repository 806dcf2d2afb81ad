"""All that `report --all` shows of many runs, gathered. Run folders are read in children: one that hangs or cannot be
read is named and left out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from safelaunch.base.io import owners
from safelaunch.base.jsonform import to_json
from safelaunch.base.model import Event
from safelaunch.base.secretmask import mask_all
from safelaunch.errors import RunFolderError
from safelaunch.nodehealth.nodeuse import NodeDays, judge_rates
from safelaunch.report import month, tuning
from safelaunch.report.month import (
    DAY_S,
    Advice,
    FoundRate,
    LostSpan,
    Month,
    MonthOfRun,
    NodeRow,
    RunFailure,
    RunRow,
    run_of,
)
from safelaunch.report.tuning import FailureRate
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import Attempt, State
from safelaunch.run.io import registry, runfolder
from safelaunch.run.io.registry import RegisteredRun
from safelaunch.status import shares
from safelaunch.trainlog.figures import median
from safelaunch.verbs.common import runs
from safelaunch.verbs.overview import runlist
from safelaunch.verbs.overview.runlist import FAULTS, in_words

READ_S, AT_ONCE = 30.0, 20   # for the journals of so many runs; one of 10,000 events takes 0.1 s of processor time
MOST_ROWS = 30           # of nodes that are shown
MOST_ADVISED = 8         # runs with advice, the largest first
COSTS_S = (10.0, 60.0, 300.0)   # of a save, where no run tells its own


def gather(since_t: float, now: float, with_team: bool) -> Month:
    """The facts from `since_t` on. Raises RunFolderError where the list of runs does not answer."""
    dirs, trouble = _places(since_t, with_team)
    found: dict[str, Any] = {}
    silent: list[str] = []
    for first in range(0, len(dirs), AT_ONCE):
        some, hanging = runlist.visit(dirs[first:first + AT_ONCE], lambda dir: _look(dir, since_t, now), READ_S)
        found.update(some)
        silent += hanging
    told = [one for dir in dirs if (one := found.get(dir)) is not None]
    rows = [run_of(one) for one in told if "error" not in one and one["until_t"] > since_t]
    notes = [trouble] if trouble else []
    notes += [f"{dir} does not answer: its filesystem is frozen or slow" for dir in silent]
    if closed := sum("error" in one for one in told):
        notes.append(f"{closed} run{'s' if closed > 1 else ''} could not be read")
    month_of_all: Month = mask_all(_sum_up(rows, since_t, now, notes))
    return month_of_all


def _places(since_t: float, with_team: bool) -> tuple[list[str], str]:
    """Folders of the runs that may have lived since then, and what could not be asked."""
    lists = runs.ask(lambda: [registry.raw(), registry.raw(registry.others_file)], "your list of runs")
    mine, before = registry.parse(lists[0]), registry.parse(lists[1])
    if not with_team:
        return [str(one.dir) for one in mine if _may_count(one, since_t)], ""
    word = runlist.ask_slurm(True)
    others = runlist.others_of(word, before, {one.dir for one in mine}, True)
    return ([str(one.dir) for one in mine if _may_count(one, since_t)] + [str(dir) for dir in others],
            f"no clear answer from Slurm: {word.trouble}" if word.trouble else "")


def _may_count(entry: RegisteredRun, since_t: float) -> bool:
    return entry.ended_t is None or entry.ended_t > since_t


def _look(dir: str, since_t: float, now: float) -> dict[str, Any] | None:
    """A run's row, in a child; None = its folder has gone."""
    try:
        found: dict[str, Any] = to_json(read_run(runfolder.load(Path(dir)), since_t, now))
        return found
    except (RunFolderError, *FAULTS) as error:
        return in_words(error)


def read_run(run: runfolder.Run, since_t: float, now: float) -> MonthOfRun:
    """What the journal of one run says of the time from `since_t` on."""
    events = run.journal().events
    state = fold(_thinned(events))
    until = state.ended.t if state.ended else now
    tracks, all_spans, _ = shares.settle(events, state, until)
    spans = month.clip(all_spans, since_t)
    lost = month.causes_of(spans, state.attempts)
    by_attempt: dict[int | None, float] = defaultdict(float)
    for span, _, number in lost:
        by_attempt[number] += span.seconds * (span.kind != shares.QUEUE)
    saves = [(event.t, int(event.data["step"])) for event in events
             if event.event == "checkpoint" and isinstance(event.data.get("step"), int)]
    starts = [span.seconds for span in all_spans if span.kind in (shares.START, shares.DOWN)]
    return MonthOfRun(
        name=run.plan.name, run_id=run.plan.run_id, run_dir=str(run.dir), cluster=run.cluster,
        owner=owners.name_of(run.dir.stat().st_uid),
        since_t=max(since_t, spans[0].start_t if spans else until), until_t=until,
        ended=state.ended.how if state.ended else None, nodes=run.plan.nodes,
        step=max((track.last_step for track in tracks), default=None), restarts=state.restarted,
        seconds={kind: round(value, 3) for kind, value in shares.totals(spans).items()},
        lost=tuple(LostSpan(cause, span.kind, round(span.seconds, 3)) for span, cause, _ in lost),
        failures=tuple(_failure(one, by_attempt[one.number], run.cluster) for one in state.attempts
                       if one.has_failed and (one.ended_t or now) > since_t),
        days=_days(state, since_t, now, run.cluster),
        save_cost_s=tuning.save_cost_s(tracks, saves), saves_apart_s=tuning.saves_apart_s(saves),
        restart_s=median(starts) if starts else 0.0, job_s=_job_s(state, until))


def _thinned(events: Sequence[Event]) -> list[Event]:
    """Without the steps between the first and the last of each attempt: they change nothing of the state at the end."""
    steps: dict[object, list[Event]] = defaultdict(list)
    for event in events:
        if event.event == "progress":
            steps[str(event.data.get("attempt"))].append(event)
    kept = {id(one) for rows in steps.values() for one in (rows[0], rows[-1])}
    return [event for event in events if event.event != "progress" or id(event) in kept]


def _failure(one: Attempt, lost_s: float, cluster: str) -> RunFailure:
    cause = one.category or month.UNEXPLAINED
    named = one.blamed or ((one.failed_node,) if one.failed_node else ())
    return RunFailure(cause, tuple(_name(node, cluster) for node in named) if month.is_of_node(cause) else (),
                      round(lost_s, 3), one.made_steps, one.ended_t)


def _days(state: State, since_t: float, now: float, cluster: str) -> dict[str, float]:
    """Days of use of each node."""
    used_s: dict[str, float] = defaultdict(float)
    for one in state.attempts:
        end_t = one.ended_t if one.ended_t is not None else state.ended.t if state.ended else now
        for node in one.nodes:
            used_s[_name(node, cluster)] += max(0.0, end_t - max(since_t, one.started_t))
    return {node: seconds / DAY_S for node, seconds in used_s.items() if seconds > 0}


def _name(node: str, cluster: str) -> str:
    """A node of another cluster is another machine."""
    return f"{node} ({cluster})" if cluster else node


def _job_s(state: State, until: float) -> float:
    """How long its longest job has lasted."""
    starts = [job.started_t for job in state.jobs if job.started_t is not None]
    return max((end - start for start, end in pairwise([*starts, until])), default=0.0)


def _sum_up(rows: Sequence[MonthOfRun], since_t: float, now: float, notes: list[str]) -> Month:
    node_seconds = month.node_seconds(rows)
    unread = node_seconds[shares.UNREAD]   # nobody knows what was useful there
    with_nodes, useful = sum(node_seconds.values()) - unread, node_seconds[shares.USEFUL]
    queued = sum(run.seconds[shares.QUEUE] * run.nodes for run in rows)
    nodes = month.lost_by_node(rows)
    days = sum(one.days for one in nodes)
    failures = [one for run in rows for one in run.failures]
    of_nodes = tuning.failure_rate(sum(bool(one.nodes) for one in failures), days)
    of_all = tuning.failure_rate(sum(one.has_steps for one in failures), days)
    return Month(
        since_t=since_t, until_t=now, notes=tuple(notes), runs=len(rows), nodes_used=len(nodes),
        node_days=round(days, 3), failures=len(failures),
        goodput=round(useful / (with_nodes + queued), 4) if with_nodes + queued > 0 else None,
        goodput_with_nodes=round(useful / with_nodes, 4) if with_nodes > 0 else None,
        node_seconds={kind: round(value, 1) for kind, value in node_seconds.items()},
        queue_node_seconds=round(queued, 1), lost_by_cause=tuple(month.lost_by_cause(rows)),
        lost_by_node=_nodes(nodes), failures_of_nodes=_rate(of_nodes), failures_of_runs=_rate(of_all),
        advice=_advise(rows, of_all, of_nodes), table=tuple(map(_row, rows)))


def _nodes(nodes: Sequence[month.NodeLoss]) -> tuple[NodeRow, ...]:
    """The nodes that failures are laid to, and how sure it is that they fail more often than the others."""
    rates = {rate.node: rate for rate in judge_rates([NodeDays(one.node, one.failures, one.days) for one in nodes])}
    return tuple(
        NodeRow(one.node, one.failures, one.days, one.lost_s, one.causes,
                round(rates[one.node].expected, 4) if one.node in rates else None,
                round(rates[one.node].probability, 4) if one.node in rates else None,
                _rate(tuning.failure_rate(one.failures, one.days)))
        for one in nodes if one.failures)[:MOST_ROWS]


def _rate(rate: FailureRate | None) -> FoundRate | None:
    return None if rate is None else FoundRate(
        rate.failures, round(rate.node_days, 3), round(rate.mtbf_days, 4), round(1 / rate.high, 4),
        round(1 / rate.low, 4))


def _advise(rows: Sequence[MonthOfRun], of_all: FailureRate | None, of_nodes: FailureRate | None
            ) -> tuple[Advice, ...]:
    """For the largest runs."""
    if of_all is None or of_nodes is None:
        return ()
    largest = sorted(rows, key=lambda run: -run.nodes * sum(run.seconds.values()))[:MOST_ADVISED]
    found = []
    for run in largest:
        mtbf_s, known = of_all.mtbf_days * DAY_S / run.nodes, run.save_cost_s
        saves = tuple(tuning.advise_saves(cost_s, mtbf_s, run.restart_s, run.saves_apart_s)
                      for cost_s in ((known,) if known is not None else COSTS_S))
        found.append(Advice(run.name, run.run_id, run.nodes, round(mtbf_s, 1), known is not None, saves,
                            round(run.job_s, 1), tuning.spares_for(of_nodes, run.nodes, run.job_s)))
    return tuple(found)


def _row(run: MonthOfRun) -> RunRow:
    goodput = shares.goodput_of(run.seconds)
    return RunRow(run.name, run.run_id, run.run_dir, run.cluster, run.owner, run.since_t, run.until_t, run.ended,
                  run.nodes, run.step, run.restarts, run.seconds, len(run.failures),
                  Counter(one.cause for one in run.failures), None if goodput is None else round(goodput, 4))
