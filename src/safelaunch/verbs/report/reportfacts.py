"""All that a report of a run shows, gathered. Lists are cut to what a person reads, texts to what a page can show, and
secrets are masked in every text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from safelaunch.base.io import sharedfile
from safelaunch.base.model import Event
from safelaunch.base.secretmask import HIDDEN, mask, mask_all
from safelaunch.report import curves
from safelaunch.report.runreport import (
    AttemptRow,
    ConfigRow,
    DrawnCurve,
    EvidenceLine,
    RunReport,
    StackCheck,
    StackGroup,
    ToldEvent,
    VerdictCard,
)
from safelaunch.run import story
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import Attempt, State
from safelaunch.run.io import attemptfacts, runfolder
from safelaunch.run.io.runfolder import Run
from safelaunch.slurm import nodefold
from safelaunch.status import shares
from safelaunch.status.costs import Track
from safelaunch.status.shares import Span
from safelaunch.verbs.common import talk
from safelaunch.verbs.common.eventwords import describe
from safelaunch.verbs.logs import attemptlogs
from safelaunch.verbs.report.reportcurves import LogFigures

MOST_EVENTS, MOST_CARDS, MOST_SPANS = 400, 40, 2000
MOST_CHARACTERS = 600       # of a text: a log line can have millions
MOST_SCRIPT_BYTES = 64 << 10
MOST_STACKS_BYTES = 16 << 20
NO_PACE = ("the run was too short to tell start-up from steps: what lies before the first step that the journal has "
           "counts as start-up")
NO_STEPS = "no step could be read from a log, so what was useful is not known: see progress.step in train.yaml"


@dataclass(frozen=True)
class ReportFacts:
    """The report, and what its drawings are made of. `tracks` and curves hold more than a page shows."""

    public: RunReport
    state: State
    tracks: tuple[Track, ...]
    spans: tuple[Span, ...]
    checkpoints: tuple[tuple[float, int], ...]
    figures: LogFigures


def gather(run: Run, now: float) -> ReportFacts:
    """The facts of a run at the time `now`; its logs are read once."""
    read = run.journal()
    state = fold(read.events)
    until = state.ended.t if state.ended else now
    account = shares.settle(read.events, state, until)
    tracks, spans = account.tracks, account.spans
    saved = tuple((event.t, int(event.data["step"])) for event in read.events
                  if event.event == "checkpoint" and isinstance(event.data.get("step"), int))
    figures = LogFigures(run.plan)
    for log in attemptlogs.find_logs(run, state):
        figures.read(log.number, log.path)
    drawn = {"loss": figures.losses, "step_time_s": figures.step_times}
    report = RunReport(
        name=run.plan.name, run_id=run.plan.run_id, run_dir=str(run.dir), cluster_name=run.cluster or None,
        made_t=round(now, 3), since_t=spans[0].start_t if spans else until, until_t=until,
        ended=replace(state.ended, why=_cut(state.ended.why)) if state.ended else None,
        ended_early=state.ended_early,
        step=max((track.last_step for track in tracks), default=None), checkpoint_step=state.best_step,
        restarts=state.restarted,
        seconds={kind: round(seconds, 3) for kind, seconds in account.seconds.items()},
        goodput=None if account.goodput is None else round(account.goodput, 4),
        lost_steps=account.costs.steps, spans=spans[-MOST_SPANS:], attempts=tuple(map(_attempt, state.attempts)),
        verdicts=_verdicts(run, state, read.events), stacks=_stacks(run, state),
        curves={name: tuple(DrawnCurve(one.attempt, tuple(curves.thin(one.points))) for one in found)
                for name, found in drawn.items()},
        pace_changes=tuple(curves.changes(figures.step_times, run.plan.slow.share)),
        spikes={name: tuple(curves.spikes(found)) for name, found in drawn.items()},
        events=_events(read.events), config=_config(run), script=_script(run),
        notes=(*(() if account.is_known else (NO_PACE,)),
               *((NO_STEPS,) if account.is_known and account.goodput is None and spans else ()),
               *map(_cut, read.problems[:8]),
               *attemptfacts.closed_parts(run.dir, [one.number for one in state.attempts[-MOST_CARDS:]]),
               *dict.fromkeys(map(_cut, figures.notes))))
    return ReportFacts(mask_all(report), state, tracks, spans, saved, figures)


def _attempt(one: Attempt) -> AttemptRow:
    return AttemptRow(one.number, one.job, nodefold.fold(one.nodes), one.nodes, one.started_t, one.ended_t,
                      one.resume_step, one.step, one.ended, one.exit_code, one.category, one.failed_node, one.blamed)


def _verdicts(run: Run, state: State, events: Sequence[Event]) -> tuple[VerdictCard, ...]:
    """What was found out about each attempt that failed, with the lines that show it."""
    follows = {event.data.get("attempt"): event.data.get("follows") for event in events if event.event == "verdict"}
    cards = []
    for one in [attempt for attempt in state.attempts if attempt.category is not None][-MOST_CARDS:]:
        told = _dict(_read(run.dir / runfolder.attempt_folder(one.number) / "verdict.json").get("verdict"))
        evidence = tuple(EvidenceLine(_cut(line.get("file") or ""), line.get("line_number"),
                                      _cut(line.get("text") or ""), _cut(line.get("role") or ""))
                         for line in _list(told.get("evidence"))[:12] if isinstance(line, dict))
        cards.append(VerdictCard(
            one.number, one.ended_t, one.category, _cut(one.summary or ""), one.confidence,
            _cut(follows.get(one.number) or ""), one.failed_node, one.blamed, evidence,
            _cut(told.get("changes") or "")))
    return tuple(cards)


def _stacks(run: Run, state: State) -> tuple[StackCheck, ...]:
    """What each hang check saw: a verdict, and the ranks that stood at one place together."""
    checks = []
    for one in state.attempts:
        folder = run.dir / runfolder.attempt_folder(one.number) / "stacks"
        for path in sharedfile.listing(folder, "*/verdict.json")[-3:]:
            found = _read(path)
            verdict = _dict(found.get("verdict"))
            checks.append(StackCheck(
                one.number, _time_of(path.parent.name), _cut(verdict.get("kind")), _cut(verdict.get("summary")),
                tuple(_group(group) for group in _list(found.get("groups"))[:8] if isinstance(group, dict))))
    return tuple(checks[-MOST_CARDS:])


def _time_of(name: str) -> float | None:
    """When a hang check was (epoch s), by its folder's name: 2026-11-26T050102+0100 (supervisor.hang.hangs)."""
    try:
        return datetime.strptime(name, "%Y-%m-%dT%H%M%S%z").timestamp()
    except (ValueError, OverflowError):
        return None


