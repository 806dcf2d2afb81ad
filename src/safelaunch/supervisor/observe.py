"""What the leader reads: its attempt, the guards, people's requests, the job's end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from safelaunch.base.io.localfolder import TOUCH_EVERY_S, touch
from safelaunch.base.model import RESTARTS, STOPS, Exit
from safelaunch.base.timing import CONTESTED_S, HEARTBEAT_S
from safelaunch.decide.budget import endless
from safelaunch.decide.budget.policy import response
from safelaunch.decide.ends import jobend, silence
from safelaunch.decide.facts.seen import Live
from safelaunch.decide.facts.turn import TurnFacts
from safelaunch.guard.io.callers import Guard
from safelaunch.guard.io.control import STANDBY_TASK
from safelaunch.guard.io.job import Allocation
from safelaunch.node import fresh
from safelaunch.run import heartbeat
from safelaunch.run.io import journal, ownership, runfolder
from safelaunch.run.io.outbox import PUT
from safelaunch.run.io.storage import find_trouble
from safelaunch.script.script import warn_before_s
from safelaunch.slurm import jobstates, slurmtext
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Command, Result
from safelaunch.supervisor.common import (
    asking,
    lostprogress,
    metering,
    notifying,
    slurmends,
    stepstart,
)
from safelaunch.supervisor.hang import hangs, thaw
from safelaunch.supervisor.io.attempt import AttemptProcess
from safelaunch.supervisor.jobs import vanished
from safelaunch.supervisor.jobs.nextjob import secure_next
from safelaunch.supervisor.jobs.standbys import eligible_standbys, keep_standby
from safelaunch.supervisor.leader import NO_TIME_S, TICK_S, Leader, Superseded
from safelaunch.supervisor.nodes import lostnodes, slowing
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.clock import Clock, Timer
from safelaunch.supervisor.state.course import Course
from safelaunch.supervisor.state.endpoint import GuardEndpoint
from safelaunch.supervisor.state.heartbeat import Urgent
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.listening import LiveLog, note_unread
from safelaunch.supervisor.state.nextjob import NextJob
from safelaunch.supervisor.state.ports import FolderPort, Here, Say
from safelaunch.supervisor.state.reach import Reach
from safelaunch.supervisor.state.standbys import Standbys
from safelaunch.supervisor.state.suspicion import Suspicions
from safelaunch.supervisor.state.tasks import BackgroundTasks, Step, Work
from safelaunch.trainlog.lines import Talk, listen
from safelaunch.trainlog.steps import carry_on

REQUESTS_S = 3.0        # how long a touched kill switch may go unseen
PROGRESS_S = 5.0
START_S = 1.0           # until it is known whether an attempt has gone on from its checkpoint
CHUNK_BYTES = 64 << 10   # of new log read in one go; more is noise, and was a third of the leader's CPU (64 ranks)
READY_S = 2.0
LOOK_FOR_LOST_S = 0.4
FIRST_TOUCH_S = 600.0   # of the local folder: neither at the start, when a training waits, nor long after it
TROUBLE_S = 2.0
THIRD_WITNESS_S = 5.0   # slurmctld answers within milliseconds; a cut network lets squeue wait for a minute
CLOSING_S = 60.0        # repeat the message now and then where a script opens all folders again and again
LIMIT_S = 3600.0        # between two checks of the time limit, which people may extend
TERM_LATE_S = 15.0      # Slurm signals a node that it could not reach again and again
LAST_WORDS_S = 0.03     # a rank's last lines reach srun within milliseconds of its end
LATE_WORDS_S = 1.0      # ... and later on a busy node; srun itself ends within 1 s of its last task
SRUN_ENDS_S = 2.0       # after its last task has ended well; its message decides what that means


def observe(lead: Leader) -> None:
    """Read everything that is due."""
    lead.folder.refresh(lead.now_s)
    lead.tasks.advance()
    has_asked = lead.clock.take_turn(Timer.REQUESTS, REQUESTS_S)
    if has_asked:
        read_requests(lead)
        if vanished.follow(lead.helpers, lead.clock, lead.files, lead.running, lead.reach, lead.tasks, lead.say):
            secure_next(lead.queueing)
    keep_standby(lead)
    if lead.standbys.is_contested and not has_asked and lead.clock.take_turn(Timer.CLAIMS, CONTESTED_S):
        see_who_leads(lead.here, lead.clock, lead.journal, lead.files, lead.find_other)
    if lead.running.process is not None:
        observe_attempt(lead, lead.running.process)
    if lead.course.term_s is not None and lead.course.ending is None:
        for node in slurmends.find_ending(lead.here, lead.clock, lead.journal, lead.files, lead.course, lead.tasks,
                                          lead.say):
            lead.reach.lose(node, "its Prolog failed")
    if find_out_whether_alone(lead.here, lead.clock, lead.journal, lead.guard_endpoint, lead.reach, lead.running):
        lead.tasks.begin(Work.ASK_ALONE, ask_third_witness(lead.here, lead.clock, lead.course, lead.next, lead.reach,
                                                           lead.standbys, lead.say))
    if lead.running.live is None and lead.clock.take_turn(Timer.FOLDERS, TROUBLE_S):
        check_folders(lead.here, lead.clock, lead.journal, lead.files, lead.tasks)
    lead.clock.start_with(Timer.TOUCH, FIRST_TOUCH_S)
    if lead.clock.take_turn(Timer.TOUCH, TOUCH_EVERY_S):
        touch(lead.here.local)
    notifying.follow(lead.here, lead.clock, lead.journal, lead.course, lead.standbys, lead.tasks, lead.say)
    metering.follow(lead.here, lead.clock, lead.journal, lead.files, lead.running)
    urgent = find_urgent(lead.job, lead.clock, lead.journal, lead.guard_endpoint, lead.standbys)
    is_due = lead.clock.take_turn(Timer.HEARTBEAT, heartbeat_every_s(lead.standbys))
    if is_due or lead.standbys.heartbeat.urgent != urgent:
        publish_heartbeat(lead, urgent)


def see_who_leads(
    here: Here, clock: Clock, journals: LeaderJournal, files: FolderPort, find_other: Callable[..., None]
) -> None:
    """Check whether the standby has taken over: it and this leader do not hear each other."""
    def look() -> list[dict[str, Any]]:
        fresh.see(f"{here.run_dir}/claims")
        return journal.claims_after(here.run_dir, journals.claim_number)

    answer = files.ask(look, 1.0)
    if answer.is_ok and answer.value is not None:
        find_other(answer.value)
    clock.hurry(Timer.HEARTBEAT)   # its second witness that this leader lives


def check_folders(here: Here, clock: Clock, journal: LeaderJournal, files: FolderPort, tasks: BackgroundTasks) -> None:
    """After a storage failure: check whether the run's folders take writes again."""
    waits_for = thaw.trouble(tasks)
    if waits_for is not None:
        files.state.note_trouble(waits_for)
        return
    last = journal.state.attempt
    if last is None or response(here.plan, last.category).then != "wait":
        files.state.note_trouble(None)
        return
    folders = [str(here.run_dir)]
    if here.plan.resume.dir is not None:
        folders.append(os.path.join(here.job.cwd, here.plan.resume.dir))   # noqa: PTH118 - text only
    answer = files.ask(lambda: find_trouble(folders), 1.0)
    if answer.is_ok:
        files.state.note_trouble(answer.value or files.state.shared.trouble or None)


