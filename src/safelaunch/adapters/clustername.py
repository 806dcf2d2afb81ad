"""The name of the cluster that Slurm's commands talk to here: what outlives a job is keyed by it.

slurm.conf has it, where SLURM_CONF says which file that is. Without that variable only the commands know the file they
were built to read; in a job the environment has the name, elsewhere scontrol is asked (20 ms, measured), which submit
lets run beside its own work. An answer that does not come is no name: "".
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from safelaunch.adapters import slurm
from safelaunch.core import slurmtext

DEADLINE_S = 4.0    # a person waits
_CONF_BYTES = 1 << 20


class ClusterName:
    """A question that is under way; `name` waits for its answer."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._name = unasked(env)
        self._command = None if self._name else slurm.Command(slurm.show_config(), slurm.outside_job(env), DEADLINE_S)

    def name(self, within_s: float = DEADLINE_S) -> str:
        """The cluster's name; "" = nobody says it in time."""
        end_s = time.monotonic() + within_s
        while self._command is not None:
            result = self._command.poll()
            if result is not None:
                self._command = None
                self._name = slurmtext.parse_cluster(result.stdout) if result.is_ok else ""
            elif time.monotonic() >= end_s:
                return ""
            else:
                time.sleep(0.002)
        return self._name


def unasked(env: Mapping[str, str]) -> str:
    """The name as far as it is known without a question to Slurm; "" = it is not."""
    return _from_conf(env.get("SLURM_CONF", "")) or env.get("SLURM_CLUSTER_NAME", "").lower()


def here(env: Mapping[str, str] = os.environ) -> str:
    """The name of this cluster, waited for; "" = nobody says it."""
    return ClusterName(env).name()


def _from_conf(path: str) -> str:
    """The name in that slurm.conf; "" where it stands in a file that this one includes, or there is none."""
    if not path.startswith("/"):
        return ""
    try:
        with Path(path).open("rb") as file:
            return slurmtext.parse_cluster(file.read(_CONF_BYTES).decode("latin-1"))
    except OSError:
        return ""
