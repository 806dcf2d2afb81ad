"""All that is known of a run at one moment, gathered."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from datetime import datetime

from safelaunch.base.io import owners
from safelaunch.base.model import Event
from safelaunch.base.secretmask import mask
from safelaunch.decide.facts import advance
from safelaunch.run.fold.folding import HANDED_OVER, fold
from safelaunch.run.fold.state import NAMING, Attempt, State
from safelaunch.run.io import journal
from safelaunch.run.io.runfolder import Run
from safelaunch.run.journal import Journal
from safelaunch.run.plan import Plan
from safelaunch.slurm.slurmtext import QueuedJob
from safelaunch.slurm.slurmwords import is_known
from safelaunch.status import costs, shares, silence
from safelaunch.status.costs import Costs
from safelaunch.status.overview import (
    Brief,
    ExcludedNode,
    ListedJob,
    LocalFolder,
    LostProgress,
    NewestCheckpoint,
    NodeReason,
    NodeSearch,
    Overview,
    Resizing,
    RestartLosses,
    RunAttempt,
    RunJob,
    SlowerSteps,
    SlurmWord,
    Throughput,
    ToldDecision,
    UnknownWords,
    UnreadLine,
)
from safelaunch.status.speech import SchedulerAnswer
from safelaunch.status.states import judge
from safelaunch.trainlog.lines import MOST_UNREAD, Unread, leave_unread, place_in
from safelaunch.trainlog.steps import AUTO
from safelaunch.verbs.common import runs, talk
from safelaunch.verbs.common.livepulse import read_figures, read_heartbeat, read_log, read_log_briefly, usual_s
from safelaunch.verbs.common.speech import SPEECH, speech_at
from safelaunch.verbs.overview import livecheckpoint

LAST_STEPS = costs.PACE_POINTS + costs.TREND_POINTS + 1   # that pace and trend look at
SHOWN_DECISIONS = 3


def overview(
    run: Run, word: SchedulerAnswer, now: float,
    look: Callable[[Run, State], NewestCheckpoint | None] = livecheckpoint.look,
) -> Overview:
    """How the run is doing. Slurm's answer `word` must be older than the journal: then a run that ends in between is no
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
    found, checkpoint_step = _checkpoint(state, look(run, state), step, now)
    place, unread = _unread(run, state, step, tail)
    pace_s = account.tracks[-1].pace_s if account.tracks else None
    has_begun = bool(account.tracks)
    return _by_journal(run, read, state, word, now)._replace(
        state=judged.name, sentence=silence.with_sentence(judged.sentence, quiet, now, talk.span),
        silence=silence.rounded(quiet), since_t=judged.since_t if judged.since_t is not None else since_t,
        step=step, step_total=total, place=place, unread=unread,
        loss=_number(figures.loss), step_time_s=_number(figures.step_s),
        typical_step_time_s=_number(figures.typical_step_s), pace_s=_rounded(pace_s),
        # While it is silent nobody can say when it is done.
        pace_trend=_rounded(account.tracks[-1].trend) if has_begun and quiet is None else None,
        eta_t=_eta(judged.name, step, total, pace_s or figures.typical_step_s, now) if quiet is None else None,
        throughput=Throughput(figures.rate, figures.rate_unit) if figures.rate is not None else None,
        checkpoint_step=checkpoint_step, checkpoint=found,
        lost=_lost(account.costs), goodput=_rounded(account.goodput) if has_begun else None,
        time={kind: round(seconds, 1) for kind, seconds in account.seconds.items()} if has_begun else None,
        relaunch_t=state.pause_until if judged.name in ("starting", "restarting") else None,
        requests=requests, later_jobs=_later_jobs(run), pulse=pulse)


