"""The attempt in which a script calls one of Slurm's commands, and the real command. Standard library, Python 3.9."""

from __future__ import annotations

import os

from safelaunch.node.light import signal
from safelaunch.node.standin import links as kept

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, NoReturn, Optional

NAMES = ("sbatch", "scontrol", "squeue", "sacct", "scancel")
FACTS = "own.json"   # beside the stubs: the supervisor writes it at each launch


class OwnJob:
    """The attempt in which the script runs: its facts, and the words of the command that it has called."""

    def __init__(self, bin_dir: str, name: str, argv: list[str], facts: Mapping[str, Any]) -> None:
        self.bin_dir, self.name, self.facts = bin_dir, name, facts
        self.words = [facts["aliases"].get(word, word) for word in argv]   # ARRAY_TASK is this job
        self.here = bin_dir.rpartition("/")[0]
        self.job: str = facts["job"]
        self.hidden: str = facts["job_name"]     # the run's job by its name in Slurm
        self.shown: dict[str, str] = facts["shown"]   # what `scontrol show job` says under sbatch
        self.links_file = kept.path_of(self.here, facts["attempt"])
        self.links = kept.read(self.links_file)

    @property
    def link_ids(self) -> list[str]:
        return [str(link["id"]) for link in self.links]

    def rename(self, name: str) -> None:
        """Give the job another name, as far as the script sees it."""
        import json

        self.shown["JobName"] = name
        path = "%s/%s" % (self.bin_dir, FACTS)
        with open("%s.%d" % (path, os.getpid()), "w") as draft:
            json.dump(self.facts, draft)
        os.replace(draft.name, path)

    def real(self) -> str:
        """The path of the real command."""
        return find_real(self.bin_dir, self.name)

    def ask(self, argv: Sequence[str]) -> tuple[int, str]:
        """The real command's exit code and output; what it says to stderr goes there."""
        reader, writer = os.pipe()
        real = self.real()
        pid = os.posix_spawn(real, [self.name, *argv], os.environ, setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
                             file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_CLOSE, writer)])
        os.close(writer)
        with open(reader, "rb") as pipe:   # `subprocess` takes 15 ms to import
            text = pipe.read().decode("utf-8", "surrogateescape")
        status = os.waitpid(pid, 0)[1]
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status), text


def find_real(bin_dir: str, name: str) -> str:
    """The command of this name on PATH that is no stub; beside the real srun where PATH has none."""
    for folder in os.environ.get("PATH", "").split(":"):
        path = "%s/%s" % (folder, name)
        if folder and folder != bin_dir and os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    return "%s/%s" % (os.environ.get("SAFELAUNCH_SRUN", "/usr/bin/srun").rpartition("/")[0] or "/usr/bin", name)


def become(path: str, argv: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Run the real command in this process's place."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):   # Python ignores them, and exec would pass that on
        signal.signal(number, signal.SIG_DFL)
    os.execve(path, [path.rpartition("/")[2], *argv], dict(env))  # noqa: S606 - a list of words, no shell


def open_own(bin_dir: str, name: str, argv: list[str]) -> Optional[OwnJob]:
    """The attempt around this call; None: it is in another job, or in a step, which is on its own."""
    with open("%s/%s" % (bin_dir, FACTS)) as file:
        facts = kept.read_json(file.read())
    if os.environ.get("SLURM_JOB_ID", facts["job"]) != facts["job"]:
        return None
    if os.environ.get("SAFELAUNCH_STEP") and name != "sbatch":
        return None
    return OwnJob(bin_dir, name, argv, facts)


def say(own: OwnJob, text: str) -> None:
    """One line to the attempt's log: a script may read what the command itself prints, stderr too."""
    with open(own.facts["spool"], "a") as log:
        log.write("safelaunch: %s\n" % text)
