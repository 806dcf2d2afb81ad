"""What this leader knows of nodes: evidence against them, which ones there are, what runs on them beside a training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from safelaunch.decide.facts.seen import Live, MissingNodes
from safelaunch.nodehealth.checks.results import CheckReport
from safelaunch.nodehealth.ledger import NodeEvidence


class Uninspected(NamedTuple):
    """A failed attempt whose nodes still need a helper step; `since_s` is monotonic."""

    live: Live
    started_t: float
    since_s: float


class Nodes:
    """The nodes of the run and of its partition."""

    def __init__(self, on_refusal: Callable[[str], None] = lambda why: None) -> None:
        self._on_refusal = on_refusal   # what is done where no step can run beside the training
        self.evidence: tuple[NodeEvidence, ...] = ()        # against nodes, of this run and of others
        self.partition: tuple[str, ...] | None = None   # all nodes, the ones included that are down today
        self.available: tuple[str, ...] | None = None   # nodes that a job of this run can get; None = unknown
        self.missing: MissingNodes | None = None         # when Slurm has those that a full set lacks
        self.addresses: Mapping[str, str] = {}          # of nodes whose names this host cannot resolve
        self.names: Mapping[str, str | None] = {}       # of nodes, where they are reached; None = does not resolve
        self.no_overlap: str | None = None              # why none runs beside the training (supervisor.state.helpers)
        self.uninspected: tuple[Uninspected, ...] = ()      # failed attempts (supervisor.common.inspection)
        self.software: Mapping[str, CheckReport] = {}   # of the ranks' own Python, as far as nodes have told it
        self.tried_port: tuple[int, int] | None = None      # of the next attempt (its number, MASTER_PORT)

    def recall(self, evidence: Sequence[NodeEvidence]) -> None:
        """All evidence against nodes at this leader's start."""
        self.evidence = tuple(evidence)

    def blame(self, evidence: Sequence[NodeEvidence]) -> None:
        """New evidence from an attempt."""
        self.evidence = (*self.evidence, *evidence)

    def blamed_by(self, run: str, attempt: int) -> tuple[str, ...]:
        """The nodes that the failure of an attempt has blamed."""
        return tuple(dict.fromkeys(one.node for one in self.evidence if (one.run, one.attempt) == (run, attempt)))

    def note_names(self, partition: tuple[str, ...] | None, available: tuple[str, ...] | None) -> None:
        """Slurm has named the nodes."""
        self.partition, self.available = partition, available

    def note_missing(self, missing: MissingNodes) -> None:
        """Slurm was asked for the missing nodes."""
        self.missing = missing

    def note_addresses(self, addresses: Mapping[str, str]) -> None:
        """Slurm has told these addresses."""
        self.addresses = {**self.addresses, **addresses}

    def note_names_of(self, names: Mapping[str, str | None]) -> None:
        """A name server was asked."""
        self.names = {**self.names, **names}

    def refuse_helpers(self, why: str) -> None:
        """No step runs beside the training here; the first reason counts."""
        if self.no_overlap is None:
            self.no_overlap = why
            self._on_refusal(why)

    def queue_inspection(self, failed: Uninspected) -> None:
        """An attempt has failed on these nodes."""
        self.uninspected = (*self.uninspected, failed)

    def note_software(self, reports: Mapping[str, CheckReport]) -> None:
        """Ranks run in it."""
        self.software = {**self.software, **reports}

    def try_port(self, number: int, port: int) -> None:
        """The nodes have been asked to reach this port, which that attempt will use."""
        self.tried_port = (number, port)

    def takes_port(self, number: int) -> int | None:
        """The port that was tried for this attempt."""
        return self.tried_port[1] if self.tried_port is not None and self.tried_port[0] == number else None

    def take_uninspected(self) -> Sequence[Uninspected]:
        """The failed attempts that one inspection now covers."""
        failed, self.uninspected = self.uninspected, ()
        return failed
