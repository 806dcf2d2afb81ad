"""The start of a leader: it opens the guards' endpoint, reads the journal, and takes over what lives."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from safelaunch.base.endings import AttemptEnd, JobEnd
from safelaunch.base.io import owners, sharedfile
from safelaunch.base.timing import CALL_S, FENCE_MARGIN_S
from safelaunch.decide.facts.seen import Live
from safelaunch.decide.jobs import cancel
from safelaunch.decide.jobs.cancel import Canceller, CancelWitness, Witnesses
from safelaunch.decide.turn import unwritten
from safelaunch.decide.turn.unwritten import Adopt, AfterAdopting, ThisJob
from safelaunch.errors import RunFolderError
from safelaunch.extensions.io.rulepacks import undump
from safelaunch.guard.io.callers import Guard
from safelaunch.guard.io.job import Allocation
from safelaunch.node import fresh
from safelaunch.run import acts
from safelaunch.run import plan as plans
from safelaunch.run.acts import ACTS, NOTE, ActKind, Settling
from safelaunch.run.io import journal, ownership, runfolder
from safelaunch.run.io.outbox import PUT
from safelaunch.slurm import jobstates
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Result
from safelaunch.slurm.via import HERE
from safelaunch.supervisor import observe
from safelaunch.supervisor.attempt import attempts, resuming
from safelaunch.supervisor.attempt.attempts import ask_addresses
from safelaunch.supervisor.attempt.closing import checkpoint_events
from safelaunch.supervisor.common import asking, lostprogress, slurmends
from safelaunch.supervisor.ends import handover
from safelaunch.supervisor.ends.endings import put_on_hold
from safelaunch.supervisor.io.fence import Fencer
from safelaunch.supervisor.io.successor import Successor
from safelaunch.supervisor.jobs import vanished
from safelaunch.supervisor.jobs.nextjob import cancel_job, secure_next
from safelaunch.supervisor.jobs.standbys import eligible_standbys
from safelaunch.supervisor.leader import Leader, hold_token
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.course import Course
from safelaunch.supervisor.state.endpoint import GuardEndpoint
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.nextjob import NextJob
from safelaunch.supervisor.state.ports import FolderPort, Here, Say, TookOver
from safelaunch.supervisor.state.reach import Reach
from safelaunch.supervisor.state.standbys import Standbys
from safelaunch.supervisor.state.tasks import BackgroundTasks, Step, Work

COMPLETING_S = 900.0     # above the 440 s that Slurm takes to give a dead node up, and its own KillWaits
COMPLETING_LOOK_S = 30.0
UNEXPLAINED_S = 60.0     # for Slurm's answer on a job whose end nothing explains: then it has crashed
ASK_S = 15.0    # for Slurm's answer on a job that is over; no answer proves nothing
LAST_ASK_S = 5.0   # once this job itself is being ended
HEARTBEATS_A_GENERATION = 1_000_000
OWN_CANCEL_S = 5.0   # for a live supervisor to cancel its job itself, once the next one is queued


def boot(lead: Leader) -> None:
    """Open the guards' endpoint first (their lease runs), then read the journal."""
    open_control(lead.here, lead.clock, lead.guard_endpoint, lead.standbys, lead.running, lead.say)
    run_dir, world = lead.here.run_dir, lead.here.world
    lead.folder.attach(world.share(run_dir, lead.here.local / "spool", lead.listen))
    # Each question is a child process, and a next job's training waits for all of them.
    meta, env, claims, reason, places = lead.files.ask_patiently(lambda: (
        sharedfile.read_json(run_dir / "run.json"), runfolder.read_env(run_dir),
        journal.last_claim(run_dir), ownership.why_not_own_run(run_dir), vanished.way_to(run_dir)))
    lead.folder.note_route(places)   # a folder that goes away before the first read of the requests is missed, too
    if reason is not None:
        raise RunFolderError(f"the run folder is not this user's alone, so nothing of it is used: {reason}")
    lead.here.follow(plans.of_config(meta["config"], meta["run_id"]))
    world.reads_by(undump(meta.get("rules")))
    lead.journal.note_claims(claims)
    lead.journal.lead_as(lead.claim(f"{journal.LEAD}{lead.job.id}", own_gen=True))
    lead.standbys.heartbeat.count_from(lead.journal.gen * HEARTBEATS_A_GENERATION)
    # After this claim nobody else acts; what was done before it must be read.
    raw, launched = lead.files.ask_patiently(lambda: _read_afresh(run_dir))
    lead.journal.attach(journal.merge_raw(raw).events, journal.Writer(
        lead.folder.shared, lead.journal.gen, lead.job.host, world.now, world.pid))
    lead.next.set_successor(Successor(lead.plan, lead.job, run_dir, env, world.command))
    lead.guard_endpoint.set_fencer(Fencer(lead.plan, lead.job, lead.server, world.command, world.ask))
    observe.read_requests(lead)
    if not (is_new := not is_same_job(lead.job, lead.journal)):
        before = lead.here.took_over.host if lead.here.took_over else lead.job.host
        lead.journal.record(lead.journal.event("took_over", job=lead.job.id, before=before))
        if lead.state.is_cancelled_before:   # known by the supervisor that died before it wrote the run's end
            lead.course.note_ending(JobEnd.CANCELLED)
        presume_launched(lead.here, lead.journal, launched)
    else:
        presume_launched(lead.here, lead.journal, launched)
        meet_the_job_before(lead)
        lead.journal.record(lead.journal.event("job_started", job=lead.job.id, nodes=list(lead.job.nodes),
                                               batch_host=lead.job.host, restart_count=lead.job.restart_count,
                                               before_cancelled=lead.course.ending == JobEnd.CANCELLED))
    settle_intents(lead.here, lead.journal, lead.next, lead.tasks)
    lead.suspects.recall(lead.say, lead.ask_slurm if is_new else None)
    adopt(lead)
    _begin_to_ask(lead)
    _note_taken(lead.here, lead.journal)
    if is_new or not lead.state.attempts:   # what was there before the first attempt is no progress of this run
        lead.journal.record(*checkpoint_events(lead.plan, lead.journal, lead.resume, None))
    secure_next(lead.queueing)


