"""The judgement of `safelaunch watch` on one run: rung 3 of the recovery ladder, for what no supervisor can see to.

`judge` walks a short table of named rows, as decide does, and acts on two witnesses at least: neither a heartbeat that
stands still is enough, nor one answer of Slurm. What folder and Slurm contradict each other about is left alone.
"""

from __future__ import annotations

from collections.abc import Callable

from safelaunch.base.endings import JobEnd, RunEnd
from safelaunch.base.model import DONE, FAILED_FOR_GOOD, STOPPED, STOPS, tell_stop
from safelaunch.decide.facts.actions import Finish
from safelaunch.decide.facts.seen import Observation
from safelaunch.decide.jobs import successor
from safelaunch.decide.jobs.cancel import Fate, NextJobFacts, judge_next
from safelaunch.decide.nodes import resize
from safelaunch.decide.turn import rows
from safelaunch.slurm import jobstates, nodefold, via
from safelaunch.slurm.slurmtext import KnownJob, can_never_start, is_held, lacks_nodes, render_elapsed
from safelaunch.watch.watched import (
    CANCELLED,
    CANCELLED_NEXT,
    Cancel,
    Free,
    Judgement,
    MakeSmaller,
    Note,
    Queue,
    Relax,
    SlurmAnswer,
    StartNow,
    Watched,
    WriteEnd,
)
from safelaunch.watch.watchfacts import (
    affordable,
    can_wait_behind,
    cancelled_by_person,
    describe,
    ended_well,
    expand,
    idle_nodes,
    is_ours,
    is_queued_here,
    is_requeued,
    job_of,
    running_job,
    taken_back,
    unfinished,
    usable_nodes,
    waiting_job,
    waits_for,
    waits_for_users_job,
    wants_next,
)

STALE_S = 300.0           # twenty heartbeats; leader and standby have long acted by then, if one of them lives
STALE_STANDBY_S = 900.0   # its standby's node is alive, so that it may only be cut off from the folder
ABSENT = 2                # clear answers without a job before a run is gone: one empty answer is unknown
LIVES_S = 50.0            # a leader gives a heartbeat every 15 s; the two answers are 60 s apart
# KillWait (30 s) and UnkillableStepTimeout (60 s) are Slurm's own patience with a node that answers. One known site has
# 60 s and 180 s. A silent node is given up after SlurmdTimeout and slurmctld's ping, 440 s measured.
HUNG_S = 240.0
STUCK_S = 50.0            # an impossible reason that two answers, a minute apart, give

HISTORY = frozenset({"sacct"})
NODES = frozenset({"nodes"})

Row = Callable[[Watched, SlurmAnswer, float], Judgement | None]


def judge(run: Watched, slurm_answer: SlurmAnswer, now: float) -> Judgement:
    """What the first row that has an opinion says. `now` (epoch s) is only passed on to `decide`."""
    for row in _ROWS:
        if (found := row(run, slurm_answer, now)) is not None:
            return found
    return Judgement("unknown", "nothing is known of it")


# --- what is never touched ----------------------------------------------------------------------------------------


def _ended(run: Watched, slurm_answer: SlurmAnswer, now: float) -> Judgement | None:
    """An end is final. A job that waits for more is taken away. Perhaps slurmctld was away when the run ended, and one
    that a person holds would wait for ever.
    """
    ended = run.state.ended
    if ended is None:
        return None
    text = f"has ended: {ended.how}: {ended.why}"
    left = waiting_job(slurm_answer)
    if left is None or not run.mine or _is_led(run, run.heartbeat.job if run.heartbeat is not None else ""):
        return Judgement("ended", text)
    why = f"job {left.id} waits to go on with a run that {text}"
    return Judgement("ended", why, Cancel(left.id, None, (), why))


def _local(run: Watched, slurm_answer: SlurmAnswer, now: float) -> Judgement | None:
    """Processes of one machine have no queue that could lose them; a job of a shell is its person's to end."""
    if via.has_next_job(run.plan.cluster):
        return None
    return Judgement("local", f"is a {run.plan.cluster} run ({run.state.name}): not watched")


def _foreign(run: Watched, slurm_answer: SlurmAnswer, now: float) -> Judgement | None:
    """squeue --me shows nothing of other people's jobs, and nobody may act on them."""
    return None if run.mine else Judgement(
        "foreign", "belongs to somebody else, or others can write it: a watch acts on its own user's runs alone")


