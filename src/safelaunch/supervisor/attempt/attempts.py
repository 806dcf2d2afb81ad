"""An attempt's life: launched, asked to end, killed, fenced; its end is in `closing`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from safelaunch.base.timing import CLAIM_HOLDS_S
from safelaunch.checkpoints.model import Checkpoint
from safelaunch.checkpoints.resume import resume_args
from safelaunch.decide.facts.actions import Kill, Launch
from safelaunch.decide.facts.seen import Live
from safelaunch.decide.nodes.resize import output_of
from safelaunch.guard.io.guardcode import guard_text
from safelaunch.run import acts
from safelaunch.run.acts import ActOutcome
from safelaunch.run.io import journal, runfolder
from safelaunch.run.io.outbox import PUT
from safelaunch.run.plan import Plan
from safelaunch.script.script import quote_bash
from safelaunch.slurm import nodefold, slurmtext
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Command
from safelaunch.slurm.via import HERE
from safelaunch.supervisor import observe
from safelaunch.supervisor.attempt.ownscript import exits_of_script
from safelaunch.supervisor.attempt.resized import output_path, remove_spent
from safelaunch.supervisor.attempt.standin import ScriptJob
from safelaunch.supervisor.common import inspection, masterport
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.nodes import suspectchecks
from safelaunch.supervisor.state import standbys
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.clock import Timer
from safelaunch.supervisor.state.endpoint import GuardEndpoint, had_eligible
from safelaunch.supervisor.state.folder import FolderState
from safelaunch.supervisor.state.helpers import Helpers
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.nodes import Nodes
from safelaunch.supervisor.state.ports import Here
from safelaunch.supervisor.state.reach import Reach
from safelaunch.supervisor.state.resume import ResumePoint
from safelaunch.supervisor.state.tasks import Step, Work

NAMES_LOOK_S = 0.05     # between two looks at the child that resolves names
HEARD_S = 0.25          # of people's requests at a launch: a read of them takes a child, 3 % of a restart


def launch(lead: Leader, row: str, action: Launch) -> None:
    """Start the next attempt: check people's requests, then claim, intent, srun, outcome."""
    asked = lead.folder.requests
    if not observe.read_requests(lead, HEARD_S) or lead.folder.requests != asked:
        # a kill switch comes first (simulated: test_found "a kill switch touched while the batch host stood still is
        # seen before the next launch")
        return
    number = (lead.state.attempt.number if lead.state.attempt else 0) + 1
    # Before all that follows: of two supervisors only the one that wins this number launches the attempt.
    claim = lead.claim(f"{journal.LAUNCH}{number}")
    if claim == 0:
        return
    port, trial = masterport.choose(lead.here, number, action.nodes[0], lead.nodes.takes_port(number))
    if trial is not None:
        trial.close()
    newest = resume_point(lead.plan, lead.journal, lead.resume, action)
    facts: dict[str, Any] = {
        "attempt": number, "job": lead.job.id, "nodes": list(action.nodes), "port": port,
        "resume_step": newest.step if newest else None, "resume_path": newest.path if newest else None,
        "whole_steps": list(lead.resume.whole_steps),
    }
    if action.resize is not None:
        convert = action.resize._replace(output=output_path(lead.here, number))
        facts["resize"] = {"from": convert.from_nodes, "to": convert.to_nodes, "output": convert.output}
    decided = lead.journal.event("decision", row=row, action="launch", why=action.why, attempt=number)
    script = acts.perform_now(lead.journal, "launch", claim, lambda: _start(lead, action, facts), (decided,),
                              attempt=number, job=lead.job.id, nodes=list(action.nodes), resize=facts.get("resize"))
    if script is not None:
        lead.folder.shared.enqueue(PUT, *lead.record_of(number, "live"))
        lead.files.put(number, "launch.sh", script.encode())
        lead.say(f"attempt {number} on {nodefold.fold(action.nodes)}: {action.why}")
        lead.tasks.begin(Work.INSPECT, inspection.at_start(
            lead.helpers, lead.running, lead.journal, lead.files, lead.say, number), number)
        lead.tasks.begin(Work.REMOVE_SPENT, remove_spent(lead.here, lead.journal, lead.resume, lead.say))
        if action.resize is None:   # else the training, which may use them, follows soon
            lead.tasks.begin(Work.CHECK_SUSPECTS, suspectchecks.check(
                lead.suspects, lead.helpers, lead.running, lead.reach, lead.tasks, lead.say, number), number)


