"""The next job of the run, by every way that it can be made. It is queued while this one runs, so that no end of this
one loses the run. Where a site forbids that, it is submitted or requeued when this one ends.

`afterany` keeps the successor back while this job lives, `singleton` under a unique name makes Slurm itself refuse two
running jobs of one run. The environment is the one saved at the first submit: inside a job, sbatch would take the job's
own SLURM_* for options.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from safelaunch.decide.facts.seen import MissingNodes
from safelaunch.errors import ParseError
from safelaunch.guard.io.job import Allocation
from safelaunch.run.plan import Plan
from safelaunch.script.forecast import parse_test_only
from safelaunch.slurm import jobstates, nodeset, slurmtext
from safelaunch.slurm.excludelist import ExcludeList
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Command, Result, StartCommand
from safelaunch.slurm.slurmtext import KnownJob

MOST_SAID = 160   # characters of an answer
WAITING = frozenset({jobstates.PENDING})
CANCELLED = frozenset({jobstates.CANCELLED})


class Successor:
    """The commands around the next job; who runs them waits for them."""

    def __init__(self, plan: Plan, job: Allocation, run_dir: Path, env: Mapping[str, str], start: StartCommand) -> None:
        self._plan, self._job, self._run_dir, self._start = plan, job, run_dir, start
        self._env = slurm.outside_job(env)
        self._excluding = ExcludeList.of(plan.sbatch)

    # --- making it ------------------------------------------------------------------------------------------------

    def submit(self, exclude: tuple[str, ...], *, is_behind: bool = True, is_held: bool = False,
               more: Sequence[str] = ()) -> Command:
        """sbatch of the next job; `is_behind`: it waits for this one's end; `more`: options that have been changed."""
        options = [*([self.dependency] if is_behind else []), *more]
        if is_held:
            options.append("--hold")
        options += self._excluding.options(exclude)
        return self._start(slurm.sbatch(self.script, options), self._env, cwd=self._job.cwd)

    def test(self) -> Command:
        """sbatch of a job without a dependency, which submits nothing: whether this host may submit one."""
        return self._start(slurm.sbatch(self.script, ["--test-only"]), self._env, cwd=self._job.cwd)

    def ask_nodes_for(self, count: int, but: tuple[str, ...]) -> Command:
        """sbatch of a job of so many nodes, which submits nothing: when it could start without the nodes `but`."""
        options = ["--test-only", f"--nodes={count}", *self._excluding.options(but)]
        return self._start(slurm.sbatch(self.script, options), self._env, cwd=self._job.cwd)

    @staticmethod
    def free_nodes(result: Result | None, now: float) -> MissingNodes:
        """When the nodes of `ask_nodes_for` are free, by its answer, which is in this cluster's zone."""
        text = "" if result is None else result.stderr + result.stdout
        said = MissingNodes(now, None, " ".join(text.split())[:MOST_SAID])
        if result is None or not result.is_ok:
            is_never = result is not None and slurmtext.has_too_few_nodes(text)
            return said._replace(free_t=math.inf if is_never else None)
        start = parse_test_only(text, is_ok=True)
        with contextlib.suppress(ValueError, OverflowError, OSError, ParseError):
            return said._replace(free_t=datetime.fromisoformat(start.start).timestamp(),
                                 nodes=nodeset.expand(start.nodes))
        return said

    @staticmethod
    def are_idle(nodes: tuple[str, ...], result: Result | None) -> bool:
        """Whether all of these nodes wait for a job, by the answer to `ask_nodes`. An idle one of a reservation is
        called reserved (22.05, measured).
        """
        if result is None or not result.is_ok or not nodes:
            return False
        with contextlib.suppress(ParseError, ValueError):
            idle = {node for state, listed in slurmtext.parse_sinfo(result.stdout) if state in ("idle", "reserved")
                    for node in nodeset.expand(listed)}
            return idle.issuperset(nodes)
        return False

    @property
    def script(self) -> str:
        """The job script of every job of the run."""
        return str(self._run_dir / "job.sbatch")

    @property
    def dependency(self) -> str:
        """sbatch's option that keeps the next job behind this one."""
        return f"--dependency=afterany:{self._job.id},singleton"

    # --- looking at it --------------------------------------------------------------------------------------------

    def query_all(self) -> Command:
        """squeue of the run's jobs, in every state that Slurm still remembers: an answer without this job is none
        (simulated: test_found "a next job that a person cancelled before anybody had written it down is not submitted
        anew").
        """
        return self.run(slurm.squeue_all_by_name(self._plan.job_name))

    def job_from(self, result: Result, states: Collection[str] = WAITING, but: Collection[str] = ()) -> str | None:
        """The next job's id out of sbatch's or squeue's answer; None = there is none, or no clear answer.

        Pending ones only, unless `states` says more: the job before this one can hang in COMPLETING on a silent node
        for minutes. `but`: jobs that are known to be no next one.
        """
        if result.argv[0] == "sbatch":
            return slurm.submitted_in(result)
        return next((job.id for job in slurm.jobs_in(result) or () if job.name == self._plan.job_name
                     and job.id != self._job.id and job.state in states and job.id not in but), None)

    def waiting(self, result: Result) -> tuple[str, ...] | None:
        """Other jobs of this run that have not started, by the answer to `query_all`; None = it is not clear."""
        return self._others(result, WAITING)

    def cancelled(self, result: Result) -> tuple[str, ...]:
        """Other jobs of this run that were cancelled, by the answer to `query_all`."""
        return self._others(result, CANCELLED) or ()

    def _others(self, result: Result, states: Collection[str]) -> tuple[str, ...] | None:
        mine = [job for job in slurm.jobs_in(result) or () if job.name == self._plan.job_name]
        if all(job.id != self._job.id for job in mine):
            return None
        return tuple(job.id for job in mine if job.id != self._job.id and job.state in states)

    def state_of(self, result: Result, job: str) -> str | None:
        """Slurm's word for the state of `job`; "" = Slurm says that it does not know it, None = no clear answer.

        An answer without a line is none: of one job that squeue does not know it says "Invalid job id" (22.05).
        """
        if not result.is_ok:
            return "" if slurmtext.is_unknown_job(result.stderr) else None
        return next((known.state for known in slurm.jobs_in(result) or () if known.id == job), None)

    def own(self, result: Result) -> KnownJob | None:
        """This job out of the answer to `query_exclusions`; None = no clear answer."""
        try:
            jobs = slurmtext.parse_watch(result.stdout) if result.is_ok else ()
        except ParseError:
            return None
        return next((job for job in jobs if job.id == self._job.id), None)

    @staticmethod
    def account_state(result: Result | None, job: str) -> str | None:
        """sacct's word for the state of a job; None = there is none."""
        try:
            account = slurmtext.parse_sacct(result.stdout).get(job) if result is not None and result.is_ok else None
        except ParseError:
            return None
        return account.state if account else None

    # --- names that Slurm does not know -------------------------------------------------------------------------------

    def ask_nodes(self) -> Command:
        """sinfo of all nodes of this cluster."""
        return self.run(slurm.sinfo(None))

    def leave_out(self, there: Collection[str] | None, named: Iterable[str]) -> tuple[str, ...]:
        """Of the nodes `named`, and the user's own, those that are not there: from now on no command names them."""
        gone = self._excluding.gone(named, there)
        self._excluding = self._excluding.without(gone)
        return gone

    # --- changing it ----------------------------------------------------------------------------------------------

    def prepare(self, job: str | None, exclude: tuple[str, ...], drop_afterany: bool = False,
                known: tuple[str, ...] = (), behind: tuple[str, ...] = ()) -> Command | None:
        """The changes to the pending next job before this one ends, in one call; None = there are none.

        `drop_afterany`: this job will hang in COMPLETING on a silent node; singleton counts that as ended. `known`:
        what the job was kept from so far; an update replaces the whole list. `behind`: it waits for these jobs of other
        runs, too.
        """
        changes = {"ExcNodeList": self._excluding.text(exclude)} if exclude or known else {}
        if drop_afterany or behind:
            waits = ":".join((*(() if drop_afterany else (self._job.id,)), *behind))
            changes["Dependency"] = f"afterany:{waits},singleton" if waits else "singleton"
        return self.run(slurm.update_job(job, **changes)) if job is not None and changes else None

    def is_unchangeable(self, refused: Result, excluded: Iterable[str]) -> bool:
        """Whether no change of a pending job will be obeyed: among the nodes that it was kept from is one that has
        left the cluster.

        From 24.11 on Slurm then refuses all changes, also of the list itself (slurmctld: "Invalid excluded nodes list
        in job records"; measured on 24.11.5; 22.05.8 obeys).
        """
        return slurmtext.is_unknown_node(refused.stderr) and not self._excluding.unknown.isdisjoint(excluded)

    def has_excluded(self, job: KnownJob, exclude: tuple[str, ...]) -> bool:
        """Whether Slurm keeps the job from all of these nodes."""
        try:
            return self._excluding.is_in(exclude, nodeset.expand(job.excluded) if job.excluded else ())
        except ParseError:
            return False

    def run(self, argv: tuple[str, ...]) -> Command:
        """One of slurm.io.slurm's commands, as the run's owner outside of a job."""
        return self._start(argv, self._env)