def _begin_to_ask(lead: Leader) -> None:
    """What the first attempt does not wait for."""
    if not lead.job.is_local:
        lead.tasks.begin(Work.ASK_ADDRESSES, ask_addresses(lead.here, lead.guard_endpoint, lead.nodes))
        lead.tasks.begin(Work.ASK_AVAILABLE, lead.suspects.ask_available())
        lead.tasks.begin(Work.ASK_VERSION, slurmends.ask_version(lead.here, lead.journal, lead.say))
    if lead.here.took_over is not None and lead.here.took_over.host != lead.job.host:
        lead.say(f"this node's standby has taken over: the supervisor on {lead.here.took_over.host} is dead or cut off")
    if lead.here.took_over is not None or lead.plan.cluster == HERE or lead.plan.restart.max_time_s is not None:
        lead.tasks.begin(Work.WATCH_LIMIT,
                         observe.watch_limit(lead.here, lead.clock, lead.journal, lead.course))


def _note_taken(here: Here, journal: LeaderJournal) -> None:
    """Journal that another user owns this user's folder on the node's disk, so that the batch script used another one.
    """
    with contextlib.suppress(OSError):   # no note of it: the usual case
        path = Path((here.local / "taken").read_text().rstrip("\n"))
        owner = owners.name_of(path.lstat().st_uid)
        journal.record(journal.event("local_folder_taken", node=here.job.host, path=str(path), owner=owner))


def _read_afresh(run_dir: Path) -> tuple[dict[str, str], dict[str, Any] | None]:
    """The journal and the last launch, past the client's cache: other hosts have just written."""
    fresh.see(str(run_dir), *(f"{run_dir}/{name}" for name in ("claims", "journal", "control")))
    return journal.read_raw(run_dir), journal.last_launch(run_dir)


def is_same_job(job: Allocation, journal: LeaderJournal) -> bool:
    """Whether an earlier supervisor led this very job. One that Slurm has requeued keeps its id, and is another."""
    known = journal.state.job
    return (known is not None and known.id == job.id and known.started_t is not None
            and known.restart_count == job.restart_count)


