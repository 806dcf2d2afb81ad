"""Handles a silent training: checks its ranks, waits for a second witness, and ends it only then.

Silence is the first witness (hangs). The second is a hang check on all nodes. It sees stacks that do not move,
ranks asleep in D state or stopped, nodes that do not answer, and ranks that are gone (stacks.verdict). Otherwise it
says so, and checks again later. It waits for a frozen filesystem: a restart would hang in its first read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

from safelaunch.base.io.localtime import clock, moment
from safelaunch.base.secretmask import mask
from safelaunch.checkpoints.io import checkpoints
from safelaunch.hangs import hang
from safelaunch.hangs.proof import EndedRanks, Examination
from safelaunch.nodehealth.slow import pace
from safelaunch.slurm import nodefold, slurmtext
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Command, Result
from safelaunch.stacks import stacktext
from safelaunch.stacks.io.collect import Collected
from safelaunch.stacks.scene import HangVerdict
from safelaunch.supervisor.common.inspection import collect
from safelaunch.supervisor.hang import hangchecks
from safelaunch.supervisor.hang.thaw import wait_for_thaw
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.clock import Clock, Timer
from safelaunch.supervisor.state.endpoint import GuardEndpoint
from safelaunch.supervisor.state.hangs import HangWatch
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.ports import FolderPort, Here, Say
from safelaunch.supervisor.state.tasks import Step, Work
from safelaunch.trainlog.lines import Talk

PRESERVE_S = 3600.0       # where preserve_site.for names no time
TIME_LEFT_S = 5.0         # slurmctld answers within milliseconds
CHECKPOINT_S = 1.0        # a folder of some hundred checkpoints takes 0.1 s; pings must not wait for it
SKEW_S = 60.0             # of the file server's clock; a checkpoint from further ahead would be new for ever


def follow(lead: Leader, talk: Talk | None) -> None:
    """Take in what the log has said; check the ranks when it has been silent for too long."""
    if not lead.plan.hang.is_on:
        return
    lead.hangs.follow(lead.running.now.number, len(lead.running.now.nodes), lead.plan.hang, lead.now_s)
    if talk is not None:
        lead.hangs.note_log(lead.running.grew_s, talk)
    ended, failed = _ended_beside_others(lead.guard_endpoint)
    lead.hangs.note_failed_ranks(failed, lead.now_s)
    if ended is EndedRanks.WELL:   # no step is to come: whatever the others print is a sign of life
        lead.hangs.note_alive(lead.running.grew_s)
    if lead.hangs.is_silent(lead.now_s) and lead.running.now.may_hang:
        lead.tasks.begin(Work.CHECK_RANKS, check_ranks(lead))


def _ended_beside_others(endpoint: GuardEndpoint) -> tuple[EndedRanks, int]:
    """Whether ranks have ended in a step whose other ranks live; how many of them badly."""
    guards = endpoint.server.guards.values()
    ended = [(guard.step, guard.code) for guard in guards if guard.code is not None]
    living = {guard.step for guard in guards if guard.code is None} if ended else set()
    codes = [code for step, code in ended if step in living]
    failed = sum(code != 0 for code in codes)
    return (EndedRanks.BADLY if failed else EndedRanks.WELL if codes else EndedRanks.NONE), failed


def take_overdue_turn(clock: Clock, running: RunningAttempt, hangs: HangWatch) -> bool:
    """Whether a hang check is due, as far as the log was read; asked once a second."""
    return (running.live is not None and hangs.is_about(running.live.number) and hangs.is_silent(clock.now_s)
            and clock.take_turn(Timer.OVERDUE_LOG, 1.0))


def would_call_t(clock: Clock, running: RunningAttempt, hangs: HangWatch) -> float | None:
    """When this leader would call the attempt hung (epoch s), for people."""
    in_s = None if running.live is None else hangs.calls_in_s(clock.now_s)
    return None if in_s is None else clock.now + in_s


def step_due(clock: Clock, running: RunningAttempt, hangs: HangWatch) -> dict[str, Any]:
    """Of the heartbeat: the time of the last step, and when the next one is late; nothing where nobody knows."""
    due = hangs.due() if running.live is not None and hangs.is_about(running.live.number) else None
    if due is None:
        return {}
    at_t = clock.now - clock.now_s
    return {"step_t": round(at_t + due.since_s, 2), "late_t": round(at_t + due.late_s, 2), "phase": due.phase}


def check_ranks(lead: Leader) -> Step:
    """Check all ranks, twice if the first check shows a hang; end the attempt if both do."""
    number, began_s = lead.running.now.number, lead.hangs.rhythm.since_s
    since_s = lead.now_s - began_s
    phase = hang.phase_of(lead.hangs.rhythm)
    lead.running.suspect_hang()
    lead.journal.record(lead.journal.event("hang_suspected", attempt=number, silent_s=round(since_s, 1), phase=phase,
                                           step=lead.hangs.rhythm.step, step_t=lead.running.last_step.t,
                                           usual_s=_usual_s(lead.running), frozen=lead.folder.is_frozen))
    what = f"no step for {since_s:.0f} s{'' if phase in (hang.STEP, hang.WARM_UP) else f' (phase: {phase})'}"
    if not lead.plan.hang.dump_stacks:
        lead.say(f"{what}; hang.dump_stacks is off, so no check is made")
        lead.hangs.postpone_check(lead.now_s)
        return
    lead.hangs.note_alive(_last_checkpoint_s(lead.here, lead.clock, lead.files))
    if not _is_silent_still(lead.clock, lead.running, lead.hangs, number):
        lead.say.decision("hang", f"no step for {since_s:.0f} s, but a checkpoint has appeared since", attempt=number,
                          is_work=True)
        return
    lead.say(f"{what}: reading the stacks of all ranks")
    found = yield from hangchecks.examine(
        lead.hangs, lambda: lead.now_s,
        lambda depth: collect(lead.helpers, lead.running.now.nodes, depth),
        lambda: _is_silent_still(lead.clock, lead.running, lead.hangs, number),
        partial(_keep, lead.clock, lead.files, number), lambda: _ended_beside_others(lead.guard_endpoint)[0])
    if isinstance(found, HangVerdict):
        yield from _act(lead, number, found)
    elif found is not None:
        end_s = yield from _end_of_job_s(lead.here, lead.clock)
        if lead.hangs.rhythm.since_s == began_s:
            lead.hangs.check_before(lead.now_s, end_s)
        next_s, shift_s = hang.deadline_s(lead.hangs.rhythm), lead.clock.now - lead.now_s
        lead.say.decision("hang", f"{found}; " + tell_next(lambda at_s: moment(at_s + shift_s, lead.clock.now), next_s,
                                                           lead.hangs.counts_s, end_s),
                          attempt=number, is_work=lead.hangs.is_at_work)


def _end_of_job_s(here: Here, clock: Clock) -> Generator[Command, Result | None, float]:
    """When Slurm ends this job, monotonic seconds; infinite where it has no limit or did not say."""
    if here.job.is_local:
        return math.inf
    result = yield here.world.command(slurm.squeue_time_left(here.job.id), here.job.env, TIME_LEFT_S)
    left_s = slurmtext.parse_time_left_s(result.stdout) if result is not None and result.is_ok else None
    return math.inf if left_s is None else clock.now_s + left_s


def tell_next(at: Callable[[float], str], next_s: float, counts_s: float | None, end_s: float) -> str:
    """For people: when the silence counts as a hang, and when the ranks are checked again. `at` writes a time."""
    if next_s >= end_s:
        return f"the job's time limit comes before the next check, at {at(end_s)}"
    counts = ""
    if counts_s is not None:
        counts = f"counted as a hang at {at(counts_s)} if nothing changes, " if counts_s < end_s else \
            f"the job's time limit comes before it counts as a hang, at {at(end_s)}; "
    return f"{counts}next check at {at(next_s)}"


def _usual_s(running: RunningAttempt) -> float | None:
    """How long a step takes; None = not known. The rhythm is of reads of the log, which may hold many steps."""
    level = None if running.pace is None else pace.level_of(running.pace)
    return None if level is None else round(level.level_s, 4)


def _last_checkpoint_s(here: Here, clock: Clock, files: FolderPort) -> float:
    """When the newest complete checkpoint was written; long ago, where there is none or its folder does not answer."""
    resume = here.plan.resume
    if resume.dir is None:
        return 0.0
    folder = os.path.join(here.job.cwd, resume.dir)   # noqa: PTH118 - text only

    def newest() -> float | None:
        best = checkpoints.find(folder, resume.format, resume.pattern).best
        return os.stat(best.path).st_mtime if best else None   # noqa: PTH116 - a text

    answer = files.ask(newest, CHECKPOINT_S)
    if not answer.is_ok or answer.value is None or answer.value > clock.now + SKEW_S:
        return 0.0
    return clock.now_s - max(0.0, clock.now - answer.value)


def _is_silent_still(clock: Clock, running: RunningAttempt, hangs: HangWatch, number: int) -> bool:
    """Whether the attempt still lives and has made no step meanwhile."""
    return (running.live is not None and running.live.number == number and running.live.may_hang
            and hangs.is_silent(clock.now_s))


def _keep(ticks: Clock, files: FolderPort, number: int, collected: Collected, examination: Examination) -> None:
    """Keep the dumps in the attempt's folder, for people and for `why`."""
    folder = f"stacks/{clock(ticks.now).replace(':', '')}"
    for node, line in collected.lines.items():
        files.put(number, f"{folder}/{node}.json", mask(line).encode(errors="replace") + b"\n")
    files.put(number, f"{folder}/verdict.json", stacktext.to_public(
        examination.groups, examination.found, collected.reports, collected.silent, collected.took_s))


