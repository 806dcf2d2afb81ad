"""All that is known of a run at one moment, as the JSON-able object of `status --json` (documented in docs/verbs.md).

Two witnesses are heard, the journal and the scheduler, and where they do not agree the answer is "unknown" with what
each of them says; it is never "dead".
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safelaunch.adapters import runfolder
from safelaunch.adapters.runfolder import Run
from safelaunch.commands import runs, talk
from safelaunch.commands.runs import Word
from safelaunch.core.model import Event
from safelaunch.core.progress import Metrics, measure
from safelaunch.core.slurmtext import QueuedJob
from safelaunch.core.slurmwords import is_known
from safelaunch.core.state import Attempt, State, fold
from safelaunch.core.steps import latest_step

VERSION = 1
STALE_S = 60.0            # four pulses (loop.PULSE_S = 15 s) without one
TAIL_BYTES = 64 << 10
SHOWN_DECISIONS = 3


def overview(run: Run, word: Word, now: float) -> dict[str, Any]:
    """The run's object. `word` must have been asked for before: a run that ends in between is no contradiction."""
    journal = run.journal()
    state, since_t = _fold_since(journal.events)
    pulse = _read_pulse(run.dir, state, now)
    name, sentence = judge(state, word, run.plan.cluster == "local")
    step, figures = _progress(run, state, pulse)
    job, attempt, budget = state.job, state.attempt, run.plan.restart
    hours = node_hours(journal.events, _held_until(state, word, now))
    return {
        "v": VERSION,
        "name": run.plan.name, "run_id": run.plan.run_id, "run_dir": str(run.dir), "cluster": run.plan.cluster,
        "cluster_name": run.cluster or None,
        "state": name, "sentence": sentence, "since_t": since_t, "now_t": round(now, 3),
        "submitted_t": state.submitted_t,
        "ended": {"how": state.ended.how, "exit_code": state.ended.exit_code, "why": state.ended.why,
                  "t": state.ended.t} if state.ended else None,
        "job": {"id": job.id, "nodes": list(job.nodes), "nodelist": _fold_nodes(job.nodes),
                "batch_host": job.batch_host, "started_t": job.started_t} if job else None,
        "attempt": _attempt(attempt) if attempt else None,
        "attempts": len(state.attempts),
        "step": step, "loss": _number(figures.loss), "step_time_s": _number(figures.step_s),
        "typical_step_time_s": _number(figures.typical_step_s),
        "throughput": {"value": figures.rate, "unit": figures.rate_unit} if figures.rate is not None else None,
        "checkpoint_step": state.best_step,
        "restarts": state.restarts, "max_restarts": budget.max_restarts,
        "failures_without_progress": state.failures_without_progress,
        "max_without_progress": budget.max_without_progress,
        "suspects": [{"node": node, "why": why} for node, why in state.suspects],
        "excluded": [{"node": one.node, "why": one.why, "owner": one.owner, "until_t": one.until}
                     for one in state.exclusions],
        "left_out": [{"node": node, "why": why} for node, why in state.left_out],
        "standby": state.standby,
        "successor": state.successor, "next_cancelled": state.next_cancelled, "via": state.via,
        "requests": _requests(run),
        "preserving_until_t": state.preserving_until,
        "node_hours": round(hours, 4),
        "gpu_hours": round(hours * run.plan.gpus_per_node, 4) if run.plan.gpus_per_node else None,
        "decisions": [{"t": event.t, "row": str(event.data.get("row", "")), "why": str(event.data.get("why", ""))}
                      for event in journal.events if event.event == "decision"][-SHOWN_DECISIONS:],
        "pulse": pulse,
        "slurm": {"jobs": None if word.jobs is None else [vars(known) for known in word.jobs], "trouble": word.trouble,
                  "version": state.slurm, "is_known": None if state.slurm is None else is_known(state.slurm),
                  "unknown_words": None if state.unknown_words is None else dict(
                      zip(("job", "said"), state.unknown_words, strict=True))},
        "journal_problems": list(journal.problems),
    }


def judge(state: State, word: Word, is_local: bool = False) -> tuple[str, str]:
    """The state's name and a sentence on it, from both witnesses."""
    if state.ended is not None:
        return state.ended.how, runs.describe_end(state.ended)
    name = state.name
    job, by = state.job, "this machine" if is_local else "Slurm"
    if word.jobs is None:
        return name, _by_journal(state)
    if not word.jobs:
        if job is None:
            return "unknown", f"a submission was begun and has no outcome, and {by} knows no job of this run"
        return "unknown", f"{by} no longer knows job {job.id}, and the journal holds no end"
    if job is None:
        return "queued", f"job {word.jobs[0].id} is in ({_waits(word.jobs[0])}), though its submission was cut off"
    known = word.job(job.id)
    if known is None:
        return "queued", f"job {job.id} is over; the run goes on in job {word.jobs[0].id}, which {_waits(word.jobs[0])}"
    if known.state != "RUNNING" and known.state != "PENDING":
        return name, f"{_by_journal(state)}; job {known.id} is {known.state} for Slurm"
    if job.started_t is None or known.state == "PENDING":   # it has not started, or was requeued
        return name if job.started_t is None else "queued", f"job {known.id} {_waits(known)}"
    return name, _by_journal(state)


