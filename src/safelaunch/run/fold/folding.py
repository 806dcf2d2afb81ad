"""Events of a journal ▸ the run's state.

Folding the events a second time onto their own state changes nothing. Any prefix of a journal folds to a state that the
next supervisor can go on from. Events of an unknown kind are skipped, odd values in known ones too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from safelaunch.base.endings import BAD_ENDS, GIVES_WAY, RunEnd
from safelaunch.base.model import DONE, FAILED_FOR_GOOD, RESTARTS, STOPPED, Event, Request
from safelaunch.base.records import replace
from safelaunch.run.fold.attempts import Attempts
from safelaunch.run.fold.figurefolding import FIGURE_STEPS
from safelaunch.run.fold.nodefolding import NODE_STEPS, names_of
from safelaunch.run.fold.state import Attempt, Ended, Intent, Job, Resize, State, TrainingReach
from safelaunch.run.journal import MAX_T_S
from safelaunch.run.noticewords import notice_of
from safelaunch.run.slowsearch import begins
from safelaunch.why.categories import BAD_NODE

MOST_EVIDENCE, LINE_CHARS = 3, 300   # of a verdict's lines: for messages to people; verdict.json has them all
MOST_SKIPPED = 50   # of them are remembered, so that each is said once
HANDED_OVER = ("handed_over", "resubmitted")   # events; of older versions also what is told by successor_* now
# Rows of decide that wait before the next attempt.
PAUSES = ("frozen", "no_storage", "back_off", "check_nodes", "check_again", "bench_nodes", "wait_for_nodes")


def fold(events: Iterable[Event], start: State | None = None) -> State:
    """The state after all events, which must be in journal order."""
    state = start or State()
    gen, last_t = state.gen, state.last_t
    for event in events:
        if event.gen > gen > 0:   # a new supervisor: the one before it was last heard at `last_t`
            state = replace(state, before_t=last_t)
        step = _STEPS.get(event.event)
        try:
            notice = notice_of(state, event)
            state = step(state, event) if step is not None else state
        except (KeyError, TypeError, ValueError, OverflowError):   # JSON can say Infinity, and int() cannot
            continue   # a known event of an unknown form: written by another version, never fatal
        if notice is not None:
            state = replace(state, notices=state.notices.adds(notice))
        gen, last_t = max(gen, event.gen), event.t
    return state if (gen, last_t) == (state.gen, state.last_t) else replace(state, gen=gen, last_t=last_t)


def _submitted(state: State, event: Event) -> State:
    job = str(event.data["job"])
    known = next((known for known in state.jobs if known.id == job), None)
    if known is None:
        first = state.submitted_t if state.submitted_t is not None else event.t
        state = replace(state, jobs=(*state.jobs, Job(job, event.t)), submitted_t=first)
    if event.data.get("successor_of") and (known is None or known.started_t is None):
        return replace(state, successor=job, successor_excludes=names_of(event.data.get("exclude", ())),
                       next_cancelled=None)
    return state


def _job_started(state: State, event: Event) -> State:
    job = str(event.data["job"])
    state = state if any(known.id == job for known in state.jobs) else _submitted(state, event)
    nodes, host = names_of(event.data.get("nodes", ())), event.data.get("batch_host")
    restarts = int(event.data.get("restart_count", 0))
    is_new = not any(life[:2] == (job, restarts) for life in state.lives)
    lives = (*state.lives, (job, restarts, len(state.attempts))) if is_new else state.lives
    state = _begin_life(state, event.t) if is_new else state
    jobs = tuple(
        known._replace(started_t=known.started_t if known.started_t is not None else event.t, nodes=nodes,
                       batch_host=host, over=False, restart_count=restarts)
        if known.id == job else known._replace(over=True) if known.started_t is not None and not known.over else known
        for known in state.jobs
    )
    # Not one that has run before, either: it was requeued, and another job goes on in its place (simulated: test_found
    # "a requeued job that Slurm has lost is no next job of the one that goes on in its place").
    past = {job, *(known.id for known in jobs if known.started_t is not None)}
    successor = None if state.successor in past else state.successor
    return replace(state, jobs=jobs, successor=successor, next_cancelled=None, failed_alone=None, leader=event.host,
                   checked=(), unfit=(), unfit_before=tuple(dict.fromkeys((*state.unfit_before, *dict(state.unfit)))),
                   usual_failures=(), lives=lives,
                   is_cancelled_before=event.data.get("before_cancelled") is True)


def _begin_life(state: State, t: float) -> State:
    """A job that died without a word ran until its supervisor's last event."""
    used_s = 0.0 if state.life_t is None else max(0.0, (state.before_t or state.life_t) - state.life_t)
    return replace(state, used_s=state.used_s + used_s, life_t=t)


