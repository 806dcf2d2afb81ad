"""Evidence on a failure outside its log: exits, Slurm's reason, stacks of a hang, core files, the ledger."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from safelaunch.base.endings import ENDED_WHOLE, AttemptEnd
from safelaunch.base.io import sharedfile
from safelaunch.base.io.probe import run_in_child
from safelaunch.base.model import Event, Request, tell_stop
from safelaunch.errors import RunFolderError, SlurmUnreachable
from safelaunch.node import cores
from safelaunch.nodehealth.io import ledger
from safelaunch.nodehealth.ledger import blamed_before, of_cluster
from safelaunch.run.fold.state import Attempt, State
from safelaunch.run.io import attemptfacts, runfolder
from safelaunch.run.io.runfolder import Run
from safelaunch.slurm import jobstates, nodefold
from safelaunch.slurm.io import slurm
from safelaunch.slurm.slurmoutput import parse_ending
from safelaunch.verbs.common import runs
from safelaunch.why import slurmfacts
from safelaunch.why.categories import ENDS_OF_JOBS
from safelaunch.why.evidence import Stacks, checks_after, know
from safelaunch.why.findings import EndFacts, OutsideEvidence, RankLayout, TaskExit
from safelaunch.why.judge.witnesses import CRASHES
from safelaunch.why.slurmfacts import JobFacts

SLURM_DEADLINE_S = 4.0
LEDGER_DEADLINE_S = 1.0
CORES_DEADLINE_S = 8.0     # a backtrace takes seconds; a person waits
NODES_LATE_S = 900.0       # Slurm notices a dead node after SlurmdTimeout (300 s), an unkillable step after 60-180 s
TAIL_BYTES = 64 << 10


def of_attempt(run: Run, state: State, attempt: Attempt,
               journal: Sequence[Event]) -> tuple[OutsideEvidence, tuple[str, ...]]:
    """Evidence of the run folder, journal, Slurm and the ledger, and the same in lines for people."""
    folder = run.dir / runfolder.attempt_folder(attempt.number)
    looked = attemptfacts.read_stacks(folder)
    stacks = looked[0] if looked is not None else None
    is_newest = attempt == state.attempts[-1]
    tasks, srun_code = attemptfacts.read_exits(folder)
    known = by_journal(attempt, journal, tasks, srun_code, _job_ending(run, attempt) if is_newest else None, stacks,
                       _ledger(run, attempt), run.plan.rank_layout(attempt.nodes))
    facts, bad_nodes = _ask_slurm(run, state, attempt)
    after = checks_after(journal, attempt.number)
    exits = () if attempt.asked_row in ENDED_WHOLE else known.exits
    lines = [attemptfacts.tell_exits(exits), f"Slurm: job {attempt.job} is {facts.said}" if facts.said else "",
             *(f"{node}: {why}" for node, why in bad_nodes), *after.lines,
             f"stacks: {looked[0].said}; {looked[1]}" if looked else "", *attemptfacts.read_leftovers(folder),
             *_tell_cores(run, attempt, folder, known.exits), *attemptfacts.closed_parts(run.dir, [attempt.number])]
    evidence = replace(
        known, states=(jobstates.COMPLETED,) if attempt.ended == AttemptEnd.COMPLETED else facts.states,
        bad_nodes=bad_nodes, failed_checks=after.failed, running=attempt.ended is None and not facts.states)
    return evidence, tuple(line for line in lines if line)


def by_journal(attempt: Attempt, journal: Sequence[Event], exits: tuple[TaskExit, ...], srun_code: int | None,
               job_ending: str | None = None, stacks: Stacks | None = None,
               ledger: Mapping[str, int] | None = None, layout: RankLayout | None = None) -> OutsideEvidence:
    """What the journal says of an attempt's end, with its exits; `job_ending`: what slurmstepd wrote of its job's."""
    end = end_of(attempt, journal, job_ending)
    until_t = attempt.ended_t if attempt.ended_t is not None else float("inf")
    lost = tuple((str(event.data.get("node")), str(event.data.get("why", ""))) for event in journal
                 if event.event == "node_suspected" and attempt.started_t <= event.t <= until_t
                 and event.data.get("node") in attempt.nodes)   # others are checked beside it
    is_hang = attempt.category == "hang" or attempt.asked_row == "hung"
    return know(end, exits, srun_code, lost=lost, stacks=stacks, is_hang=is_hang, asked_bytes=attempt.asked_bytes,
                ledger=ledger, layout=layout)


def ask_job(job: str) -> JobFacts:
    """What Slurm knows of any job; raises RunFolderError where it knows none, SlurmUnreachable without an answer."""
    env = slurm.outside_job(os.environ)
    shown = slurm.run(slurm.show_job(job), env, SLURM_DEADLINE_S)
    facts = slurmfacts.parse_job(shown.stdout) if shown.is_ok else None
    account = slurm.run(slurm.sacct_steps(job, slurmfacts.ACCOUNT_FORMAT), env, SLURM_DEADLINE_S) if (
        facts is None or not facts.is_alive) else None
    counted = slurmfacts.parse_account(account.stdout, job) if account is not None and account.is_ok else None
    if facts is not None:
        return JobFacts(facts.state, facts.reason, facts.exit_code, facts.nodes, facts.outputs, facts.folder,
                        counted.steps if counted else ())
    if counted is not None:
        return counted
    why = shown.stderr.strip() or "Slurm does not answer"
    if shown.is_unknown:
        raise SlurmUnreachable(f"no run is known as {job}, and Slurm does not answer: {why}", argv=shown.argv,
                               returncode=shown.returncode, stdout="", stderr=shown.stderr,
                               hint="name its log: safelaunch why FILE…")
    raise RunFolderError(f"no run and no job {job} is known here: {why}", hint="name its log: safelaunch why FILE…")


def _ask_slurm(run: Run, state: State, attempt: Attempt) -> tuple[JobFacts, tuple[tuple[str, str], ...]]:
    """Slurm's state of the attempt's job, where no supervisor saw its end, and of its nodes; nothing without an answer.
    A job goes on after a failed attempt, and its supervisor cancels it: then that proves nothing.
    """
    nothing: tuple[JobFacts, tuple[tuple[str, str], ...]] = (JobFacts(), ())
    is_last = attempt == [one for one in state.attempts if one.job == attempt.job][-1]
    is_open = attempt.ended in (None, AttemptEnd.INTERRUPTED, AttemptEnd.LOST)
    if run.plan.cluster == "local" or not is_open or not is_last:
        return nothing
    if attempt.job in state.cancelled_jobs or not runs.is_here(run):
        return nothing
    try:
        facts = ask_job(attempt.job)
    except (RunFolderError, SlurmUnreachable):
        facts = JobFacts()
    if facts.is_alive:
        return facts, ()
    shown = slurm.run(slurm.show_nodes(nodefold.fold(attempt.nodes)), slurm.outside_job(os.environ), SLURM_DEADLINE_S)
    until_t = (attempt.ended_t or float("inf")) + NODES_LATE_S
    return facts, slurmfacts.bad_nodes(shown.stdout, attempt.started_t, until_t) if shown.is_ok else ()


def end_of(attempt: Attempt, journal: Sequence[Event], job_ending: str | None = None) -> EndFacts:
    """What the journal knows of the attempt's end. The verdict on a failed one came from its log, not from Slurm."""
    mine = [event for event in journal if event.data.get("attempt") == attempt.number]
    ended = next((event.data for event in mine if event.event == "attempt_ended"), {})
    told, ending = None, ended.get("ending")
    if ("ending" in ended or attempt.ended == AttemptEnd.FAILED) and attempt.category is not None:
        told = (attempt.category, attempt.confidence, attempt.summary or "")
    elif attempt.ended != AttemptEnd.FAILED:   # a journal of an earlier version
        ending = attempt.category if attempt.category in ENDS_OF_JOBS else job_ending
    asked = next((event for event in reversed(journal) if event.event == "kill_switch"), None)
    person = None if asked is None else tell_stop(Request(str(asked.data.get("name")), str(asked.data.get("who")), 0.0))
    return EndFacts(attempt.ended or "", attempt.asked_row, str(ending) if ending is not None else None, person,
                    told=told)