def open_control(
    here: Here, clock: Clock, guards: GuardEndpoint, standbys: Standbys, running: RunningAttempt, say: Say
) -> None:
    """Open the earlier leader's port with its token, so that its guards find this one."""
    file = here.local / "control.json"
    try:
        old = json.loads(file.read_text())
    except (OSError, ValueError):
        old = {"token": here.world.secret(), "port": 0}
    token = old["token"]
    guards.open(token, here.world.serve(token, old["port"], "127.0.0.1" if here.job.is_local else ""))
    guards.server.report_to(on_report=lambda guard: observe.on_report(clock, running, guard),
                            on_standby=lambda: hold_watched(here.local, guards),
                            on_forged=lambda guard: tell_forged(guards, say, guard))
    # Standbys that an earlier supervisor let in may take over: they call here, or are removed in time.
    guards.server.remember(old.get("watched", ()), clock.born_s)
    standbys.heartbeat.begin_with(eligible_standbys(here.job, clock, guards))
    hold_watched(here.local, guards)


def tell_forged(guards: GuardEndpoint, say: Say, guard: Guard) -> None:
    """Say that somebody stands between a guard and this endpoint; rarely, or he could fill the disk."""
    count = guards.server.forged
    if not count & (count - 1):
        say(f"somebody speaks in the name of {guard.node}'s node guard, on a connection of its own: it is closed "
            f"({count} so far)")


def hold_watched(local: Path, guards: GuardEndpoint) -> None:
    """Keep the eligible standbys on this host's disk before one is let in."""
    hold_token(local, guards.token, guards.server.port, guards.server.standbys)


def this_job(here: Here, journal: LeaderJournal) -> ThisJob:
    """The job of this supervisor, for decide.turn.unwritten."""
    return ThisJob(here.job.id, here.job.host, here.job.nodes, here.job.restart_count, is_same_job(here.job, journal),
                   here.took_over is not None)


def presume_launched(place: Here, journal: LeaderJournal, claimed: dict[str, Any] | None) -> None:
    """An attempt that another host's supervisor announced may live, although its start was not journalled.

    `claimed`: the last claim of a launch.
    """
    here = this_job(place, journal)
    for intent in journal.state.intents:
        if (missing := unwritten.announced(journal.state, intent, here)) is not None:
            journal.record(journal.event("attempt_started", **missing))
    if claimed is None:
        return
    if (missing := unwritten.claimed(journal.state, journal.history, claimed, here)) is not None:
        journal.record(journal.event("attempt_started", **missing))


def meet_the_job_before(lead: Leader) -> None:
    """What the run's last job left: a person's scancel is final, an attempt without an end gets one."""
    before, attempt = lead.state.job, lead.state.attempt
    if before is None or before.started_t is None:
        # Its first job may have died without a word (simulated: test_found "the run's first job, which a person
        # cancelled before its supervisor was born, is asked about").
        others = [job for job in lead.state.jobs if job.id != lead.job.id]
        before = others[0] if others else None
    if before is None and attempt is None:
        return
    if before is not None and before.id != lead.job.id:
        canceller = who_cancelled(
            lead.here, lead.journal, lead.files, lead.say, before.id,
            partial(_ask_who_cancelled, lead.clock, lead.course, lead.rest,
                    partial(_state_of, lead.next, lead.ask_slurm, before.id)))
        if canceller is Canceller.PERSON:
            lead.course.note_ending(JobEnd.CANCELLED)   # no job comes back from a scancel
        elif canceller in (Canceller.UNTOLD, Canceller.UNSAID):
            # Going on could undo a person's cancel; stopping could lose the run (simulated: test_found "a step of a
            # dead node that ended as by scancel is no person's cancel").
            why = f"nobody can tell whether a person cancelled job {before.id}: {canceller.value}"
            put_on_hold(lead.here, lead.journal, lead.files, lead.say, why, before.id)
            observe.read_requests(lead)
    if attempt is not None and attempt.ended is None:
        while not lead.folder.shared.put(*lead.record_of(attempt.number, "ended")):
            lead.wait(1.0)
        until = lead.now_s + lead.plan.lease_s + FENCE_MARGIN_S
        # Its nodes may be silent, but their leases have run out.
        while lead.now_s < until and not lead.course.was_told:
            lead.wait(min(1.0, until - lead.now_s))
        text = b"" if attempt.resize is not None else lostprogress.ended_tail(lead.files, attempt.number)
        lead.journal.record(*lostprogress.last_progress(lead.log, attempt.number, text),
                            lead.journal.event("attempt_ended", attempt=attempt.number, how=AttemptEnd.INTERRUPTED,
                                               why=f"job {before.id if before else attempt.job} ended under it",
                                               epoch=lostprogress.last_epoch(lead.log, text)),
                            lead.journal.event("fenced", attempt=attempt.number))


