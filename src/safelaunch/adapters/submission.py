"""Submitting a run exactly once.

sbatch can fail although the job got in (a stopped slurmctld makes it time out after 10 s, measured, and the job runs
later). So the intent is journalled first, an unclear answer is followed by looking for the run's unique job name until
Slurm gives a clear one, and only two clear "no such job" in a row, `SETTLE_S` apart, allow a second sbatch.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping

from safelaunch.adapters import journal, local, slurm
from safelaunch.adapters.runfolder import Run
from safelaunch.core import script, slurmtext
from safelaunch.errors import ParseError, SlurmError, SlurmRefused, SlurmUnreachable

SETTLE_S = 5.0       # slurmctld works off what waited in its socket within a second of coming back
LOOK_EVERY_S = 3.0
GIVE_UP_S = 600.0


class Submission:
    """One run's first sbatch; `say` takes progress for people."""

    def __init__(self, run: Run, env: Mapping[str, str], cwd: str, say: Callable[[str], None]) -> None:
        self._run, self._env, self._cwd, self._say = run, slurm.outside_job(env), cwd, say
        self._folder = journal.Direct(run.dir)
        self._writer = journal.Writer(self._folder, 0, socket.gethostname().split(".")[0])

    def submit(self) -> str:
        """The job's id. Raises SlurmRefused, or SlurmUnreachable when nobody knows after GIVE_UP_S."""
        claim = self._claim()
        self._writer.write(self._writer.event("intent", claim=claim, act="submit"))
        try:
            job = self._submit_local() if self._run.plan.cluster == "local" else self._submit_slurm()
        except (SlurmRefused, OSError) as error:
            self._writer.write(self._writer.event("outcome", claim=claim, act="submit", ok=False, why=str(error)[:500]))
            raise
        self._writer.write(self._writer.event("outcome", claim=claim, act="submit", ok=True),
                           self._writer.event("submitted", job=job, name=self._run.plan.job_name))
        return job

    def find(self) -> str | None:
        """The id of a job that an earlier sbatch of this run got in; None = two clear answers say there is none."""
        import tenacity  # only here: a submission that goes well has no time for it

        asking = tenacity.Retrying(
            stop=tenacity.stop_after_delay(GIVE_UP_S), wait=tenacity.wait_fixed(LOOK_EVERY_S),
            retry=tenacity.retry_if_exception_type((SlurmError, ParseError)),
            before_sleep=lambda state: self._say(f"{state.outcome.exception() if state.outcome else 'no answer'}; "
                                                 "asking again, so as not to submit twice"))
        try:
            found = asking(self._look)
            if found is None:   # slurmctld may still be working off what waited in its socket
                time.sleep(SETTLE_S)
                found = asking(self._look)
        except tenacity.RetryError as error:
            raise SlurmUnreachable(
                f"Slurm has given no clear answer for {GIVE_UP_S:.0f} s: whether the job got in is unknown",
                argv=("squeue",), returncode=None,
                hint=f"the run is kept in {self._run.dir}; the same `safelaunch submit` goes on from here") from error
        return found

    def _kept_out(self) -> list[str]:
        """--exclude with the nodes that the ledger speaks against, beside the user's own; [] where there are none."""
        from safelaunch.adapters import ledger  # a dry run, and a run on this machine, need none

        plan = self._run.plan
        try:
            folder = ledger.folder_of(plan.suspects, self._env)
            if not plan.suspects.exclude or not folder.is_dir():
                return []
            evidence = ledger.read(folder)
        except OSError as error:
            self._say(f"the ledger of nodes cannot be read: {error}; no node is kept out because of it")
            return []
        from safelaunch.core.ledger import exclusions  # only here: most submissions know nothing against any node

        found = exclusions(evidence, time.time(), plan.suspects, nodes=plan.nodes, spares=plan.spare_nodes)
        if found:   # the one more question that it costs: are enough nodes left without them?
            found = exclusions(evidence, time.time(), plan.suspects, nodes=plan.nodes, spares=plan.spare_nodes,
                               available=self._available())
        if not found:
            return []
        names = [one.node for one in found]
        self._say(f"kept out: {'; '.join(f'{one.node} ({one.why})' for one in found)}   "
                  f"(see: safelaunch nodes   take back: safelaunch nodes clear {names[0]} --why …)")
        own = dict(plan.sbatch).get("exclude")
        return [f"--exclude={','.join([*([own] if own else []), *names])}"]

    def _available(self) -> tuple[str, ...] | None:
        """The nodes that the job could be given; None = Slurm does not say."""
        partition = dict(self._run.plan.sbatch).get("partition")
        result = slurm.run(slurm.sinfo(partition), self._env)
        return slurmtext.usable_nodes(result.stdout) if result.is_ok else None

    def _look(self) -> str | None:
        jobs = slurm.jobs_named(self._run.plan.job_name, self._env)
        return jobs[0].id if jobs else None

    def _claim(self) -> int:
        number = journal.last_claim(self._run.dir) + 1
        content = journal.render_claim(0, os.uname().nodename, "submit", time.time())
        while not self._folder.publish(f"claims/{number}", content):
            number += 1
        return number

    def _submit_local(self) -> str:
        return local.submit(self._run.dir, self._run.plan, self._env, self._cwd)

    def _submit_slurm(self) -> str:
        options = [*script.first_job_options(self._run.plan), *self._kept_out()]
        # Should a lost answer make two jobs of this run, Slurm never runs them at once.
        singleton = ["--dependency=singleton"]
        while True:
            result = slurm.run(slurm.sbatch(str(self._run.dir / "job.sbatch"), [*singleton, *options]), self._env,
                               cwd=self._cwd)
            if singleton and not (result.is_ok or result.is_unknown):
                singleton = []   # it may be the dependency that this site refuses; in words of its own, so no guessing
                continue
            if result.is_ok:
                try:
                    return slurmtext.parse_submitted(result.stdout)
                except ParseError as error:
                    self._say(f"{error}; looking for the job by its name")
            elif not result.is_unknown:
                result.check()
            else:
                self._say(f"sbatch: {result.stderr.strip() or 'no answer'}; the job may be in all the same")
            job = self.find()
            if job is not None:
                return job
            self._say("the job did not get in: submitting it again")