def _unanswered(run: Watched, slurm_answer: SlurmAnswer, now: float) -> Judgement | None:
    """No clear answer is unknown: nothing is done."""
    if slurm_answer.jobs is not None:
        return None
    return Judgement("unanswered", f"is {run.state.name} for its journal; Slurm gives no clear answer"
                                   f"{f' ({slurm_answer.trouble})' if slurm_answer.trouble else ''}")


# --- a person's request ----------------------------------------------------------------------------------------------


def _cancelled(run: Watched, slurm_answer: SlurmAnswer, now: float) -> Judgement | None:
    """Journal a scancel that squeue shows: Slurm forgets it after MinJobAge, 300 s (simulated: test_found "a cancel of
    a job that had no supervisor yet is final although Slurm has forgotten it when a watch looks").
    """
    if slurm_answer.absences >= ABSENT and not unfinished(slurm_answer) and run.quiet_s > 0.0:
        return None   # the end itself is about to be written down; not where somebody has acted meanwhile
    started = run.state.job if run.state.job is not None and run.state.job.started_t is not None else None
    for job in slurm_answer.jobs or ():
        id = job.number
        is_told = id in (run.state.next_cancelled, *run.notes.cancelled) or is_ours(run, id)
        if job.state != jobstates.CANCELLED or is_told:
            continue
        if started is None or not successor.is_before(id, started.id):
            why = f"job {id} was cancelled by a person (squeue)"
            return Judgement(CANCELLED, why, Note(id, why))
    return None


def _next_cancelled(run: Watched, slurm_answer: SlurmAnswer, now: float) -> Judgement | None:
    """A person who cancels only the next job wants the run to end with this one. A living leader looks after a job
    that it queued itself (supervisor.jobs.nextjob); this is for the others.
    """
    running, id = running_job(slurm_answer), run.state.successor
    if running is None or id is None or is_ours(run, id) or not wants_next(run, slurm_answer):
        return None
    if waiting_job(slurm_answer) is not None or job_of(slurm_answer, id) is not None:
        return None
    if slurm_answer.same_s < STUCK_S or (run.silent_s < STALE_S and not is_queued_here(run)):
        return None
    if slurm_answer.accounts is None:
        return Judgement(CANCELLED_NEXT, f"job {id}, queued to go on from {running.id}, is gone", asks=HISTORY)
    account = slurm_answer.accounts.get(id)
    fate = judge_next(NextJobFacts("", is_queued=False, account=None if account is None else account.state))
    if fate is not Fate.CANCELLED:
        return None   # Slurm's own doing
    why = (f"job {id}, queued to go on from {running.id}, was cancelled: nobody but a person takes a job that waits "
           f"out of the queue. The run ends with job {running.id}")
    return Judgement(CANCELLED_NEXT, why, Note(id, why))


# --- a job runs ---------------------------------------------------------------------------------------------------


def _queue_next(run: Watched, slurm_answer: SlurmAnswer, now: float) -> Judgement | None:
    """Where compute nodes may not call sbatch, the next job is queued from here (restart.via: watch)."""
    job, own = running_job(slurm_answer), run.state.job
    if job is None or job.state != jobstates.RUNNING or run.silent_s >= STALE_S or waiting_job(slurm_answer):
        return None
    if not is_queued_here(run) or not wants_next(run, slurm_answer) or (own and own.id) != job.number:
        return None
    if run.state.successor and job_of(slurm_answer, run.state.successor) is None and slurm_answer.same_s < STUCK_S:
        return None   # one answer without it is unknown
    if not can_wait_behind(run):
        return None   # its turn comes when this job is over: there is nothing to depend upon then
    why = f"job {job.id} runs with no job behind it, and its nodes may not queue one"
    return _unless_announced(run, "queue_next", Queue(job.id, run.state.excluded, why, beside=True))


