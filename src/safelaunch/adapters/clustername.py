"""The name of the cluster that Slurm's commands talk to here: the key of what outlives a job.

slurm.conf has it, where SLURM_CONF names that file. Without that variable, a job's environment has it; elsewhere
scontrol is asked (20 ms, measured), which submit lets run beside its own work. No answer = "". Whether the cluster is
in a federation, only scontrol can tell.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from safelaunch.adapters import slurm
from safelaunch.core import slurmtext

DEADLINE_S = 4.0    # a person waits
_CONF_BYTES = 1 << 20


class ClusterName:
    """A question that is under way; `name` waits for its answer."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._name = unasked(env)
        self._ask(slurm.show_config(), slurmtext.parse_cluster, env)

    def _ask(self, argv: Sequence[str], parse: Callable[[str], str], env: Mapping[str, str]) -> None:
        self._parse = parse
        self._command = None if self._name else slurm.Command(argv, slurm.outside_job(env), DEADLINE_S)

    def name(self, within_s: float = DEADLINE_S) -> str:
        """The cluster's name; "" = no answer in time."""
        end_s = time.monotonic() + within_s
        while self._command is not None:
            result = self._command.poll()
            if result is not None:
                self._command = None
                self._name = self._parse(result.stdout) if result.is_ok else ""
            elif time.monotonic() >= end_s:
                return ""
            else:
                time.sleep(0.002)
        return self._name


class FederatedName(ClusterName):
    """The same of the cluster as a member of a federation; "" = it is in none, or no answer in time."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._name = ""
        self._ask(slurm.show_federation(), slurmtext.parse_federation, env)


def unasked(env: Mapping[str, str]) -> str:
    """The name as far as it is known without asking Slurm; "" = it is not."""
    return _from_conf(env.get("SLURM_CONF", "")) or env.get("SLURM_CLUSTER_NAME", "").lower()


def here(env: Mapping[str, str] = os.environ) -> str:
    """The name of this cluster, waited for; "" = not known."""
    return ClusterName(env).name()


def _from_conf(path: str) -> str:
    """The name in that slurm.conf; "" where an included file has it, or there is none."""
    if not path.startswith("/"):
        return ""
    try:
        with Path(path).open("rb") as file:
            return slurmtext.parse_cluster(file.read(_CONF_BYTES).decode("latin-1"))
    except OSError:
        return ""