def _attempt_started(state: State, event: Event) -> State:
    data = event.data
    number = int(data["attempt"])
    if state.find_attempt(number) is not None:
        return replace(state, preserving_until=None)
    resize = data.get("resize")
    attempt = Attempt(
        number, str(data["job"]), names_of(data.get("nodes", ())), event.t, data.get("resume_step"),
        data.get("resume_path"), whole_steps=tuple(map(int, data.get("whole_steps", ()))),
        resize=None if resize is None else Resize(int(resize["from"]), int(resize["to"]), str(resize["output"])),
    )
    return replace(state, attempts=Attempts.of(state.attempts).adds(attempt), preserving_until=None, held=None,
                   restart=None)


def _change_attempt(state: State, event: Event, **changes: Any) -> State:
    return replace(state, attempts=Attempts.of(state.attempts).changes(int(event.data["attempt"]), **changes))


def _conversions_removed(state: State, event: Event) -> State:
    gone = names_of(event.data.get("outputs", ()))
    return replace(state, attempts=Attempts.of(tuple(
        replace(known, resize=known.resize._replace(is_removed=True))
        if known.resize is not None and known.resize.output in gone else known for known in state.attempts)))


def _decision(state: State, event: Event) -> State:
    """Journalled, because a supervisor can die right after it asked the training to end (simulated: test_found "a
    leader that dies right after it asked the training to end calls it no completion").
    """
    row = str(event.data.get("row"))
    state = replace(state, pause=str(event.data.get("why")) if row in PAUSES else None,
                    pause_until=_time(event.data.get("until")) if row == "back_off" else None)
    if row == "resume":   # a person lets the run go on: its idle jobs are counted anew
        state = _counts_from(state, event)
    if row == "bench_nodes" and state.slower is not None:
        state = replace(state, search=begins(state.search, state.slower.t, event.t))
    if row == "ask_to_end" and "until" in event.data:
        heard = event.data.get("heard")
        return _change_attempt(state, event, heard=None if heard is None else int(heard),
                               end_by_t=float(event.data["until"]), waits_for=str(event.data["waits_for"]))
    if event.data.get("action") != "end":
        return state
    known = state.find_attempt(int(event.data["attempt"]))
    if row == "slow_restart" and known is not None and known.number not in state.search.planned:
        state = replace(state, search=state.search._replace(planned=(*state.search.planned, known.number)))
    is_overruled = known is not None and row in GIVES_WAY.get(known.asked_row or "", ())
    if known is None or (known.asked_t is not None and not is_overruled):
        return state
    return _change_attempt(state, event, asked_t=event.t, asked_row=row, heard=None, end_by_t=None, waits_for=None,
                           asked_bytes=_bytes(event.data.get("log_bytes")))


def _progress(state: State, event: Event) -> State:
    changes: dict[str, Any] = {"step": int(event.data["step"])}
    if event.data.get("first") is not None:
        changes["first_step"] = int(event.data["first"])
    known = state.find_attempt(int(event.data["attempt"]))
    if known is not None and known.first_t is None:
        changes["first_t"] = event.t
    if event.data.get("counter") is not None:
        changes["counter"] = str(event.data["counter"])
    return _change_attempt(state, event, **changes)


def _lost_progress(state: State, event: Event) -> State:
    return _change_attempt(state, event, lost=str(event.data["why"]), lost_surely=bool(event.data.get("sure")))


def _checkpoint_skipped(state: State, event: Event) -> State:
    skipped = (str(event.data["path"]), str(event.data["reason"]))
    return state if skipped in state.skipped else replace(state, skipped=(*state.skipped, skipped)[-MOST_SKIPPED:])


def _checkpoint(state: State, event: Event) -> State:
    step = int(event.data["step"])
    if event.data.get("attempt") is not None:
        state = _change_attempt(state, event, checkpoint_step=step)
    if state.best_step is not None and step <= state.best_step:
        return state
    return _refill(replace(state, best_step=step, rejected_in_a_row=0, unfit_before=()))


def _advanced(state: State, event: Event) -> State:
    """What decide.facts.advance takes for progress."""
    number = int(event.data["attempt"])
    return state if number <= state.advanced_by else _refill(replace(state, advanced_by=number))


def _refill(state: State) -> State:
    return replace(state, failures_without_progress=0, failed_categories=(), idle_from=len(state.lives))


def _counts_from(state: State, event: Event) -> State:
    """A person lets the run go on, or is asked to: jobs without progress are counted anew."""
    return replace(state, idle_from=max(state.idle_from, int(event.data.get("lives", 0))))