def find_out_whether_alone(
    here: Here, clock: Clock, journals: LeaderJournal, guards: GuardEndpoint, reach: Reach, running: RunningAttempt
) -> bool:
    """All other nodes of the attempt lost, and the standby silent: whether to ask Slurm, the third witness, now."""
    live, before, host = running.live, journals.state.attempt, here.job.host
    last = live.nodes if live is not None else before.nodes if before else ()
    standby_s = min((clock.now_s - guard.heard_s for guard in guards.server.standbys.values()), default=None)
    if not silence.may_be_alone(host, last, reach.lost, standby_s, here.job.is_local):
        reach.mark_not_alone()
        return False
    reach.note_left_here(live is None or not any(
        guard.connection and not guard.gone for guard in guards.server.of(host)))
    return clock.take_turn(Timer.THIRD_WITNESS, reach.ask_every_s)


def ask_third_witness(
    here: Here, clock: Clock, course: Course, next_job: NextJob, reach: Reach, standbys: Standbys, say: Say
) -> Step:
    """Ask Slurm about this job; no answer = this node is the one that is cut off."""
    is_alone = (yield from check_job_end(here, clock, course, next_job, say, is_repeated=True)) is None
    reach.note_answer(is_alone)
    if is_alone:
        standbys.doubt()


