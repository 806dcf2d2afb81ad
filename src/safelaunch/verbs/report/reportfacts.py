"""All that a report of a run shows, as the JSON-able object of `report --json` (docs/report.md). Lists are cut to what
a person reads, texts to what a page can show; secrets are masked in every text.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from safelaunch.base.io import sharedfile
from safelaunch.base.model import Event
from safelaunch.base.secretmask import HIDDEN, mask, mask_all
from safelaunch.report import curves
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

VERSION = 1
MOST_EVENTS, MOST_CARDS, MOST_SPANS = 400, 40, 2000
MOST_CHARACTERS = 600       # of a text: a log line can have millions
MOST_SCRIPT_BYTES = 64 << 10
MOST_STACKS_BYTES = 16 << 20
NO_PACE = ("the run was too short to tell start-up from steps: what lies before the first step that the journal has "
           "counts as start-up")
NO_STEPS = "no step could be read from a log, so what was useful is not known: see progress.step in train.yaml"


@dataclass(frozen=True)
class ReportFacts:
    """The object, and what its drawings are made of. `tracks` and curves hold more than a page shows."""

    public: dict[str, Any]
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
    public = {
        "v": VERSION, "name": run.plan.name, "run_id": run.plan.run_id, "run_dir": str(run.dir),
        "cluster_name": run.cluster or None, "made_t": round(now, 3),
        "since_t": spans[0].start_t if spans else until, "until_t": until,
        "ended": {"how": state.ended.how, "exit_code": state.ended.exit_code, "why": _cut(state.ended.why),
                  "t": state.ended.t} if state.ended else None,
        "ended_early": state.ended_early,
        "step": max((track.last_step for track in tracks), default=None), "checkpoint_step": state.best_step,
        "restarts": state.restarted,
        "seconds": {kind: round(seconds, 3) for kind, seconds in account.seconds.items()},
        "goodput": None if account.goodput is None else round(account.goodput, 4),
        "lost_steps": account.costs.steps,
        "spans": [span._asdict() for span in spans[-MOST_SPANS:]],
        "attempts": [_attempt(one) for one in state.attempts],
        "verdicts": _verdicts(run, state, read.events), "stacks": _stacks(run, state),
        "curves": _curves(figures), **_findings(run, figures),
        "events": _events(read.events), "config": _config(run), "script": _script(run),
        "notes": [*([] if account.is_known else [NO_PACE]),
                  *([NO_STEPS] if account.is_known and account.goodput is None and spans else []),
                  *map(_cut, read.problems[:8]),
                  *attemptfacts.closed_parts(run.dir, [one.number for one in state.attempts[-MOST_CARDS:]]),
                  *dict.fromkeys(map(_cut, figures.notes))],
    }
    return ReportFacts(mask_all(public), state, tracks, spans, saved, figures)


def _attempt(one: Attempt) -> dict[str, Any]:
    return {"number": one.number, "job": one.job, "nodelist": nodefold.fold(one.nodes), "nodes": list(one.nodes),
            "started_t": one.started_t, "ended_t": one.ended_t, "resume_step": one.resume_step, "step": one.step,
            "ended": one.ended, "exit_code": one.exit_code, "category": one.category,
            "failed_node": one.failed_node, "blamed": list(one.blamed)}


def _verdicts(run: Run, state: State, events: Sequence[Event]) -> list[dict[str, Any]]:
    """What was found out about each attempt that failed, with the lines that show it."""
    follows = {event.data.get("attempt"): event.data.get("follows") for event in events if event.event == "verdict"}
    cards = []
    for one in [attempt for attempt in state.attempts if attempt.category is not None][-MOST_CARDS:]:
        told = _dict(_read(run.dir / runfolder.attempt_folder(one.number) / "verdict.json").get("verdict"))
        cards.append({
            "attempt": one.number, "t": one.ended_t, "category": one.category, "summary": _cut(one.summary or ""),
            "confidence": one.confidence, "follows": _cut(follows.get(one.number) or ""),
            "node": one.failed_node, "suspects": list(one.blamed),
            "evidence": [{"file": _cut(line.get("file") or ""), "line_number": line.get("line_number"),
                          "text": _cut(line.get("text") or ""), "role": _cut(line.get("role") or "")}
                         for line in _list(told.get("evidence"))[:12] if isinstance(line, dict)],
            "changes": _cut(told.get("changes") or "")})
    return cards


def _stacks(run: Run, state: State) -> list[dict[str, Any]]:
    """What each hang check saw: a verdict, and the ranks that stood at one place together."""
    checks = []
    for one in state.attempts:
        folder = run.dir / runfolder.attempt_folder(one.number) / "stacks"
        for path in sharedfile.listing(folder, "*/verdict.json")[-3:]:
            found = _read(path)
            verdict = _dict(found.get("verdict"))
            checks.append({"attempt": one.number, "t": _time_of(path.parent.name), "kind": _cut(verdict.get("kind")),
                           "summary": _cut(verdict.get("summary")),
                           "groups": [_group(group) for group in _list(found.get("groups"))[:8]
                                      if isinstance(group, dict)]})
    return checks[-MOST_CARDS:]


def _time_of(name: str) -> float | None:
    """When a hang check was (epoch s), by its folder's name: 2026-11-26T050102+0100 (supervisor.hang.hangs)."""
    try:
        return datetime.strptime(name, "%Y-%m-%dT%H%M%S%z").timestamp()
    except (ValueError, OverflowError):
        return None