def _checkpoint_rejected(state: State, event: Event) -> State:
    step = event.data.get("step")
    checkpoint = (str(event.data["path"]), None if step is None else int(step))
    if checkpoint in state.rejected:
        return state
    # What before_resize made of a checkpoint is no older one.
    is_output = any(known.resize is not None and known.resize.output == checkpoint[0] for known in state.attempts)
    return replace(state, rejected=(*state.rejected, checkpoint),
                   rejected_in_a_row=state.rejected_in_a_row + (not is_output),
                   failures_without_progress=0)   # resume.keep_trying bounds these: the older one gets its turn


def _attempt_ended(state: State, event: Event) -> State:
    known = state.find_attempt(int(event.data["attempt"]))
    if known is None or known.ended is not None:
        return state
    how = str(event.data["how"])
    state = _change_attempt(state, event, ended=how, ended_t=event.t, exit_code=event.data.get("exit_code"),
                            not_before=event.data.get("not_before"), link=_mapping(event.data.get("link")),
                            is_log_read=event.data.get("log_read") is not False, epoch=_time(event.data.get("epoch")),
                            asked_row=known.asked_row or event.data.get("asked"), reach=_reach(event.data.get("reach")),
                            nan_end=str(event.data.get("nan_end") or "") or None)
    if how in BAD_ENDS:
        category = known.category or "unknown"
        state = replace(
            state, restarts=state.restarts + 1, failed_categories=(*state.failed_categories, category),
            failures_without_progress=state.failures_without_progress + (category not in BAD_NODE),
        )
    return state


def _reach(found: Any) -> TrainingReach | None:
    """As the supervisor wrote it; another form is none."""
    if not isinstance(found, dict):
        return None
    step, total = found.get("step"), found.get("total")
    return TrainingReach(str(found["unit"]), step if isinstance(step, int | float) else None,
                         None if total is None else int(total), found.get("all") is True, found.get("early") is True,
                 tuple(line[:LINE_CHARS] for line in names_of(found.get("lines", ()))))


def _verdict(state: State, event: Event) -> State:
    node = event.data.get("node")
    return _change_attempt(
        state, event, category=str(event.data["category"]), summary=str(event.data.get("summary", "")),
        failed_node=None if node is None else str(node), confidence=float(event.data.get("confidence", 0.0)),
        blamed=names_of(event.data.get("suspects", ())), is_first_only=event.data.get("first_only") is True,
        fingerprint=str(event.data.get("fingerprint", "")), is_of_loading=event.data.get("of_loading"),
        evidence=tuple(line[:LINE_CHARS] for line in names_of(event.data.get("evidence", ()))[:MOST_EVIDENCE]),
    )


def _intent(state: State, event: Event) -> State:
    claim = int(event.data["claim"])
    if any(known.claim == claim for known in state.intents):
        return state
    intent = Intent(claim, str(event.data["act"]), event.data)
    if intent.act == "cancel" and "job" in event.data:   # whatever came of it, it was no person
        job = str(event.data["job"])
        state = replace(state, cancelled_jobs=(*(known for known in state.cancelled_jobs if known != job), job))
    return replace(state, intents=(*state.intents, intent))


def _outcome(state: State, event: Event) -> State:
    claim = int(event.data["claim"])
    if event.data.get("raised") is True:   # an error came in between: the next supervisor settles it
        return state
    undone = next((str(known.data.get("job")) for known in state.intents if known.claim == claim
                   and known.act == "cancel" and event.data.get("ok") is False), None)
    if undone is not None:   # whoever ends that job, it was not we
        state = replace(state, cancelled_jobs=tuple(job for job in state.cancelled_jobs if job != undone))
    return replace(state, intents=tuple(known for known in state.intents if known.claim != claim))


def _preserved(state: State, event: Event) -> State:
    until = _time(event.data["until"])
    return state if state.ended or until is None else replace(state, preserving_until=until)


def _local_folder_taken(state: State, event: Event) -> State:
    node, path, owner = (str(event.data.get(key)) for key in ("node", "path", "owner"))
    return replace(state, local_folder_taken=(node, path, owner))


def _unknown_words(state: State, event: Event) -> State:
    return replace(state, unknown_words=(str(event.data["job"]), str(event.data["said"])))


def _held(state: State, event: Event) -> State:
    return _counts_from(replace(state, held=str(event.data["why"])), event)


def _request(state: State, event: Event) -> State:
    name, t = str(event.data["name"]), float(event.data["touched_t"])
    if name not in RESTARTS or (name, t) in state.restart_touches:
        return state
    touches = (*(one for one in state.restart_touches if one[0] != name), (name, t))
    return replace(state, restart=Request(name, str(event.data.get("who", "somebody")), t), restart_touches=touches)


def _took_over(state: State, event: Event) -> State:
    return replace(state, leader=event.host, standby=None if state.standby == event.host else state.standby)