def _start(lead: Leader, action: Launch, facts: dict[str, Any]) -> ActOutcome[str | None]:
    """srun of an announced attempt, and a script that repeats it by hand. `facts` are those of attempt_started."""
    if lead.here.world.now_s() - lead.journal.claimed_s > CLAIM_HOLDS_S:
        return ActOutcome(False, None, {"why": "this supervisor stood still since it claimed the launch"})
    number = facts["attempt"]
    is_hook = action.resize is not None
    words = () if is_hook else keep_resume_args(
        lead.plan, lead.folder, resume_point(lead.plan, lead.journal, lead.resume, action))
    address = "127.0.0.1" if lead.job.is_local else lead.address_of(action.nodes[0])
    extra = _attempt_env(lead.here, lead.nodes, lead.resume, address, facts, action.nodes)
    own = None
    if lead.plan.is_script and not lead.job.is_local:
        own = ScriptJob(lead.here, lead.state, number, action.nodes)
        words, extra = own.args if own.link else (), {**own.dead_steps(), **extra, **own.environ()}
    env = {**(lead.job.env if own is None else own.env_of_job()), **extra,
           **_secrets(lead.here, lead.guard_endpoint, lead.own_address(), number)}
    tasks = 1 if is_hook else lead.plan.tasks_on(len(action.nodes))
    known = {**facts, **({} if lead.plan.launch.logs == "merged" else {"rank_logs": lead.plan.launch.local_ranks})}
    lead.running.begin(Live(number, action.nodes, tasks=tasks, is_hook=is_hook))
    lead.server.expect(number)
    held = lead.resume.held
    process = (held and held.take(number, action.nodes, words, env, known)) or lead.here.world.launch(
        lead.here.local, number, words, env, known,
        *([] if own is None else [own.facts(lead.files.main_log(number), lead.state.excluded)]))
    if held is not None and held.why:
        lead.say(f"the step that waited is of no use: {held.why}; another one was started")
    lead.running.mark_launched(process, lead.now_s)
    lead.clock.hurry(Timer.PROGRESS)   # its first steps are read sooner than the last ones of the attempt before
    if not had_eligible(lead.here, lead.guard_endpoint):
        lead.standbys.allow_start_by(lead.now_s + standbys.FIRST_S)
    script = _launch_script(lead.here.run_dir, extra, words)
    return ActOutcome(True, script, first=(lead.journal.event("attempt_started", **facts, why=action.why),))


def keep_next(
    helpers: Helpers, resume: ResumePoint, running: RunningAttempt, reach: Reach, now_s: float,
    address_of: Callable[[str], str | None], own_address: str,
) -> None:
    """With restart.warm: once the attempt makes steps, have the next one's step wait on its nodes."""
    here, live, held = helpers.here, running.live, resume.take_held()
    held.follow(live is not None, () if live is None else live.nodes, now_s)
    is_training = live is not None and live.killed_t is None and not live.is_hook and not live.failed
    if live is None or not is_training or running.last_step.t is None or held.tried == live.number or reach.lost:
        return
    number = live.number + 1
    known = {**dict.fromkeys(("resume_path", "resume_step")), "attempt": number, "port": 0}   # the rest comes later
    address = "127.0.0.1" if here.job.is_local else address_of(live.nodes[0])
    env = {**here.job.env, **_attempt_env(here, helpers.nodes, resume, address, known, live.nodes),
           **_secrets(here, helpers.guards, own_address, number)}
    mark, tasks = f"{here.plan.run_id}.{here.job.id}.", here.plan.tasks_on(len(live.nodes))
    held.begin(live.number, live.nodes, lambda: here.world.hold(
        here.local, number, tasks, f"{mark}{number}", f"{mark}{live.number}", env, here.plan.restart.warm == "auto"))