def check_job_end(
    here: Here, clock: Clock, course: Course, next_job: NextJob, say: Say, is_repeated: bool = False
) -> Generator[Command, Result | None, bool | None]:
    """Whether Slurm is ending this job; None = no answer. If so, the TERM counts as received: a cut node does not
    get it (simulated: test_found "a cancel that a cut cable kept from the supervisor is not undone by its next job").
    `is_repeated`: a squeue that a signal has ended is repeated, as by a TERM for all of the job. At a hand over there
    may be no time for that.
    """
    result = yield here.world.command(slurm.squeue_job(here.job.id), here.job.env, THIRD_WITNESS_S)
    if is_repeated and result is not None and result.is_broken_off:
        result = yield here.world.command(slurm.squeue_job(here.job.id), here.job.env, THIRD_WITNESS_S)
    if result is None or result.is_unknown:
        return None
    is_ending = next_job.successor.state_of(result, here.job.id) in jobstates.ENDING
    if jobend.has_missed_term(is_ending=is_ending, has_term=course.term_s is not None, ending=course.ending,
                              ends_itself=course.end_act is not None):
        course.expect_term(clock.now_s + TERM_LATE_S)
        say("Slurm is ending this job, and has not told this node why yet")
    return is_ending


def watch_limit(here: Here, clock: Clock, journal: LeaderJournal, course: Course) -> Step:
    """Check the time left: Slurm warns only the batch script of the limit, and a supervisor that has taken over runs in
    none. Nobody warns of restart.max_time.
    """
    warn_s = warn_before_s(here.plan)
    while course.final is None:
        left_s = None
        if here.took_over is not None and not here.job.is_local:
            result = yield here.world.command(slurm.squeue_time_left(here.job.id), here.job.env)
            left_s = slurmtext.parse_time_left_s(result.stdout) if result is not None and result.is_ok else None
        own_s = endless.time_left_s(journal.state, here.plan, clock.now)
        rest_s = min((s for s in (None if left_s is None else left_s - warn_s,
                                  None if own_s is None else own_s - endless.warn_s(here.plan)) if s is not None),
                     default=None)
        if rest_s is not None and rest_s <= 0:
            course.note_limit_near()
            return
        yield LIMIT_S if rest_s is None else max(1.0, min(LIMIT_S, rest_s))


def read_requests(lead: Leader, fresh_s: float = 0.0) -> bool:
    """Read the control files, unless that was done within `fresh_s`; False = no answer, which means neither asked nor
    not asked.
    """
    asked_s, kill_file = lead.here.world.now_s(), lead.plan.kill_file
    if asked_s - lead.folder.read_s < fresh_s:
        return True
    answer = lead.files.ask(
        lambda: (runfolder.read_requests(lead.here.run_dir, kill_file), runfolder.folder_id(lead.here.run_dir),
                 journal.claims_after(lead.here.run_dir, lead.journal.claim_number),
                 ownership.others_may_write(lead.here.run_dir),
                 [] if lead.folder.route else vanished.way_to(lead.here.run_dir)), 1.0)
    if not answer.is_ok or answer.value is None:
        # A folder that nobody may read is no reason never to train.
        return lead.folder.note_refusal(answer.late, answer.errno)
    found, folder, claims, is_open, places = answer.value
    lead.find_other(claims)
    if lead.folder.is_another(folder):
        raise Superseded("the run folder has been replaced by another")
    before = {request.name for request in lead.folder.requests if request.name not in RESTARTS}
    lead.folder.note_read(folder, runfolder.requests_of(found), asked_s)
    lead.folder.note_route(places)
    if is_open and lead.clock.take_turn(Timer.PERMISSIONS, CLOSING_S):
        lead.check_folder()   # a supervisor must not use a folder that others can write, not even the next one
    for request in lead.folder.requests:
        if request.name not in before and (request.name, request.t) not in lead.state.restart_touches:
            event = "kill_switch" if request.name in STOPS else "request"
            lead.journal.record(lead.journal.event(event, name=request.name, who=request.who, touched_t=request.t))
            save, live = lead.plan.kill_switch.save_signal, lead.running.live
            if request.name == runfolder.SAVE and save is not None and live is not None and live.may_hang:
                lead.tasks.begin(Work.ASK_TO_SAVE,
                                 asking.ask_to_save(lead.clock, lead.guard_endpoint, lead.running, lead.say, save))
    return True