def _group(group: Mapping[str, object]) -> StackGroup:
    return StackGroup(_cut(group.get("count")), _cut(group.get("kind")), _cut(group.get("ranks") or ""),
                      _cut(nodefold.fold(map(str, _list(group.get("nodes"))))),
                      tuple(_cut(frame) for frame in _list(group.get("stack"))[:20]))


def _events(events: Sequence[Event]) -> tuple[ToldEvent, ...]:
    """The story; of a long one its begin and its end."""
    told = list(story.select(events))
    if len(told) > MOST_EVENTS:
        told = [*told[:MOST_EVENTS // 4], *told[-MOST_EVENTS * 3 // 4:]]
    return tuple(ToldEvent(event.t, event.host, event.event, _cut(describe(event))) for event in told)


def _config(run: Run) -> tuple[ConfigRow, ...]:
    """Each key that is set, with the place that it came from."""
    origins = _dict(run.meta.get("origins"))
    rows = []
    for key, value in _leaves(run.meta["config"]):
        place = _dict(origins.get(key))
        layer = str(place.get("layer", ""))
        where = f"{place.get('file')}:{place['line']}" if place.get("line") else layer
        rows.append(ConfigRow(_cut(key), _cut(value), _cut(where), _cut(layer)))
    return tuple(rows)


def _leaves(config: Mapping[str, object]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in config.items():
        if key == "env" and isinstance(value, Mapping):
            found += [(f"env.{name}", HIDDEN) for name in value]
        elif isinstance(value, Mapping):
            found += [(f"{key}.{name}", inner) for name, inner in value.items()]
        else:
            found.append((key, value))
    return found


def _script(run: Run) -> tuple[str, ...] | None:
    """The part of job.sbatch that is this run's own: directives and values, without those of `env`. None = it cannot be
    read, or is not of this form. The values of `env` end that part (templates/slurm).
    """
    try:
        text = sharedfile.read_start(run.dir / "job.sbatch", MOST_SCRIPT_BYTES).decode(errors="replace")
    except OSError:
        return None
    own, mark, _ = text.partition("\nSL_ENV=(")
    if not mark:
        return None
    hidden = " ".join(f"'{name}={HIDDEN}'" for name in run.meta["config"].get("env", {}))
    return (*(_cut(line) for line in mask(own).split("\n")), f"SL_ENV=({hidden})")


def _read(path: Path) -> dict[str, object]:
    """A JSON object of the run folder; an empty one if there is none: a supervisor may have died while it wrote."""
    try:
        found = sharedfile.read_json(path, MOST_STACKS_BYTES)
    except (OSError, ValueError, RecursionError):
        return {}
    return _dict(found)


def _dict(value: Any) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _cut(value: Any) -> str:
    text = value if isinstance(value, str) else "" if value is None else str(value)
    return talk.clean(text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} …")


def node_uses(state: State) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The nodes, those with a failure first, and what each attempt did with them."""
    uses = [(one.number, {**dict.fromkeys(one.nodes, "ran"), **dict.fromkeys(one.blamed, "blamed"),
                          **({one.failed_node: "first"} if one.failed_node else {})}) for one in state.attempts]
    bad = Counter(node for _, used in uses for node, kind in used.items() if kind != "ran")
    nodes = dict.fromkeys(node for _, used in uses for node in used)
    return sorted(nodes, key=lambda node: -bad[node]), uses