def _by_journal(run: Run, read: Journal, state: State, word: SchedulerAnswer, now: float) -> Overview:
    """What the journal alone says, and Slurm."""
    plan, hours = run.plan, node_hours(read.events, _held_until(state, word, now))
    return Overview(
        name=plan.name, run_id=plan.run_id, run_dir=str(run.dir), cluster=plan.cluster,
        cluster_name=run.cluster or None, state=state.name, sentence="", now_t=round(now, 3),
        submitted_t=state.submitted_t,
        ended=state.ended, ended_early=state.ended_early, ended_nan=state.ended_nan,
        job=_job(state, word, now), attempt=_attempt(state, state.attempt, plan.nodes) if state.attempt else None,
        lost_progress=_lost_progress(state.attempt), slower=_slower(plan, state), slow_search=_slow_search(state),
        odd_figures=state.odd, attempts=len(state.attempts),
        restarts=state.restarted, max_restarts=plan.restart.max_restarts,
        failures_without_progress=state.failures_without_progress,
        max_without_progress=plan.restart.max_without_progress,
        suspects=_reasons(state.suspects),
        excluded=tuple(ExcludedNode(one.node, one.why, one.owner, one.until) for one in state.exclusions),
        left_out=_reasons(state.left_out),
        standby=state.standby, successor=state.successor, next_cancelled=state.next_cancelled, via=state.via,
        preserving_until_t=state.preserving_until,
        node_hours=round(hours, 4), gpu_hours=round(hours * plan.gpus_per_node, 4) if plan.gpus_per_node else None,
        decisions=tuple(ToldDecision(event.t, str(event.data.get("row", "")), str(event.data.get("why", "")))
                        for event in read.events if event.event == "decision")[-SHOWN_DECISIONS:],
        slurm=_slurm(state, word),
        local_folder=LocalFolder(*state.local_folder_taken) if state.local_folder_taken is not None else None,
        journal_problems=tuple(read.problems))


def _later_jobs(run: Run) -> dict[str, str]:
    if not (run.dir / "later-jobs.json").exists():
        return {}
    from safelaunch.script.io import laterjobs  # few runs have any

    with contextlib.suppress(OSError):   # closed to this reader
        return laterjobs.read(run.dir)
    return {}


def brief(run: Run, word: SchedulerAnswer, now: float) -> Brief:
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
    is_stale = pulse is not None and pulse.is_stale
    alarm = f"no sign of life from the supervisor for {talk.span(pulse.age_s)}; " if pulse and is_stale else ""
    return Brief(
        name=run.plan.name, run_id=run.plan.run_id, run_dir=str(run.dir),
        owner=owners.name_of(run.dir.stat().st_uid), cluster_name=run.cluster or None,
        state=judged.name, sentence=alarm + silence.with_sentence(judged.sentence, quiet, now, talk.span),
        silence=silence.rounded(quiet),
        since_t=state.ended.t if state.ended else judged.since_t if judged.since_t is not None else since_t,
        now_t=round(now, 3), ended_t=state.ended.t if state.ended else None,
        job=job.id if job else None, job_ends_t=job.ends_t if job and not state.ended else None,
        attempts=len(state.attempts), step=step, step_total=total, loss=_number(figures.loss),
        eta_t=None if quiet is not None else _eta(judged.name, step, total, pace_s, now),
        restarts=state.restarted, max_restarts=run.plan.restart.max_restarts,
        is_stale=is_stale, values=dict(run.meta["config"].get("sweep") or {}))


def _job(state: State, word: SchedulerAnswer, now: float) -> RunJob | None:
    job = state.job
    if job is None:
        return None
    known = word.job(job.id)
    left_s = known.left_s if known is not None else None
    asked_t = now if word.asked_t is None else word.asked_t
    return RunJob(job.id, job.nodes, SPEECH.nodes(job.nodes), job.batch_host, job.started_t,
                  None if left_s is None else round(asked_t + left_s))


def _slower(plan: Plan, state: State) -> SlowerSteps | None:
    if state.slower is None:
        return None
    from safelaunch.decide.nodes.slowness import what_follows  # most runs have none

    return SlowerSteps(*state.slower, what_follows(state, plan))


def _slow_search(state: State) -> NodeSearch | None:
    search = state.search
    if not search.planned and search.drop_t is None:
        return None
    return NodeSearch(search.planned, search.attempt, search.measured, _reasons(search.slow), search.from_s,
                      search.to_s, search.has_won)


