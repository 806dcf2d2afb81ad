"""Where before_resize writes, and how its outputs are removed once nothing goes on from them."""

from __future__ import annotations

import os

from safelaunch.decide.nodes.resize import spent_outputs
from safelaunch.run.plan import RESIZED
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.ports import Here, Say
from safelaunch.supervisor.state.resume import ResumePoint
from safelaunch.supervisor.state.tasks import Step

REMOVE_S = 1800.0   # of checkpoints of terabytes in many files


def output_path(here: Here, number: int) -> str:
    """Where an attempt's before_resize writes: beside the checkpoints, so that nobody takes a half for one of them."""
    folder = os.path.join(here.job.cwd, here.plan.resume.dir or "").rstrip("/")   # noqa: PTH118 - text only
    return f"{folder}{RESIZED}/{here.plan.run_id}-{number:04d}"


def remove_spent(here: Here, journal: LeaderJournal, resume: ResumePoint, say: Say) -> Step:
    """Remove them when an attempt has started: nothing of the one before is left then. `rm` removes a link, and follows
    none. What an earlier leader left over is removed, too.
    """
    # Nothing else, whatever the journal says.
    spent = [known.resize for known in spent_outputs(journal.state, resume.newest) if known.resize is not None
             and known.resize.output == output_path(here, known.number)]
    if not spent:
        return
    if new := [one.output for one in spent if not one.is_removed]:
        journal.record(journal.event("conversions_removed", outputs=new))
    argv = ("rm", "-rf", "--one-file-system", "--", *(one.output for one in spent))
    result = yield here.world.command(argv, here.job.env, REMOVE_S)
    if result is None or not result.is_ok:
        say(f"outputs of before_resize could not be removed, the next attempt tries again: "
            f"{'' if result is None else result.stderr.strip()[:200]}")
