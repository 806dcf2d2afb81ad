"""The leader's loop: the supervisor in the batch step. One tick is observe → decide → act → record.

Only `decide` decides. Nothing here blocks on the shared folder or on Slurm. Disposable children touch the folder
(run.io.shared), and Slurm's commands run in the background. Longer acts are generators that yield what they wait for.
The process can die at any line: the batch shell starts it again. What it needs to go on is in the journal and on this
node's own disk.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
from pathlib import Path

from safelaunch.base.io import durable
from safelaunch.base.io.localtime import moment
from safelaunch.decide.facts import turn
from safelaunch.decide.facts.actions import (
    AskNodes,
    AskToEnd,
    BenchNodes,
    CheckNodes,
    Decision,
    Fence,
    Finish,
    HandOver,
    Hold,
    Kill,
    Launch,
    Preserve,
    Wait,
)
from safelaunch.decide.facts.phase import Phase
from safelaunch.decide.facts.turn import Turn
from safelaunch.decide.turn import rows
from safelaunch.guard.io.job import Allocation, StandbyStart, current, standby
from safelaunch.supervisor import observe
from safelaunch.supervisor.attempt import attempts, closing, resuming
from safelaunch.supervisor.common import asking, slurmends
from safelaunch.supervisor.ends import endings
from safelaunch.supervisor.ends.takeover import boot
from safelaunch.supervisor.io.attempt import raise_limit
from safelaunch.supervisor.io.world import World
from safelaunch.supervisor.jobs import nextjob
from safelaunch.supervisor.jobs.standby import Standby
from safelaunch.supervisor.leader import DEMOTED, HANDED_OVER, Leader, Superseded, hold_token
from safelaunch.supervisor.nodes import bootchecks, slowsearch
from safelaunch.supervisor.state.ports import TookOver
from safelaunch.supervisor.state.tasks import Work

SOON_S = 5.0   # a wait that is asked anew each turn has no end that people could use


def run(lead: Leader) -> int:
    """The job's exit code."""
    is_ours = True
    while lead.course.final is None:
        try:
            tick(lead)
        except Superseded as other:
            is_ours = other.by is not None   # else the folder is another run's
            _step_down(lead, other)
    if lead.course.final != DEMOTED and is_ours:
        observe.publish_heartbeat(lead)
    lead.folder.shared.close()
    lead.server.close()
    return lead.course.final


def tick(lead: Leader) -> None:
    """Sleep and observe; then decide, act and record as long as one act allows the next at once. An attempt's end, the
    decision and the next launch wait for no tick.
    """
    if lead.course.phase is Phase.BORN:
        boot(lead)
        lead.wait(0.0)   # the first attempt of a job does not wait for its first tick
    else:
        lead.wait(min(lead.timeout_s(), observe.wakes_in_s(lead.clock, lead.reach, lead.running)))
    observe.observe(lead)
    if lead.plan.restart.warm != "false":
        attempts.keep_next(lead.helpers, lead.resume, lead.running, lead.reach, lead.now_s, lead.address_of,
                           lead.own_address())
    is_going_on = True
    while lead.course.final is None and is_going_on:
        lead.enter_phase()
        is_going_on = step(lead)
    if lead.course.final is None:
        lead.enter_phase()


def _step_down(lead: Leader, other: Superseded) -> None:
    """Another supervisor leads, or the folder is another run's: this one no longer owns what runs here."""
    lead.course.enter(Phase.SUPERSEDED)
    lead.say(f"steps down: {other}")
    step = turn.step_down(other.by, lead.job.host, wants_standby=lead.wants_standby)
    if step.ends_attempt:
        lead.server.tell({"do": "end", "grace_s": 0.0}, lead.now_s)
    lead.course.end(DEMOTED if step.stands_by else HANDED_OVER)
    if (process := lead.running.process) is not None:
        process.finish_pump()
        if step.ends_attempt:
            process.kill()   # its stop message was lost with the connection, and it waited for minutes (drill)


def step(lead: Leader) -> bool:
    """One decision and its act; True when another may follow at once."""
    if lead.running.live is not None and lead.running.live.fenced:
        lead.diagnosis.foresee(lead.running.live, lead.course.ending)
    match turn.judge(observe.turn_facts(lead.job, lead.clock, lead.reach, lead.running, lead.course, lead.tasks)):
        case Turn.WAIT:
            return False
        case Turn.READ_LOG:
            slurmends.find_who_ended_it(lead.here, lead.clock, lead.journal, lead.running, lead.course, lead.tasks,
                                        lead.say)
            return True
        case Turn.CLOSE:
            closing.close_attempt(lead)
            return True
    decision = rows.decide(lead.state, lead.seen(), lead.plan)
    return decision.action is not None and act(lead, decision)


