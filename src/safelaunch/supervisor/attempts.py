"""An attempt's life: launched, asked to end, killed, fenced, diagnosed."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from safelaunch.adapters import journal, runfolder, slurm
from safelaunch.adapters.attempt import AttemptProcess
from safelaunch.adapters.guardcode import guard_text
from safelaunch.adapters.outbox import PUT
from safelaunch.adapters.slurm import Command, Result
from safelaunch.core import acts, nodefold, slurmtext
from safelaunch.core.acts import ActOutcome
from safelaunch.core.advice import what_follows
from safelaunch.core.checkpoints.model import Checkpoint
from safelaunch.core.checkpoints.resume import resume_args
from safelaunch.core.decide import ended, refusal
from safelaunch.core.decide.actions import Kill, Launch
from safelaunch.core.decide.budget import rejects_checkpoint
from safelaunch.core.decide.resize import output_of
from safelaunch.core.decide.seen import Live, Observation
from safelaunch.core.decide.trained import reach_of, tell_behind
from safelaunch.core.endings import BAD_ENDS, GOOD_ENDS, AttemptEnd, JobEnd
from safelaunch.core.folding import fold
from safelaunch.core.model import Event, Request
from safelaunch.core.plan import Plan
from safelaunch.core.progress.reach import HEAD_BYTES, TAIL_BYTES, read_reach
from safelaunch.core.progress.steps import latest_step
from safelaunch.core.script import quote_bash
from safelaunch.core.state import State, TrainingReach
from safelaunch.core.timing import CLAIM_HOLDS_S
from safelaunch.core.why.fingerprint import exit_fingerprint, make_fingerprint
from safelaunch.supervisor import (
    inspection,
    listening,
    lostprogress,
    masterport,
    observe,
    overlap,
    resuming,
    suspectchecks,
    vanished,
)
from safelaunch.supervisor.diagnosing import foresee, judge_attempt
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.ownscript import exits_of_script, let_pass, take_link
from safelaunch.supervisor.resized import output_path, remove_spent
from safelaunch.supervisor.state import standbys
from safelaunch.supervisor.state.clock import Timer
from safelaunch.supervisor.state.nodes import Uninspected
from safelaunch.supervisor.state.tasks import Step, Work
from safelaunch.supervisor.suspicion import blamed_nodes, note_use, suspect

DRAIN_S = 900.0         # how long a frozen folder has to take the last log lines of an ended attempt
LOST_PATIENCE_S = 1.0   # srun of a lost attempt waits minutes for a dead node
HEARD_S = 0.25          # of people's requests at a launch: a read of them takes a child, 3 % of a restart
PUMP_LEAVES_S, PUMP_LOOK_S = 2.0, 0.05   # the pump leaves 0.2 s after its TERM, unless the folder is frozen
SRUN_PATIENCE_S = 30.0  # srun ends within 1 s of its last task, but not while a silent node holds its job step


def launch(lead: Leader, row: str, action: Launch) -> None:
    """Start the next attempt: check people's requests, then claim, intent, srun, outcome."""
    asked = lead.folder.requests
    if not observe.read_requests(lead, HEARD_S) or lead.folder.requests != asked:
        # a kill switch comes first (simulated: test_found "a kill switch touched while the batch host stood still is
        # seen before the next launch")
        return
    number = (lead.state.attempt.number if lead.state.attempt else 0) + 1
    claim = lead.claim(f"{journal.LAUNCH}{number}")
    if claim == 0:
        return
    port, trial = masterport.choose(lead, number, action.nodes[0], lead.nodes.takes_port(number))
    if trial is not None:
        trial.close()
    newest = resume_point(lead, action)
    facts: dict[str, Any] = {
        "attempt": number, "job": lead.job.id, "nodes": list(action.nodes), "port": port,
        "resume_step": newest.step if newest else None, "resume_path": newest.path if newest else None,
        "whole_steps": list(lead.resume.whole_steps),
    }
    if action.resize is not None:
        convert = action.resize._replace(output=output_path(lead, number))
        facts["resize"] = {"from": convert.from_nodes, "to": convert.to_nodes, "output": convert.output}
    decided = lead.writer.event("decision", row=row, action="launch", why=action.why, attempt=number)
    script = acts.perform_now(lead, "launch", claim, lambda: _start(lead, action, facts), (decided,), attempt=number,
                              job=lead.job.id, nodes=list(action.nodes), resize=facts.get("resize"))
    if script is not None:
        lead.shared.enqueue(PUT, *lead.record_of(number, "live"))
        lead.put(number, "launch.sh", script.encode())
        lead.say(f"attempt {number} on {nodefold.fold(action.nodes)}: {action.why}")
        lead.tasks.begin(Work.INSPECT, inspection.at_start(lead, number), number)
        lead.tasks.begin(Work.REMOVE_SPENT, remove_spent(lead))
        if action.resize is None:   # else the training, which may use them, follows soon
            lead.tasks.begin(Work.CHECK_SUSPECTS, suspectchecks.check(lead, number), number)


