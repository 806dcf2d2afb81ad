"""All that is known of a run at one moment: the JSON-able object of `status --json` (documented in docs/verbs.md)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from safelaunch.base.io import owners
from safelaunch.base.model import Event
from safelaunch.base.secretmask import mask
from safelaunch.decide.facts import advance
from safelaunch.run.fold.folding import HANDED_OVER, fold
from safelaunch.run.fold.state import NAMING, Attempt, State
from safelaunch.run.io import journal
from safelaunch.run.io.runfolder import Run
from safelaunch.run.plan import Plan
from safelaunch.slurm.slurmtext import QueuedJob
from safelaunch.slurm.slurmwords import is_known
from safelaunch.status import costs, shares, silence
from safelaunch.status.costs import Costs, Track
from safelaunch.status.speech import SchedulerAnswer
from safelaunch.status.states import judge
from safelaunch.trainlog.figures import Metrics
from safelaunch.trainlog.lines import MOST_UNREAD, Unread, leave_unread, place_in
from safelaunch.trainlog.steps import AUTO
from safelaunch.verbs.common import runs, talk
from safelaunch.verbs.common.livepulse import read_figures, read_heartbeat, read_log, read_log_briefly, usual_s
from safelaunch.verbs.common.speech import SPEECH, speech_at
from safelaunch.verbs.overview import livecheckpoint

VERSION = 1
LAST_STEPS = costs.PACE_POINTS + costs.TREND_POINTS + 1   # that pace and trend look at
SHOWN_DECISIONS = 3
STANDS_STILL = {"eta_t": None, "pace_trend": None}   # while it is silent nobody can say when it is done


def overview(
    run: Run, word: SchedulerAnswer, now: float,
    look: Callable[[Run, State], dict[str, Any] | None] = livecheckpoint.look,
) -> dict[str, Any]:
    """The run's object. Slurm's answer `word` must be older than the journal, so that a run that ends in between is no
    contradiction. `look` finds the newest checkpoint.
    """
    read = journal.read(run.dir, LAST_STEPS, with_course=True, partly=True)
    state, since_t = _fold_since(read.events)
    pulse = read_heartbeat(run.dir, state, now)
    requests = runs.requests(run)
    judged = judge(state, word, speech_at(now), now, requests, run.plan.kill_switch.grace_s,
                   run.plan.cluster == "local")
    step, total, tail, grew_t = read_log(run, state, pulse)
    account = shares.settle(read.events, state, now, step, silence.step_t(pulse, step, grew_t))
    figures = read_figures(run, tail)
    quiet = silence.find(state, pulse, step, grew_t, usual_s(figures, account.tracks), now)
    if quiet is not None:
        account = shares.settle(read.events, state, now, step, quiet.since_t, quiet.since_t)
    found = look(run, state)
    return {
        "v": VERSION,
        "name": run.plan.name, "run_id": run.plan.run_id, "run_dir": str(run.dir), "cluster": run.plan.cluster,
        "cluster_name": run.cluster or None,
        "state": judged.name, "sentence": silence.with_sentence(judged.sentence, quiet, now, talk.span),
        "silence": silence.public(quiet),
        "since_t": judged.since_t if judged.since_t is not None else since_t, "now_t": round(now, 3),
        "submitted_t": state.submitted_t,
        "ended": _ended(state), "ended_early": state.ended_early, "ended_nan": state.ended_nan,
        "job": _job(state, word, now),
        "attempt": _attempt(state, state.attempt, run.plan.nodes) if state.attempt else None,
        **_warnings(run.plan, state),
        "attempts": len(state.attempts),
        "step": step, "step_total": total, **_unread(run, state, step, tail),
        **_progress(judged.name, step, total, figures, account.tracks, now),
        **(STANDS_STILL if quiet is not None else {}),
        **_checkpoint(state, found, step, now),
        **_budget(run, state),
        **_account(account),
        "relaunch_t": state.pause_until if judged.name in ("starting", "restarting") else None,
        **_nodes(state),
        "requests": [one._asdict() for one in requests], "later_jobs": _later_jobs(run),
        "preserving_until_t": state.preserving_until,
        **_used(run.plan, node_hours(read.events, _held_until(state, word, now))),
        "decisions": [{"t": event.t, "row": str(event.data.get("row", "")), "why": str(event.data.get("why", ""))}
                      for event in read.events if event.event == "decision"][-SHOWN_DECISIONS:],
        "pulse": pulse,
        "slurm": _slurm(state, word), "local_folder": _local_folder(state),
        "journal_problems": list(read.problems),
    }


def _ended(state: State) -> dict[str, Any] | None:
    end = state.ended
    return {"how": end.how, "exit_code": end.exit_code, "why": end.why, "t": end.t} if end else None


def _later_jobs(run: Run) -> dict[str, str]:
    if not (run.dir / "later-jobs.json").exists():
        return {}
    from safelaunch.script.io import laterjobs  # few runs have any

    with contextlib.suppress(OSError):   # closed to this reader
        return laterjobs.read(run.dir)
    return {}


def brief(run: Run, word: SchedulerAnswer, now: float) -> dict[str, Any]:
    """A run's line in the table of all runs (docs/verbs.md); without its checkpoints, and its log's end only."""
    events = journal.read(run.dir, LAST_STEPS, partly=True).events
    state, since_t = _fold_since(events)
    pulse, job = read_heartbeat(run.dir, state, now), _job(state, word, now)
    judged = judge(state, word, speech_at(now), now, runs.requests(run), run.plan.kill_switch.grace_s,
                   run.plan.cluster == "local")
    step, total, tail, grew_t = read_log_briefly(run, state, pulse, now)
    tracks = costs.follow(events, now, step, silence.step_t(pulse, step, grew_t))
    figures = read_figures(run, tail)
    pace_s = (tracks[-1].pace_s if tracks else None) or figures.typical_step_s
    quiet = silence.find(state, pulse, step, grew_t, usual_s(figures, tracks), now)
    is_stale = pulse is not None and pulse["is_stale"]
    alarm = f"no sign of life from the supervisor for {talk.span(pulse['age_s'])}; " if pulse and is_stale else ""
    return {
        "name": run.plan.name, "run_id": run.plan.run_id, "run_dir": str(run.dir),
        "owner": owners.name_of(run.dir.stat().st_uid), "cluster_name": run.cluster or None,
        "state": judged.name, "sentence": alarm + silence.with_sentence(judged.sentence, quiet, now, talk.span),
        "silence": silence.public(quiet),
        "since_t": state.ended.t if state.ended else judged.since_t if judged.since_t is not None else since_t,
        "now_t": round(now, 3), "ended_t": state.ended.t if state.ended else None,
        "job": job["id"] if job else None, "job_ends_t": job["ends_t"] if job and not state.ended else None,
        "attempts": len(state.attempts), "step": step, "step_total": total, "loss": _number(figures.loss),
        "eta_t": None if quiet is not None else _eta(judged.name, step, total, pace_s, now),
        "restarts": state.restarted, "max_restarts": run.plan.restart.max_restarts,
        "is_stale": is_stale, "values": dict(run.meta["config"].get("sweep") or {}),
    }


def _job(state: State, word: SchedulerAnswer, now: float) -> dict[str, Any] | None:
    job = state.job
    if job is None:
        return None
    known = word.job(job.id)
    left_s = known.left_s if known is not None else None
    asked_t = now if word.asked_t is None else word.asked_t
    return {"id": job.id, "nodes": list(job.nodes), "nodelist": SPEECH.nodes(job.nodes), "batch_host": job.batch_host,
            "started_t": job.started_t, "ends_t": None if left_s is None else round(asked_t + left_s)}


def _warnings(plan: Plan, state: State) -> dict[str, Any]:
    return {"lost_progress": _lost_progress(state.attempt),
            "slower": _slower(plan, state) if state.slower else None, "slow_search": _slow_search(state),
            "odd_figures": [one._asdict() for one in state.odd]}


def _slower(plan: Plan, state: State) -> dict[str, Any]:
    """The drop of speed that lasts, and what follows."""
    from safelaunch.decide.nodes.slowness import what_follows  # most runs have none

    assert state.slower is not None
    return {**state.slower._asdict(), "follows": what_follows(state, plan)}


def _slow_search(state: State) -> dict[str, Any] | None:
    """What was done to find the node behind a drop; None = nothing yet."""
    search = state.search
    if not search.planned and search.drop_t is None:
        return None
    return {"experiments": list(search.planned), "attempt": search.attempt, "measured": search.measured,
            "slow": [{"node": node, "why": why} for node, why in search.slow],
            "from_s": search.from_s, "to_s": search.to_s, "won": search.has_won,
            "seen": [], "seen_why": None}   # of an earlier version, kept in the form of v 1


def _lost_progress(attempt: Attempt | None) -> dict[str, Any] | None:
    """What speaks for a start of the newest attempt below its checkpoint."""
    if attempt is None or attempt.lost is None:
        return None
    return {"attempt": attempt.number, "sure": attempt.lost_surely, "why": attempt.lost}


def _budget(run: Run, state: State) -> dict[str, Any]:
    budget = run.plan.restart
    return {"restarts": state.restarted, "max_restarts": budget.max_restarts,
            "failures_without_progress": state.failures_without_progress,
            "max_without_progress": budget.max_without_progress}


def _nodes(state: State) -> dict[str, Any]:
    return {"suspects": [{"node": node, "why": why} for node, why in state.suspects],
            "excluded": [{"node": one.node, "why": one.why, "owner": one.owner, "until_t": one.until}
                         for one in state.exclusions],
            "left_out": [{"node": node, "why": why} for node, why in state.left_out],
            "standby": state.standby, "successor": state.successor, "next_cancelled": state.next_cancelled,
            "via": state.via}


def _local_folder(state: State) -> dict[str, Any] | None:
    taken = state.local_folder_taken
    return None if taken is None else dict(zip(("node", "path", "owner"), taken, strict=True))


def _slurm(state: State, word: SchedulerAnswer) -> dict[str, Any]:
    return {"jobs": None if word.jobs is None else [_queued(known) for known in word.jobs], "trouble": word.trouble,
            "version": state.slurm, "is_known": None if state.slurm is None else is_known(state.slurm),
            "unknown_words": None if state.unknown_words is None else dict(
                zip(("job", "said"), state.unknown_words, strict=True))}


def _queued(job: QueuedJob) -> dict[str, Any]:
    """A job as squeue tells it; its times are of this machine's zone (squeue(1), SLURM_TIME_FORMAT)."""
    row = {key: value for key, value in job._asdict().items() if key not in ("start", "script")}
    try:
        start_t = datetime.fromisoformat(job.start).timestamp() if job.start else None
    except (ValueError, OverflowError, OSError):
        start_t = None
    return {**row, "start_t": start_t}


