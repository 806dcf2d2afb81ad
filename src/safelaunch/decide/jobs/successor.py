"""The next job of a run, one answer for its leader and for a watch. Which nodes is it kept from? What gives way where
these leave too few? Which job has a person taken out of the queue?
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from safelaunch.decide.jobs import cancel
from safelaunch.decide.jobs.cancel import Canceller, Witnesses
from safelaunch.nodehealth.ledger import most_excluded
from safelaunch.run.fold.state import State
from safelaunch.run.plan import Plan
from safelaunch.slurm import jobstates, nodeset, slurmtext

Nodes = tuple[str, ...]


def affordable(plan: Plan, state: State, wanted: Sequence[str], there: Collection[str] | None) -> Nodes:
    """The nodes `wanted` out, as far as a job of the run can start without them. Nodes give way whose checks failed
    in earlier jobs; then all but what the ledger keeps out; then these. A supervisor that is cut off takes all others
    for lost, and the next job would wait for ever.

    `there`: all nodes of the partition, also those that are down today: Slurm itself keeps these out. Where it does not
    say (None, or none), no more are excluded than the ledger may.
    """
    if not there:
        return _newest_first(state, wanted)[:most_excluded(plan.suspects, plan.nodes, plan.spare_nodes)]
    left = set(there) - set(own_excluded(plan))
    now = tuple(node for node in wanted if node not in state.unfit_before or node in state.excluded)
    rooms = ((allowed, len(left - set(allowed))) for allowed in (tuple(wanted), now, state.excluded))
    return next((allowed for allowed, room in rooms if room >= plan.allocated_nodes), ())


def own_excluded(plan: Plan) -> Nodes:
    """The nodes that the user excludes: no job of the run gets them, and they are not safelaunch's to give back."""
    return nodeset.expand_own(dict(plan.sbatch).get("exclude"))


def _newest_first(state: State, nodes: Iterable[str]) -> Nodes:
    """Those met just now, which are no evidence yet, then by evidence, the newest first; at last those whose checks
    failed in earlier jobs.
    """
    earlier = dict.fromkeys(set(state.unfit_before) - set(dict(state.unfit)), len(state.exclusions) + 1)
    age = {**earlier, **_ages(state)}
    return tuple(sorted(nodes, key=lambda node: age.get(node, 0)))


def _ages(state: State) -> dict[str, int]:
    return {known.node: number for number, known in enumerate(reversed(state.exclusions), 1)}


class Room(NamedTuple):
    """What a job that waits for ever can be given. `drop`: nodes that it may use again, the oldest evidence first; none
    where that would not help. `left`: nodes that it can get as it is.
    """

    drop: Nodes = ()
    left: int = 0


def make_room(plan: Plan, state: State, excluded: Iterable[str], usable: Collection[str]) -> Room:
    """Which exclusions of a waiting job give way; `usable`: the nodes that jobs of the run can get now, or later."""
    own = set(own_excluded(plan))
    ours = [node for node in excluded if node not in own]
    free = set(usable) - own
    if (left := len(free - set(ours))) >= plan.allocated_nodes:
        return Room(left=left)
    age = _ages(state)   # of equal age: as they are listed
    by_age = tuple(sorted((node for node in ours if node in free), key=lambda node: -age.get(node, 0)))
    spare = max(0, len(free) - plan.allocated_nodes)
    return Room(by_age[:len(by_age) - spare], left)


def fewer(exclude: Nodes, refused: str) -> Nodes | None:
    """What to keep the job from instead, once sbatch has refused it; None = the refusal has another reason."""
    return () if exclude and slurmtext.has_too_few_nodes(refused) else None


def is_before(job: str, other: str) -> bool:
    """Whether Slurm has numbered a job before another one."""
    return job.isdecimal() and other.isdecimal() and int(job) < int(other)


def taken_back(state: State, after: str, cancelled: Iterable[str]) -> str | None:
    """The job behind `after` that a person took out of the queue, though nobody journalled its submission. `cancelled`:
    the run's other jobs that squeue shows as cancelled.
    """
    started = {job.id for job in state.jobs if job.started_t is not None}
    return next((job for job in cancelled if job not in started and is_before(after, job) and cancel.judge(Witnesses(
        announced=job in state.cancelled_jobs, state=jobstates.CANCELLED)) is Canceller.PERSON), None)
