"""The end of an attempt: what is written, said and begun for it, as data, in the order in which it is carried out.

In comes an attempt that is over and fenced, with its verdict; out go acts, which supervisor.attempt.closing carries
out. Why each act stands where it stands: tests/pure/decide/test_closing.py.

1. The events: failure, verdict, evidence against nodes with what that excludes, the attempt's end.
2. Work beside the loop, which needs the attempt's process or its nodes. Then the attempt is forgotten.
3. The events go to the journal, then files and words that people read.
4. The checkpoint to go on from, which this verdict may reject.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import NamedTuple, TypeAlias

from safelaunch.base.endings import BAD_ENDS, GOOD_ENDS, AttemptEnd
from safelaunch.base.model import Event, NewEvent, Request
from safelaunch.checkpoints.model import Checkpoint
from safelaunch.decide.budget.blame import Culprits, Failure, blame, culprits_of
from safelaunch.decide.budget.budget import rejects_checkpoint
from safelaunch.decide.ends import ended
from safelaunch.decide.ends.advice import what_follows
from safelaunch.decide.facts import advance
from safelaunch.decide.facts.seen import Live
from safelaunch.decide.facts.trained import reach_of, tell_behind
from safelaunch.decide.jobs.links import Link
from safelaunch.decide.nodes import excluding
from safelaunch.decide.nodes.excluding import KnownNodes
from safelaunch.decide.nodes.resize import output_of
from safelaunch.nodehealth.ledger import NodeEvidence
from safelaunch.nodehealth.ledgerlines import node_suspected
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State, TrainingReach
from safelaunch.run.plan import Plan
from safelaunch.why.fingerprint import exit_fingerprint, make_fingerprint
from safelaunch.why.verdict import Verdict

LOST_PATIENCE_S = 1.0   # srun of a lost attempt waits minutes for a dead node
SRUN_PATIENCE_S = 30.0  # srun ends within 1 s of its last task, but not while a silent node holds its job step


class Accuse(NamedTuple):
    """This evidence counts from now on, here and in the shared ledger."""

    evidence: tuple[NodeEvidence, ...]


class CopyRest(NamedTuple):
    """Wait so long for srun, and copy the last lines of the log, beside the loop."""

    patience_s: float


class NoteUse(NamedTuple):
    """Tell the ledger how long the nodes were used, beside the loop."""

    started_t: float


class Inspect(NamedTuple):
    """Look for core files on the nodes, beside the loop."""

    started_t: float


class PutFile(NamedTuple):
    """A file in the attempt's folder."""

    name: str
    content: Mapping[str, object]


class SayLine(NamedTuple):
    """A line in the job's output."""

    text: str


class Do(Enum):
    """Acts that need no more words."""

    FORGET_PROCESS = "the batch shell need not look for the attempt"
    FORGET_ATTEMPT = "no attempt is live"
    RECORD = "the events so far go to the journal"
    KEEP_TAIL = "the last lines of the log stay beside the job's output where the run folder is gone"
    FIND_RESUME = "find the newest complete checkpoint"
    FALL_BACK = "leave out a checkpoint that did not load"
    KEEP_ARGS = "the arguments for resuming lie in the run folder"
    NOTE_PROGRESS = "journal what refills the budget"


ClosingAct: TypeAlias = NewEvent | Accuse | CopyRest | NoteUse | Inspect | PutFile | SayLine | Do


class EndedAttempt(NamedTuple):
    """An attempt that is over and fenced, with all that was read of it."""

    live: Live
    how: AttemptEnd
    state: State                            # of the journal, with its last steps
    plan: Plan
    nodes: KnownNodes
    now: float
    code: int = 0
    verdict: Verdict | None = None          # None: it needs none
    not_before: float | None = None         # when the next one may start, where Slurm is the cause
    ending: str | None = None               # why the job ends
    link: Link | None = None                # with which a user's own script goes on
    reach: TrainingReach | None = None
    epoch: float | None = None
    lost: tuple[tuple[str, str], ...] = ()  # nodes of it, with why
    requests: tuple[Request, ...] = ()
    has_process: bool = True                # False: its supervisor's host is gone
    owner: tuple[str, str] = ("", "")       # the user, and the cluster
    nan_end: str | None = None              # it ended well, and its last losses were no numbers
    of_loading: bool | None = None          # whether its last words are of loading the checkpoint; None = not known