def resume_point(plan: Plan, journal: LeaderJournal, resume: ResumePoint, action: Launch) -> Checkpoint | None:
    """The checkpoint that an attempt starts from: what before_resize made of the newest one, where needed."""
    newest = resume.newest
    output = None if action.resize else output_of(journal.state, plan, newest, len(action.nodes))
    return newest if newest is None or output is None else replace(newest, path=output)


def keep_resume_args(plan: Plan, folder: FolderState, point: Checkpoint | None) -> tuple[str, ...]:
    """The arguments for resuming now, also kept in the run folder. A later job's node may be unable to run a
    supervisor, and its training must not start from nothing.
    """
    words = resume_args(plan.resume.args, point)
    folder.shared.enqueue(PUT, "resume.args", b"".join(word.encode(errors="surrogateescape") + b"\0" for word in words))
    return words


def _attempt_env(
    here: Here, known: Nodes, resume: ResumePoint, address: str | None, facts: Mapping[str, Any], nodes: tuple[str, ...]
) -> dict[str, str]:
    """The environment of this attempt's script, beside the plan. `address`: of its first node."""
    plan, job = here.plan, here.job
    env = {"SAFELAUNCH_ATTEMPT": str(facts["attempt"]), "SAFELAUNCH_NODELIST": nodefold.fold(nodes),
           "SAFELAUNCH_MASTER_PORT": str(facts["port"]), "SAFELAUNCH_CWD": job.cwd,
           "SAFELAUNCH_KILL_SIGNAL": plan.kill_switch.signal}
    if plan.own.traps_signal(plan.command):
        env["SAFELAUNCH_SIGNAL_TO"] = "shell"
    if len(nodes) != plan.nodes:
        env["SAFELAUNCH_NODES"] = str(len(nodes))
    if (resize := facts.get("resize")) is not None:
        env |= {"SAFELAUNCH_OLD_NODES": str(resize["from"]), "SAFELAUNCH_NEW_NODES": str(resize["to"]),
                "SAFELAUNCH_RESIZE_OUTPUT": resize["output"]}
    if known.no_overlap is not None:
        env["SAFELAUNCH_OVERLAP"] = "no"
    if plan.cluster == HERE:
        env["SAFELAUNCH_KEEPS_JOB"] = "yes"   # which is a person's shell's: no guard ends it as an orphan
    left_out = [node for node in job.nodes if node not in nodes]
    if left_out:
        env["SAFELAUNCH_EXCLUDE"] = nodefold.fold(left_out)
    if address is not None:
        env["SAFELAUNCH_MASTER_ADDR"] = address
    path, step = facts["resume_path"], facts["resume_step"]
    if path is not None:
        env["SAFELAUNCH_RESUME_PATH"] = path
        env["SAFELAUNCH_RESUME_STEP"] = "" if step is None else str(step)
    if resume.newest is not None and path != resume.newest.path:
        env["SAFELAUNCH_RESIZED"] = "yes"
    return env


def _secrets(here: Here, guards: GuardEndpoint, own_address: str, number: int) -> dict[str, str]:
    """What only the guards may know: passed in the environment, never written down."""
    record = here.run_dir / runfolder.attempt_folder(number) / "record.json"
    return {"SAFELAUNCH_GUARD": guard_text(), "SAFELAUNCH_TOKEN": guards.token,
            "SAFELAUNCH_CONTROL": f":{guards.server.port}", "SAFELAUNCH_RECORD": str(record),
            "SAFELAUNCH_ADDRESSES": own_address}


