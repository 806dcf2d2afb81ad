"""An attempt's end: how it ended and why, what is written down of it, and what the next one resumes from."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import replace

from safelaunch.adapters.attempt import AttemptProcess
from safelaunch.adapters.slurm import Result
from safelaunch.core import slurmtext
from safelaunch.core.advice import what_follows
from safelaunch.core.checkpoints.loading import judge_loading
from safelaunch.core.decide import advance, ended, refusal
from safelaunch.core.decide.blame import Culprits, culprits_of
from safelaunch.core.decide.budget import rejects_checkpoint
from safelaunch.core.decide.resize import output_of
from safelaunch.core.decide.seen import Live, Observation
from safelaunch.core.decide.trained import reach_of, tell_behind
from safelaunch.core.endings import BAD_ENDS, GOOD_ENDS, AttemptEnd, JobEnd
from safelaunch.core.folding import fold
from safelaunch.core.model import Event, Request
from safelaunch.core.plan import Plan
from safelaunch.core.progress.reach import HEAD_BYTES, TAIL_BYTES, read_reach
from safelaunch.core.slow.nanend import NanEnd, find_nan_end
from safelaunch.core.state import State, TrainingReach
from safelaunch.core.why.fingerprint import exit_fingerprint, make_fingerprint
from safelaunch.core.why.verdict import Verdict
from safelaunch.supervisor import (
    inspection,
    listening,
    lostprogress,
    observe,
    overlap,
    resuming,
    vanished,
)
from safelaunch.supervisor.attempts import keep_resume_args
from safelaunch.supervisor.diagnosing import judge_attempt
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.ownscript import let_pass, take_link
from safelaunch.supervisor.state.nodes import Uninspected
from safelaunch.supervisor.state.tasks import Step, Work
from safelaunch.supervisor.suspicion import confirm_suspects, note_use, suspect

DRAIN_S = 900.0         # how long a frozen folder has to take the last log lines of an ended attempt
LOST_PATIENCE_S = 1.0   # srun of a lost attempt waits minutes for a dead node
PUMP_LEAVES_S, PUMP_LOOK_S = 2.0, 0.05   # the pump leaves 0.2 s after its TERM, unless the folder is frozen
SRUN_PATIENCE_S = 30.0  # srun ends within 1 s of its last task, but not while a silent node holds its job step


def close_attempt(lead: Leader) -> None:
    """The attempt is over and fenced: diagnose it, and find what to resume from."""
    observe.read_requests(lead)   # a training that watches the kill switch can end before this loop reads it
    live = lead.attempt
    seen = lead.seen()
    how = said_how = ended.how_it_ended(live, seen)
    if lead.process is not None and not live.is_hook:
        observe.read_last_lines(lead, lead.process)
    tail = lead.process.tail() if lead.process else b""
    text = tail if lead.process else lostprogress.ended_tail(lead, live.number)
    code = next((exit.code for exit in live.exits if exit.code), live.srun_code or 0)
    how, not_before = _judge_refusal(lead, how, tail.decode(errors="replace"))
    how, link = take_link(lead, live, how)
    for step in (steps := [] if live.is_hook else lostprogress.last_progress(lead, live.number, text)):
        lead.note(step)
    events: list[Event] = []
    if how in GOOD_ENDS and lead.plan.is_script:
        _tell_let_pass(lead)
    reach = None if live.is_hook or lead.process is None else _reach(lead, lead.process)
    events += confirm_suspects(lead)
    if how not in GOOD_ENDS and (link is None or how != AttemptEnd.STOPPED):   # else the script has cancelled itself
        now_seen = replace(seen, ending=lead.ending)
        events += _judgement(lead, live, how, code, now_seen, is_refused=how != said_how, reach=reach)
    word = ended.of_hook(how) if live.is_hook else how
    events.append(lead.writer.event("attempt_ended", attempt=live.number, how=word, exit_code=code, asked=live.end_row,
                                    not_before=not_before, ending=lead.ending, log_read=lead.process is not None,
                                    reach=None if reach is None else reach_of(reach),
                                    epoch=None if live.is_hook else lostprogress.last_epoch(lead, text),
                                    **_nan_end(lead, live, how), **({} if link is None else {"link": link})))
    events = with_advice(events, lead.state, lead.plan, lead.folder.requests, lead.nodes.partition)
    events.append(lead.writer.event("fenced", attempt=live.number))
    if lead.process is not None:
        patience_s = LOST_PATIENCE_S if lead.lost_of_live() else SRUN_PATIENCE_S
        lead.tasks.begin(Work.COPY_REST, copy_rest(lead, lead.process, patience_s), live.number)
        lead.process.forget()
    if lead.state.attempt is not None:
        lead.tasks.begin(Work.NOTE_USE, note_use(lead, live, lead.state.attempt.started_t), live.number)
    if how == AttemptEnd.FAILED and lead.state.attempt is not None:
        lead.nodes.queue_inspection(Uninspected(live, lead.state.attempt.started_t, lead.now_s))
        lead.tasks.begin(Work.INSPECT_AFTER, inspection.after_failures(lead))
    lead.running.close()
    # Nothing is done outside before the intent of the next act is durable, and these with it.
    lead.record(*events, noted=steps, is_awaited=False)
    _put_exit(lead, live, how, code)
    vanished.save_tail(lead, tail)
    _say_end(lead, live.number, word)
    resuming.find_resume(lead)   # while these are written
    fall_back(lead)
    keep_resume_args(lead, lead.resume.newest)
    lead.record(*checkpoint_events(lead, live.number), is_awaited=False)


def _say_end(lead: Leader, number: int, word: str) -> None:
    summary = lead.state.attempt.summary if lead.state.attempt else None
    lead.say(f"attempt {number} {word}{f': {summary}' if summary else ''}")


def _tell_let_pass(lead: Leader) -> None:
    if failed := let_pass(lead):
        lead.tell("let_pass", f"{len(failed)} rank(s) of the script's last srun failed, and the script went on: "
                              f"{failed[0].text}", attempt=lead.attempt.number)


def _put_exit(lead: Leader, live: Live, how: AttemptEnd, code: int) -> None:
    lead.put(live.number, "exit.json", {
        "v": 1, "attempt": live.number, "how": how, "exit_code": code, "srun_code": live.srun_code,
        "tasks": [{"node": e.node, "task": e.task, "code": e.code, "signal": e.signal} for e in live.exits],
    })


def _judge_refusal(lead: Leader, how: AttemptEnd, text: str) -> tuple[AttemptEnd, float | None]:
    """How the attempt ended, and the time before which nothing is launched: Slurm may be the cause."""
    live = lead.attempt
    if live.stuck is not None:   # its srun has said enough
        return how, None
    no_step = how == AttemptEnd.FAILED and not live.exits and slurmtext.has_no_step(text)
    # no attempt starts in a job that is over (simulated: test_found "a job of which srun says that it is over gets no
    # further attempt")
    if no_step and slurmtext.is_job_over(text):
        lead.course.note_ending(lead.ending or JobEnd.UNKNOWN)
    is_relaunch = live.number > 1 and lead.nodes.no_overlap is None and not lead.job.is_local
    said = refusal.Said(bool(live.exits), no_step, lead.course.unread == live.number,
                        is_relaunch and slurmtext.why_no_overlap(text) is not None)
    word, not_before = refusal.judge(how, said, refusal.in_a_row(lead.state), lead.now)
    if word != how and not_before is None:
        overlap.note_words(lead, text)
    return word, not_before


def fall_back(lead: Leader) -> None:
    """Leave out a checkpoint that the last attempt could not load, and take the one before it."""
    attempt, newest = lead.state.attempt, lead.resume.newest
    why = rejects_checkpoint(lead.state, lead.plan)
    if attempt is None or why is None or newest is None:
        return
    size = len(attempt.nodes)
    path = output_of(lead.state, lead.plan, newest, size) or newest.path
    if (attempt.resume_path, attempt.resume_step) != (path, newest.step):
        return   # it has been rewritten since, perhaps under the same name
    # (simulated: test_found "a checkpoint of which no conversion loads gives way to an older one")
    if path == newest.path and lead.state.rejected_in_a_row >= lead.plan.resume.keep_trying:
        lead.say(f"checkpoint {path} does not load either; {lead.plan.resume.keep_trying} have been rejected already")
        return
    lead.record(lead.writer.event("checkpoint_rejected", path=path, attempt=attempt.number, why=why,
                                  step=newest.step))
    resuming.find_resume(lead)
    instead = f"the one before it, {lead.resume.newest.path}" if lead.resume.newest else "none: there is no older one"
    lead.say(f"checkpoint {path} is rejected ({why}); going on from {instead}")


def checkpoint_events(lead: Leader, number: int | None) -> list[Event]:
    """The event that refills the budget: a verified checkpoint has advanced, or what else counts as progress."""
    found, best = lead.resume.newest, lead.state.best_step
    if found is None or found.step is None or (best is not None and found.step <= best):
        return _advance(lead)
    return [lead.writer.event("checkpoint", attempt=number, step=found.step, path=found.path, format=found.format)]


def _advance(lead: Leader) -> list[Event]:
    last = lead.state.attempt
    why = advance.find(lead.state, lead.plan, lead.resume.saved_t)
    if last is None or why is None or last.number <= lead.state.advanced_by:
        return []
    return [lead.writer.event("advanced", attempt=last.number, step=last.step, epoch=last.epoch, why=why)]


def _reach(lead: Leader, process: AttemptProcess) -> TrainingReach | None:
    """How far its training came, by its log's begin and end."""
    tail = process.tail(TAIL_BYTES)
    head = process.read(0, min(HEAD_BYTES, max(0, process.size() - len(tail))))
    return listening.read(lead, b"\n".join(filter(None, (head, tail))), read_reach, None)


