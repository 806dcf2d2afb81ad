"""Putting a run on hold, so that no new attempt starts, and resuming it; a running attempt goes on."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from safelaunch.base.io import owners
from safelaunch.base.model import DONE, REFUSED, UNREACHABLE
from safelaunch.errors import UsageError
from safelaunch.run.fold.state import State
from safelaunch.run.io.runfolder import Run
from safelaunch.slurm import via
from safelaunch.verbs.common import controls, runs, talk
from safelaunch.verbs.common.controls import Touched
from safelaunch.verbs.control import queuehold
from safelaunch.verbs.control.queuehold import Turned


@dataclass(frozen=True)
class HoldAnswer:
    """Whether the run is on hold now, whose request that is or was, and what became of its queued jobs."""

    held: bool
    sentence: str
    request: Touched | None = None
    jobs: Turned = field(default_factory=Turned)

    @property
    def exit_code(self) -> int:
        """A refusal of Slurm (3), or no answer (4), is no success."""
        return UNREACHABLE if self.jobs.trouble else REFUSED if self.jobs.refused else DONE


def hold(run: Run, why: str) -> HoldAnswer:
    """Start no new attempt of the run until `resume`; `why` is for those who find it on hold. Raises RunFolderError."""
    state = run.state()
    if state.ended is not None:
        return HoldAnswer(False, f"nothing to hold: {runs.describe_end(state.ended)}")
    if state.preserving_until is not None:
        kept = f"its nodes are kept until {talk.moment(state.preserving_until)}, then it ends"
        return HoldAnswer(False, f"nothing to hold: the run has failed for good; {kept}")
    touched = controls.touch(run.dir / "control" / "hold", why)
    if touched.is_new and controls.is_mine(run):
        writer = controls.login_actor(run).writer
        writer.write(writer.event("decision", row="hold", action="hold",
                                  why=f"{touched.who} put the run on hold{f': {why}' if why else ''}"))
    turned = Turned() if run.plan.cluster == "local" else queuehold.hold_jobs(run)
    return HoldAnswer(True, _announce_hold(run, state, touched, turned), touched, turned)


def resume(run: Run) -> HoldAnswer:
    """Let a run go on that is on hold. Raises UsageError for one that has ended, and RunFolderError."""
    state = run.state()
    if state.ended is not None:
        raise UsageError(f"it cannot go on: {runs.describe_end(state.ended)}",
                         hint="a new run from the newest checkpoint: safelaunch submit train.yaml")
    # The file first: a job that is released before it would start, see the hold, and hand the run over again.
    removed = controls.remove(run.dir / "control" / "hold")
    if removed is not None and controls.is_mine(run):
        writer = controls.login_actor(run).writer
        me = owners.name_of(os.getuid())
        writer.write(writer.event("decision", row="resume", action="resume", lives=len(state.lives),
                                  why=f"{me} lets the run go on, which {removed.who} had put on hold"))
    turned = Turned() if run.plan.cluster == "local" else queuehold.release_jobs(run)
    return HoldAnswer(False, _announce_resume(run, state, removed, turned), removed, turned)


def _announce_hold(run: Run, state: State, touched: Touched, turned: Turned) -> str:
    """What will happen now."""
    begun = "is on hold" if touched.is_new else f"is on hold already, since {talk.moment(touched.t)} by {touched.who}"
    parts = [f"{run.plan.name} {begun}: {_what_goes_on(run, state, turned)}"]
    held = (*turned.done, *turned.before)
    if held:
        parts.append(f"job {', '.join(held)} stays in the queue, held")
    parts += [f"job {job} is left as it is: {why}" for job, why in turned.left]
    if turned.trouble:
        parts.append(f"Slurm does not answer ({turned.trouble}), so a queued job may start; its supervisor sees the "
                     "hold and starts nothing. To hold the job itself, repeat this")
    if turned.refused:
        parts.append(f"the queued job could not be held ({turned.refused}): it may start, and its supervisor starts "
                     "nothing")
    return f"{'; '.join(parts)}. To go on: safelaunch resume {run.dir}"


def _what_goes_on(run: Run, state: State, turned: Turned) -> str:
    attempt = state.attempt
    if turned.knows_none:
        return "nothing is started, and Slurm knows no job of it"
    if attempt is not None and attempt.ended is None:
        return f"attempt {attempt.number} goes on untouched, and nothing new is started after it"
    if not via.has_next_job(run.plan.cluster):
        return "nothing new is started; its supervisor waits"
    if state.job is not None and state.job.started_t is not None and not state.job.over:
        return "nothing new is started; the nodes go back, and the next job waits"
    return "nothing is started"


def _announce_resume(run: Run, state: State, removed: Touched | None, turned: Turned) -> str:
    """What will happen now."""
    name = run.plan.name
    if removed is None and not turned.done:
        parts = [f"{name} is not on hold, as far as {run.dir / 'control'} says"]
    else:
        parts = [f"{name} goes on" + (f", which {removed.who} had put on hold" if removed else "")]
    if turned.done:
        parts.append(f"job {', '.join(turned.done)} is released and starts when Slurm has nodes for it")
    elif removed is not None and state.attempt is not None and state.attempt.ended is None:
        parts.append(f"attempt {state.attempt.number} runs, and others may follow it")
    parts += [f"job {job} is left as it is: {why}" for job, why in turned.left]
    if turned.trouble:
        parts.append(f"Slurm does not answer ({turned.trouble}): whether a job of it is held is unknown; repeat this")
    if turned.refused:
        parts.append(f"the held job could not be released: {turned.refused}")
    if turned.knows_none:
        parts.append("but Slurm knows no job of it; to queue one: safelaunch watch --once")
    return "; ".join(parts)
