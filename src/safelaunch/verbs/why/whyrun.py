"""What `why` is asked about when it is a run's attempt, or a job that Slurm knows."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from safelaunch.base.endings import GOOD_ENDS
from safelaunch.base.io import sharedfile
from safelaunch.base.model import Event
from safelaunch.decide.budget import policy
from safelaunch.decide.ends.advice import what_follows
from safelaunch.errors import UsageError
from safelaunch.hangs.present import Present
from safelaunch.run import story
from safelaunch.run.fold.folding import HANDED_OVER
from safelaunch.run.fold.state import Attempt, State
from safelaunch.run.io import attemptfacts, runfolder
from safelaunch.run.io.runfolder import Run
from safelaunch.slurm import jobstates
from safelaunch.status import costs, silence, states
from safelaunch.status.speech import tell_slower
from safelaunch.verbs.common import lostjob, runs, talk
from safelaunch.verbs.common.eventwords import describe
from safelaunch.verbs.common.livepulse import read_figures, read_heartbeat, read_log, usual_s
from safelaunch.verbs.why import whyevidence
from safelaunch.verbs.why.whysubject import Subject
from safelaunch.why.categories import advice
from safelaunch.why.findings import OutsideEvidence
from safelaunch.why.verdict import Verdict

# What was done about a failure, as the journal tells it; the other kinds are for `safelaunch events`.
TOLD = ("failure", "verdict", "node_suspected", "decision", "attempt_ended", "preserved", "attempt_started",
        "lost_progress", "odd_figure", "slower", "slow_evidence", "nodes_benched", "swap_judged", "checkpoints_cut",
        "checkpoint_skipped", *HANDED_OVER, "successor_lost", "kill_switch",
        "completed", "gave_up", "stopped")
MOST_TOLD = 8
AT_ITS_END = "nothing yet: it is judged when it has ended"
COUNTED = "counted as a hang"   # supervisor.hang.hangs.tell_next
AND_THEN = f"; {COUNTED}"
IF_STILL = "it is ended only if looks at all ranks agree that they stand still (hang.then)"


def find(which: str | None, attempt: int | None) -> Subject:
    """The run that is meant, else the job of that number; raises UsageError."""
    try:
        run = runs.load(which)
    except UsageError:
        if which is None or not which.isdigit():
            raise
        return _foreign_job(which)
    return of_run(run, attempt)


def of_run(run: Run, number: int | None) -> Subject:
    """An attempt of a run, by default the newest that did not end well; raises UsageError where there is none."""
    state, journal = run.state(partly=True), run.journal().events
    lost = lostjob.why_lost(run, state)
    chosen = _choose(state.attempts, number)
    if chosen is None:
        how_far = f": {lost}" if lost else _how_far(state)
        raise UsageError(f"{run.plan.name} has no attempt{f' {number}' if number else ' yet'}{how_far}",
                         hint=f"how it is doing: safelaunch status {run.dir}")
    folder = run.dir / runfolder.attempt_folder(chosen.number)
    log = folder / "main.log"
    there = ((log,) if sharedfile.is_file(log) else ()) + attemptfacts.kernel_logs(folder)
    paths = tuple(path for path in there if os.access(path, os.R_OK))
    closed = tuple(f"{path} cannot be read: {os.strerror(errno.EACCES)}" for path in there if path not in paths)
    requests = runs.requests(run)
    evidence, outside = whyevidence.of_attempt(run, state, chosen, journal)
    outside = (*outside, *(describe(event) for event in journal
                           if event.event == "code_changed" and event.data.get("attempt") == chosen.number))
    follows = what_follows(state, chosen, run.plan, requests) if chosen.ended is not None else ""
    is_newest = number in (None, state.attempts[-1].number)
    is_lost = bool(lost) and chosen is state.attempts[-1]
    if is_lost:
        evidence, follows = replace(evidence, running=False), lost
    present = present_of(run, state, journal, time.time()) if is_newest and not lost else None
    if present is not None and present.attempt == chosen.number and (present.ends or present.is_silent):
        follows = AT_ITS_END if present.ends else _what_comes(journal, chosen, present)
    return Subject(
        paths, evidence, run, chosen, _did(journal, chosen), _when(journal, chosen), chosen.job,
        follows, _tell_end(chosen), (*closed, *outside),
        _layout(run, chosen),
        policy.table(run.plan.restart.policy), _recorded(chosen, folder),
        present, is_lost, "" if is_lost else lost)


def _what_comes(journal: Sequence[Event], attempt: Attempt, present: Present) -> str:
    """What follows a silence, as its last check has said."""
    since_t = present.late.since_t if present.late is not None else 0.0
    said = [str(event.data.get("why")) for event in journal if event.event == "decision" and event.t > since_t
            and (event.data.get("row"), event.data.get("attempt")) == ("hang", attempt.number)]
    then = said[-1].rpartition("; ")[2] if said else ""
    return f"{then} (hang.then)" if then.startswith(COUNTED) else IF_STILL


def _recorded(attempt: Attempt, folder: Path) -> Verdict | None:
    """The verdict by which the supervisor acted; where it wrote no file, what its journal has of it."""
    if attempt.ended is None or attempt.category is None:
        return None
    found = attemptfacts.read_verdict(folder)
    if found is not None and found.category == attempt.category:
        return found
    return Verdict(attempt.category, attempt.summary or "", attempt.confidence, advice(attempt.category),
                   host=attempt.failed_node, fingerprint=attempt.fingerprint)


def _tell_end(attempt: Attempt) -> str:
    """When an attempt ended, and how."""
    if attempt.ended_t is None:
        return ""
    return f"attempt {attempt.number} {attempt.ended}, {talk.moment(attempt.ended_t)}"


def _layout(run: Run, attempt: Attempt) -> tuple[tuple[str, ...], int] | None:
    """Whose ranks are in front of the lines of the attempt's log; None = the global ones already."""
    per_node = run.plan.launch.local_ranks
    return (attempt.nodes, per_node) if per_node else None