def _group(group: Mapping[str, Any]) -> dict[str, Any]:
    return {"count": _cut(group.get("count")), "kind": _cut(group.get("kind")), "ranks": _cut(group.get("ranks") or ""),
            "nodes": _cut(nodefold.fold(map(str, _list(group.get("nodes"))))),
            "stack": [_cut(frame) for frame in _list(group.get("stack"))[:20]]}


def _curves(figures: LogFigures) -> dict[str, Any]:
    return {name: [{"attempt": one.attempt, "points": curves.thin(one.points)} for one in found]
            for name, found in (("loss", figures.losses), ("step_time_s", figures.step_times))}


def _findings(run: Run, figures: LogFigures) -> dict[str, Any]:
    """Changes of pace, and spikes; numbers that JSON does not have are words."""
    return {"pace_changes": [one._asdict() for one in curves.changes(figures.step_times, run.plan.slow.share)],
            "spikes": {name: [{**asdict(one), "value": one.value if math.isfinite(one.value) else str(one.value)}
                              for one in curves.spikes(found)]
                       for name, found in (("loss", figures.losses), ("step_time_s", figures.step_times))}}


def _events(events: Sequence[Event]) -> list[dict[str, Any]]:
    """The story; of a long one its begin and its end."""
    told = list(story.select(events))
    if len(told) > MOST_EVENTS:
        told = [*told[:MOST_EVENTS // 4], *told[-MOST_EVENTS * 3 // 4:]]
    return [{"t": event.t, "host": event.host, "event": event.event, "text": _cut(describe(event))} for event in told]


def _config(run: Run) -> list[dict[str, Any]]:
    """Each key that is set, with the place that it came from."""
    origins = _dict(run.meta.get("origins"))
    rows = []
    for key, value in _leaves(run.meta["config"]):
        place = _dict(origins.get(key))
        layer = str(place.get("layer", ""))
        where = f"{place.get('file')}:{place['line']}" if place.get("line") else layer
        rows.append({"key": _cut(key), "value": _cut(value), "origin": _cut(where), "layer": _cut(layer)})
    return rows


def _leaves(config: Mapping[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in config.items():
        if key == "env" and isinstance(value, Mapping):
            found += [(f"env.{name}", HIDDEN) for name in value]
        elif isinstance(value, Mapping):
            found += [(f"{key}.{name}", inner) for name, inner in value.items()]
        else:
            found.append((key, value))
    return found


def _script(run: Run) -> list[str] | None:
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
    return [_cut(line) for line in mask(own).split("\n")] + [f"SL_ENV=({hidden})"]


def _read(path: Path) -> dict[str, Any]:
    """A JSON object of the run folder; an empty one if there is none: a supervisor may have died while it wrote."""
    try:
        found = sharedfile.read_json(path, MOST_STACKS_BYTES)
    except (OSError, ValueError, RecursionError):
        return {}
    return _dict(found)


def _dict(value: Any) -> dict[str, Any]:
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