def _start(lead: Leader, action: Launch, facts: dict[str, Any]) -> ActOutcome[str | None]:
    """srun of an announced attempt, and a script that repeats it by hand. `facts` are those of attempt_started."""
    if lead.world.now_s() - lead.journal.claimed_s > CLAIM_HOLDS_S:
        return ActOutcome(False, None, {"why": "this supervisor stood still since it claimed the launch"})
    number = facts["attempt"]
    is_hook = action.resize is not None
    words = () if is_hook else keep_resume_args(lead, resume_point(lead, action))
    extra = _attempt_env(lead, facts, action.nodes)
    own = None
    if lead.plan.is_script and not lead.job.is_local:
        from safelaunch.supervisor.standin import ScriptJob  # for a script

        own = ScriptJob(lead, number, action.nodes)
        words, extra = own.args if own.link else (), {**extra, **own.environ()}
    env = {**(lead.job.env if own is None else own.env_of_job()), **extra, **_secrets(lead, number)}
    tasks = 1 if is_hook else lead.plan.tasks_on(len(action.nodes))
    lead.running.begins(Live(number, action.nodes, tasks=tasks, is_hook=is_hook))
    lead.server.expect(number)
    process = lead.world.launch(
        lead.local, number, words, env,
        {**facts, **({} if lead.plan.launch.logs == "merged" else {"rank_logs": lead.plan.launch.local_ranks})},
        *([] if own is None else [own.facts()]))
    lead.running.is_launched(process, lead.now_s)
    lead.clock.hurries(Timer.PROGRESS)   # its first steps are read sooner than the last ones of the attempt before
    if not lead.had_eligible:
        lead.standbys.may_start_by(lead.now_s + standbys.FIRST_S)
    script = _launch_script(lead.run_dir, extra, words)
    return ActOutcome(True, script, first=(lead.writer.event("attempt_started", **facts, why=action.why),))


def resume_point(lead: Leader, action: Launch) -> Checkpoint | None:
    """The checkpoint that an attempt starts from: what before_resize made of the newest one, where needed."""
    newest = lead.resume.newest
    output = None if action.resize else output_of(lead.state, lead.plan, newest, len(action.nodes))
    return newest if newest is None or output is None else replace(newest, path=output)


def keep_resume_args(lead: Leader, point: Checkpoint | None) -> tuple[str, ...]:
    """The arguments for resuming now, also kept in the run folder. A later job's node may be unable to run a
    supervisor, and its training must not start from nothing.
    """
    words = resume_args(lead.plan.resume.args, point)
    lead.shared.enqueue(PUT, "resume.args", b"".join(word.encode(errors="surrogateescape") + b"\0" for word in words))
    return words


def _attempt_env(lead: Leader, facts: Mapping[str, Any], nodes: tuple[str, ...]) -> dict[str, str]:
    """The environment of this attempt's script, beside the plan."""
    env = {"SAFELAUNCH_ATTEMPT": str(facts["attempt"]), "SAFELAUNCH_NODELIST": nodefold.fold(nodes),
           "SAFELAUNCH_MASTER_PORT": str(facts["port"]), "SAFELAUNCH_CWD": lead.job.cwd,
           "SAFELAUNCH_KILL_SIGNAL": lead.plan.kill_switch.signal}
    if lead.plan.own.traps_signal(lead.plan.command):
        env["SAFELAUNCH_SIGNAL_TO"] = "shell"
    if len(nodes) != lead.plan.nodes:
        env["SAFELAUNCH_NODES"] = str(len(nodes))
    if (resize := facts.get("resize")) is not None:
        env |= {"SAFELAUNCH_OLD_NODES": str(resize["from"]), "SAFELAUNCH_NEW_NODES": str(resize["to"]),
                "SAFELAUNCH_RESIZE_OUTPUT": resize["output"]}
    if lead.nodes.no_overlap is not None:
        env["SAFELAUNCH_OVERLAP"] = "no"
    left_out = [node for node in lead.job.nodes if node not in nodes]
    if left_out:
        env["SAFELAUNCH_EXCLUDE"] = nodefold.fold(left_out)
    address = "127.0.0.1" if lead.job.is_local else lead.address_of(nodes[0])
    if address is not None:
        env["SAFELAUNCH_MASTER_ADDR"] = address
    path, step = facts["resume_path"], facts["resume_step"]
    if path is not None:
        env["SAFELAUNCH_RESUME_PATH"] = path
        env["SAFELAUNCH_RESUME_STEP"] = "" if step is None else str(step)
    if lead.resume.newest is not None and path != lead.resume.newest.path:
        env["SAFELAUNCH_RESIZED"] = "yes"
    return env