def _handed_over(state: State, event: Event) -> State:
    successor = event.data.get("job")
    excludes = names_of(event.data.get("exclude", ()))
    return replace(state, successor=None if successor is None else str(successor), successor_excludes=excludes)


def _leave(state: State, event: Event) -> State:
    """This job has handed over: what it used is known."""
    if state.life_t is not None and event.t >= state.life_t:
        state = replace(state, used_s=state.used_s + event.t - state.life_t, life_t=None)
    return _handed_over(state, event)


def _ended_alone(state: State, event: Event) -> State:
    """The batch script's report of the training's end, where no supervisor was left. Exit code 0 completes the run,
    unless another host's supervisor has led the job since, or the attempt was asked to end. Then it has saved, and the
    run goes on.
    """
    id, code, job, attempt = str(event.data["job"]), int(event.data["exit_code"]), state.job, state.attempt
    if state.jobs and all(known.id != id for known in state.jobs):
        return state   # a person's own sbatch of the script, beside the run
    was_led = (job is not None and (job.id, job.restart_count) == (id, int(event.data.get("restart_count", 0)))
               and job.started_t is not None)
    if was_led and state.leader != event.host:
        return state
    was_asked = was_led and attempt is not None and attempt.ended is None and attempt.asked_t is not None
    if code or was_asked:
        return replace(state, failed_alone=(id, code))
    why = f"job {id} ended with exit code 0, without a supervisor"
    return _end(RunEnd.COMPLETED, DONE)(state, replace(event, data={"exit_code": DONE, "why": why}))


def _notified(state: State, event: Event) -> State:
    notices = state.notices.were_told(names_of(event.data["keys"]), event.t, names_of(event.data.get("failed", ())))
    return replace(state, notices=notices)


def _mapping(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, dict) else None


def _time(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < MAX_T_S else None   # NaN is not, either


def _bytes(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _end(how: str, code: int) -> Callable[[State, Event], State]:
    def end(state: State, event: Event) -> State:
        if state.ended:
            return state   # the first end is final: it is never undone or renamed
        said = event.data.get("exit_code")
        sure = said if type(said) is int and 0 <= said <= 255 else code   # a shell would see the last 8 bits of another
        ended = Ended(how, sure, str(event.data.get("why", "")), event.t)
        return replace(state, ended=ended, preserving_until=None)
    return end


_STEPS: dict[str, Callable[[State, Event], State]] = {
    **NODE_STEPS,
    **FIGURE_STEPS,
    "submitted": _submitted,
    "job_started": _job_started,
    "attempt_started": _attempt_started,
    "decision": _decision,
    "progress": _progress,
    "checkpoint": _checkpoint,
    "advanced": _advanced,
    "attempt_ended": _attempt_ended,
    "verdict": _verdict,
    "conversions_removed": _conversions_removed,
    "checkpoint_rejected": _checkpoint_rejected,
    "checkpoint_skipped": _checkpoint_skipped,
    "lost_progress": _lost_progress,
    "steps_unread": lambda state, event: _change_attempt(state, event, unread=str(event.data["line"])),
    "standby_started": lambda state, event: replace(state, standby=str(event.data["node"])),
    "standby_lost": lambda state, event: replace(state, standby=None),
    "via_chosen": lambda state, event: replace(state, via=str(event.data["via"])),
    "successor_cancelled": lambda state, event: replace(state, successor=None, next_cancelled=str(event.data["job"])),
    "intent": _intent,
    "outcome": _outcome,
    "preserved": _preserved,
    "released": lambda state, event: replace(state, preserving_until=None),
    "kill_switch": lambda state, event: replace(state, kill_who=str(event.data.get("who", "somebody"))),
    "request": _request,
    "took_over": _took_over,
    "slurm": lambda state, event: replace(state, slurm=str(event.data["version"])),
    "unknown_words": _unknown_words,
    "held": _held,
    "local_folder_taken": _local_folder_taken,
    "handed_over": _leave,
    "successor_lost": lambda state, event: replace(state, successor=None, successor_excludes=()),
    **dict.fromkeys(("successor_relaxed", "successor_freed", "resubmitted"), _handed_over),
    "clock_stepped": lambda state, event: replace(
        state, life_t=state.life_t and _time(event.data["life_t"]),
        preserving_until=state.preserving_until and _time(event.data["preserving_until"])),
    "ended_alone": _ended_alone,
    "notified": _notified,
    "completed": _end(RunEnd.COMPLETED, DONE),
    "gave_up": _end(RunEnd.GAVE_UP, FAILED_FOR_GOOD),
    "stopped": _end(RunEnd.STOPPED, STOPPED),
}