def _nan_end(lead: Leader, live: Live, how: AttemptEnd) -> dict[str, str]:
    """The field of `attempt_ended` on a training that ended well with losses that were no finite numbers."""
    if how not in GOOD_ENDS or live.is_hook or lead.process is None or lead.plan.on_nan is None:
        return {}
    nothing: NanEnd | None = None
    found = listening.read_figures(lead, lead.process.tail(TAIL_BYTES), find_nan_end, nothing)
    told = lead.state.had_nan(live.number)
    began = told.step if found is not None and found.is_whole and told is not None else None
    return {} if found is None else {"nan_end": found.tell(began)}


def with_advice(events: list[Event], before: State, plan: Plan, requests: Sequence[Request],
                partition: Collection[str] | None) -> list[Event]:
    """The events of an attempt's end, with the verdict and what the policy makes of it."""
    state = fold(events, before)
    if state.attempt is None:
        return events
    follows = what_follows(state, state.attempt, plan, requests, partition)
    return [replace(event, data={**event.data, "follows": follows}) if event.event == "verdict" else event
            for event in events]


def _judgement(lead: Leader, live: Live, how: str, code: int, facts: Observation, *, is_refused: bool,
               reach: TrainingReach | None) -> list[Event]:
    verdict = judge_attempt(lead, live, facts, how, is_refused)
    if not verdict.fingerprint:
        first = next((exit for exit in live.exits if exit.code), None)
        verdict = replace(verdict, fingerprint=exit_fingerprint(first.code, first.signal) if (
            first and verdict.category == "unknown") else make_fingerprint(verdict.category, "", verdict.summary))
    if how == AttemptEnd.FAILED and reach is not None and reach.is_all:
        verdict = replace(verdict, summary=f"{verdict.summary} ({tell_behind(reach)})")
    culprits = _culprits(live, verdict)
    if live.is_hook:
        verdict = replace(verdict, summary=f"before_resize: {verdict.summary}")
    task = next((exit.task for exit in live.exits if exit.code and exit.node == verdict.host), None)
    events = [] if how not in BAD_ENDS else [lead.writer.event(
        "failure", attempt=live.number, exit_code=code, exits=[exit.text for exit in live.exits][:64])]
    return [*events, lead.writer.event(
        "verdict", attempt=live.number, category=verdict.category, summary=verdict.summary,
        confidence=verdict.confidence, action=verdict.action, node=verdict.host, task=task,
        fingerprint=verdict.fingerprint, suspects=list(culprits.nodes),
        first_only=culprits.is_first_only, evidence=list(verdict.evidence), of_loading=_judge_loading(lead, live)),
        *(suspect(lead, live, verdict, culprits.nodes) if how in BAD_ENDS and not (
            live.is_hook and how == AttemptEnd.FAILED) else ())]


