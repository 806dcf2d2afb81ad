"""What must hold of every simulated run, whatever went wrong in it. Some are watched while it runs (sim.py)."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from safelaunch.base.endings import BAD_ENDS
from safelaunch.base.model import CHECK_FAILED
from safelaunch.decide.budget import endless
from safelaunch.decide.budget.nanback import MOST_SAME
from safelaunch.decide.nodes.slowness import MOST_PLANNED, STOPS_S
from safelaunch.run import lost
from safelaunch.run.fold.state import State
from safelaunch.run.io import journal
from safelaunch.slurm import via
from safelaunch.supervisor.ends.takeover import UNEXPLAINED_S
from safelaunch.supervisor.jobs.following import LOOK_EVERY_S
from tests.simulation.checks import STANDS_STILL
from tests.simulation.slurm import MIN_JOB_AGE_S

if TYPE_CHECKING:
    from tests.simulation.sim import Sim
    from tests.simulation.slurm import Job

SEEN_S = 40.0           # a person's word may go unseen for so long: a look every 3 s, a folder that is slow or frozen
LOST_S = 15.0           # ... and its dead processes let go of the folder so long after the server is back
SECOND_LOOK_S = 15.0    # from a watch's first look at a run without a job
ENDS_S = 15.0           # from the end of a wait for a checkpoint to that of the last rank
CALLS_AN_INCIDENT = 10
CALLS_A_SECOND = 2


def check(sim: Sim, state: State) -> None:
    """Note every invariant that the run has broken."""
    _ends_in_a_named_state(sim, state)
    _obeys_people(sim, state)
    _completes(sim, state)
    sim.before.check(state)
    _asks_slurm_little(sim)
    _resumes_from_the_newest(sim, state)
    _says_what_is_lost(sim, state)
    _accuses_with_reason(sim, state)
    _loses_little_by_experiments(sim, state)
    _goes_back_only_so_often(sim, state)
    _restarts_wait_for_no_check(sim)


def _ends_in_a_named_state(sim: Sim, state: State) -> None:
    # A job that a person holds is that person's to take away, where Slurm did not answer when the run ended, and nobody
    # watches.
    live = [f"{job.id} {job.state}" for job in sim.all_jobs if job.is_live and not (
        state.ended is not None and job.state == "PENDING" and job.held and not sim.watchers)]
    if state.ended is None and sim.said and not live and not _a_supervisor_heard(sim):
        return   # a person cancelled, and nobody was left to write it down: nothing runs, and nothing will
    if state.ended is None and not live and not sim.watchers and (_nobody_was_left(sim) or state.via == via.WATCH):
        return   # rung 3 of the ladder is missing
    if state.ended is None:
        jobs = [(job.id, job.state, job.end) for job in sim.all_jobs]
        sim.violate(f"the run is lost: it is {state.name!r}, its jobs: {jobs}")
    elif live:
        sim.violate(f"the run has ended, its jobs have not: {live}")


def _nobody_was_left(sim: Sim) -> bool:
    """The last job died by no supervisor's word, before one could queue the next: only a watch could go on."""
    last = sim.all_jobs[-1]
    return last.end in ("NODE_FAIL", "TIMEOUT", "PREEMPTED", "CANCELLED")


def _a_supervisor_heard(sim: Sim) -> bool:
    """Whether any supervisor lived after the last word of a person."""
    last_t = max(t for t, _ in sim.said)
    return any(one.last_t > last_t for one in sim.supervisors)