def observe_attempt(lead: Leader, process: AttemptProcess) -> None:
    """Read the live attempt: srun, the pump, the log's growth, progress, the guards."""
    code = process.poll()
    if code is not None and lead.running.now.srun_code is None:
        lead.running.note_srun_end(code)
    process.keep_pump(lead.files.main_log(process.number), lead.now_s)
    lead.running.note_log_size(process.size(), lead.now_s)
    if lead.clock.take_turn(Timer.RULES, READY_S):
        lead.here.world.make_ready()
    every_s = START_S if lostprogress.is_near(lead.clock, lead.journal, lead.running) else PROGRESS_S
    if not lead.running.now.is_hook and (lead.clock.take_turn(Timer.PROGRESS, every_s)
                                     or hangs.take_overdue_turn(lead.clock, lead.running, lead.hangs)):
        talk = read_log(lead.log, lead.suspects, process)
        lostprogress.note_step(lead.log, process.number, talk)
        lostprogress.judge_start(lead.log)
        hangs.follow(lead, talk)
    if lead.clock.take_turn(Timer.LOST_NODES, LOOK_FOR_LOST_S):
        lostnodes.find_lost(lead.helpers, lead.clock, lead.running, lead.reach, lead.tasks)
        lostnodes.find_missing(lead.helpers, lead.clock, lead.running, lead.reach, lead.tasks)
        stepstart.detect_blocked_attempt(lead.helpers, lead.clock, lead.running, lead.standbys, lead.next, lead.tasks)
        waiting = stepstart.find_waiting(
            lead.here, lead.clock, lead.running, lead.guard_endpoint, lead.state.attempt)
        if waiting is not None:
            lead.tasks.begin(Work.ASK_STEPS, stepstart.ask(lead.job, lead.clock, lead.running, lead.next, lead.say,
                                                           waiting), lead.running.now.number)


def read_log(log: LiveLog, suspects: Suspicions, process: AttemptProcess) -> Talk | None:
    """New lines of the log, its last CHUNK_BYTES at most; None = it has not grown."""
    running = log.running
    start = running.listen()
    if running.size <= start:
        return None
    start = max(start, running.size - CHUNK_BYTES)
    known = running.heard.known
    text = known + process.read(start, running.size - start)
    talk = log.read(text, partial(_parse, log.journal, running, process.number, len(known)), Talk())
    slowing.follow(log, suspects, process.number, text, len(known), talk)
    note_unread(log, process.number, text[len(known):], talk)
    return talk


def _parse(journal: LeaderJournal, running: RunningAttempt, number: int, since: int, text: bytes, pattern: str) -> Talk:
    lostprogress.take_in(journal, running, number, text, pattern)
    running.note_known(carry_on(text, pattern))
    return listen(text, pattern, since)


def read_last_lines(log: LiveLog, suspects: Suspicions, process: AttemptProcess) -> None:
    """Read the last lines of an ended attempt: a short one may have started too low as well."""
    log.running.note_ended_log(process.size())
    read_log(log, suspects, process)
    lostprogress.judge_start(log)


def on_report(clock: Clock, running: RunningAttempt, guard: Guard) -> None:
    """Take in what a guard or a standby has sent beside its answers to pings."""
    clock.take_news()
    if guard.attempt != running.number or guard.task == STANDBY_TASK:
        return
    if guard.code is not None and not guard.is_of_step:
        lostnodes.add_exit(clock, running, Exit(guard.node, guard.task, guard.code, guard.signal))


