"""What a submission asks of Slurm and of git, while it does other work."""

from __future__ import annotations

import time
from collections.abc import Mapping

from safelaunch.run.io.clustername import ClusterName, FederatedName, KeptAnswers
from safelaunch.run.io.provenance import GitFacts


class Questions:
    """Asked at once; each answer is waited for by whoever needs it. `git` may be asked anew."""

    def __init__(self, env: Mapping[str, str], cwd: str) -> None:
        self.cwd, self.asked_s = cwd, time.monotonic()
        kept = KeptAnswers(env)
        self.cluster, self.federated = ClusterName(env, kept), FederatedName(env, kept)
        self.git = GitFacts(cwd)

    def close(self) -> None:
        """End git if it still runs. Slurm's commands end by themselves."""
        self.git.close()
