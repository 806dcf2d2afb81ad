"""An attempt's end, carried out: what is read of it, then the acts of decide.ends.closing, from first to last."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from safelaunch.base.endings import GOOD_ENDS, AttemptEnd, JobEnd
from safelaunch.base.model import Event, NewEvent
from safelaunch.checkpoints.loading import judge_loading
from safelaunch.decide.ends import closing, ended, refusal
from safelaunch.decide.ends.closing import (
    Accuse,
    ClosingAct,
    CopyRest,
    Do,
    EndedAttempt,
    Inspect,
    NoteUse,
    PutFile,
    SayLine,
)
from safelaunch.decide.facts.seen import Live
from safelaunch.nodehealth.slow.nanend import NanEnd, find_nan_end
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import TrainingReach
from safelaunch.run.plan import Plan
from safelaunch.run.reach import HEAD_BYTES, TAIL_BYTES, read_reach
from safelaunch.slurm import slurmtext
from safelaunch.slurm.io.slurm import Result
from safelaunch.supervisor import observe
from safelaunch.supervisor.attempt import resuming
from safelaunch.supervisor.attempt.attempts import keep_resume_args
from safelaunch.supervisor.attempt.ownscript import let_pass, take_link
from safelaunch.supervisor.common import inspection, lostprogress
from safelaunch.supervisor.io.attempt import AttemptProcess
from safelaunch.supervisor.jobs import vanished
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.course import Course
from safelaunch.supervisor.state.endpoint import GuardEndpoint
from safelaunch.supervisor.state.helpers import Helpers
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.listening import LiveLog
from safelaunch.supervisor.state.nodes import Uninspected
from safelaunch.supervisor.state.ports import FolderPort, Here, Say
from safelaunch.supervisor.state.resume import ResumePoint
from safelaunch.supervisor.state.tasks import Step, Work

DRAIN_S = 900.0         # how long a frozen folder has to take the last log lines of an ended attempt
PUMP_LEAVES_S, PUMP_LOOK_S = 2.0, 0.05   # the pump leaves 0.2 s after its TERM, unless the folder is frozen


class EndOfAttempt:
    """The end that is being carried out: its attempt, and the events that wait for the journal."""

    def __init__(self, lead: Leader) -> None:
        self.lead, self.live = lead, lead.running.now
        self.process, self.tail, self.steps, self.events = lead.running.process, b"", list[Event](), list[Event]()

    def read(self) -> EndedAttempt:
        """All that is to be known of it. Each answer decides what is asked next."""
        lead, live, process = self.lead, self.live, self.process
        observe.read_requests(lead)   # a training that watches the kill switch can end before this loop reads it
        seen = lead.seen()
        how = said_how = ended.how_it_ended(live, seen)
        if process is not None and not live.is_hook:
            observe.read_last_lines(lead.log, lead.suspects, process)
        self.tail = process.tail() if process else b""
        text = self.tail if process else lostprogress.ended_tail(lead.files, live.number)
        code = next((exit.code for exit in live.exits if exit.code), live.srun_code or 0)
        how, not_before = _judge_refusal(lead.helpers, lead.clock, lead.journal, lead.running, lead.course, how,
                                         self.tail.decode(errors="replace"))
        how, link = take_link(lead.plan, lead.running, lead.course, live, how)
        for step in [] if live.is_hook else lostprogress.last_progress(lead.log, live.number, text):
            lead.journal.note(step)   # the verdict tells how far it came
            self.steps.append(step)
        if how in GOOD_ENDS and lead.plan.is_script:
            _tell_let_pass(lead.guard_endpoint, lead.running, lead.say)
        reach = None if live.is_hook or process is None else _reach(lead.log, process)
        # They count as evidence for the verdict.
        self.events += lead.suspects.confirm()
        seen = replace(seen, ending=lead.course.ending)
        verdict = lead.diagnosis.judge(live, seen, how, is_refused=how != said_how) \
            if closing.needs_verdict(how, link) else None
        return EndedAttempt(
            live, how, fold(self.events, lead.state), lead.plan, lead.suspects.known(), lead.clock.now, code,
            verdict, not_before, lead.course.ending, link, reach,
            epoch=None if live.is_hook else lostprogress.last_epoch(lead.log, text),
            lost=tuple(lead.reach.lost_of(lead.running.live)), requests=lead.folder.requests,
            has_process=process is not None,
            owner=(lead.here.user, lead.job.cluster), nan_end=_nan_end(lead.log, live, how),
            of_loading=_judge_loading(lead.journal, lead.running, live, self.tail) if verdict is not None else None)

    def carry_out(self, act: ClosingAct) -> None:
        """One act."""
        lead, live = self.lead, self.live
        match act:
            case NewEvent():
                self.events += lead.journal.events((act,))
            case Accuse():
                lead.suspects.accuse(act.evidence)
            case CopyRest():
                assert self.process is not None
                lead.tasks.begin(Work.COPY_REST,
                                 copy_rest(lead.here, lead.clock, lead.files, lead.course, self.process,
                                           act.patience_s), live.number)
            case NoteUse():
                lead.tasks.begin(Work.NOTE_USE, lead.suspects.note_use(lead.tasks, live, act.started_t), live.number)
            case Inspect():
                lead.nodes.queue_inspection(Uninspected(live, act.started_t, lead.now_s))
                lead.tasks.begin(Work.INSPECT_AFTER, inspection.after_failures(
                    lead.helpers, lead.clock, lead.journal, lead.files, lead.tasks, lead.say))
            case PutFile():
                lead.files.put(live.number, act.name, act.content)
            case SayLine():
                lead.say(act.text)
            case Do():
                self._do(act)

    def _do(self, act: Do) -> None:
        lead = self.lead
        match act:
            case Do.FORGET_PROCESS:
                assert self.process is not None
                self.process.forget()
            case Do.FORGET_ATTEMPT:
                lead.running.close()
            case Do.RECORD:   # nothing is done outside before the intent of the next act is durable, and these with it
                lead.journal.record(*self.events, noted=self.steps, is_awaited=False)
            case Do.KEEP_TAIL:
                vanished.save_tail(lead.folder, lead.say, self.tail)
            case Do.FIND_RESUME:
                resuming.find_resume(lead.here, lead.clock, lead.journal, lead.files, lead.resume, lead.say)
            case Do.FALL_BACK:
                fall_back(lead.here, lead.clock, lead.journal, lead.files, lead.resume, lead.say)
            case Do.KEEP_ARGS:
                keep_resume_args(lead.plan, lead.folder, lead.resume.newest)
            case Do.NOTE_PROGRESS:
                lead.journal.record(*checkpoint_events(lead.plan, lead.journal, lead.resume, self.live.number),
                                    is_awaited=False)


def close_attempt(lead: Leader) -> None:
    """The attempt is over and fenced: diagnose it, and find what to resume from."""
    end = EndOfAttempt(lead)
    for act in closing.close(end.read()):
        end.carry_out(act)


def _tell_let_pass(guards: GuardEndpoint, running: RunningAttempt, say: Say) -> None:
    if failed := let_pass(guards, running):
        say.decision("let_pass", f"{len(failed)} rank(s) of the script's last srun failed, and the script went on: "
                     f"{failed[0].text}", attempt=running.now.number)


def _judge_refusal(
    helpers: Helpers, clock: Clock, journal: LeaderJournal, running: RunningAttempt, course: Course, how: AttemptEnd,
    text: str
) -> tuple[AttemptEnd, float | None]:
    """How the attempt ended, and the time before which nothing is launched: Slurm may be the cause."""
    live = running.now
    if live.stuck is not None:   # its srun has said enough
        return how, None
    no_step = how == AttemptEnd.FAILED and not live.exits and slurmtext.has_no_step(text)
    # no attempt starts in a job that is over (simulated: test_found "a job of which srun says that it is over gets no
    # further attempt")
    if no_step and slurmtext.is_job_over(text):
        course.note_ending(course.ending or JobEnd.UNKNOWN)
    is_relaunch = live.number > 1 and helpers.can_run and not helpers.here.job.is_local
    said = refusal.Said(bool(live.exits), no_step, course.unread == live.number,
                        is_relaunch and slurmtext.why_no_overlap(text) is not None)
    word, not_before = refusal.judge(how, said, refusal.in_a_row(journal.state), clock.now)
    if word != how and not_before is None:
        helpers.note_words(text)
    return word, not_before


def fall_back(
    here: Here, clock: Clock, journal: LeaderJournal, files: FolderPort, resume: ResumePoint, say: Say
) -> None:
    """Leave out a checkpoint that the last attempt could not load, and take the one before it."""
    attempt, newest = journal.state.attempt, resume.newest
    bad = closing.rejected(journal.state, here.plan, newest)
    if bad is None or attempt is None or newest is None:
        return
    if bad.is_last:
        say(f"checkpoint {bad.path} does not load either; {here.plan.resume.keep_trying} have been rejected already")
        return
    journal.record(journal.event("checkpoint_rejected", path=bad.path, attempt=attempt.number, why=bad.why,
                                 step=newest.step))
    resuming.find_resume(here, clock, journal, files, resume, say)
    instead = f"the one before it, {resume.newest.path}" if resume.newest else "none: there is no older one"
    say(f"checkpoint {bad.path} is rejected ({bad.why}); going on from {instead}")


def checkpoint_events(plan: Plan, journal: LeaderJournal, resume: ResumePoint, number: int | None) -> list[Event]:
    """The event that refills the budget, if there is one."""
    return journal.events(closing.progress(journal.state, plan, resume.newest, resume.saved_t, number))


def _reach(log: LiveLog, process: AttemptProcess) -> TrainingReach | None:
    """How far its training came, by its log's begin and end."""
    tail = process.tail(TAIL_BYTES)
    head = process.read(0, min(HEAD_BYTES, max(0, process.size() - len(tail))))
    return log.read(b"\n".join(filter(None, (head, tail))), read_reach, None)