def _job_ending(run: Run, attempt: Attempt) -> str | None:
    """How Slurm ended the job, as slurmstepd wrote it into the job's output."""
    word = parse_ending(_job_output(run, attempt), attempt.job)
    return word if word in ENDS_OF_JOBS else None


def _job_output(run: Run, attempt: Attempt) -> str:
    """The end of the job's own output, where slurmstepd says why it ended the job."""
    for path in (run.dir / f"slurm-{attempt.job}.out", run.dir / "job.out"):
        try:
            return sharedfile.read_end(path, TAIL_BYTES).decode(errors="replace")
        except OSError:
            continue
    return ""


def _ledger(run: Run, attempt: Attempt) -> dict[str, int]:
    """How often each node was blamed before, by this user's and the team's runs; {} where no ledger answers."""
    def look() -> list[list[str]]:
        return ledger.read_raw(ledger.folder_of(run.plan.suspects, os.environ))

    answer = run_in_child(look, LEDGER_DEADLINE_S)
    if not answer.is_ok or not answer.value:
        return {}
    known = blamed_before(of_cluster(ledger.parse_raw(answer.value), run.cluster), run.plan.run_id, attempt.number,
                          attempt.ended_t or attempt.started_t)
    return {node: count for node, count in known.items() if node in attempt.nodes}


def _tell_cores(run: Run, attempt: Attempt, folder: Path, exits: Sequence[TaskExit]) -> tuple[str, ...]:
    """Core files: those that the inspection found on the nodes, else those in the training's folder."""
    found = attemptfacts.read_cores(folder)
    if found or not any(exit.signal in CRASHES for exit in exits):
        return found
    cwd = str(run.meta.get("cwd", run.dir))
    answer = run_in_child(lambda: cores.look([cwd], attempt.started_t, time.monotonic() + CORES_DEADLINE_S - 1),
                          CORES_DEADLINE_S)
    return tuple(attemptfacts.tell_cores(answer.value)) if answer.is_ok and answer.value else ()