def _judge_loading(lead: Leader, live: Live) -> bool | None:
    attempt = lead.state.find_attempt(live.number)
    if attempt is None or attempt.resume_path is None or live.is_hook or lead.process is None:
        return None
    return judge_loading(lead.process.tail(), attempt.resume_path)


def _culprits(live: Live, verdict: Verdict) -> Culprits:
    if verdict.suspects:
        return Culprits(verdict.suspects)
    # After a hang or lost progress the supervisor itself ended the ranks: the first to end is no suspect (seen). Of
    # before_resize, which is the user's own code on one node, none is.
    if live.hung or live.lost or live.stuck or live.is_hook:
        return Culprits()
    return culprits_of(verdict.spoken_by, verdict.echoed_by, live)


def copy_rest(lead: Leader, process: AttemptProcess, patience_s: float) -> Step:
    """Wait for an ended attempt's srun, and copy the log's last lines, in the background."""
    end_s = lead.now_s + patience_s
    while process.poll() is None and lead.now_s < end_s:
        yield 0.1
    is_over = process.poll() is not None and lead.term_s is None   # a TERM for the whole job reached the pump, too
    process.kill()   # srun would wait for a silent node without end
    copied = process.finish_pump() and is_over and (yield from _await_copy(lead, process))
    while not copied and lead.folder.gone is None:
        process.finish_pump()
        result = yield lead.world.command(process.copy_rest(lead.main_log(process.number)), lead.job.env, DRAIN_S)
        copied = result is not None and result.is_ok
        if not copied:
            yield 0.5


def _await_copy(lead: Leader, process: AttemptProcess) -> Generator[float, Result | None, bool]:
    """Whether this leader's own pump, told to leave when nothing is left to copy, has copied all.

    A second pump to find that out would add the start of a Python process to each restart and handover.
    """
    assert process.pump is not None
    end_s = lead.now_s + PUMP_LEAVES_S
    while (code := process.pump.poll()) is None and lead.now_s < end_s:
        yield PUMP_LOOK_S
    return code == 0