def _nan_end(log: LiveLog, live: Live, how: AttemptEnd) -> str | None:
    """That a training has ended well with losses that were no finite numbers."""
    process = log.running.process
    if how not in GOOD_ENDS or live.is_hook or process is None or log.here.plan.on_nan is None:
        return None
    nothing: NanEnd | None = None
    found = log.read_figures(process.tail(TAIL_BYTES), find_nan_end, nothing)
    told = log.journal.state.had_nan(live.number)
    began = told.step if found is not None and found.is_whole and told is not None else None
    return None if found is None else found.tell(began)


def _judge_loading(journal: LeaderJournal, running: RunningAttempt, live: Live, tail: bytes) -> bool | None:
    attempt = journal.state.find_attempt(live.number)
    if attempt is None or attempt.resume_path is None or live.is_hook or running.process is None:
        return None
    return judge_loading(tail, attempt.resume_path)


def copy_rest(
    here: Here, clock: Clock, files: FolderPort, course: Course, process: AttemptProcess, patience_s: float
) -> Step:
    """Wait for an ended attempt's srun, and copy the log's last lines, in the background."""
    end_s = clock.now_s + patience_s
    while process.poll() is None and clock.now_s < end_s:
        yield 0.1
    is_over = process.poll() is not None and course.term_s is None   # a TERM for the whole job reached the pump, too
    process.kill()   # srun would wait for a silent node without end
    copied = process.finish_pump() and is_over and (yield from _await_copy(clock, process))
    while not copied and files.state.gone is None:
        process.finish_pump()
        result = yield here.world.command(process.copy_rest(files.main_log(process.number)), here.job.env, DRAIN_S)
        copied = result is not None and result.is_ok
        if not copied:
            yield 0.5


def _await_copy(clock: Clock, process: AttemptProcess) -> Generator[float, Result | None, bool]:
    """Whether this leader's own pump, told to leave when nothing is left to copy, has copied all.

    A second pump to find that out would add the start of a Python process to each restart and handover.
    """
    assert process.pump is not None
    end_s = clock.now_s + PUMP_LEAVES_S
    while (code := process.pump.poll()) is None and clock.now_s < end_s:
        yield PUMP_LOOK_S
    return code == 0
