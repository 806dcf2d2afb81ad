"""What a failed attempt says about nodes: evidence for journal and ledger, and which nodes are excluded for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from safelaunch.base.model import Event, NewEvent
from safelaunch.decide.budget import alone
from safelaunch.decide.budget.blame import Failure, confirm
from safelaunch.decide.facts.seen import Live
from safelaunch.decide.nodes import excluding
from safelaunch.decide.nodes.excluding import KnownNodes
from safelaunch.guard.io.job import Allocation
from safelaunch.nodehealth.io import ledger as folder_of_ledger
from safelaunch.nodehealth.ledger import NodeEvidence, of_cluster
from safelaunch.nodehealth.ledgerlines import evidence_of, node_suspected
from safelaunch.nodehealth.nodeuse import NodeUse
from safelaunch.script.script import quote_bash
from safelaunch.slurm import nodeset, slurmtext
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Result
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.nodes import Nodes
from safelaunch.supervisor.state.ports import FolderPort, Here, Say
from safelaunch.supervisor.state.tasks import BackgroundTasks, Step

ASK_S = 15.0         # for sinfo at the start of a job
USE_LATE_S, USE_LOOK_S = 3.0, 0.25   # after an attempt's end, when the restart has settled
JUDGED_WITHIN_S = 2.0   # for reading and judging the ledger, of 16 MiB at most
DEADLINE_S = 1.0     # for the ledger's folder: evidence that cannot be shared still counts in this run


class Suspicions(NamedTuple):
    """The evidence against nodes: kept here, told to the ledger that runs share, and the exclusions that follow."""

    here: Here
    clock: Clock
    journal: LeaderJournal
    files: FolderPort
    nodes: Nodes

    def accuse(self, evidence: tuple[NodeEvidence, ...]) -> None:
        """New evidence, which counts from now on; the shared ledger is told, too, without a long wait."""
        self.nodes.blame(evidence)
        folder = self._ledger()
        if folder is not None:
            self.files.ask_anyway(lambda: folder_of_ledger.append(folder, evidence), DEADLINE_S)

    def confirm(self) -> list[Event]:
        """The events of black holes that are known as such, as the attempt that ends has made steps without them."""
        run, cluster = self.here.plan.run_id, self.here.job.cluster
        found = tuple(evidence for one in alone.went_on(self.journal.state) for evidence in confirm(Failure(
            run=run, owner=self.here.user, t=self.clock.now, attempt=one.number, nodes=one.nodes,
            category=one.category or "unknown", confidence=one.confidence, why=one.summary or "", culprits=one.blamed,
            lived_s=None if one.ended_t is None else one.ended_t - one.started_t, steps=int(one.made_steps),
            fingerprint=one.fingerprint, cluster=cluster)))
        known = {(one.run, one.attempt, one.kind) for one in self.nodes.evidence}
        new = tuple(one for one in found if (one.run, one.attempt, one.kind) not in known)
        if new:
            self.accuse(new)
        return self.journal.events(NewEvent("node_suspected", node_suspected(one)) for one in new)

    def change_exclusions(self) -> list[Event]:
        """The events for nodes newly excluded or readmitted, compared with the journal's state."""
        return self.journal.events(
            excluding.changes(self.journal.state, self.here.plan, self.known(), self.clock.now))

    def known(self) -> KnownNodes:
        """What is known of nodes at this moment."""
        return KnownNodes(self.here.job.nodes, self.nodes.evidence, self.nodes.partition, self.nodes.available,
                          self.here.job.env.get("SLURM_JOB_PARTITION") or "")

    def recall(self, say: Say, ask: Callable[..., Result | None] | None) -> None:
        """All evidence against nodes: this run's own journal, and the ledger that runs and people share.

        `ask`: for Slurm's number of nodes, which bounds the exclusions. Without it a new job can hand over at once for
        want of good nodes. None: it is asked later.
        """
        cluster, now = self.here.job.cluster, self.clock.now
        own = evidence_of(self.journal.history, self.here.plan.run_id, cluster)
        evidence = of_cluster(dict.fromkeys(own), cluster)
        folder = self._ledger()
        if folder is not None:
            answer = self.files.ask_anyway(
                lambda: folder_of_ledger.read_judged(folder, own, cluster, now), JUDGED_WITHIN_S)
            if answer.is_ok and answer.value is not None:
                evidence = tuple(NodeEvidence(*fields) for fields in answer.value)
            else:
                say.decision("ledger_left_out", tell_left_out(str(folder), answer.error))
        self.nodes.recall(evidence)
        command = _sinfo(self.here.job)
        if ask is not None and self.nodes.evidence and command is not None:
            ours = ask(slurm.sinfo_reservations(), ASK_S) if _reservation(self.here.job) else None
            self._take_nodes(ask(command, ASK_S), ours)
        self._record_changes()

    def ask_available(self) -> Step:
        """The nodes that a job of this partition can get: exclusions must leave enough of them."""
        here, command = self.here, _sinfo(self.here.job)
        if command is not None and self.nodes.partition is None:
            ours = None
            if _reservation(here.job):
                ours = yield here.world.command(slurm.sinfo_reservations(), here.job.env)
            self._take_nodes((yield here.world.command(command, here.job.env)), ours)
            self._record_changes()

    def note_use(self, tasks: BackgroundTasks, live: Live, started_t: float) -> Step:
        """Tell the ledger how long an ended attempt has used its nodes; no restart waits for that."""
        use = NodeUse(live.nodes, self.clock.now, self.clock.now - started_t, self.here.plan.run_id, live.number,
                      self.here.job.cluster)
        until_s = self.clock.now_s + USE_LATE_S
        while self.clock.now_s < until_s and not tasks.is_leaving:
            yield USE_LOOK_S
        folder = self._ledger()
        if folder is not None and use.used_s > 0:
            self.files.ask_anyway(lambda: folder_of_ledger.append_use(folder, use), DEADLINE_S)

    def _record_changes(self) -> None:
        events = self.change_exclusions()
        if events:
            self.journal.record(*events)

    def _take_nodes(self, result: Result | None, reservations: Result | None) -> None:
        if result is None or not result.is_ok:
            return
        partition = slurmtext.all_nodes(result.stdout) or None   # an answer without any node is none
        name, own = _reservation(self.here.job), None
        if name and reservations is not None and reservations.is_ok:
            own = slurmtext.reserved_nodes(reservations.stdout, name)
        is_told = partition is not None and (not name or own is not None)
        # The user's own: no job of the run gets them.
        excluded = set(nodeset.expand_own(dict(self.here.plan.sbatch).get("exclude")))
        if partition is not None and excluded:
            partition = tuple(node for node in partition if node not in excluded)
        usable = slurmtext.usable_nodes(result.stdout, own) if is_told else None
        self.nodes.note_names(partition, None if usable is None else tuple(n for n in usable if n not in excluded))

    def _ledger(self) -> Path | None:
        """The shared ledger's folder; None where there is none for this run."""
        if self.here.job.is_local:
            return None
        try:
            return folder_of_ledger.folder_of(self.here.plan.suspects, self.here.job.env)
        except OSError:
            return None   # no home on this node


def tell_left_out(folder: str, error: str) -> str:
    """Why the ledger does not count in this job, what follows, and what to do."""
    why = f"cannot be read: {error}" if error else (
        f"was not read and judged within {JUDGED_WITHIN_S:.0f} s: it does not answer, or somebody has filled it")
    return (f"the ledger of suspects in {folder} {why}. In this job only this run's own evidence excludes nodes; the "
            f"next job reads it again. Look for large files there: ls -lS {quote_bash(folder)}")


def _sinfo(job: Allocation) -> tuple[str, ...] | None:
    partition = job.env.get("SLURM_JOB_PARTITION")
    return slurm.sinfo(partition) if partition and not job.is_local else None


def _reservation(job: Allocation) -> str:
    return job.env.get("SLURM_JOB_RESERVATION", "")   # sbatch(1), output environment variables
