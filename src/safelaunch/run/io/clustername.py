"""The name of the cluster that Slurm's commands talk to here: the key of what outlives a job.

slurm.conf has it, where SLURM_CONF names that file. Without that variable, a job's environment has it; elsewhere
scontrol is asked (20 ms, measured), which submit lets run beside its own work. No answer = "". Whether the cluster is
in a federation, only scontrol can tell. A submission takes the answers that an earlier one got within KEPT_S.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from safelaunch.base.io import durable, sharedfile
from safelaunch.run.io.ledgerfolder import state_folder
from safelaunch.slurm import slurmtext
from safelaunch.slurm.io import slurm

DEADLINE_S = 4.0    # a person waits
KEPT_S = 300.0      # a cluster gets another name, or joins a federation, once in years
_CONF_BYTES = 1 << 20


class KeptAnswers:
    """What Slurm has said of itself to the same commands of this machine, in a file of the user's state folder."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env, self._answers = env, dict[str, str]()
        self._place = [os.uname().nodename, shutil.which("scontrol", path=env.get("PATH")), env.get("SLURM_CONF")]
        self._since_t = time.time()
        with contextlib.suppress(OSError, LookupError, ValueError, TypeError, AttributeError, RecursionError):
            found = json.loads(sharedfile.read(self._file()))   # whatever is in it
            if found["place"] == self._place and 0.0 <= self._since_t - found["since_t"] < KEPT_S:
                self._answers = {str(key): str(value) for key, value in found["answers"].items()}
                self._since_t = float(found["since_t"])

    def get(self, question: str) -> str | None:
        """The answer; None = Slurm must be asked."""
        return self._answers.get(question)

    def keep(self, question: str, answer: str) -> None:
        """Keep it; where that cannot be, the next submission asks again."""
        self._answers[question] = answer
        kept = {"place": self._place, "since_t": self._since_t, "answers": self._answers}
        with contextlib.suppress(OSError):
            self._file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            durable.put(self._file(), json.dumps(kept).encode(), sync=bool)

    def _file(self) -> Path:
        return state_folder(self._env) / "slurm.json"


class ClusterName:
    """A question that is under way; `name` waits for its answer."""

    def __init__(self, env: Mapping[str, str], kept: KeptAnswers | None = None) -> None:
        self._name = unasked(env)
        self._ask(slurm.show_config(), slurmtext.parse_cluster, env, kept)

    def _ask(
        self, argv: Sequence[str], parse: Callable[[str], str], env: Mapping[str, str], kept: KeptAnswers | None
    ) -> None:
        self._parse, self._question, self._kept = parse, " ".join(argv), kept
        known = kept.get(self._question) if kept is not None else None
        self._name = self._name or known or ""
        is_known = self._name or known is not None
        self._command = None if is_known else slurm.Command(argv, slurm.outside_job(env), DEADLINE_S)

    def name(self, within_s: float = DEADLINE_S) -> str:
        """The cluster's name; "" = no answer in time."""
        end_s = time.monotonic() + within_s
        while self._command is not None:
            result = self._command.poll()
            if result is not None:
                self._command = None
                self._name = self._parse(result.stdout) if result.is_ok else ""
                if result.is_ok and self._kept is not None:
                    self._kept.keep(self._question, self._name)
            elif time.monotonic() >= end_s:
                return ""
            else:
                time.sleep(0.002)
        return self._name


class FederatedName(ClusterName):
    """The same of the cluster as a member of a federation; "" = it is in none, or no answer in time."""

    def __init__(self, env: Mapping[str, str], kept: KeptAnswers | None = None) -> None:
        self._name = ""
        self._ask(slurm.show_federation(), slurmtext.parse_federation, env, kept)


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