def _lost_progress(attempt: Attempt | None) -> LostProgress | None:
    if attempt is None or attempt.lost is None:
        return None
    return LostProgress(attempt.number, attempt.lost_surely, attempt.lost)


def _reasons(nodes: Iterable[tuple[str, str]]) -> tuple[NodeReason, ...]:
    return tuple(NodeReason(node, why) for node, why in nodes)


def _slurm(state: State, word: SchedulerAnswer) -> SlurmWord:
    return SlurmWord(None if word.jobs is None else tuple(map(_queued, word.jobs)), word.trouble, state.slurm,
                     None if state.slurm is None else is_known(state.slurm),
                     None if state.unknown_words is None else UnknownWords(*state.unknown_words))


def _queued(job: QueuedJob) -> ListedJob:
    """A job as squeue tells it; its times are of this machine's zone (squeue(1), SLURM_TIME_FORMAT)."""
    try:
        start_t = datetime.fromisoformat(job.start).timestamp() if job.start else None
    except (ValueError, OverflowError, OSError):
        start_t = None
    return ListedJob(job.id, job.state, job.user, job.name, job.reason, job.nodelist, job.left_s, start_t)


def _checkpoint(state: State, found: NewestCheckpoint | None, step: int | None, now: float
                ) -> tuple[NewestCheckpoint | None, int | None]:
    """The checkpoint that was found, with the cost of an end now, and its step; the journal's one if none was searched.
    """
    if found is None:
        return None, state.best_step
    has_step = found.step is not None or found.path is None
    at_risk = None
    if step is not None and has_step and not found.trouble and state.ended is None:
        at_risk = max(0, step - (found.step or 0))
    age_s = None if found.t is None else round(max(0.0, now - found.t), 1)
    return (found._replace(age_s=age_s, steps_at_risk=at_risk),
            found.step if found.step is not None else state.best_step)


def _eta(name: str, step: int | None, total: int | None, pace_s: float | None, now: float) -> float | None:
    """When the last step is made, while the attempt makes steps."""
    if name != "running":
        return None
    left_s = costs.remaining_s(step, total, pace_s)
    return None if left_s is None else round(now + left_s)


def _lost(found: Costs) -> RestartLosses:
    return RestartLosses(found.steps, round(found.seconds, 1), found.since_t, _rounded(found.overhead),
                    None if found.overhead is None else round(1 - found.overhead, 4),
                    tuple(one._replace(seconds=round(one.seconds, 1), queued_s=round(one.queued_s, 1))
                          for one in found.restarts))


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


def _attempt(state: State, attempt: Attempt, of_nodes: int) -> RunAttempt:
    began_step = advance.began_at(attempt, advance.trainings(state.attempts[:-1]))
    return RunAttempt(
        attempt.number, SPEECH.nodes(attempt.nodes), attempt.nodes, attempt.started_t, attempt.resume_step,
        attempt.ended, attempt.ended_t, attempt.exit_code, attempt.category, attempt.summary, of_nodes, began_step,
        Resizing(attempt.resize.from_nodes, attempt.resize.to_nodes) if attempt.resize else None)


def _unread(run: Run, state: State, step: int | None, tail: bytes) -> tuple[str | None, UnreadLine | None]:
    """Where no step is read: how far the log says to be in other words; else a line of those that name none."""
    place = place_in(tail) if step is None and run.plan.step_pattern == AUTO else ""
    if step is not None or place or state.attempt is None or state.attempt.resize is not None:
        return place or None, None
    found = leave_unread(Unread(), tail)
    line = state.attempt.unread if found.lines < MOST_UNREAD else mask(found.line)
    return None, None if line is None else UnreadLine(line, run.plan.step_pattern)


def _number(value: float | None) -> float | str | None:
    """The number, or "nan", "inf", "-inf" as words: JSON has none for them."""
    return value if value is None or math.isfinite(value) else str(value)