def _limbo(run: Watched, slurm_answer: SlurmAnswer, now: float) -> Judgement | None:
    """A job whose batch host has died under --no-kill runs without a script until its time limit (the trap).

    Witnesses: its heartbeat stands still, and Slurm has taken its batch host away. It ends once a job waits behind it.
    """
    job = running_job(slurm_answer)
    if job is None or job.state != jobstates.RUNNING or run.silent_s < STALE_S or not job.batch_host:
        return None
    nodes = expand(job.nodelist)
    if not nodes or job.batch_host in nodes:
        return None
    lost = f"its batch host {job.batch_host} is no longer among its nodes ({job.nodelist}), no pulse for "
    lost += f"{render_elapsed(run.silent_s)}"
    hosts = (run.state.standby, told.host if (told := run.heartbeat) is not None and told.job == job.number else None)
    alive = [host for host in hosts if host in nodes]
    if alive and run.silent_s < STALE_STANDBY_S:
        return Judgement("limbo", f"is in limbo: {lost}; its standby on {alive[0]} is given some time more")
    waiting, suspects = waiting_job(slurm_answer), (job.batch_host,)
    if waiting is None and wants_next(run, slurm_answer) and run.state.successor and slurm_answer.same_s < STUCK_S:
        return Judgement("limbo", f"is in limbo: {lost}")   # one answer without the job behind it is unknown
    exclude = affordable(run, slurm_answer, suspects)
    is_to_queue = waiting is None and wants_next(run, slurm_answer) and can_wait_behind(run)
    if exclude is None:
        return _ask_nodes(run, "limbo", f"is in limbo: {lost}", is_to_queue)
    if is_to_queue:
        return _unless_announced(run, "limbo", Queue(job.id, exclude, f"is in limbo: {lost}", suspects=suspects))
    return _unless_announced(run, "limbo", Cancel(
        job.id, None if waiting is None else waiting.id, exclude, f"is in limbo: {lost}", suspects))


def _running_row(run: Watched, slurm_answer: SlurmAnswer, now: float) -> Judgement | None:
    """A job runs, well or in silence: Slurm's word alone ends nothing."""
    job = running_job(slurm_answer)
    if job is None:
        return None
    if job.state != jobstates.RUNNING:
        return Judgement("running", f"is {job.state} on {job.nodelist or '?'}")
    text = describe(job, 0.0, run.heartbeat.step if run.heartbeat is not None and run.heartbeat.job == job.id else None)
    if run.silent_s < STALE_S:
        return Judgement("running", text)
    where = f" on {run.heartbeat.host}" if run.heartbeat is not None else ""
    return Judgement("silent", f"{text}; its supervisor{where} has given no pulse for {render_elapsed(run.silent_s)}")


# --- a job hangs at its end, or waits -----------------------------------------------------------------------------


def _hung(run: Watched, slurm_answer: SlurmAnswer, now: float) -> Judgement | None:
    """afterany waits for a job that hangs in COMPLETING on a silent node; singleton does not (both measured)."""
    job = next((job for job in unfinished(slurm_answer) if job.state == jobstates.COMPLETING), None)
    if job is None or running_job(slurm_answer) is not None:
        return None
    waiting, left = waiting_job(slurm_answer), expand(job.nodelist)
    text = f"job {job.id} is completing on {job.nodelist or '?'}"
    if slurm_answer.same_s < HUNG_S or not left or not run.state.jobs or _is_led(run, job.number):
        return Judgement("completing", text)
    why = f"{text} for {render_elapsed(slurm_answer.same_s)}, longer than a node that answers takes"
    if waiting is not None:
        if f"afterany:{job.number}" not in waiting.dependency:
            return Judgement("completing", f"{text}; job {waiting.id} goes on ({waiting.reason})")
        exclude = affordable(run, slurm_answer, left)
        if exclude is None:
            return _ask_nodes(run, "completing", why, is_to_queue=False)
        if not set(left) <= set(exclude):
            return Judgement("completing", f"{why}; without them too few nodes are left, so job {waiting.id} waits")
        return _unless_announced(run, "hung", Free(waiting.id, exclude, why, left))
    return _over(run, slurm_answer, now, why, left)