def who_cancelled(
    here: Here, journal: LeaderJournal, files: FolderPort, say: Say, job: str,
    ask_slurm: Callable[[Witnesses], Canceller]
) -> Canceller:
    """Who cancelled a job of this run that is over; asks the witnesses in turn until they tell."""
    history = journal.history
    noted = any(event.data.get("act") == NOTE and event.data.get("job") == job for event in history)
    seen = Witnesses(
        noted, not noted and (job in journal.state.cancelled_jobs
                              or files.ask_patiently(lambda: runfolder.is_orphaned(here.run_dir, job))),
        is_local=here.job.is_local, handed_over=cancel.is_explained_handover(history, job))
    asked: tuple[CancelWitness, ...] = ()
    while (witness := cancel.next_witness(seen, asked)) is not None:
        asked = (*asked, witness)
        match witness:
            case CancelWitness.JOB_OUTPUT:
                seen = seen._replace(ending=slurmends.ending_of(here.run_dir, journal, files, say, job))
            case CancelWitness.STEP_OUTPUT:
                seen = seen._replace(step_end=slurmends.step_end_of(here.run_dir, files, job))
            case CancelWitness.SLURM:
                return ask_slurm(seen)
    return cancel.judge(seen)


def _ask_who_cancelled(
    clock: Clock, course: Course, rest: Callable[[float], None], ask_state: Callable[[bool], str | None],
    witnesses: Witnesses
) -> Canceller:
    """Slurm says so once the job has ended; if its batch host is dead, that takes a while."""
    until_s = clock.now_s + (COMPLETING_S if witnesses.is_likely or witnesses.has_unknown_line else UNEXPLAINED_S)
    while True:
        # A TERM in the middle of a question leaves time for a last one: KillWait is 30 s
        # (simulated: test_found "TERM in the middle of a question about the job before is no answer").
        is_last = _is_called(course)
        state = ask_state(is_last)
        is_late = clock.now_s > until_s or is_last
        found = cancel.judge(witnesses._replace(state=state, is_late=is_late))
        if found is not Canceller.ASK:
            return found
        again_s = clock.now_s + COMPLETING_LOOK_S
        while clock.now_s < again_s and not _is_called(course):
            rest(1.0)


def _is_called(course: Course) -> bool:
    """Whether this job itself is being ended, or is near its limit: KillWait leaves time to journal why (simulated:
    test_found "job that is cancelled while it asks about the one before writes that down itself").
    """
    return course.was_told or course.limit_near


def _state_of(next_job: NextJob, ask_slurm: Callable[..., Result | None], job: str, is_last: bool) -> str | None:
    """Slurm's state of a job, from squeue, or from sacct where squeue has forgotten it (MinJobAge). sacct also has the
    end of a job that squeue calls COMPLETING, for minutes where a node of it is silent (22.05, measured).

    "" = nobody knows it any more, None = no clear answer. `is_last`: this job itself is being ended.
    """
    ask = partial(ask_slurm, deadline_s=LAST_ASK_S if is_last else ASK_S, is_last=is_last)
    asked = ask(slurm.squeue_job(job))
    state = None if asked is None else next_job.successor.state_of(asked, job)
    if state and state != jobstates.COMPLETING:
        return state
    account = next_job.successor.account_state(ask(slurm.sacct([job])), job)
    return account if account and (account in jobstates.FINISHED or not state) else state