def _checkpoint(state: State, found: dict[str, Any] | None, step: int | None, now: float) -> dict[str, Any]:
    """The checkpoint that was found, with the cost of an end now; the journal's one if none was searched."""
    if found is None:
        return {"checkpoint_step": state.best_step, "checkpoint": None}
    has_step = found["step"] is not None or found["path"] is None
    at_risk = None
    if step is not None and has_step and not found["trouble"] and state.ended is None:
        at_risk = max(0, step - (found["step"] or 0))
    age_s = None if found["t"] is None else round(max(0.0, now - found["t"]), 1)
    return {"checkpoint_step": found["step"] if found["step"] is not None else state.best_step,
            "checkpoint": {**found, "age_s": age_s, "steps_at_risk": at_risk}}


def _eta(name: str, step: int | None, total: int | None, pace_s: float | None, now: float) -> float | None:
    """When the last step is made, while the attempt makes steps."""
    if name != "running":
        return None
    left_s = costs.remaining_s(step, total, pace_s)
    return None if left_s is None else round(now + left_s)


def _progress(
    name: str, step: int | None, total: int | None, figures: Metrics, tracks: tuple[Track, ...], now: float
) -> dict[str, Any]:
    """What the log says of its last steps, the pace by the journal, and when the last step is made."""
    pace_s = tracks[-1].pace_s if tracks else None
    return {"loss": _number(figures.loss), "step_time_s": _number(figures.step_s),
            "typical_step_time_s": _number(figures.typical_step_s), "pace_s": _rounded(pace_s),
            "pace_trend": _rounded(tracks[-1].trend) if tracks else None,
            "eta_t": _eta(name, step, total, pace_s or figures.typical_step_s, now),
            "throughput": {"value": figures.rate, "unit": figures.rate_unit} if figures.rate is not None else None}