def _waiting_row(run: Watched, slurm_answer: SlurmAnswer, now: float) -> Judgement | None:
    """A job waits: for its turn, for a person, or for nodes that it can never get."""
    job = waiting_job(slurm_answer)
    if job is None:
        return None
    text = f"is waiting to be scheduled ({job.reason or job.state})"
    if run.asked(*STOPS) and is_held(job.reason):
        return _unless_announced(run, "held", Cancel(job.id, None, (), f"{text}, and a person has stopped the run"))
    if run.asked(*STOPS):
        return _impossible(run, slurm_answer, job, f"{text}; a person has stopped it: it ends as soon as it starts")
    if is_held(job.reason):
        let_go = "safelaunch resume" if run.asked("hold") else f"scontrol release {job.id}"
        return Judgement("held", f"{text}; to let it go: {let_go}")
    if job.reason == "BeginTime" and not run.asked("hold") and is_requeued(run, job.number):
        kept = expand(job.excluded) or ()
        missing = tuple(node for node in run.state.successor_excludes if node not in kept)
        why = f"job {job.id} was requeued by safelaunch, and Slurm holds it back for two minutes"
        return Judgement("requeued", f"{text}: {why}", StartNow(job.id, (*kept, *missing) if missing else (), why))
    if job.reason == "DependencyNeverSatisfied" and waits_for_users_job(run):
        return Judgement("waiting", f"{text}: slurm.dependency can no longer hold; to give it up: safelaunch stop")
    if job.reason == "DependencyNeverSatisfied":
        return _unless_announced(run, "never", Free(job.id, expand(job.excluded) or (), f"{text}: it never would"))
    if lacks_nodes(job.reason) and resize.may_wait_smaller(run.state, run.plan):
        return _smaller(run, slurm_answer, job, text)
    return _impossible(run, slurm_answer, job, text)


def _smaller(run: Watched, slurm_answer: SlurmAnswer, job: KnownJob, text: str) -> Judgement:
    """An allocation expired, and no full set was to be had again. A run that has not begun waits for busy nodes."""
    plan, wait_s, short_s = run.plan, run.plan.restart.wait_for_nodes_s, slurm_answer.short_s
    if short_s < wait_s:
        return Judgement("waiting", f"{text}; with fewer nodes after {render_elapsed(wait_s)} of it")
    if slurm_answer.nodes is None:
        return Judgement("waiting", text, asks=NODES)
    excluded = expand(job.excluded) or ()
    left = successor.make_room(plan, run.state, excluded, usable_nodes(run, slurm_answer) or ()).left
    if left < (plan.min_nodes or 0) or (not run.state.attempts and left >= plan.allocated_nodes):
        return _impossible(run, slurm_answer, job, text)
    # Those that are busy may be so for long: the idle ones are taken, or the fewest. Spares give way first.
    size = resize.most_nodes(plan, idle := len(idle_nodes(run, slurm_answer) - {*excluded})) or plan.min_nodes or 0
    if max(idle, size) >= dict(run.notes.smaller).get(job.number, plan.allocated_nodes):
        return Judgement("waiting", text)
    why = f"{text}: for {render_elapsed(short_s)} no full set of {plan.allocated_nodes} nodes was to be had"
    return _unless_announced(run, "smaller", MakeSmaller(job.id, size, why))


def _impossible(run: Watched, slurm_answer: SlurmAnswer, job: KnownJob, text: str) -> Judgement:
    """Exclusions are dropped when the run could no longer start; the user's own are not ours to drop."""
    if not can_never_start(job.reason):
        return Judgement("waiting", text)
    excluded, too_few = expand(job.excluded) or (), f"{text}: too few nodes that it may use are up"
    if slurm_answer.same_s < STUCK_S or set(excluded) <= set(successor.own_excluded(run.plan)):
        return Judgement("impossible", too_few)
    if slurm_answer.nodes is None:
        return Judgement("impossible", text, asks=NODES)
    if (usable := usable_nodes(run, slurm_answer)) is None:
        return Judgement("impossible", too_few)
    room = successor.make_room(run.plan, run.state, excluded, usable)
    if room.left >= run.plan.allocated_nodes:
        return Judgement("impossible", f"{text}, though {room.left} nodes that it may use are up")
    if not room.drop:
        return Judgement("impossible", too_few)
    keep = tuple(node for node in excluded if node not in room.drop)
    return _unless_announced(run, "impossible", Relax(
        job.id, keep, room.drop,
        f"{text}: without {nodefold.fold(room.drop)}, which safelaunch keeps out, it could never start"))


# --- no job is left -----------------------------------------------------------------------------------------------


def _submitting(run: Watched, slurm_answer: SlurmAnswer, now: float) -> Judgement | None:
    """A submission that was cut off is its person's to repeat: `submit` goes on from there."""
    return None if run.state.jobs else Judgement("submitting", "its submission has no outcome: submit it again")