def _secrets(lead: Leader, number: int) -> dict[str, str]:
    """What only the guards may know: passed in the environment, never written down."""
    record = lead.run_dir / runfolder.attempt_folder(number) / "record.json"
    return {"SAFELAUNCH_GUARD": guard_text(), "SAFELAUNCH_TOKEN": lead.token,
            "SAFELAUNCH_CONTROL": f":{lead.server.port}", "SAFELAUNCH_RECORD": str(record),
            "SAFELAUNCH_ADDRESSES": lead.own_address()}


def ask_addresses(lead: Leader) -> Step:
    """The nodes' addresses: connections from them are accepted first. Slurm is asked only for names that do not
    resolve; else each attempt's script would ask, for 25 ms.
    """
    found = {node: lead.world.addresses_of(node) for node in lead.job.nodes}
    lead.server.strangers.keep_for(address for addresses in found.values() for address in addresses)
    unknown = [node for node, addresses in found.items() if not addresses and node not in lead.nodes.addresses]
    if unknown:
        result = yield lead.world.command(slurm.show_nodes(nodefold.fold(unknown)), lead.job.env)
        if result is not None and result.is_ok:
            lead.nodes.have_addresses(slurmtext.parse_addresses(result.stdout))
    lead.server.strangers.keep_for(lead.nodes.addresses.values())


def kill(lead: Leader, row: str, action: Kill) -> None:
    """End every process of the attempt. Its record changes, so that silent nodes' leases run from now.

    Journalled first: ranks that save on TERM and exit with 0 have not completed the run.
    """
    lead.tell(row, f"ending the attempt: {action.why}", action="end", attempt=lead.attempt.number,
              log_bytes=lead.log_bytes())
    lead.running.is_killed(row, lead.now, lead.now_s)
    lead.move_record(lead.attempt.number)
    for node, _ in lead.lost_of_live():
        lead.server.hang_up(node, lead.now_s)
    lead.server.tell_all({"do": "end", "grace_s": action.grace_s}, lead.now_s)


def fence(lead: Leader) -> bool:
    """Make sure that nothing of the attempt is left; True once that is sure."""
    sruns = lead.process.sruns() if lead.process is not None and lead.plan.is_script else None
    for command, done in lead.fencer.advance(lead.attempt, lead.now_s, lead.reach.lost, lead.is_record_moved,
                                              lead.folder.is_frozen, sruns):
        lead.tasks.begin(Work.SWEEP, _sweep(lead, command, done), done)
    for node, why in lead.fencer.found_lost():
        lead.lose(node, why)
        lead.tasks.begin(Work.TICKET, inspection.ticket(lead, lead.attempt.number, node, why), node)
    if lead.fencer.is_done(lead.attempt):
        lead.running.is_fenced(exits_of_script(lead) if lead.plan.is_script else lead.attempt.exits)
        return True
    if lead.fencer.is_asking:
        foresee(lead, replace(lead.attempt, exits=exits_of_script(lead)))
    return False


def _sweep(lead: Leader, command: Command, node: str) -> Step:
    """Wait for a node's sweep."""
    result = yield command
    overlap.note_result(lead, result)
    if result is not None:
        lead.fencer.swept(node, result)


