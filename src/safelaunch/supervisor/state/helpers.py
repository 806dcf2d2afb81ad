"""Sites on which no job step runs beside the training: what a supervisor does instead.

Helper steps (standby, hang checks, sweeps) and relaunches use --overlap. A site can refuse that (cli_filter), or drop
the option (a script around srun). Then a helper step waits for the training's end, takes its place, and the next
attempt waits without end (both seen in a drill). So once srun says that, there is no standby and no hang check. A fence
waits for the lease, and attempts start as steps of their own.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from safelaunch.slurm import slurmtext
from safelaunch.slurm.io.slurm import Command, Result
from safelaunch.supervisor.state.endpoint import GuardEndpoint
from safelaunch.supervisor.state.nodes import Nodes
from safelaunch.supervisor.state.ports import Here


class Helpers(NamedTuple):
    """Helper steps beside the training, on nodes of this job. After a refusal none runs, and nothing uses --overlap."""

    here: Here
    guards: GuardEndpoint
    nodes: Nodes

    @property
    def can_run(self) -> bool:
        """Whether no srun has been refused so far."""
        return self.nodes.no_overlap is None

    def run(self, node: str, argv: list[str], deadline_s: float) -> Generator[Command, Result | None, Result | None]:
        """The result of a command on a node, with what its srun said taken in."""
        words = self.guards.fencer.helper(node, argv)
        result = yield self.here.world.command(words, self.here.job.env, deadline_s)
        self.note_result(result)
        return result

    def note_result(self, result: Result | None) -> None:
        """Take in what srun said of a helper step."""
        if result is not None and not result.is_ok:
            self.note_words(result.stderr)

    def note_words(self, said: str) -> None:
        """Take in the messages of a helper step's srun."""
        why = slurmtext.why_no_overlap(said)
        if why is not None and not self.here.job.is_local:
            self.nodes.refuse_helpers(why)