def _obeys_people(sim: Sim, state: State) -> None:
    """Kill switch, cancel and hold are never missed, and never undone."""
    frozen_s = sum(fault.length_s for fault in sim.scenario.faults if fault.kind in (
        "freeze", "freeze_one", "away", "flaky", "unreadable", "refuses", "slurm_hung", "slurm_gone"))
    frozen_s += sim.scenario.fs_late_s
    for from_t, until_t in sim.holds:
        early = [attempt.number for t, attempt, _ in sim.launches
                 if from_t + SEEN_S + frozen_s < t < until_t and attempt.has_started]
        if early:
            sim.violate(f"a person put the run on hold at {from_t:.1f} s, and attempts {early} were launched before it "
                        f"was let go at {until_t:.1f} s")
    for said_t, word in sim.said:
        seen_t = said_t + (1.0 if word == "scancel" else SEEN_S) + frozen_s
        if word == "scancel_successor":   # the run ends with this job; no other job may be queued after it
            later = [job.id for job in sim.all_jobs if job.batch is not None and job.started_t > said_t
                     and _could_be_known(sim, said_t, has_waited=True)]
            if later and any(t > said_t and attempt.job in later for t, attempt, _ in sim.launches):
                sim.violate(f"a person cancelled the next job at {said_t:.1f} s, and the run went on in {later}")
            continue
        if word == "scancel" and (_was_told_late(sim, said_t) or (
                _left_no_trace(sim, said_t) and not _could_be_known(sim, said_t, has_waited=False))):
            continue
        late = [attempt.number for t, attempt, _ in sim.launches if t > seen_t and attempt.has_started]
        if late:
            sim.violate(f"a person said {word} at {said_t:.1f} s, and attempts {late} were launched later")
        if state.ended is not None and state.ended.how not in ("stopped", "completed", "gave_up"):
            sim.violate(f"a person said {word}, and the run ended as {state.ended.how}")
        is_complete = state.ended is not None and state.ended.how == "completed"
        if is_complete and not _was_complete(sim, said_t + 120.0 + frozen_s):
            sim.violate(f"a person said {word} at {said_t:.1f} s, and the run completed long after that")


def _could_be_known(sim: Sim, said_t: float, has_waited: bool) -> bool:
    """Whether somebody could see that a job was cancelled, one that had waited or one that ran: squeue forgets it, and
    no line is left anywhere.
    """
    ids = {"", *(job.id for job in sim.all_jobs if (
        job.ended_t == said_t if has_waited else job.started_t <= said_t <= job.ended_t))}
    return sim.scenario.has_sacct or any(
        said_t < t < said_t + MIN_JOB_AGE_S and asked in ids and not _died_with_its_job(sim, t)
        and not _was_the_first_of_two(sim, t) for t, asked in sim.slurm.clear_looks)


def _was_the_first_of_two(sim: Sim, t: float) -> bool:
    """Where no job runs, a watch looks twice before it writes an end down: the folder was away before it could look
    again (seed 94058589).
    """
    is_alone = not any(job.batch is not None and job.started_t <= t < job.ended_t for job in sim.all_jobs)
    return is_alone and any(fault.kind in ("away", "freeze") and t < fault.t < t + SECOND_LOOK_S
                            for fault in sim.scenario.faults)


def _left_no_trace(sim: Sim, said_t: float) -> bool:
    """The cancelled job could write nothing. Such a job looks like one that Slurm lost.

    Either the file server was away from its first second to its end (seed 2021742): its output was never opened, and no
    supervisor was born in it. Or its batch host, and with it slurmstepd, had died before the word or stood still, and
    no other node had a step of it yet (seeds 20011108, 30001266, 80002627), or the file server took no line of theirs
    (84004632). Or its script had not begun (80003186).
    """
    is_full = any(fault.kind == "refuses" and fault.t <= said_t < fault.end_t for fault in sim.scenario.faults)
    on_others = {attempt.job for t, attempt, _ in sim.launches if t <= said_t and len(attempt.nodes) > 1}
    cancelled = [job for job in sim.all_jobs if job.started_t <= said_t <= job.ended_t]
    return any(job.batch is None for job in cancelled) or any(
        (fault.kind in ("away", "freeze") and fault.t < job.started_t + 1.0 and job.ended_t < fault.end_t)
        or (fault.kind in ("batch_crashes", "batch_silent") and job.started_t <= fault.t <= said_t
            and (is_full or job.id not in on_others))
        for fault in sim.scenario.faults for job in cancelled)