def close_attempt(lead: Leader) -> None:
    """The attempt is over and fenced: diagnose it, and find what to resume from."""
    observe.read_requests(lead)   # a training that watches the kill switch can end before this loop reads it
    live = lead.attempt
    seen = lead.seen()
    how = said_how = ended.how_it_ended(live, seen)
    if lead.process is not None and not live.is_hook:
        observe.read_last_lines(lead, lead.process)
    tail = lead.process.tail() if lead.process else b""
    code = next((exit.code for exit in live.exits if exit.code), live.srun_code or 0)
    how, not_before = _judge_refusal(lead, how, tail.decode(errors="replace"))
    how, link = take_link(lead, live, how)
    steps = [] if live.is_hook else _last_progress(lead, live, tail)
    for step in steps:
        lead.note(step)
    events: list[Event] = []
    if how in GOOD_ENDS and lead.plan.is_script and (failed := let_pass(lead)):
        lead.tell("let_pass", f"{len(failed)} rank(s) of the script's last srun failed, and the script went on: "
                              f"{failed[0].text}", attempt=live.number)
    reach = None if live.is_hook or lead.process is None else _reach(lead, lead.process)
    if how not in GOOD_ENDS and (link is None or how != AttemptEnd.STOPPED):   # else the script has cancelled itself
        now_seen = replace(seen, ending=lead.ending)
        events += _judgement(lead, live, how, code, now_seen, is_refused=how != said_how, reach=reach)
    word = ended.of_hook(how) if live.is_hook else how
    events.append(lead.writer.event("attempt_ended", attempt=live.number, how=word, exit_code=code, asked=live.end_row,
                                    not_before=not_before, ending=lead.ending, log_read=lead.process is not None,
                                    reach=None if reach is None else reach_of(reach),
                                    **({} if link is None else {"link": link})))
    events = with_advice(events, lead.state, lead.plan, lead.folder.requests)
    events.append(lead.writer.event("fenced", attempt=live.number))
    if lead.process is not None:
        patience_s = LOST_PATIENCE_S if lead.lost_of_live() else SRUN_PATIENCE_S
        lead.tasks.begin(Work.COPY_REST, copy_rest(lead, lead.process, patience_s), live.number)
        lead.process.forget()
    if lead.state.attempt is not None:
        lead.tasks.begin(Work.NOTE_USE, note_use(lead, live, lead.state.attempt.started_t), live.number)
    if how == AttemptEnd.FAILED and lead.state.attempt is not None:
        lead.nodes.are_to_be_inspected(Uninspected(live, lead.state.attempt.started_t, lead.now_s))
        lead.tasks.begin(Work.INSPECT_AFTER, inspection.after_failures(lead))
    lead.running.is_closed()
    # Nothing is done outside before the intent of the next act is durable, and these with it.
    lead.record(*events, noted=steps, is_awaited=False)
    lead.put(live.number, "exit.json", {
        "v": 1, "attempt": live.number, "how": how, "exit_code": code, "srun_code": live.srun_code,
        "tasks": [{"node": e.node, "task": e.task, "code": e.code, "signal": e.signal} for e in live.exits],
    })
    vanished.save_tail(lead, tail)
    summary = lead.state.attempt.summary if lead.state.attempt else None
    lead.say(f"attempt {live.number} {word}{f': {summary}' if summary else ''}")
    resuming.find_resume(lead)   # while these are written
    fall_back(lead)
    keep_resume_args(lead, lead.resume.newest)
    lead.record(*checkpoint_events(lead, live.number), is_awaited=False)


def _judge_refusal(lead: Leader, how: AttemptEnd, text: str) -> tuple[AttemptEnd, float | None]:
    """How the attempt ended, and the time before which nothing is launched: Slurm may be the cause."""
    live = lead.attempt
    if live.stuck is not None:   # its srun has said enough
        return how, None
    no_step = how == AttemptEnd.FAILED and not live.exits and slurmtext.has_no_step(text)
    # no attempt starts in a job that is over (simulated: test_found "a job of which srun says that it is over gets no
    # further attempt")
    if no_step and slurmtext.is_job_over(text):
        lead.course.job_ends(lead.ending or JobEnd.UNKNOWN)
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
    """The event that a verified checkpoint has advanced, if it has; nothing else refills the budget."""
    found, best = lead.resume.newest, lead.state.best_step
    if found is None or found.step is None or (best is not None and found.step <= best):
        return []
    return [lead.writer.event("checkpoint", attempt=number, step=found.step, path=found.path, format=found.format)]


def _last_progress(lead: Leader, live: Live, tail: bytes) -> list[Event]:
    step = listening.read(lead, tail, latest_step, None)
    return [] if step is None else [lostprogress.progress_event(lead, live.number, step)]


def _reach(lead: Leader, process: AttemptProcess) -> TrainingReach | None:
    """How far its training came, by its log's begin and end."""
    tail = process.tail(TAIL_BYTES)
    head = process.read(0, min(HEAD_BYTES, max(0, process.size() - len(tail))))
    return listening.read(lead, b"\n".join(filter(None, (head, tail))), read_reach, None)