def turn_facts(
    job: Allocation, clock: Clock, reach: Reach, running: RunningAttempt, course: Course, tasks: BackgroundTasks
) -> TurnFacts:
    """The state of the run for the next turn of the loop."""
    live = running.live
    is_over = live is not None and live.fenced
    return TurnFacts(
        live is not None, is_over, is_unexplained=course.term_s is not None and course.ending is None,
        is_leaving=tasks.is_leaving,
        has_last_lines=is_over and has_last_lines(clock, reach, running), is_alone=reach.alone,
        is_log_read=not (is_over and slurmends.may_tell_who_ended_it(job, running, course)),
        is_asking=tasks.is_running(Work.EXPLAIN_STEP))


def has_last_lines(clock: Clock, reach: Reach, running: RunningAttempt) -> bool:
    """srun has brought the last lines of the ranks: it has ended, or nothing came for a moment."""
    assert running.live is not None
    return running.live.srun_code is not None or clock.now_s > _quiet_until_s(reach, running, running.live)


def wakes_in_s(clock: Clock, reach: Reach, running: RunningAttempt) -> float:
    """Seconds until the last lines count as complete, which nothing announces; TICK_S where nobody waits for them."""
    live = running.live
    left_s = _quiet_until_s(reach, running, live) - clock.now_s if live is not None and live.fenced else TICK_S
    return left_s + NO_TIME_S if left_s > 0 else TICK_S


def _quiet_until_s(reach: Reach, running: RunningAttempt, live: Live) -> float:
    quiet_s = SRUN_ENDS_S if not live.failed else LATE_WORDS_S if _may_say_more(reach, running, live) else LAST_WORDS_S
    return max(running.grew_s, running.exit_s) + quiet_s


def _may_say_more(reach: Reach, running: RunningAttempt, live: Live) -> bool:
    """Whether its log names no cause so far, and its srun is about to end. On a busy node a traceback came after the
    message of its task's end, and the verdict was without it.
    """
    read = running.read
    if read is None or read.found is None or (read.attempt, read.size) != (live.number, running.size):
        return False
    has_words = any(exit.signal != signal.SIGKILL for exit in live.exits if exit.code)
    return has_words and read.found.get("category") == "unknown" and not reach.lost_of(running.live)


def heartbeat_every_s(standbys: Standbys) -> float:
    """Seconds between two heartbeats."""
    return CONTESTED_S if standbys.is_contested else HEARTBEAT_S


def find_urgent(
    job: Allocation, clock: Clock, journal: LeaderJournal, guards: GuardEndpoint, standbys: Standbys
) -> Urgent:
    """What of a heartbeat cannot wait for the next one."""
    attempt = journal.state.attempt
    return Urgent(journal.state.successor, attempt.number if attempt else None, standbys.node,
                  eligible_standbys(job, clock, guards))


def publish_heartbeat(lead: Leader, urgent: Urgent | None = None, *, is_over: bool = False) -> None:
    """Write a copy of the heartbeat into the run folder, for those outside."""
    urgent = urgent or find_urgent(lead.job, lead.clock, lead.journal, lead.guard_endpoint, lead.standbys)
    count = lead.standbys.heartbeat.show(urgent)
    lead.server.show_heartbeat(count, lead.now_s)
    attempt = lead.state.attempt
    ticket = lead.folder.shared.enqueue(PUT, heartbeat.FILE, heartbeat.dump(heartbeat.Heartbeat(
        count, lead.journal.gen, lead.job.host, lead.job.id, lead.state.name, urgent.attempt,
        attempt.step if attempt else None, urgent.successor, is_over or lead.course.final is not None,
        t=round(lead.clock.now, 3), every_s=heartbeat_every_s(lead.standbys),
        endpoint=(lead.own_address(), lead.server.port), alone=lead.reach.resigned, standby=urgent.standby,
        eligible=tuple(urgent.eligible), hang_t=hangs.would_call_t(lead.clock, lead.running, lead.hangs),
        **hangs.step_due(lead.clock, lead.running, lead.hangs),
        guards=sum(guard.connection is not None for guard in lead.server.guards.values()))))
    lead.standbys.heartbeat.list_standbys(urgent.eligible, ticket)