def _was_told_late(sim: Sim, said_t: float) -> bool:
    """The batch host had died before the word, or was cut off. Slurm called the job completing for long, and sacct,
    which could have told, is off. Either the next job's leader has asked for a minute by then (seed 84004068), or
    nobody got an answer from Slurm before it forgot the job (87003507, 88012457, 94088429).
    """
    return not sim.scenario.has_sacct and any(
        job.started_t <= said_t <= job.ended_t
        and (after.started_t + UNEXPLAINED_S < job.ended_t
             or not any(job.ended_t < t < job.ended_t + MIN_JOB_AGE_S for t, _ in sim.slurm.clear_looks))
        and any((fault.kind in ("batch_crashes", "batch_silent") and job.started_t <= fault.t <= said_t)
                or (fault.kind in ("batch_cut", "one_way_cut") and fault.t <= said_t <= fault.end_t)
                for fault in sim.scenario.faults)
        for job, after in itertools.pairwise(sim.all_jobs))


def _died_with_its_job(sim: Sim, t: float) -> bool:
    """What was learned then stood on a node's own disk alone: its job ended before the file server was back.

    Seeds 2562 and 30422: the leader saw that the job was no longer in the queue, and its line about it waited for the
    server. squeue forgets a cancelled job after MinJobAge, sacct is off, slurmstepd writes no line for a job that never
    started, and nobody else looked in time: a watch is blind while the folder is away. Whoever comes later finds no
    job. That alone is no word of a person's: a job that starts while the server is away cannot open its output, and
    goes the same way. In seed 2562 not even the line that it had been queued was on the server. A dead batch host ends
    such a leader before Slurm ends its job (seed 86000308).
    """
    return any(fault.t < t and job.started_t <= t < job.ended_t and _led_until(sim, job, t) < fault.end_t + LOST_S
               for fault in sim.scenario.faults if fault.kind in ("away", "freeze")
               for job in sim.all_jobs)


def _led_until(sim: Sim, job: Job, t: float) -> float:
    """When the leader that lived at `t` has died: with its batch host, or at the latest with its job."""
    crashes = (fault.t for fault in sim.scenario.faults if fault.kind == "batch_crashes")
    return min((crash_t for crash_t in crashes if t <= crash_t < job.ended_t), default=job.ended_t)


def _was_complete(sim: Sim, t: float) -> bool:
    return any(saved_t <= t and step >= sim.scenario.steps for saved_t, step in sim.saves)


def _completes(sim: Sim, state: State) -> None:
    """Training completes where nobody says stop, the code has no bug, and enough nodes stay good."""
    if state.ended is None or sim.said or sim.cancelled_late:
        return
    if sim.bug_step is not None or sim.is_forgetful or sim.before.is_hopeless:
        return
    if sim.scenario.save_every * sim.scenario.step_s > sim.scenario.limit_min * 60 and not sim.scenario.handles_signal:
        return   # no job of it is long enough for a checkpoint
    if sim.scenario.nan == "always" or (sim.scenario.nan and sim.scenario.faults):
        return   # what comes back ends the run, or costs budget, as other failures do
    if sim.scenario.bad_node and sim.scenario.faults:
        return   # beside a spare alone it ends no run; what else goes wrong may take that spare
    kinds = [fault.kind for fault in sim.scenario.faults]
    user_failures = sum(kind in ("rank_dies", "all_ranks_fail", "corrupt") for kind in kinds)
    if user_failures and "no step was made since the start" in state.ended.why:
        return   # an error of the program that is sure, before the first step: the policy says once
    storage = any(kind in ("refuses",) for kind in kinds)   # trainings die of a full disk, and that costs budget
    # Bad nodes end a run by the code for that. Where too few others are left, jobs without progress may end it first.
    too_few = sim.scenario.pool - len(sim.failed_checks | sim.dead_gpus) < sim.scenario.nodes
    has_too_few = sim.failed_checks and (state.ended.exit_code == CHECK_FAILED or too_few)
    if state.ended.how != "completed" and user_failures < 2 and not storage and not has_too_few:
        sim.violate(f"the run ended as {state.ended.how} ({state.ended.why}), though nothing stood in its way")
    if state.ended.how == "completed" and not _was_complete(sim, sim.clock.t):
        sim.violate("the run is called complete, and is not")