def _gone(run: Watched, slurm_answer: SlurmAnswer, now: float) -> Judgement | None:
    """No job is left, and the journal holds no end."""
    if run.elsewhere:
        return Judgement("gone", f"belongs to cluster {run.elsewhere}: watch it there")
    newest = run.state.jobs[-1]
    if slurm_answer.absences < ABSENT and not run.notes.is_needed:   # its leader's own word is the second witness
        return Judgement("doubt", "Slurm shows no job of it: asking once more")
    if _is_led(run, newest.id):
        return Judgement("doubt", "Slurm shows no job of it, and its supervisor lives: is this the right cluster?")
    if not run.at_home:
        return Judgement("gone", "Slurm shows no job of it. It may belong to another cluster, so nothing is done; name "
                                 "it on the command line if it is this one's")
    why = "its job is over, and its supervisor could queue no other" if run.notes.is_needed else (
        "its job has vanished: Slurm knows none, and the journal has no end")
    return _over(run, slurm_answer, now, why, ())


def _over(run: Watched, slurm_answer: SlurmAnswer, now: float, why: str, suspects: tuple[str, ...]) -> Judgement:
    """The run's last job is over: a person's request first, then what `decide` makes of it, else the next job."""
    if (killed := run.asked(*STOPS)) is not None:
        return _end(run, RunEnd.STOPPED, STOPPED, tell_stop(killed))
    last = run.state.job or run.state.jobs[-1]
    gone = (*run.scancelled, last.id, run.state.jobs[-1].id, run.state.successor, run.state.next_cancelled)
    cancelled = cancelled_by_person(run, slurm_answer, (*gone, *taken_back(run, slurm_answer)))
    if cancelled is not None:
        return _end(run, RunEnd.STOPPED, STOPPED, cancelled)
    done = ended_well(slurm_answer, last.id)
    if slurm_answer.accounts is None and done is None:
        return Judgement("gone", why, asks=HISTORY)
    if done is not None:
        return _end(run, RunEnd.COMPLETED, DONE, done)
    if (hold := run.asked("hold")) is not None:
        return Judgement("held", f"{why}; {run.state.holder(hold.who)} put the run on hold until `safelaunch resume`")
    seen = Observation(now=now, nodes=(), requests=run.requests, ending=JobEnd.UNKNOWN)   # a job at its end, why ever
    action = rows.decide(run.state, seen, run.plan).action
    if isinstance(action, Finish):
        return _end(run, action.how, action.exit_code, action.why)
    most = run.plan.restart.max_without_progress
    if run.notes.requeued >= most:
        return _end(run, RunEnd.GAVE_UP, FAILED_FOR_GOOD,
                    f"{most} jobs in a row, queued by watch, ended without progress")
    exclude = affordable(run, slurm_answer, (*run.notes.needs_excluded, *suspects))
    if exclude is None:
        return _ask_nodes(run, "gone", why, is_to_queue=True)
    return _unless_announced(run, "gone", Queue(None, exclude, why, suspects=suspects))


_ROWS: tuple[Row, ...] = (
    _ended, _local, _foreign, _unanswered, _cancelled, _next_cancelled, _queue_next, _limbo, _running_row, _hung,
    _waiting_row, _submitting, _gone,
)


# --- shared judgements --------------------------------------------------------------------------------------------


def _is_led(run: Watched, job: str) -> bool:
    """Whether a supervisor in that job has given a heartbeat just now: it knows better."""
    return run.silent_s < LIVES_S and run.heartbeat is not None and run.heartbeat.job == job and not run.heartbeat.over


def _unless_announced(run: Watched, row: str, act: Queue | Relax | MakeSmaller | Free | Cancel) -> Judgement:
    """The act, unless it has to wait."""
    waits = waits_for(run, isinstance(act, Queue), isinstance(act, Queue) and act.beside)
    return Judgement(row, f"{act.why}{waits}", None if waits else act)


def _ask_nodes(run: Watched, row: str, why: str, is_to_queue: bool) -> Judgement:
    """sinfo says what the act may keep out; while the act has to wait, it is not asked."""
    waits = waits_for(run, is_to_queue)
    return Judgement(row, f"{why}{waits}", asks=frozenset() if waits else NODES)


def _end(run: Watched, how: str, code: int, why: str) -> Judgement:
    return Judgement("over", f"has ended: {how}: {why}", WriteEnd(how, code, why))