def settle_intents(here: Here, journal: LeaderJournal, next_job: NextJob, tasks: BackgroundTasks) -> None:
    """Find out whether announced acts without an outcome happened."""
    for intent in journal.state.intents:
        happened = None
        match ACTS.get(intent.act):
            case ActKind(settling=Settling.FIND_ATTEMPT):
                happened = here.world.adopt(here.local, int(intent.data["attempt"])) is not None
            case ActKind(settling=Settling.END_JOB) if unwritten.is_left_running(
                    journal.state, str(intent.data.get("job")), this_job(here, journal)):
                tasks.begin(Work.END_JOB_BEFORE, end_announced(journal, next_job, str(intent.data["job"])))
        acts.settle(journal, intent.claim, intent.act, happened)


def end_announced(journal: LeaderJournal, next_job: NextJob, job: str) -> Step:
    """Cancel the job before this one, if its supervisor died or stood still after it announced that, or during a
    handover: it may have no script to end it (simulated: test_found "a job whose leader stood still before it could
    cancel it is ended by the next one's").
    """
    state: str | None = None
    for _ in range(handover.CHANGE_TRIES):
        yield OWN_CANCEL_S
        looked = yield next_job.successor.run(slurm.squeue_job(job))
        state = None if looked is None else next_job.successor.state_of(looked, job)
        if state is not None:
            break
    if state != jobstates.RUNNING:
        return
    yield from cancel_job(journal, next_job, job, "end the job before")


def adopt(lead: Leader) -> None:
    """Take over a live attempt of this job, also one whose start was not journalled."""
    last = lead.state.attempt
    number = last.number if last else 0
    unknown = lead.here.world.adopt(lead.here.local, number + 1)
    if unknown is not None:
        facts = {key: value for key, value in unknown.facts.items() if key != "rank_logs"}   # the pump's, no event's
        lead.journal.record(lead.journal.event("attempt_started",
                                               **{**facts, "note": "written down by the next supervisor"}))
        last, number = lead.state.attempt, number + 1
    step = unwritten.adopt(last, lead.job.id)
    if step is Adopt.RESUME:
        resuming.find_resume(lead.here, lead.clock, lead.journal, lead.files, lead.resume, lead.say)
    if step is not Adopt.TAKE or last is None:
        return
    process = lead.here.world.adopt(lead.here.local, number)
    lead.running.adopt(Live(
        number, last.nodes, tasks=1 if last.resize else lead.plan.tasks_on(len(last.nodes)),
        srun_code=None if process is not None else 255, is_hook=last.resize is not None,
        end_asked_t=last.asked_t, end_row=last.asked_row, heard=last.heard,
        may_have_heard=last.asked_row is not None and last.waits_for is None), process)
    lead.server.expect(number)
    for due in unwritten.after_adopting(last.asked_row, has_process=process is not None,
                                        has_moved=lead.server.has_moved,
                                        has_taken_over=lead.here.took_over is not None):
        match due:
            case AfterAdopting.MOVE_RECORD:
                lead.folder.shared.enqueue(PUT, *lead.record_of(number, "live"))
            case AfterAdopting.ASK_ON:
                # Unless the dead supervisor journalled the answer, nobody knows who was told.
                act = asking.asking_of(lead)
                lead.tasks.begin(Work.ASK_TO_END, act.ask_to_end(lead.plan.kill_switch.signal)
                                 if last.waits_for is None else act.wait_for_checkpoint(None), last.asked_row)
            case AfterAdopting.FENCE if lead.here.took_over is not None:
                fence_of_another(lead, lead.here.took_over)


def fence_of_another(lead: Leader, before: TookOver) -> None:
    """End the attempt of a supervisor that is gone: its guards find this endpoint by the record."""
    lead.guard_endpoint.fencer.take_over(lead.running.now, before.heard_s, before.host)
    attempts.kill(lead, "took_over", unwritten.end_of_silent(before.host))
    lead.tasks.begin(Work.OLD_HOST, _judge_old_host(lead.guard_endpoint, lead.reach, lead.running, before.host))


def _judge_old_host(guards: GuardEndpoint, reach: Reach, running: RunningAttempt, host: str) -> Step:
    """Live guards on the old supervisor's node call the new endpoint within seconds of the record's change."""
    number = running.now.number
    yield CALL_S
    if unwritten.is_host_lost(running.live, number, host, answers=bool(guards.server.of(host))):
        reach.lose(host, "neither its supervisor nor its node guard answers")