def goes_on_only_by_progress(sim: Sim) -> None:
    """No run makes job after job without a new checkpoint; a job starts. Faults may take some from it, one each."""
    starts = sorted(job.started_t for job in sim.all_jobs if job.started_t)
    best, barren, most = -1, 0, endless.MOST_IDLE + len(sim.scenario.faults)
    for start_t, end_t in itertools.pairwise(starts):
        highest = max((step for t, step in sim.saves if start_t <= t < end_t), default=-1)
        best, barren = max(best, highest), 0 if highest > best else barren + 1
    if barren > most:
        sim.violate(f"{barren} jobs in a row brought no checkpoint beyond step {best}, and the run goes on")


def _asks_slurm_little(sim: Sim) -> None:
    made = [(t, who) for (t, _), who in zip(sim.slurm.calls, sim.slurm.callers, strict=True) if who is not None]
    times = [t for t, _ in made]   # those that reached slurmctld
    starts = sum(job.restarts for job in sim.all_jobs)
    incidents = 1 + len(sim.attempts) + len(sim.all_jobs) + starts + len(sim.said) + len(sim.people)
    outage_s = sum(fault.length_s for fault in sim.scenario.faults if fault.kind.startswith("slurm_"))
    allowed = CALLS_AN_INCIDENT * incidents + outage_s / 5.0 + sim.before.longest_s / LOOK_EVERY_S
    if len(times) > allowed:
        sim.violate(f"{len(times)} calls to Slurm in {incidents} incidents")
    for caller in dict.fromkeys(who for _, who in made if who not in sim.people):   # who type a verb now and then
        mine = [t for t, who in made if who is caller]
        for first, third in zip(mine, mine[CALLS_A_SECOND:], strict=False):
            if third - first < 0.999:
                sim.violate(f"more than {CALLS_A_SECOND} calls to Slurm within a second, at {first:.1f} s")
                return


def _resumes_from_the_newest(sim: Sim, state: State) -> None:
    """No step of a whole checkpoint is trained again, unless that one was journalled as one that does not load."""
    rejected = {step for _, step in state.rejected} | {one.step for cut in state.nan_cuts for one in cut.taken}
    for t, attempt, newest in sim.resumes:
        if attempt.told_step < newest and newest not in rejected:
            said = f"the checkpoint of step {newest} is whole"
            sim.violate(f"attempt {attempt.number} starts at step {attempt.told_step} at {t:.1f} s, but {said}")


def _says_what_is_lost(sim: Sim, state: State) -> None:
    """An attempt that has not loaded its checkpoint never trains past the next one unsaid, while anybody leads it.

    Two steps that are trained again are no lost progress: a log must name three below the checkpoint's (seed 20006548).
    """
    said = {attempt.number for attempt in state.attempts if attempt.lost is not None}
    for t, attempt, _ in sim.launches:
        if any(_loses_its_leader(sim, job, t) for job in sim.all_jobs if job.id == attempt.job):
            continue
        trained = attempt.step - attempt.first_step
        allowed = max(sim.scenario.save_every, 4) + SEEN_S / sim.scenario.step_s
        is_lost = attempt.told_step - attempt.first_step >= lost.ENOUGH
        if is_lost and trained > allowed and attempt.number not in said:
            sim.violate(f"attempt {attempt.number} was to go on from step {attempt.told_step}, has trained {trained} "
                        "steps from the start, and nobody says so")