def _how_far(state: State) -> str:
    """Why a run has no attempt, as far as its journal tells."""
    if state.ended is not None:
        return f": {state.ended.how}, {state.ended.why}"
    if state.job is None:
        return ": no job of it was submitted"
    return f": job {state.job.id} has not started" if state.job.started_t is None else ""


def _choose(attempts: Sequence[Attempt], number: int | None) -> Attempt | None:
    """That attempt; without a number the newest that did not end well, else the newest."""
    if number is not None:
        return next((attempt for attempt in attempts if attempt.number == number), None)
    bad = [attempt for attempt in attempts if attempt.ended not in (None, *GOOD_ENDS)]
    return (bad or list(attempts))[-1] if attempts else None


def _when(journal: Sequence[Event], attempt: Attempt) -> str:
    """When a node of the attempt was lost, else when the attempt ended; a log often says no time."""
    end_t = attempt.ended_t if attempt.ended_t is not None else float("inf")
    lost = next((event for event in journal if event.event == "node_lost" and attempt.started_t <= event.t <= end_t
                 and event.data.get("node") in attempt.nodes), None)
    if lost is not None:
        return f"{talk.moment(lost.t)} (node {lost.data['node']} was lost)"
    return "" if attempt.ended_t is None else f"{talk.moment(attempt.ended_t)} (attempt {attempt.number} had ended)"


def _did(journal: Sequence[Event], attempt: Attempt) -> tuple[str, ...]:
    """What safelaunch saw and did from that attempt's end on, up to the next one's start."""
    told = list[tuple[str, str]]()
    for event in story.select(journal):
        of = event.data.get("attempt")
        if event.event in TOLD and event.t >= (attempt.ended_t or attempt.started_t) - 1.0 and of != attempt.number - 1:
            if event.event == "attempt_started" and of == attempt.number:
                continue
            said = describe(event)
            if told and told[-1][1].partition(AND_THEN)[0] == said.partition(AND_THEN)[0]:   # one more check, the same
                told.pop()
            told.append((talk.moment(event.t), said))
            if event.event == "attempt_started":
                break
    return tuple(" ".join(one) for one in told[:MOST_TOLD])


# --- other people's jobs --------------------------------------------------------------------------------------------


def _foreign_job(job: str) -> Subject:
    """A job that safelaunch did not start; its output is known while Slurm remembers it (MinJobAge: 300 s)."""
    facts = whyevidence.ask_job(job)
    paths = tuple(Path(name) for name in dict.fromkeys(facts.outputs) if Path(name).is_file())
    if not paths and facts.folder:   # sacct does not tell the output's name before Slurm 24.05
        guess = Path(facts.folder) / f"slurm-{job}.out"
        paths = (guess,) if guess.is_file() else ()
    evidence = OutsideEvidence(states=facts.states, running=facts.is_alive)
    if not paths and not facts.states:
        where = f"its output is not to be found: {', '.join(facts.outputs) or 'Slurm no longer says where it is'}"
        if facts.state == jobstates.PENDING:
            where = f"it has not started{f' ({facts.reason})' if facts.reason not in ('', 'None') else ''}"
        raise UsageError(f"job {job} is {facts.state or 'known'}; {where}", hint="name its log: safelaunch why FILE…")
    return Subject(paths, evidence, job=job, outside=(f"Slurm: job {job} is {facts.said}",) if facts.said else ())


def present_of(run: Run, state: State, journal: Sequence[Event], now: float) -> Present | None:
    """What is said first of a run that lives: from its heartbeat, its log's end, and the last look at its ranks; None =
    no attempt lives.
    """
    attempt = state.attempt
    if attempt is None or attempt.ended is not None or state.ended is not None:
        return None
    pulse = read_heartbeat(run.dir, state, now)
    log = read_log(run, state, pulse)
    step_t = silence.step_t(pulse, log.step, log.grew_t)
    usual = usual_s(read_figures(run, log.tail), costs.follow(journal, now, log.step, step_t))
    late = silence.find(state, pulse, log.step, log.grew_t, usual, now)
    since_t = step_t if late is None else late.since_t
    look = attemptfacts.read_look(run.dir / runfolder.attempt_folder(attempt.number))
    drop = state.slower if late is None else None
    hang_t = pulse.hang_t if pulse is not None and pulse.attempt == attempt.number else None
    return Present(attempt.number, log.step, None if since_t is None else now - since_t, usual, late,
                   look if late is not None and look is not None and look.t > late.since_t else None,
                   hang_t, hang_t is not None and hang_t <= now, states.why_ending(attempt),
                   "" if drop is None else f"slower: {tell_slower(drop.step, drop.from_s, drop.to_s)}")