def with_advice(events: list[Event], before: State, plan: Plan, requests: Sequence[Request]) -> list[Event]:
    """The events of an attempt's end, with the verdict and what the policy makes of it."""
    state = fold(events, before)
    if state.attempt is None:
        return events
    follows = what_follows(state, state.attempt, plan, requests)
    return [replace(event, data={**event.data, "follows": follows}) if event.event == "verdict" else event
            for event in events]


def _judgement(lead: Leader, live: Live, how: str, code: int, seen: Observation, *, is_refused: bool,
               reach: TrainingReach | None) -> list[Event]:
    verdict = judge_attempt(lead, live, seen, how, is_refused)
    if not verdict.fingerprint:
        first = next((exit for exit in live.exits if exit.code), None)
        verdict = replace(verdict, fingerprint=exit_fingerprint(first.code, first.signal) if (
            first and verdict.category == "unknown") else make_fingerprint(verdict.category, "", verdict.summary))
    if how == AttemptEnd.FAILED and reach is not None and reach.is_all:
        verdict = replace(verdict, summary=f"{verdict.summary} ({tell_behind(reach)})")
    # After a hang or lost progress the supervisor itself ended the ranks: the first to end is no suspect (seen).
    culprits = verdict.suspects or (() if live.hung or live.lost or live.stuck else blamed_nodes(live))
    if live.is_hook:   # no node is to blame for what the user's own code says
        verdict, culprits = replace(verdict, summary=f"before_resize: {verdict.summary}"), ()
    task = next((exit.task for exit in live.exits if exit.code and exit.node == verdict.host), None)
    events = [] if how not in BAD_ENDS else [lead.writer.event(
        "failure", attempt=live.number, exit_code=code, exits=[exit.text for exit in live.exits][:64])]
    return [*events, lead.writer.event(
        "verdict", attempt=live.number, category=verdict.category, summary=verdict.summary,
        confidence=verdict.confidence, action=verdict.action, node=verdict.host, task=task,
        fingerprint=verdict.fingerprint, suspects=list(culprits), evidence=list(verdict.evidence)),
        *(suspect(lead, live, verdict, culprits) if how in BAD_ENDS and not (
            live.is_hook and how == AttemptEnd.FAILED) else ())]


def copy_rest(lead: Leader, process: AttemptProcess, patience_s: float) -> Step:
    """Wait for an ended attempt's srun, and copy the log's last lines, in the background."""
    end_s = lead.now_s + patience_s
    while process.poll() is None and lead.now_s < end_s:
        yield 0.1
    is_over = process.poll() is not None and lead.term_s is None   # a TERM for the whole job reached the pump, too
    process.kill()   # srun would wait for a silent node without end
    copied = process.finish_pump() and is_over and (yield from _has_copied_all(lead, process))
    while not copied and lead.folder.gone is None:
        process.finish_pump()
        result = yield lead.world.command(process.copy_rest(lead.main_log(process.number)), lead.job.env, DRAIN_S)
        copied = result is not None and result.is_ok
        if not copied:
            yield 0.5


def _has_copied_all(lead: Leader, process: AttemptProcess) -> Generator[float, Result | None, bool]:
    """Whether this leader's own pump, told to leave when nothing is left to copy, has copied all.

    A second pump to find that out would add the start of a Python process to each restart and handover.
    """
    assert process.pump is not None
    end_s = lead.now_s + PUMP_LEAVES_S
    while (code := process.pump.poll()) is None and lead.now_s < end_s:
        yield PUMP_LOOK_S
    return code == 0


def _launch_script(run_dir: Path, env: dict[str, str], words: tuple[str, ...]) -> str:
    """attempts/N/launch.sh: the attempt as it was launched, to repeat by hand inside the allocation."""
    exports = "".join(f"export {key}={quote_bash(value)}\n" for key, value in sorted(env.items()))
    arguments = "".join(" " + quote_bash(word) for word in words)
    return (f"#!/bin/bash\n# Attempt {env['SAFELAUNCH_ATTEMPT']} as it was launched; it can be repeated by hand inside "
            f"the allocation.\n{exports}cd {quote_bash(env['SAFELAUNCH_CWD'])} || exit\n"
            f"exec bash {quote_bash(str(run_dir / 'job.sbatch'))} attempt{arguments}\n")