def needs_verdict(how: AttemptEnd, link: Link | None) -> bool:
    """Whether it is to be explained; a script that has cancelled itself needs no word."""
    return how not in GOOD_ENDS and (link is None or how != AttemptEnd.STOPPED)


def close(one: EndedAttempt) -> tuple[ClosingAct, ...]:
    """All that is done about it, in this order."""
    number, before = one.live.number, one.state.attempt
    written = [*_judgement(one), _end_of(one), NewEvent("fenced", {"attempt": number})]
    after = fold((_at(one, act) for act in written if isinstance(act, NewEvent)), one.state)
    follows = advice(after, one.plan, one.requests, one.nodes.partition)
    beside: list[ClosingAct] = []
    if one.has_process:
        beside += [CopyRest(LOST_PATIENCE_S if one.lost else SRUN_PATIENCE_S), Do.FORGET_PROCESS]
    if before is not None:
        beside.append(NoteUse(before.started_t))
    if before is not None and one.how == AttemptEnd.FAILED:
        beside.append(Inspect(before.started_t))
    summary = f": {after.attempt.summary}" if after.attempt is not None and after.attempt.summary else ""
    return (*(_with(act, follows) for act in written), *beside, Do.FORGET_ATTEMPT, Do.RECORD,
            PutFile("exit.json", exit_file(one)), Do.KEEP_TAIL, SayLine(f"attempt {number} {_word(one)}{summary}"),
            Do.FIND_RESUME, Do.FALL_BACK, Do.KEEP_ARGS, Do.NOTE_PROGRESS)


def advice(
    after: State, plan: Plan, requests: Sequence[Request], partition: Collection[str] | None
) -> Mapping[str, str]:
    """What the policy makes of an end that the journal has: a field of the verdict."""
    return {} if after.attempt is None else {"follows": what_follows(after, after.attempt, plan, requests, partition)}


def _at(one: EndedAttempt, new: NewEvent) -> Event:
    """The event as the journal will have it, to fold it before it is written."""
    return Event(one.now, one.state.gen, 0, one.state.leader or "", new.event, new.data)


def _with(act: ClosingAct, follows: Mapping[str, str]) -> ClosingAct:
    is_verdict = isinstance(act, NewEvent) and act.event == "verdict"
    return NewEvent("verdict", {**act.data, **follows}) if isinstance(act, NewEvent) and is_verdict else act


def _word(one: EndedAttempt) -> AttemptEnd:
    return ended.of_hook(one.how) if one.live.is_hook else one.how


def _end_of(one: EndedAttempt) -> NewEvent:
    return NewEvent("attempt_ended", {
        "attempt": one.live.number, "how": _word(one), "exit_code": one.code, "asked": one.live.end_row,
        "not_before": one.not_before, "ending": one.ending, "log_read": one.has_process,
        "reach": None if one.reach is None else reach_of(one.reach), "epoch": one.epoch,
        **({} if one.nan_end is None else {"nan_end": one.nan_end}),
        **({} if one.link is None else {"link": one.link})})


def exit_file(one: EndedAttempt) -> dict[str, object]:
    """attempts/N/exit.json."""
    live = one.live
    return {"v": 1, "attempt": live.number, "how": one.how, "exit_code": one.code, "srun_code": live.srun_code,
            "tasks": [{"node": e.node, "task": e.task, "code": e.code, "signal": e.signal} for e in live.exits]}


# --- why it ended, and whom that accuses --------------------------------------------------------------------------


def _judgement(one: EndedAttempt) -> tuple[NewEvent | Accuse, ...]:
    """The verdict, and what it says about nodes. A hook that fails speaks against no node."""
    if one.verdict is None:
        return ()
    live, verdict = one.live, told(one, one.verdict)
    culprits = culprits_of_end(live, one.verdict)
    task = next((exit.task for exit in live.exits if exit.code and exit.node == verdict.host), None)
    is_bad = one.how in BAD_ENDS
    failure = [NewEvent("failure", {"attempt": live.number, "exit_code": one.code,
                                    "exits": [exit.text for exit in live.exits][:64],
                                    "asked": live.end_row})] if is_bad else []
    accused = is_bad and not (live.is_hook and one.how == AttemptEnd.FAILED)
    return (*failure, NewEvent("verdict", {
        "attempt": live.number, "category": verdict.category, "summary": verdict.summary,
        "confidence": verdict.confidence, "action": verdict.action, "node": verdict.host, "task": task,
        "fingerprint": verdict.fingerprint, "suspects": list(culprits.nodes), "first_only": culprits.is_first_only,
        "evidence": list(verdict.evidence), "of_loading": one.of_loading}),
        *(_suspect(one, verdict, culprits) if accused else ()))


