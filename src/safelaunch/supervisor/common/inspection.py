"""Inspections of an attempt's nodes, beside the training: processes left over, and what a crash has left there.

One helper step on each node, a few at a time. Only the end of the run waits for it, for core files. At an attempt's
start: ranks of earlier attempts are ended, other processes on the job's GPUs are reported, py-spy is copied to the
node's own disk. After a failure: core files are named. Where no KILL ends a rank: a ticket.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from safelaunch.base.io.localtime import moment
from safelaunch.base.model import Silent
from safelaunch.base.secretmask import mask
from safelaunch.decide.budget.blame import ended_first
from safelaunch.hangs import nodeticket
from safelaunch.nodehealth.checks import ranksoftware
from safelaunch.nodehealth.checks.compare import compare
from safelaunch.run.codefiles import code_files
from safelaunch.run.io import runfolder
from safelaunch.run.io.codechanges import changed_since
from safelaunch.slurm.io.noderound import Target
from safelaunch.stacks import stacktext
from safelaunch.stacks.io.collect import Collected, Depth
from safelaunch.stacks.ranks import NodeReport
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.helpers import Helpers
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.nodes import Nodes, Uninspected
from safelaunch.supervisor.state.ports import FolderPort, Here, Say
from safelaunch.supervisor.state.tasks import BackgroundTasks, Step

AT_START_S = 1.0        # the attempt's own steps come first
TOOL_AGAIN_S = 60.0     # a slow `setup:` had started no rank before, whose environment says where things are
AT_ONCE = 2             # each is a request to slurmctld and a process on the batch host
SETTLED_S = 3.0         # after the last failure: an inspection beside a restart doubled its time (0.43 s for 0.25 s)
LOOPING_S = 30.0        # after the first one of a training that fails again and again
CORES_S = 40.0          # pystack reads the symbols of gigabytes
CRASHES = (3, 4, 5, 6, 7, 8, 11, 31)   # signals whose default is a core: signal(7)
CORE_NODES = 4          # where tasks ended first: the others' cores say the same
TICKET_S = 5.0
MOST_SAID = 8
CODE_S = 1.0
POLL_S = 0.05
LOOK_S = 0.25           # whether a restart has settled


def at_start(
    helpers: Helpers, running: RunningAttempt, journal: LeaderJournal, files: FolderPort, say: Say, number: int
) -> Step:
    """End or report leftovers, keep py-spy; a second time where a node had no py-spy yet, or has not told its software.
    """
    here, run_nodes = helpers.here, helpers.nodes
    nodes = all_nodes = running.now.nodes
    for pause_s in (AT_START_S, TOOL_AGAIN_S):
        yield pause_s
        if running.live is None or running.live.number != number or running.live.killed_t is not None:
            return
        if pause_s == AT_START_S:
            _tell_changed_code(here, journal, files, number)
        # In a container it is not this host's path that leads to the rank's Python.
        software = pause_s == TOOL_AGAIN_S and here.plan.container is None
        collected = yield from collect(helpers, nodes, Depth(
            samples=0, gpus=here.job.has_gpus, keep_tool=True, software=software, attempt=number, end_left=True,
            at_once=AT_ONCE))
        _tell_left(journal, files, say, number, collected.reports, "leftovers.json")
        told = {node: json.loads(line) for node, line in collected.lines.items()}
        if software:
            _tell_software(run_nodes, files, say, number, all_nodes,
                           {node: one.get("software") for node, one in told.items()})
        nodes = tuple(node for node, one in told.items()
                      if not one["tools"]["py_spy"] or node not in run_nodes.software)
        if not nodes:
            return


def _tell_changed_code(here: Here, journal: LeaderJournal, files: FolderPort, number: int) -> None:
    """Journal that somebody has edited the training since the attempt before it: another cause may be at work."""
    before = next((one for one in journal.state.attempts if one.number == number - 1), None)
    if before is None:
        return
    names = code_files(here.plan.setup, here.plan.command)
    if not names:
        return
    cwd, since_t = here.job.cwd, before.started_t
    answer = files.ask(lambda: changed_since(cwd, names, since_t), CODE_S)
    if answer.is_ok and answer.value:
        journal.record(journal.event("code_changed", attempt=number, since=before.number,
                                     files=answer.value[:MOST_SAID]))


def _tell_software(
    run_nodes: Nodes, files: FolderPort, say: Say, number: int, nodes: Sequence[str], told: Mapping[str, object]
) -> None:
    """Compare what ranks run in on all nodes of the attempt, and report what differs. That ends and blames nothing."""
    found = {node: report for node, one in told.items() for report in [ranksoftware.read(node, one)] if report}
    run_nodes.note_software(found)
    known = [run_nodes.software[node] for node in nodes if node in run_nodes.software]
    compared = compare(known)
    lines = [*(f"{one.node}: {one.why}" for one in compared.differences), *compared.ties]
    if not lines or not found:
        return
    files.put(number, "system/software.json", {"v": 1, "unlike": lines, "nodes": {
        report.node: dict(report.results[0].facts) for report in known}})
    for line in lines[:MOST_SAID]:
        say(f"ranks of attempt {number} run in unlike software: {line}")


def after_failures(
    helpers: Helpers, clock: Clock, journal: LeaderJournal, files: FolderPort, tasks: BackgroundTasks, say: Say
) -> Step:
    """Inspect the nodes of failed attempts once, when the restart has settled or the run ends."""
    while failed := helpers.nodes.uninspected:
        first_s, last_s = failed[0].since_s, failed[-1].since_s
        if not tasks.is_leaving and clock.now_s < min(last_s + SETTLED_S, first_s + LOOPING_S):
            yield LOOK_S
            continue
        yield from _inspect(helpers, journal, files, say, helpers.nodes.take_uninspected())


def _inspect(
    helpers: Helpers, journal: LeaderJournal, files: FolderPort, say: Say, failures: Sequence[Uninspected]
) -> Step:
    """Name core files of these attempts in the last one's folder and in the job's output; end or report leftovers."""
    job, live = helpers.here.job, failures[-1].live
    nodes = tuple(dict.fromkeys(node for one in reversed(failures) for node in ended_first(one.live)))[:CORE_NODES]
    if not nodes:
        return
    collected = yield from collect(helpers, nodes, Depth(
        samples=0, gpus=job.has_gpus, deadline_s=CORES_S, cores=((job.cwd,), failures[0].started_t),
        at_once=AT_ONCE, attempt=live.number + 1, end_left=True))
    _tell_left(journal, files, say, live.number, collected.reports, "leftovers-after.json")
    found: dict[str, dict[str, Any]] = {}
    notes: list[str] = []
    for report in collected.reports:
        said = report.cores or {"cores": [], "notes": []}
        for core in said["cores"]:
            # A shared folder shows it to each node.
            found.setdefault(core["path"], {"node": report.node, "rank": None, **core})
        notes += [f"{report.node}: {note}" for note in said["notes"]]
    has_crashed = any(exit.signal in CRASHES for one in failures for exit in one.live.exits)
    if not found and not (notes and has_crashed):
        return
    files.put(live.number, "system/cores.json", {"v": 1, "cores": list(found.values()), "notes": notes})
    for note in notes[:MOST_SAID] if not found else ():
        say(f"a task crashed, and left no core that could be found: {note}")
    if not found:
        return
    journal.record(journal.event("cores", attempt=live.number, paths=list(found)[:MOST_SAID]))
    for path, core in list(found.items())[:MOST_SAID]:
        where = " ← ".join(frame.split(" (")[0] for frame in core["backtrace"][:3])
        say(f"core file on {core['node']}: {path}{f': {where}' if where else ''}")


def ticket(helpers: Helpers, clock: Clock, files: FolderPort, say: Say, number: int, node: str, why: str) -> Step:
    """Write a text for the administrators where the node answers and shows ranks that no KILL has ended."""
    collected = yield from collect(helpers, (node,), Depth(samples=1, gpus=False, deadline_s=TICKET_S))
    ranks = [rank for report in collected.reports for rank in report.ranks if not rank.is_gone]
    if not ranks:
        return
    here = helpers.here
    text = nodeticket.render(
        node, why, ranks, job=here.job.id, run=here.plan.name, user=here.user, when=moment(clock.now))
    name = f"system/ticket-{node}.txt"
    files.put(number, name, mask(text).encode(errors="replace"))
    say(f"{node}: {len(ranks)} processes that survive KILL; a text for the administrators is in "
        f"{runfolder.attempt_folder(number)}/{name}")


def collect(helpers: Helpers, nodes: Sequence[str], depth: Depth) -> Generator[float, Any, Collected]:
    """Samples of these nodes, which never wait for each other. The leader runs every helper of this kind here."""
    if helpers.nodes.no_overlap is not None:
        return Collected((), tuple(Silent(node, helpers.nodes.no_overlap, is_node_mute=False) for node in nodes))
    here, job = helpers.here, helpers.here.job
    target = Target(job.id, tuple(nodes), f"{here.plan.run_id}.{job.id}.", job.is_local, job.has_gpus)
    look = here.world.look(target, job.env, depth)
    while (collected := look.poll()) is None:
        yield POLL_S
    for silent in collected.silent:
        helpers.note_words(silent.why)
    return collected


def _tell_left(
    journal: LeaderJournal, files: FolderPort, say: Say, number: int, reports: Sequence[NodeReport], name: str
) -> None:
    rows = [{"node": report.node, **row} for report in reports for row in report.left]
    if not rows:
        return
    files.put(number, f"system/{name}", {"v": 1, "left": rows})
    journal.record(journal.event("leftovers", attempt=number, left=[
        {key: row[key] for key in ("node", "pid", "user", "whose", "gpu_mb", "ended")} for row in rows[:MOST_SAID]]))
    for row in rows[:MOST_SAID]:
        say(f"left over on {stacktext.tell_left(row['node'], row)}")
