"""Submitting a run exactly once.

sbatch can fail although the job got in: a stopped slurmctld makes it time out after 10 s (measured), and the job runs
later. So the intent is journalled first. After an unclear answer we look for the run's unique job name until Slurm
gives a clear one. Only two clear "no such job" in a row, `SETTLE_S` apart, allow a second sbatch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from safelaunch.base.model import UNKNOWN_HERE
from safelaunch.errors import ParseError, RunFolderError, SlurmError, SlurmRefused, SlurmUnreachable
from safelaunch.nodehealth.ledger import describe, exclusions, most_excluded, needed, of_cluster, strangers, suspected
from safelaunch.run import acts
from safelaunch.run.acts import ActOutcome
from safelaunch.run.io import local
from safelaunch.run.io.ledgerfolder import folder_of
from safelaunch.run.io.loginactor import LoginActor
from safelaunch.run.io.runfolder import Run
from safelaunch.script import script
from safelaunch.slurm import slurmtext
from safelaunch.slurm.excludelist import asked_nodes, unknown_names
from safelaunch.slurm.io import slurm
from safelaunch.slurm.nodeset import expand_own
from safelaunch.slurm.via import HERE

if TYPE_CHECKING:
    from safelaunch.nodehealth.ledger import NodeEvidence
    from safelaunch.run.io.runmaking import NewRun

SETTLE_S = 5.0       # slurmctld works off its socket's queue within a second of coming back
LOOK_EVERY_S = 3.0
GIVE_UP_S = 600.0


class Submission:
    """One run's first sbatch; `say` takes progress for people."""

    def __init__(self, run: Run, env: Mapping[str, str], cwd: str, say: Callable[[str], None],
                 behind: Callable[[], Sequence[str]] = tuple, when_sent: Callable[[str], object] = str,
                 told: dict[tuple[str, ...], slurm.Result] | None = None, new: NewRun | None = None) -> None:
        """`behind` gives the jobs of other runs that the first job waits for, when all else is ready. `when_sent` is
        called with the job's id before it is journalled. `told` is what Slurm has said of its nodes, for all runs of a
        sweep. `new`: the run is not durable yet; it becomes so together with the claim and the intent.
        """
        self._run, self._env, self._cwd, self._say = run, slurm.outside_job(env), cwd, say
        self._here = env.get("SLURM_JOB_ID", "")   # the job of the shell, for a run of `submit --here`
        self._behind, self._when_sent = behind, when_sent
        self._told = {} if told is None else told
        self._keep = new.keep if new is not None else None
        self._actor = LoginActor(run.dir, sync=new.sync.sync if new is not None else os.fsync)
        self._writer = self._actor.writer
        self._job: str | None = None
        self.may_be_in = False   # between an sbatch and a clear no: the run folder must stay then

    def submit(self) -> str:
        """The job's id.

        Raises SlurmRefused, SlurmUnreachable when nobody knows after GIVE_UP_S, or RunFolderError when the run folder
        cannot be written.
        """
        try:
            return acts.perform_now(self._actor, "submit", self._actor.claim("submit"), self._submit)
        except OSError as error:
            if self._job is not None:
                self._say(f"warning: job {self._job} is submitted, but its id could not be written to "
                          f"{self._run.dir / self._writer.name}: {error}. The job itself is not harmed by it; until it "
                          f"starts, other commands know this run by its name only")
                return self._job
            fate = "whether the job got in is unknown" if self.may_be_in else "nothing was submitted"
            raise RunFolderError(f"the submission to {self._run.dir} failed: {error}; {fate}",
                                 hint="the same `safelaunch submit` goes on from here" if self.may_be_in else
                                      "free some space, or choose another run_dir") from error

    def _submit(self) -> ActOutcome[str]:
        if self._keep is not None:
            self._keep()
        behind = self._behind()
        cluster = self._run.plan.cluster
        job = self._job = (self._here if cluster == HERE else
                           self._submit_local() if cluster == "local" else self._submit_slurm(behind))
        self._when_sent(job)
        return ActOutcome(True, job, then=(
            lambda: self._writer.event("submitted", job=job, name=self._run.plan.job_name),))

    def find(self) -> str | None:
        """The id of a job that an earlier sbatch of this run got in; None = two clear answers say there is none."""
        import tenacity  # only here: a submission that goes well has no time for it

        asking = tenacity.Retrying(
            stop=tenacity.stop_after_delay(GIVE_UP_S), wait=tenacity.wait_fixed(LOOK_EVERY_S),
            retry=tenacity.retry_if_exception_type((SlurmError, ParseError)),
            before_sleep=lambda state: self._say(f"{state.outcome.exception() if state.outcome else 'no answer'}; "
                                                 "asking again, not to submit twice"))
        try:
            found = asking(self._look)
            if found is None:   # slurmctld may still work off its socket's queue
                time.sleep(SETTLE_S)
                found = asking(self._look)
        except tenacity.RetryError as error:
            raise SlurmUnreachable(
                f"Slurm has given no clear answer for {GIVE_UP_S:.0f} s: whether the job got in is unknown",
                argv=("squeue",), returncode=None,
                hint=f"the run is kept in {self._run.dir}; the same `safelaunch submit` goes on from here") from error
        return found

    def _kept_out(self) -> list[str]:
        """The nodes that the ledger suspects, as far as they can be excluded; [] where there are none."""
        plan = self._run.plan
        try:
            folder = folder_of(plan.suspects, self._env)
            if not plan.suspects.exclude or not folder.is_dir():
                return []
            from safelaunch.nodehealth.io import ledger  # most submissions find none

            known = ledger.read(folder)
        except OSError as error:
            self._say(f"the ledger of nodes cannot be read: {error}; no node is excluded because of it")
            return []
        evidence, now = of_cluster(known, self._run.cluster), time.time()
        found = exclusions(evidence, now, plan.suspects, nodes=plan.allocated_nodes, spares=plan.spare_nodes)
        if found:   # costs one more question: are enough nodes left without them, and are they the partition's?
            partition = dict(plan.sbatch).get("partition")
            there, usable = self._nodes(partition, dict(plan.sbatch).get("reservation"))
            found = exclusions(evidence, now, plan.suspects, nodes=plan.allocated_nodes, spares=plan.spare_nodes,
                               among=there, available=self._not_excluded(usable), asked=asked_nodes(plan.sbatch))
            self._tell_not_kept_out(evidence, now, [one.node for one in found], there)
        if found:
            self._say(f"excluded: {'; '.join(f'{one.node} ({one.why})' for one in found)}   "
                      f"(see: safelaunch nodes   take back: safelaunch nodes clear {found[0].node} --why …)")
        return [one.node for one in found]

    def _tell_not_kept_out(
        self, evidence: Sequence[NodeEvidence], now: float, found: Sequence[str], there: tuple[str, ...] | None
    ) -> None:
        """Say why suspects are used: the user or the run needs them, or Slurm does not know their names."""
        plan, partition = self._run.plan, dict(self._run.plan.sbatch).get("partition")
        asked = asked_nodes(plan.sbatch)
        for one in suspected(evidence, now, plan.suspects):
            if one.node in asked:
                self._say(f"not excluded: {one.node} ({describe(one)}; slurm.nodelist asks for it)")
        if there is None:
            return
        most = most_excluded(plan.suspects, plan.allocated_nodes, plan.spare_nodes)
        self._leave_out(needed(evidence, now, plan.suspects, found, most, set(there) - asked))
        strange = [one.node for one in strangers(evidence, now, plan.suspects, there) if one.node not in asked]
        if strange and partition:   # nodes of another partition are not worth a message
            everywhere = self._nodes(None)[0]
            strange = [node for node in strange if everywhere is not None and node not in everywhere]
        self._leave_out(dict.fromkeys(strange, UNKNOWN_HERE))

    def _leave_out(self, nodes: Mapping[str, str]) -> None:
        """Write down, and say, that suspects are not excluded, each with its reason."""
        if nodes:
            self._writer.write(*(self._writer.event("node_left_out", node=node, why=why)
                                 for node, why in nodes.items()))
            self._say(f"not excluded: {'; '.join(f'{node} ({why})' for node, why in nodes.items())}")

    def _not_excluded(self, nodes: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """The nodes that the user's own slurm.exclude leaves to the run."""
        own = set(expand_own(dict(self._run.plan.sbatch).get("exclude")))
        return None if nodes is None else tuple(node for node in nodes if node not in own)

    def _nodes(
        self, partition: str | None, reservation: str | None = None
    ) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
        """All nodes of a partition, and those that jobs of the run can get; None = no answer, or one without nodes."""
        result = self._ask(slurm.sinfo(partition))
        if not result.is_ok:
            return None, None
        there, own = slurmtext.all_nodes(result.stdout) or None, None
        if reservation:
            told = self._ask(slurm.sinfo_reservations())
            own = slurmtext.reserved_nodes(told.stdout, reservation) if told.is_ok else None
            if own is None:
                return there, None
        return there, slurmtext.usable_nodes(result.stdout, own)

    def _ask(self, argv: tuple[str, ...]) -> slurm.Result:
        told = self._told.get(argv)
        if told is None:   # not looked up again: another point's thread may clear all of it meanwhile
            told = self._told[argv] = slurm.run(argv, self._env)
        return told

    def _without_strangers(self, names: list[str], refused: slurm.Result) -> list[str]:
        """Those of our names that Slurm knows, after it has refused a list.

        Raises SlurmRefused where the list was the user's, or where Slurm does not say which names it knows.
        """
        self._told.clear()   # a node has gone since
        there = self._nodes(None)[0]
        options = dict(self._run.plan.sbatch)
        own = (*expand_own(options.get("exclude")), *expand_own(options.get("nodelist")))
        if strange := unknown_names(own, there):
            raise SlurmRefused(
                f"slurm.exclude or slurm.nodelist names {', '.join(strange)}, and this cluster knows no such node",
                argv=refused.argv, returncode=refused.returncode, stdout=refused.stdout, stderr=refused.stderr,
                hint="see: sinfo --all --Node; a name that has gone must be taken out of train.yaml")
        gone = unknown_names(names, there)
        if not gone:
            refused.check()
        self._leave_out(dict.fromkeys(gone, UNKNOWN_HERE))
        return [name for name in names if name not in gone]

    def _exclude(self, names: list[str]) -> list[str]:
        """--exclude with these nodes and the user's own, which it replaces; [] = the script's own is enough."""
        own = dict(self._run.plan.sbatch).get("exclude")
        return [f"--exclude={','.join([*([own] if own else []), *names])}"] if names else []

    def _look(self) -> str | None:
        jobs = slurm.jobs_named(self._run.plan.job_name, self._env)
        return jobs[0].id if jobs else None

    def _submit_local(self) -> str:
        return local.submit(self._run.dir, self._run.plan, self._env, self._cwd)

    def _submit_slurm(self, behind: Sequence[str]) -> str:
        names, is_checked = self._kept_out(), False
        # If a lost answer makes two jobs of this run, Slurm never runs them at once.
        is_singleton = True
        while True:
            words = [*script.first_job_options(self._run.plan, is_singleton, behind), *self._exclude(names)]
            self.may_be_in = True
            result = slurm.run(slurm.sbatch(str(self._run.dir / "job.sbatch"), words), self._env, cwd=self._cwd)
            self.may_be_in = result.is_ok or result.is_unknown
            if slurmtext.is_unknown_node(result.stderr) and not is_checked:   # a node has gone since sinfo was asked
                names, is_checked = self._without_strangers(names, result), True
                continue
            if is_singleton and not (result.is_ok or result.is_unknown):
                is_singleton = False   # this site may refuse the dependency, in words of its own: do not guess
                continue
            if result.is_ok:
                try:
                    return slurmtext.parse_submitted(result.stdout)
                except ParseError as error:
                    self._say(f"{error}; searching the job by its name")
            elif not result.is_unknown:
                result.check()
            else:
                self._say(f"sbatch: {result.stderr.strip() or 'no answer'}; the job may be submitted all the same")
            job = self.find()
            if job is not None:
                return job
            self.may_be_in = False
            self._say("the job was not submitted: submitting it again")