def _used(plan: Plan, hours: float) -> dict[str, Any]:
    return {"node_hours": round(hours, 4),
            "gpu_hours": round(hours * plan.gpus_per_node, 4) if plan.gpus_per_node else None}


def _account(account: shares.Account) -> dict[str, Any]:
    """Where the time went; nothing is known before the first attempt."""
    has_begun = bool(account.tracks)
    return {"lost": _lost(account.costs), "goodput": _share(account.goodput) if has_begun else None,
            "time": {kind: round(seconds, 1) for kind, seconds in account.seconds.items()} if has_begun else None}


def _lost(found: Costs) -> dict[str, Any]:
    """What restarts have cost; `goodput` is what they have left, as older readers know it."""
    return {"steps": found.steps, "seconds": round(found.seconds, 1), "since_t": found.since_t,
            "overhead": _share(found.overhead),
            "goodput": None if found.overhead is None else round(1 - found.overhead, 4),
            "restarts": [{**one._asdict(), "seconds": round(one.seconds, 1), "queued_s": round(one.queued_s, 1)}
                         for one in found.restarts]}


def _share(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def node_hours(events: Iterable[Event], until: float) -> float:
    """Hours times nodes that the run's jobs have held, up to `until` (epoch s) for the one that still does."""
    total_s, since, nodes = 0.0, 0.0, 0
    for event in events:
        if event.event not in ("job_started", *HANDED_OVER):
            continue
        total_s += nodes * max(0.0, event.t - since)
        listed = event.data.get("nodes") if event.event == "job_started" else None
        since, nodes = event.t, len(listed) if isinstance(listed, list) else 0
    return (total_s + nodes * max(0.0, until - since)) / 3600


def _held_until(state: State, word: SchedulerAnswer, now: float) -> float:
    """Until when nodes are used: now, or the journal's last time where Slurm does not know the job any more."""
    if state.ended is not None:
        return state.ended.t
    return now if word.jobs is None or word.jobs else (state.last_t or now)


def _fold_since(events: Iterable[Event]) -> tuple[State, float | None]:
    """The state, and since when it has its name."""
    state, name, since_t = State(), "", None
    before: list[Event] = []   # of those that change no name: one fold takes them all
    for event in events:
        if event.event == "progress" and len(before) > 1 and before[-2].event == before[-1].event == "progress":
            before.pop()   # of consecutive ones the first and the last matter, and a long journal is mostly these
        before.append(event)
        if event.event in NAMING:
            state = fold(before, state)
            before.clear()
            if state.name != name:
                name, since_t = state.name, event.t
    return fold(before, state), since_t


def _attempt(state: State, attempt: Attempt, of_nodes: int) -> dict[str, Any]:
    began_step = advance.began_at(attempt, advance.trainings(state.attempts[:-1]))
    return {"number": attempt.number, "nodelist": SPEECH.nodes(attempt.nodes), "nodes": list(attempt.nodes),
            "started_t": attempt.started_t, "resume_step": attempt.resume_step, "ended": attempt.ended,
            "ended_t": attempt.ended_t, "exit_code": attempt.exit_code, "category": attempt.category,
            "summary": attempt.summary, "of_nodes": of_nodes, "began_step": began_step,
            "resize": {"from": attempt.resize.from_nodes, "to": attempt.resize.to_nodes} if attempt.resize else None}


def _unread(run: Run, state: State, step: int | None, tail: bytes) -> dict[str, Any]:
    """Where no step is read: how far the log says to be in other words; else a line of those that name none."""
    place = place_in(tail) if step is None and run.plan.step_pattern == AUTO else ""
    if step is not None or place or state.attempt is None or state.attempt.resize is not None:
        return {"place": place or None, "unread": None}
    found = leave_unread(Unread(), tail)
    line = state.attempt.unread if found.lines < MOST_UNREAD else mask(found.line)
    return {"place": None, "unread": None if line is None else {"line": line, "pattern": run.plan.step_pattern}}


def _number(value: float | None) -> float | str | None:
    """The number, or "nan", "inf", "-inf" as words: JSON has none for them."""
    return value if value is None or math.isfinite(value) else str(value)