def _waits(job: QueuedJob) -> str:
    if job.state == "PENDING":
        return f"is waiting to be scheduled ({job.reason})"
    if job.state == "RUNNING":
        return "has started; its supervisor has not reported yet"
    return f"is {job.state} for Slurm"


def _by_journal(state: State) -> str:
    job, attempt = state.job, state.attempt
    where = f"job {job.id}" if job else "no job yet"
    if state.name == "running" and attempt is not None:
        return f"attempt {attempt.number} is running on {_fold_nodes(attempt.nodes)} ({where})"
    if state.name == "preserving":
        return f"the run has failed and its nodes are kept for people to look at ({where})"
    if state.name == "restarting" and attempt is not None:
        return f"attempt {attempt.number} is over ({attempt.ended}), the next one is being prepared ({where})"
    if state.name == "starting":
        return f"{where} has started, the first attempt is being prepared"
    return f"{where} is submitted and has not reported yet" if job else "the submission has no outcome yet"


def node_hours(events: Iterable[Event], until: float) -> float:
    """Hours times nodes that the run's jobs have held, up to `until` (epoch s) for the one that still does."""
    total_s, since, nodes = 0.0, 0.0, 0
    for event in events:
        if event.event not in ("job_started", "resubmitted"):
            continue
        total_s += nodes * max(0.0, event.t - since)
        listed = event.data.get("nodes") if event.event == "job_started" else None
        since, nodes = event.t, len(listed) if isinstance(listed, list) else 0
    return (total_s + nodes * max(0.0, until - since)) / 3600


def _held_until(state: State, word: Word, now: float) -> float:
    """Until when nodes are held: now, or the journal's last word where nobody knows the job any more."""
    if state.ended is not None:
        return state.ended.t
    return now if word.jobs is None or word.jobs else (state.last_t or now)


def _fold_since(events: Iterable[Event]) -> tuple[State, float | None]:
    """The state, and since when it has its name."""
    state, name, since_t = State(), "", None
    for event in events:
        state = fold((event,), state)
        if state.name != name:
            name, since_t = state.name, event.t
    return state, since_t


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {"number": attempt.number, "nodelist": _fold_nodes(attempt.nodes), "nodes": list(attempt.nodes),
            "started_t": attempt.started_t, "resume_step": attempt.resume_step, "ended": attempt.ended,
            "ended_t": attempt.ended_t, "exit_code": attempt.exit_code, "category": attempt.category,
            "summary": attempt.summary}


def _progress(run: Run, state: State, pulse: dict[str, Any] | None) -> tuple[int | None, Metrics]:
    """The newest attempt's last step and figures: the journal is up to a minute old, its log a second."""
    attempt = state.attempt
    if attempt is None:
        return None, Metrics()
    tail = _tail(run.dir / runfolder.attempt_folder(attempt.number) / "main.log")
    steps = [attempt.step, latest_step(tail, run.plan.step_pattern)]
    if pulse is not None and pulse["attempt"] == attempt.number:
        steps.append(pulse["step"])
    return (max((step for step in steps if step is not None), default=None),
            measure(tail, run.plan.loss_pattern, run.plan.step_time_pattern))


def _number(value: float | None) -> float | str | None:
    """The number, or "nan", "inf", "-inf" as words: JSON has none for them."""
    return value if value is None or math.isfinite(value) else str(value)


def _read_pulse(run_dir: Path, state: State, now: float) -> dict[str, Any] | None:
    """The leader's last pulse and its age; None when there is none yet.

    It is stale only where a leader should be alive. The file's own time is the file server's, `t` the leader's: the
    later one counts, so that a clock that is behind raises no alarm.
    """
    try:
        with (run_dir / "pulse.json").open("rb") as file:
            written_t = os.fstat(file.fileno()).st_mtime
            raw: Any = json.loads(file.read(1 << 16))
        age_s = max(0.0, now - max(written_t, float(raw["t"])))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    job = state.job
    expected = state.ended is None and job is not None and job.started_t is not None
    number, step = raw.get("attempt"), raw.get("step")
    return {"age_s": round(age_s, 1), "is_stale": expected and age_s > STALE_S, "host": str(raw.get("host")),
            "gen": raw.get("gen"), "guards": raw.get("guards"),
            "hang_t": _time(raw.get("hang_t")), "attempt": number if isinstance(number, int) else None,
            "step": step if isinstance(step, int) else None}


def _time(value: object) -> float | None:
    return round(float(value), 3) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _requests(run: Run) -> list[dict[str, Any]]:
    """Control files that are there, seen by the leader or not."""
    try:
        found = runfolder.read_requests(run.dir, run.plan.kill_file)
    except OSError:
        return []   # control/ is closed to this reader
    return [{"name": name, "who": who, "t": t} for name, who, t in found]


def _tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            return file.read(TAIL_BYTES)
    except OSError:
        return b""


def _fold_nodes(nodes: Iterable[str]) -> str:
    return talk.fold(nodes) or "no nodes yet"