def _act(lead: Leader, number: int, verdict: HangVerdict) -> Step:
    """Both witnesses agree."""
    then = lead.plan.hang.then
    is_silent = partial(_is_silent_still, lead.clock, lead.running, lead.hangs, number)
    where = f" on {nodefold.fold(verdict.suspects)}" if verdict.suspects else ""
    lead.say.decision("hang", f"attempt {number} hangs: {verdict.summary}{where}", attempt=number, is_work=False)
    if then == "notify":
        lead.say("hang.then is notify: nothing is ended")
        lead.hangs.postpone_check(lead.now_s)
        return
    if then == "preserve":
        yield from _preserve(lead.here, lead.clock, lead.journal, lead.files, lead.say, lead.running.now.nodes,
                             is_silent)
    while lead.folder.is_frozen:   # the training may go on with it; a restart could not even read its checkpoint
        yield 2.0
        if not is_silent():
            return
    # A rank that slept on its filesystem goes on by itself.
    if (yield from wait_for_thaw(lead.here, lead.clock, lead.tasks, lead.say, verdict)):
        lead.hangs.postpone_check(lead.now_s)
        return
    if not is_silent():
        return
    lead.hangs.note_hang(number, verdict)
    lead.running.note_hang(verdict.summary)


def _preserve(
    here: Here, ticks: Clock, journal: LeaderJournal, files: FolderPort, say: Say, nodes: Sequence[str],
    is_silent: Callable[[], bool]
) -> Step:
    """Keep the hung processes for people until they are released or the time is up."""
    for_s = here.plan.preserve.for_s or PRESERVE_S
    until, until_s = ticks.now + for_s, ticks.now_s + for_s
    journal.record(journal.event("preserved", until=until, nodes=list(nodes)))
    say(f"the hung attempt is kept until {moment(until, ticks.now)} (hang.then: preserve): look with "
        f"`safelaunch stacks {here.run_dir}`, go on with `safelaunch release {here.run_dir}`")
    while ticks.now_s < until_s and not any(request.name == "release" for request in files.state.requests):
        yield 1.0
        if not is_silent():
            break
    journal.record(journal.event("released"))