def act(lead: Leader, decision: Decision) -> bool:
    """Carry out a decision; True when it changed something that the next decision depends on."""
    action, row = decision.action, decision.row
    again = False
    match action:
        case Launch():
            attempts.launch(lead, row, action)
        case CheckNodes():
            lead.tasks.begin(Work.CHECK_NODES, bootchecks.check(
                lead.suspects, lead.helpers, lead.address_of, lead.tasks, lead.say, row, action))
        case AskNodes():
            lead.tasks.begin(Work.ASK_NODES, nextjob.ask_missing(lead.clock, lead.next, lead.nodes, action))
        case BenchNodes():
            lead.tasks.begin(Work.BENCH_NODES, slowsearch.bench(lead.suspects, lead.tasks, lead.say, row, action))
        case AskToEnd():
            lead.running.mark_asked(row, lead.clock.now)
            lead.say.decision(row, f"asking the training to end: {action.why}", action="end",
                              attempt=lead.running.now.number, log_bytes=lead.running.log_bytes())
            lead.tasks.begin(Work.ASK_TO_END, asking.asking_of(lead).ask_to_end(action.signal), row)
        case Kill():
            attempts.kill(lead, row, action)
        case Fence():
            again = attempts.fence(lead)
        case HandOver():
            lead.tasks.begin(Work.HAND_OVER, endings.hand_over(lead, row, action))
        case Hold():
            lead.say.decision(row, action.why)
            endings.put_on_hold(lead.here, lead.journal, lead.files, lead.say, action.why)
            observe.read_requests(lead)
            again = True
        case Finish():
            lead.tasks.begin(Work.FINISH, endings.finish(lead, row, action))
        case Preserve():
            endings.preserve(lead.here, lead.clock, lead.journal, lead.tasks, lead.say, row, action)
        case Wait():
            if row != lead.journal.last_row:
                now = lead.clock.now
                until = f" until {moment(action.until, now)}" if action.until - now > SOON_S else ""
                lead.say.decision(row, f"waiting{until}: {action.why}", until=round(action.until, 3))
            if row == "frozen":
                resuming.find_resume(lead.here, lead.clock, lead.journal, lead.files, lead.resume, lead.say)
            elif row == "give_up":
                endings.keep_for_longer(lead.clock, lead.journal, lead.folder, lead.say, action)
    lead.journal.note_row(row)
    return again


def main(argv: list[str]) -> None:
    """Lead the run in `argv` (run folder, node-local folder, role) until the job's end; `final` gets its exit code.

    The role is "leader", or "standby", which leads only once its leader is dead. A file `role` overrules it: it holds
    the role that this process's predecessor had last.
    """
    run_dir, local = Path(argv[0]), Path(argv[1])
    role = _read(local / "role") or argv[2]
    start = standby(os.environ) if "SAFELAUNCH_STANDBY" in os.environ else None
    job = start.job if start else current(os.environ)
    gc.freeze()   # imports live to the end; a collector's search of them takes 17 of 24 ms
    raise_limit()
    os.chdir("/")
    os.umask(0o077)
    (local / "leader.born").touch()
    world, took_over = World(), None
    if role == "standby":
        took_over = stand_by(run_dir, local, job, world, start)
        if took_over is None:
            _write(local / "final", str(code_of_standby(start)))
            sys.exit(0)
        _write(local / "role", "leader")
    elif start is not None:   # it had taken over, and was restarted
        took_over = TookOver(job.host, world.now_s())
    lead = Leader(run_dir, local, job, world, took_over)
    lead.nodes.note_addresses(start.addresses if start else {})
    code = run(lead)
    if code == DEMOTED:
        _write(local / "role", "standby")
    else:
        _write(local / "final", str(code))
    sys.exit(code)


def code_of_standby(start: StandbyStart | None) -> int:
    """The exit code of a shell whose supervisor was standby to the end. As batch script (it once led) never 0, which
    would look like the training's success.
    """
    return 0 if start else HANDED_OVER


def stand_by(run_dir: Path, local: Path, job: Allocation, world: World, start: StandbyStart | None) -> TookOver | None:
    """Watch the leader; returns from whom to take over, or None when nothing is left to take over."""
    token = start.token if start else str(json.loads((local / "control.json").read_text())["token"])
    standby = Standby(run_dir, local, job, world, token, start.endpoint if start else None)
    if not standby.watch():
        return None
    hold_token(local, token, watched=standby.took_over.eligible)   # they may take over from the earlier leader
    return standby.took_over


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text().strip()
    return ""


def _write(path: Path, text: str) -> None:
    durable.put(path, f"{text}\n".encode())
