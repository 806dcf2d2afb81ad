"""Compares the first steps in a live attempt's log with the checkpoint from which it was to go on; how far it has come
in the end, also where its supervisor's host is gone.
"""

from __future__ import annotations

from pathlib import Path

from safelaunch.base.io import sharedfile
from safelaunch.base.model import Event
from safelaunch.node import fresh
from safelaunch.run.fold.state import Attempt
from safelaunch.run.lost import has_gone_on, judge
from safelaunch.run.reach import last_epoch as find_epoch
from safelaunch.supervisor.state.attempt import Counted, RunningAttempt
from safelaunch.supervisor.state.clock import Clock, Timer
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.listening import LiveLog
from safelaunch.supervisor.state.ports import FolderPort
from safelaunch.trainlog import counters
from safelaunch.trainlog.lines import Talk
from safelaunch.trainlog.steps import latest_step

NEAR_S = 3600.0   # as hang.first_step: an attempt makes steps by then
TAIL_BYTES = 64 << 10
ANSWER_S = 1.0    # of the run folder
JOURNAL_PROGRESS_S = 60.0


def is_open(journal: LeaderJournal, running: RunningAttempt) -> bool:
    """Whether it is still unknown if the live attempt goes on from its checkpoint."""
    attempt = journal.state.attempt
    return attempt is not None and (attempt.resume_step, attempt.resume_path) != (None, None) and not (
        running.counted.is_settled and running.counted.attempt == attempt.number)


def is_near(clock: Clock, journal: LeaderJournal, running: RunningAttempt) -> bool:
    """Whether that may be known soon, or a checkpoint be overwritten, so that its log is read each second."""
    attempt = journal.state.attempt
    if attempt is not None and overwrites(attempt, max(attempt.whole_steps, default=0)):
        return True
    is_counted = attempt is not None and running.counted.attempt == attempt.number
    has_begun = is_counted and counters.has_begun(running.counted.counters)
    return is_open(journal, running) and not has_begun and clock.now_s - running.launched_s < NEAR_S


def overwrites(attempt: Attempt, step: int) -> bool:
    """Whether an attempt that has not loaded its checkpoint makes one again that was there, on its way to `step`. The
    next supervisor has to know, though this one dies at once: it can be for another number of nodes (simulated:
    test_found "a checkpoint that a smaller attempt has overwritten right before its leader died is not for all nodes").
    """
    return attempt.lost is not None and any((attempt.step or 0) < known <= step for known in attempt.whole_steps)


def take_in(journal: LeaderJournal, running: RunningAttempt, number: int, text: bytes, pattern: str) -> None:
    """Go on counting with new lines of the log."""
    before = running.counted if running.counted.attempt == number else Counted(number)
    attempt = journal.state.attempt
    resume_step = attempt.resume_step if attempt is not None and not before.is_settled else None
    found = counters.count(before.counters, text, pattern, resume_step)
    running.note_counted(before._replace(counters=found))


def judge_start(log: LiveLog) -> None:
    """Say it once if the live attempt has started too low; have it ended if that is sure."""
    journal, running = log.journal, log.running
    attempt = journal.state.attempt
    if attempt is None or running.live is None or running.counted.attempt != attempt.number:
        return
    if not is_open(journal, running):
        return
    earlier = journal.state.attempts[:-1]
    found = judge(attempt, earlier, running.counted.counters)
    is_settled = found is not None or has_gone_on(attempt, earlier, running.counted.counters)
    running.note_counted(running.counted._replace(is_settled=is_settled))
    if found is None:
        return
    if attempt.lost is None:
        then = "stop" if found.is_sure and log.here.plan.restart.on_lost_progress == "stop" else "warn"
        journal.record(journal.event("lost_progress", attempt=attempt.number, step=found.step, sure=found.is_sure,
                                     resume_step=found.resume_step, resume_path=attempt.resume_path, then=then,
                                     why=found.why))
        what = "LOST PROGRESS" if found.is_sure else "PERHAPS LOST PROGRESS"
        goes_on = "" if then == "stop" else "; it goes on, and may overwrite newer checkpoints"
        log.say(f"!!! {what}: {found.why}{goes_on}")
    if found.is_sure:
        running.note_lost_progress(found.why)


def progress_event(clock: Clock, journal: LeaderJournal, running: RunningAttempt, number: int, step: int) -> Event:
    """The event for a step, with what counted it, and when the log named it, where this supervisor has read that."""
    at_t = _named_t(clock, journal, running, number, step)
    at = {} if at_t is None else {"at_t": round(at_t, 2)}
    main = counters.main_counter(running.counted.counters) if running.counted.attempt == number else None
    if main is None:
        return journal.event("progress", attempt=number, step=step, **at)
    attempt = journal.state.attempt
    known = attempt.first_step if attempt is not None and attempt.number == number else None
    first = main.first if known is None else min(known, main.first)
    return journal.event("progress", attempt=number, step=step, first=first,
                         counter="" if main.fell else main.form, **at)


def note_step(log: LiveLog, number: int, talk: Talk | None) -> None:
    """Note the step that the log has named; the journal gets the first one, one a minute, the first one after a
    suspected hang, and one that overwrites a checkpoint.
    """
    clock, journal, running = log.clock, log.journal, log.running
    attempt = journal.state.attempt
    if talk is None or talk.step is None or attempt is None or attempt.step == talk.step:
        return
    event = progress_event(clock, journal, running, number, talk.step)
    is_news = attempt.step is None or running.last_step.is_suspected or overwrites(attempt, talk.step)
    running.note_step(running.grew_t(clock))
    if clock.take_turn(Timer.JOURNAL_STEP, JOURNAL_PROGRESS_S) or is_news:
        journal.record(event)
    else:
        journal.note(event)


def ended_tail(files: FolderPort, number: int) -> bytes:
    """The last lines that reached the run folder, of an attempt whose supervisor's host is gone; b"" where the folder
    does not answer. A batch host crashed at step 53, and its successor knew step 17, of the journal.
    """
    path = Path(files.main_log(number))

    def read() -> str:
        fresh.see(str(path.parent))
        return sharedfile.read_end(path, TAIL_BYTES).decode("latin-1")

    answer = files.ask(read, ANSWER_S)
    return answer.value.encode("latin-1") if answer.is_ok and answer.value is not None else b""


def last_progress(log: LiveLog, number: int, text: bytes) -> list[Event]:
    """The event of the last step that the end of its log names; [] = it names none, or less than the journal."""
    step = log.read(text, latest_step, None)
    attempt = log.journal.state.attempt
    known = attempt.step if log.running.process is None and attempt is not None and attempt.number == number else None
    if step is None or step < (known or 0):
        return []
    return [progress_event(log.clock, log.journal, log.running, number, step)]


def last_epoch(log: LiveLog, text: bytes) -> float | None:
    """The last epoch that it names."""
    return log.read(text, lambda cut, _: find_epoch(cut), None)


def _named_t(clock: Clock, journal: LeaderJournal, running: RunningAttempt, number: int, step: int) -> float | None:
    attempt = journal.state.attempt
    if running.process is None or running.process.number != number:
        return None
    is_known = attempt is not None and attempt.number == number and attempt.step == step
    return running.last_step.t if is_known else running.grew_t(clock)
