"""A run's figures in the text format of Prometheus: https://prometheus.io/docs/instrumenting/exposition_formats/

Each run is a label. Sums that may still shrink, such as the time of a restart that is not over, are gauges.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from safelaunch.base.plaintext import clean
from safelaunch.run.fold.state import Attempt, State
from safelaunch.status.shares import Account

FILE = "metrics.prom"   # in the run folder
STATES = ("submitting", "queued", "starting", "running", "restarting", "preserving", "completed", "gave_up", "stopped")
MOST_LABEL = 500        # characters of a label's value


class Family(NamedTuple):
    """One metric: its type and what it says."""

    kind: str
    help: str


class MetricSample(NamedTuple):
    """One value of a family; `labels` beside those of the run."""

    family: str
    labels: Mapping[str, str]
    value: float


FAMILIES: dict[str, Family] = {
    "safelaunch_run_info": Family("gauge", "Always 1; its labels say more of the run."),
    "safelaunch_run_state": Family("gauge", "1 for the state that the run is in by its journal, 0 for the others."),
    "safelaunch_run_updated_timestamp_seconds": Family("gauge", "When these figures were made, by the writer's clock."),
    "safelaunch_run_started_timestamp_seconds": Family("gauge", "When the first attempt started."),
    "safelaunch_run_ended_timestamp_seconds": Family("gauge", "When the run ended."),
    "safelaunch_run_exit_code": Family("gauge", "The exit code of a run that has ended."),
    "safelaunch_run_attempts_total": Family("counter", "Attempts that were started."),
    "safelaunch_run_restarts_total": Family("counter", "Attempts that followed another, by why that one ended."),
    "safelaunch_run_restart_budget_used": Family("gauge", "Restarts that count against restart.max_restarts."),
    "safelaunch_run_restart_budget": Family("gauge", "restart.max_restarts."),
    "safelaunch_run_step": Family("gauge", "The last step of the newest attempt, by the training's log."),
    "safelaunch_run_checkpoint_step": Family("gauge", "The step of the newest complete checkpoint that is known."),
    "safelaunch_run_step_duration_seconds": Family("gauge", "Seconds a step, over the last half hour."),
    "safelaunch_run_lost_steps": Family("gauge", "Steps that were made again after restarts."),
    "safelaunch_run_lost_seconds": Family("gauge", "Time until the run was as far again, over all restarts."),
    "safelaunch_run_restart_overhead_ratio": Family(
        "gauge", "Share of the time since the first attempt that was lost to restarts."),
    "safelaunch_run_goodput_ratio": Family("gauge", "Share of useful time in all time since the submission."),
    "safelaunch_run_nodes": Family("gauge", "Nodes of the attempt that runs."),
    "safelaunch_run_nodes_excluded": Family("gauge", "Nodes that the next attempts do not use."),
}


class MeteredRun(NamedTuple):
    """What a run's figures are made of."""

    name: str
    run_id: str
    run_dir: str
    cluster: str
    max_restarts: int
    state: State
    account: Account
    now: float


def samples(run: MeteredRun) -> list[MetricSample]:
    """The values of a run, in the order of FAMILIES; what is not known has none."""
    own = {"run": run.name, "run_id": run.run_id}
    return [MetricSample(f"safelaunch_{name}", {**own, **labels}, value) for name, labels, value in _values(run)
            if _is_figure(value)]


def _is_figure(value: float) -> bool:
    """Whether it can be printed: a log's pattern can take 400 digits for a step, which no float holds."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _values(run: MeteredRun) -> Iterator[tuple[str, dict[str, str], float]]:
    state, attempt = run.state, run.state.attempt
    lost, tracks = run.account.costs, run.account.tracks
    yield "run_info", {"run_dir": run.run_dir, "cluster": run.cluster}, 1
    yield from (("run_state", {"state": name}, float(name == state.name)) for name in STATES)
    yield "run_updated_timestamp_seconds", {}, round(run.now, 3)
    if lost.since_t is not None:
        yield "run_started_timestamp_seconds", {}, lost.since_t
    if state.ended is not None:
        yield "run_ended_timestamp_seconds", {}, state.ended.t
        yield "run_exit_code", {}, state.ended.exit_code
    yield "run_attempts_total", {}, len(state.attempts)
    yield from (("run_restarts_total", {"cause": cause}, count) for cause, count in _causes(state.attempts).items())
    yield "run_restart_budget_used", {}, state.restarted
    yield "run_restart_budget", {}, run.max_restarts
    if attempt is not None and attempt.step is not None:
        yield "run_step", {}, attempt.step
    if state.best_step is not None:
        yield "run_checkpoint_step", {}, state.best_step
    if tracks and (pace_s := tracks[-1].pace_s) is not None:
        yield "run_step_duration_seconds", {}, round(pace_s, 4)
    yield "run_lost_steps", {}, lost.steps
    yield "run_lost_seconds", {}, round(lost.seconds, 1)
    if lost.overhead is not None:
        yield "run_restart_overhead_ratio", {}, round(lost.overhead, 4)
    if tracks and run.account.goodput is not None:
        yield "run_goodput_ratio", {}, round(run.account.goodput, 4)
    yield "run_nodes", {}, len(attempt.nodes) if attempt is not None and attempt.ended is None else 0
    yield "run_nodes_excluded", {}, len(state.exclusions)


def _causes(attempts: Iterable[Attempt]) -> Counter[str]:
    """Why the attempts before the newest one ended: the category of the cause, else the ending's own word."""
    return Counter(one.category or one.ended or "unknown" for one in [*attempts][:-1])


def render(samples: Iterable[MetricSample]) -> str:
    """The text; the values of a family stand together, as the format demands. Families that are not ours are left out.
    """
    values: dict[str, list[str]] = {name: [] for name in FAMILIES}
    for family, labels, value in samples:
        if family in values:
            words = ",".join(f'{name}="{escape(text)}"' for name, text in labels.items())
            values[family].append(f"{family}{{{words}}} {_number(value)}")
    lines = (line for name, rows in values.items() if rows for line in (
        f"# HELP {name} {FAMILIES[name].help}", f"# TYPE {name} {FAMILIES[name].kind}", *rows))
    return "".join(f"{line}\n" for line in lines)


def escape(text: str) -> str:
    """A label's value: on one line, without control codes; backslashes and quotes are escaped."""
    return clean(text)[:MOST_LABEL].replace("\\", "\\\\").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