def ask_addresses(here: Here, guards: GuardEndpoint, nodes: Nodes) -> Step:
    """The nodes' addresses: connections from them are accepted first. Slurm is asked only for names that do not
    resolve; else each attempt's script would ask, for 25 ms. A guard that has proved itself counts as one of them
    without all that: its connection has its address.
    """
    asked = here.world.resolve(here.job.nodes)
    while (found := asked.poll()) is None:
        yield NAMES_LOOK_S
    guards.server.strangers.keep_for(address for addresses in found.values() for address in addresses)
    nodes.note_names_of({node: node for node in found})
    unknown = [node for node in here.job.nodes if node not in found and node not in nodes.addresses]
    if unknown:
        result = yield here.world.command(slurm.show_nodes(nodefold.fold(unknown)), here.job.env)
        if result is not None and result.is_ok:
            nodes.note_addresses(slurmtext.parse_addresses(result.stdout))
    guards.server.strangers.keep_for(nodes.addresses.values())


def kill(lead: Leader, row: str, action: Kill) -> None:
    """End every process of the attempt. Its record changes, so that silent nodes' leases run from now.

    Journalled first: ranks that save on TERM and exit with 0 have not completed the run.
    """
    lead.say.decision(row, f"ending the attempt: {action.why}", action="end", attempt=lead.running.now.number,
                      log_bytes=lead.running.log_bytes())
    lead.running.mark_killed(row, lead.clock.now, lead.now_s)
    lead.move_record(lead.running.now.number)
    for node, _ in lead.reach.lost_of(lead.running.live):
        lead.server.hang_up(node, lead.now_s)
    lead.server.tell_all({"do": "end", "grace_s": action.grace_s}, lead.now_s)


def fence(lead: Leader) -> bool:
    """Make sure that nothing of the attempt is left; True once that is sure."""
    sruns = lead.running.process.sruns() if lead.running.process is not None and lead.plan.is_script else None
    for command, done in lead.guard_endpoint.fencer.advance(lead.running.now, lead.now_s, lead.reach.lost,
                                                            lead.ensure_record_moved, lead.folder.is_frozen, sruns):
        lead.tasks.begin(Work.SWEEP, _sweep(lead.helpers, command, done), done)
    for node, why in lead.guard_endpoint.fencer.found_lost():
        lead.reach.lose(node, why)
        lead.tasks.begin(Work.TICKET, inspection.ticket(
            lead.helpers, lead.clock, lead.files, lead.say, lead.running.now.number, node, why), node)
    if lead.guard_endpoint.fencer.is_done(lead.running.now):
        lead.running.mark_fenced(exits_of_script(lead.here, lead.guard_endpoint, lead.running)
                                 if lead.plan.is_script else lead.running.now.exits)
        return True
    if lead.guard_endpoint.fencer.is_asking:
        exits = exits_of_script(lead.here, lead.guard_endpoint, lead.running)
        lead.diagnosis.foresee(replace(lead.running.now, exits=exits), lead.course.ending)
    return False


def _sweep(helpers: Helpers, command: Command, node: str) -> Step:
    """Wait for a node's sweep."""
    result = yield command
    helpers.note_result(result)
    if result is not None:
        helpers.guards.fencer.swept(node, result)


def _launch_script(run_dir: Path, env: dict[str, str], words: tuple[str, ...]) -> str:
    """attempts/N/launch.sh: the attempt as it was launched, to repeat by hand inside the allocation."""
    exports = "".join(f"export {key}={quote_bash(value)}\n" for key, value in sorted(env.items()))
    arguments = "".join(" " + quote_bash(word) for word in words)
    return (f"#!/bin/bash\n# Attempt {env['SAFELAUNCH_ATTEMPT']} as it was launched; it can be repeated by hand inside "
            f"the allocation.\n{exports}cd {quote_bash(env['SAFELAUNCH_CWD'])} || exit\n"
            f"exec bash {quote_bash(str(run_dir / 'job.sbatch'))} attempt{arguments}\n")