def _loses_its_leader(sim: Sim, job: Job, t: float) -> bool:
    """Whether the leader of an attempt that was launched at `t` died before it could read its steps, and no standby was
    there yet (seed 93000328).
    """
    died_t = _led_until(sim, job, t)
    return died_t < min(job.ended_t, t + sim.scenario.load_s + SEEN_S) and not any(
        died_t < took_t < job.ended_t for took_t, _ in sim.takeovers)


def _accuses_with_reason(sim: Sim, state: State) -> None:
    """No node of a healthy fleet is called slow; one that was wrongly called so is taken back, once that is proved."""
    scenario, search = sim.scenario, state.search
    innocent = [node for node, _ in search.slow if node != scenario.slow_node or scenario.slow not in ("node", "wrong")]
    if innocent:
        sim.violate(f"{innocent} are called slow, and are not")
    if sim.benched and scenario.slow in ("", "healthy"):
        sim.violate("nodes are measured, though steps take as long as ever")
    if search.has_won is not None and search.has_won != (scenario.slow == "node"):
        sim.violate(f"the proof says {search.has_won}, and steps take longer because of: {scenario.slow}")
    kept = {one.node for one in state.exclusions if one.why.startswith("slows")}
    if search.has_won is False and kept:
        sim.violate(f"{sorted(kept)} stay excluded, though the speed did not come back without them")


def _loses_little_by_experiments(sim: Sim, state: State) -> None:
    """At most so many are made. Each stops at a checkpoint: few steps are made again."""
    planned = state.search.planned
    if len(planned) > MOST_PLANNED:
        sim.violate(f"{len(planned)} experiments were made")
    if {fault.kind for fault in sim.scenario.faults} & STANDS_STILL or sim.scenario.fs_late_s:
        return   # who looks for the checkpoint stands still, and the training goes on
    how = ("interrupted",) if sim.scenario.faults else ("interrupted", "failed")   # it may fail while it is awaited
    stopped = {one.number for one in state.attempts
               if one.number in planned and one.asked_row == "slow_restart" and one.ended in how}
    for attempt, after in zip(sim.attempts, sim.attempts[1:], strict=False):
        lost_s = (attempt.step - after.told_step) * sim.scenario.step_s
        if attempt.number in stopped and lost_s > STOPS_S + ENDS_S:
            sim.violate(f"the experiment after attempt {attempt.number} loses {lost_s:.0f} s of steps")


def _goes_back_only_so_often(sim: Sim, state: State) -> None:
    """A NaN that comes back at the same step ends the run, and nothing of it is called complete."""
    steps = [cut.step for cut in state.nan_cuts]
    if any(steps.count(step) > MOST_SAME for step in steps):
        sim.violate(f"the loss was no number at the same step again and again: {steps}")
    is_complete = state.ended is not None and state.ended.how == "completed"
    if is_complete and not sim.scenario.faults and sim.scenario.steps in sim.bad:
        sim.violate("the run has completed with weights that are no numbers")


def _restarts_wait_for_no_check(sim: Sim) -> None:
    """A restart in place has no check in it, unless the run asks for that or pauses anyway."""
    failed: int | None = None
    checked: int | None = None   # the attempt after which nodes were checked, with no pause so far
    is_paused = False
    for event in journal.read(sim.run_dir).events:
        if event.event == "attempt_ended":
            failed, is_paused = (int(event.data["attempt"]), False) if event.data["how"] in BAD_ENDS else (None, False)
        elif event.event in ("attempt_started", "job_started"):
            if checked is not None and event.event == "attempt_started":
                sim.violate(f"the restart after attempt {checked} waits for a check that nobody has asked for")
            failed = checked = None
        elif event.event == "decision" and event.data.get("row") == "back_off":
            is_paused, checked = True, None   # its pause may go unsaid until the folder answers (seed 87018412)
        elif event.event == "decision" and event.data.get("row") == "check_again" and not (
                failed is None or is_paused or sim.scenario.after_failure == "before"):
            checked = failed