def told(one: EndedAttempt, verdict: Verdict) -> Verdict:
    """The verdict as the journal has it: with a fingerprint, and with what stood behind the last step."""
    if not verdict.fingerprint:
        first = next((exit for exit in one.live.exits if exit.code), None)
        verdict = replace(verdict, fingerprint=exit_fingerprint(first.code, first.signal) if (
            first and verdict.category == "unknown") else make_fingerprint(verdict.category, "", verdict.summary))
    if one.how == AttemptEnd.FAILED and one.reach is not None and one.reach.is_all:
        verdict = replace(verdict, summary=f"{verdict.summary} ({tell_behind(one.reach)})")
    return replace(verdict, summary=f"before_resize: {verdict.summary}") if one.live.is_hook else verdict


def culprits_of_end(live: Live, verdict: Verdict) -> Culprits:
    """Whom the end accuses: nobody where the supervisor, or the user's own hook, ended the ranks."""
    if verdict.suspects:
        return Culprits(verdict.suspects)
    # After a hang or lost progress the supervisor itself ended the ranks: the first to end is no suspect (seen). Of
    # before_resize, which is the user's own code on one node, none is.
    if live.hung or live.lost or live.stuck or live.is_hook:
        return Culprits()
    return culprits_of(verdict.spoken_by, verdict.echoed_by, live)


def _suspect(one: EndedAttempt, verdict: Verdict, culprits: Culprits) -> tuple[NewEvent | Accuse, ...]:
    """Evidence against nodes, and exclusions that begin or end by it."""
    owner, cluster = one.owner
    found = blame(Failure(
        run=one.plan.run_id, owner=owner, t=one.now, attempt=one.live.number, nodes=one.live.nodes,
        category=verdict.category, confidence=verdict.confidence, why=verdict.summary, culprits=culprits.nodes,
        lost=one.lost, fingerprint=verdict.fingerprint, cluster=cluster))
    known = one.nodes._replace(evidence=(*one.nodes.evidence, *found))
    return (*((Accuse(found),) if found else ()),
            *(NewEvent("node_suspected", node_suspected(each)) for each in found),
            *excluding.changes(one.state, one.plan, known, one.now))


# --- what the next attempt goes on from ---------------------------------------------------------------------------


class Rejected(NamedTuple):
    """A checkpoint that the last attempt could not load. `is_last`: none is tried after it, it is only told."""

    path: str
    why: str
    is_last: bool


def rejected(state: State, plan: Plan, newest: Checkpoint | None) -> Rejected | None:
    """The checkpoint to leave out; None = none. One that has been rewritten since, perhaps under the same name, stays.
    """
    attempt, why = state.attempt, rejects_checkpoint(state, plan)
    if attempt is None or why is None or newest is None:
        return None
    path = output_of(state, plan, newest, len(attempt.nodes)) or newest.path
    if (attempt.resume_path, attempt.resume_step) != (path, newest.step):
        return None
    # (simulated: test_found "a checkpoint of which no conversion loads gives way to an older one")
    return Rejected(path, why, path == newest.path and state.rejected_in_a_row >= plan.resume.keep_trying)


def progress(state: State, plan: Plan, newest: Checkpoint | None, saved_t: float,
             number: int | None) -> tuple[NewEvent, ...]:
    """The event that refills the budget: a verified checkpoint has advanced, or what else counts as progress."""
    best = state.best_step
    if newest is not None and newest.step is not None and (best is None or newest.step > best):
        return (NewEvent("checkpoint", {"attempt": number, "step": newest.step, "path": newest.path,
                                        "format": newest.format}),)
    last, why = state.attempt, advance.find(state, plan, saved_t)
    if last is None or why is None or last.number <= state.advanced_by:
        return ()
    return (NewEvent("advanced", {"attempt": last.number, "step": last.step, "epoch": last.epoch, "why": why}),)
