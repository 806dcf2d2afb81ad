"""Slurm's commands: the arguments of each, and how one is run.

Every command has a deadline, runs without Slurm's own format variables, and fails as SlurmRefused (Slurm said no) or
SlurmUnreachable (nobody knows what happened). `Command` is the same without waiting, for the leader's loop.
"""

from __future__ import annotations

import errno
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from safelaunch.base.io.program import ProgramRun
from safelaunch.errors import ParseError, SlurmRefused, SlurmUnreachable
from safelaunch.slurm import jobstates, slurmtext
from safelaunch.slurm.via import NOT_FOUND

DEADLINE_S = 60.0   # above Slurm's own: MessageTimeout is 10 s, and clients try more than once
_FORMATS = ("SQUEUE_FORMAT", "SQUEUE_FORMAT2", "SQUEUE_SORT", "SQUEUE_STATES", "SQUEUE_USERS", "SQUEUE_PARTITION",
            "SINFO_FORMAT", "SCONTROL_ALL", "SACCT_FORMAT", "SLURM_TIME_FORMAT", "SLURM_CLUSTERS")
# Where a site's FederationParameters say fed_display, these list the jobs and nodes of all clusters of the federation.
# And nodes of several clusters may have one name. Source: squeue(1) and the others, environment variables.
_LOCAL = {"squeue": "SQUEUE_LOCAL", "sinfo": "SINFO_LOCAL", "sacct": "SACCT_LOCAL", "scontrol": "SCONTROL_LOCAL"}
OWN_STEP = "safelaunch"   # the name of helper steps
# Options of a helper step beside a training that has GPUs: else srun waits until the training releases its own. All
# three: in a job with --gpus, SLURM_GPUS contradicts --gpus-per-node=0 alone ("Invalid generic resource (gres)
# specification"). After --gpus-per-node=2, --gpus=0 alone gets two; after --gpus-per-task=1 both get one. The three
# give none in jobs with --gpus, --gpus-per-node, --gpus-per-task and --gres (22.05, 24.11 and 26.05, measured).
NO_GPUS = ("--gpus=0", "--gpus-per-node=0", "--gpus-per-task=0")
# Everything with which a job can have asked for GPUs: a helper step must then ask for none (squeue(1), -O).
_TRES = "tres-per-job:.200,tres-per-node:.200,tres-per-socket:.200,tres-per-task:.200"


class Result(NamedTuple):
    """How a command ended; `returncode` None = its deadline passed and it was killed; below 0 = a signal ended it."""

    argv: tuple[str, ...]
    returncode: int | None
    stdout: str
    stderr: str

    @property
    def is_ok(self) -> bool:
        return self.returncode == 0

    @property
    def is_unknown(self) -> bool:
        """Nobody knows whether Slurm did it: a command that is killed, as by a job's TERM, may have been heard."""
        if self.returncode is None or self.is_broken_off:
            return True
        return self.returncode != 0 and slurmtext.is_unreachable(self.stderr)

    @property
    def is_broken_off(self) -> bool:
        """A signal that was not its deadline's has ended it."""
        return self.returncode is not None and self.returncode < 0

    @property
    def is_missing(self) -> bool:
        """This host lacks the command, so that repeating it cannot help."""
        return self.returncode == NOT_FOUND

    def check(self) -> Result:
        """Itself, when Slurm did it; raises SlurmUnreachable or SlurmRefused."""
        if self.is_ok:
            return self
        kind = SlurmUnreachable if self.is_unknown else SlurmRefused
        how = "did not answer" if self.is_unknown else "said no"
        raise kind(f"Slurm {how} ({self.argv[0]})", argv=self.argv, returncode=self.returncode, stdout=self.stdout,
                   stderr=self.stderr, hint="is slurmctld up? try: scontrol ping" if self.is_unknown else None)


def outcome(result: Result | None) -> bool | None:
    """Whether Slurm did it; None = nobody knows."""
    return None if result is None or result.is_unknown else result.is_ok


def said(result: Result | None) -> str:
    """The command's own message, shortened."""
    return "no answer" if result is None else (result.stderr.strip() or result.stdout.strip() or "no answer")[:300]


def jobs_in(result: Result | None) -> tuple[slurmtext.QueuedJob, ...] | None:
    """The jobs that squeue has printed in SQUEUE_FORMAT; None = no clear answer."""
    if result is None or not result.is_ok:
        return None
    try:
        return slurmtext.parse_squeue(result.stdout)
    except ParseError:
        return None


def submitted_in(result: Result) -> str | None:
    """The job's id that `sbatch --parsable` has printed; None = no clear answer."""
    try:
        return slurmtext.parse_submitted(result.stdout) if result.is_ok else None
    except ParseError:
        return None


def is_running(result: Result | None, job: str) -> bool:
    """Whether squeue has said that the job runs; no clear answer is no."""
    return any(one.id == job and one.state == jobstates.RUNNING for one in jobs_in(result) or ())


def sbatch(script: str, options: Sequence[str] = ()) -> tuple[str, ...]:
    """Submits `script`; prints the job id."""
    return ("sbatch", "--parsable", *options, script)


def squeue(options: Sequence[str], format: str) -> tuple[str, ...]:
    """Lists the jobs that these options choose, in one of the formats of slurm.slurmtext."""
    return ("squeue", "--noheader", *options, f"--format={format}")


def squeue_by_name(name: str) -> tuple[str, ...]:
    """Lists one's own jobs of that name, in every state that Slurm still lists as unfinished."""
    return squeue(("--me", f"--name={name}"), slurmtext.SQUEUE_FORMAT)


def squeue_all_by_name(name: str) -> tuple[str, ...]:
    """Lists one's own jobs of that name, including the ended ones that Slurm remembers (MinJobAge)."""
    return squeue(("--me", "--states=all", f"--name={name}"), slurmtext.SQUEUE_FORMAT)


def squeue_gpus(job: str) -> tuple[str, ...]:
    """Prints the generic resources of a job, in whichever way it asked for them."""
    return ("squeue", "--noheader", f"--jobs={job}", f"--Format={_TRES}")


def squeue_job(job: str) -> tuple[str, ...]:
    """Lists one job."""
    return squeue((f"--jobs={job}", "--states=all"), slurmtext.SQUEUE_FORMAT)


def squeue_steps(job: str) -> tuple[str, ...]:
    """Lists the steps that a job has now, by ids and names; a step that waits to be made does not count."""
    return squeue(("--steps", f"--jobs={job}"), "%i|%j")


def squeue_watch(names: Sequence[str]) -> tuple[str, ...]:
    """Lists all of one's own jobs of these names, including the ended ones that Slurm remembers (MinJobAge)."""
    return squeue(("--me", "--states=all", f"--name={','.join(names)}"), slurmtext.WATCH_FORMAT)


def sacct(jobs: Sequence[str]) -> tuple[str, ...]:
    """Shows how jobs ended, where the site keeps accounts; without steps, and also jobs from long ago."""
    return _sacct(("--allocations", f"--jobs={','.join(jobs)}"), slurmtext.SACCT_FORMAT)


def sacct_ended(job: str) -> tuple[str, ...]:
    """Shows whose a job was, of any user, and the command line of its sbatch."""
    return _sacct(("--allocations", "--allusers", f"--jobs={job}"), slurmtext.ENDED_FORMAT)


def sacct_steps(job: str, format: str) -> tuple[str, ...]:
    """Shows how a job and its steps ended, and where it ran."""
    return _sacct((f"--jobs={job}",), format)


def _sacct(options: Sequence[str], format: str) -> tuple[str, ...]:
    return ("sacct", "--noheader", "--parsable2", *options, f"--format={format}")


def sinfo(partition: str | None) -> tuple[str, ...]:
    """Lists the nodes of partitions ("a,b"; None: of all, hidden ones too) by their state."""
    where = [f"--partition={partition}"] if partition else ["--all"]
    return ("sinfo", "--noheader", *where, f"--format={slurmtext.SINFO_FORMAT}")


def sinfo_reservations() -> tuple[str, ...]:
    """Lists the reservations and their nodes; nothing else tells which nodes of a partition a reservation has."""
    return ("sinfo", "--noheader", "--reservation")


def squeue_time_left(job: str) -> tuple[str, ...]:
    """Prints the time that a running job has left, such as 1-02:03:04."""
    return squeue((f"--jobs={job}",), "%L")


def update_job(job: str, **changes: str) -> tuple[str, ...]:
    """Changes one's own job, for instance ExcNodeList or Dependency while it is pending."""
    return ("scontrol", "update", f"JobId={job}", *(f"{key}={value}" for key, value in changes.items()))


def show_nodes(nodelist: str) -> tuple[str, ...]:
    """Shows nodes, one a line, as KEY=VALUE words."""
    return ("scontrol", "--oneliner", "show", "node", nodelist)


def show_config() -> tuple[str, ...]:
    """Prints slurmctld's configuration, a KEY = VALUE a line."""
    return ("scontrol", "show", "config")


def show_partitions() -> tuple[str, ...]:
    """Shows all partitions, one a line, as KEY=VALUE words."""
    return ("scontrol", "--oneliner", "--all", "show", "partition")


def show_limits(what: str, format: str) -> tuple[str, ...]:
    """Shows what associations or QOS allow, where the site keeps accounts."""
    return ("sacctmgr", "--noheader", "--parsable2", "--readonly", "show", *what.split(), f"format={format}")


def test_only(options: Sequence[str]) -> tuple[str, ...]:
    """Asks whether sbatch would take a job, and when that would start; submits nothing."""
    return ("sbatch", "--test-only", *options)


def show_federation() -> tuple[str, ...]:
    """Prints the federation of this cluster; nothing where it is in none (22.05, measured)."""
    return ("scontrol", "show", "federation")


def show_job(job: str) -> tuple[str, ...]:
    """Shows a job."""
    return ("scontrol", "--oneliner", "show", "job", job)


def version() -> tuple[str, ...]:
    """Prints the release, such as "slurm 24.11.5"; asks no daemon."""
    return ("srun", "--version")


def release(*jobs: str) -> tuple[str, ...]:
    """Releases one's own jobs that a user holds."""
    return ("scontrol", "release", ",".join(jobs))


def hold(*jobs: str) -> tuple[str, ...]:
    """Holds one's own jobs; an owner may not release what root holds by `hold` (scontrol(1), measured)."""
    return ("scontrol", "uhold", ",".join(jobs))


def requeue(job: str) -> tuple[str, ...]:
    """Ends one's own running job and puts it back into the queue, where it waits for 121 s (22.05, measured)."""
    return ("scontrol", "requeue", job)


def scancel(job: str) -> tuple[str, ...]:
    """Cancels a job."""
    return ("scancel", job)


def scancel_named(user: str, name: str) -> tuple[str, ...]:
    """Cancels all jobs of that name."""
    return ("scancel", f"--user={user}", f"--name={name}")


def scancel_waiting(user: str, name: str, jobs: Sequence[str]) -> tuple[str, ...]:
    """Cancels those of the jobs that still wait in the queue."""
    return ("scancel", f"--state={jobstates.PENDING}", f"--user={user}", f"--name={name}", *jobs)


def helper_step(job: str, node: str, argv: Iterable[str], *, is_local: bool, has_gpus: bool) -> list[str]:
    """A step on one node of a job, beside whatever runs there; of a local run, a process that takes the node's name."""
    if is_local:
        return ["env", f"SLURMD_NODENAME={node}", *argv]
    return [*_beside(job, node), "--cpu-bind=none", "--mem=0", *(NO_GPUS if has_gpus else ()), *argv]


def own_job(node: str, argv: Iterable[str], start_s: float, deadline_s: float) -> list[str]:
    """A short job on one node; it gives up after `start_s` in the queue. Options may stand before the command."""
    return ["srun", "--job-name=safelaunch-check", "--nodes=1", "--ntasks=1", f"--nodelist={node}",
            f"--immediate={math.ceil(start_s)}", f"--time={math.ceil(deadline_s / 60) + 1}", "--quiet", *argv]


def allocate(name: str, options: Sequence[str], start_s: float, limit_s: float) -> tuple[str, ...]:
    """Gets nodes for steps from here; gives up where they are not free within `start_s`. No word changes the name."""
    return ("salloc", "--no-shell", f"--immediate={math.ceil(start_s)}", f"--time={math.ceil(limit_s / 60)}", *options,
            f"--job-name={name}")


def shell_step(job: str, node: str, *, has_gpus: bool) -> list[str]:
    """A person's shell on one node of a job, beside the training."""
    return [*_beside(job, node), *(NO_GPUS if has_gpus else ()), "--pty", "bash"]


def _beside(job: str, node: str) -> tuple[str, ...]:
    return ("srun", f"--jobid={job}", f"--job-name={OWN_STEP}", "--overlap", "--nodes=1", "--ntasks=1",
            f"--nodelist={node}")


def scrubbed(env: Mapping[str, str], program: str = "") -> dict[str, str]:
    """`env` without the variables that change what Slurm's commands print or ask for; of a federation, the commands
    that show something show this cluster alone.
    """
    own = {key: value for key, value in env.items() if key not in _FORMATS}
    return own | {_LOCAL[program]: "1"} if program in _LOCAL else own


def outside_job(env: Mapping[str, str]) -> dict[str, str]:
    """`env` as a login shell has it: sbatch reads any SLURM_*/SBATCH_* of the job around it as an option."""
    kept = ("SLURM_CONF",)
    return {key: value for key, value in env.items()
            if key in kept or not key.startswith(("SLURM_", "SBATCH_", "SLURMD_", "SRUN_", "PMI"))}


class Pace:
    """Turns of commands, two a second at most.

    A turn is taken when a command starts, not when it is asked for. Else a process that stood still would start all
    waiting ones at once.
    """

    def __init__(self) -> None:
        self._started_s = (-1e9, -1e9)   # the last two

    def take(self, now_s: float, at_once: bool = False) -> bool:
        """Whether a command may start now; if so, its turn is taken. `at_once`: it may, and later ones wait for it."""
        if self.wait_s(now_s) > 0.0 and not at_once:
            return False
        self._started_s = (self._started_s[1], now_s)
        return True

    def wait_s(self, now_s: float) -> float:
        """How long the next command has to wait."""
        return max(0.0, self._started_s[0] + 1.0 - now_s)


# There is no such command here. Any other error, such as no room for a process, may pass: it is no answer.
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENOEXEC)


class Command:
    """A command that runs while the loop goes on; `poll` gives its result once. `pace`: it waits for its turn."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], deadline_s: float = DEADLINE_S, cwd: str = "/",
                 pace: Pace | None = None, stdin: bytes | None = None, at_once: bool = False) -> None:
        self.argv = tuple(argv)
        self._env, self._cwd, self._at_once = scrubbed(env, self.argv[0]), cwd, at_once
        self._pace, self._deadline_s, self._stdin = pace, deadline_s, stdin
        self._program: ProgramRun | None = None
        self._failed: Result | None = None
        self._start()

    def _start(self) -> None:
        if self._pace is not None and not self._pace.take(time.monotonic(), self._at_once):
            return
        try:
            self._program = ProgramRun(self.argv, self._deadline_s, env=self._env, cwd=self._cwd, stdin=self._stdin)
        except OSError as error:
            code = NOT_FOUND if error.errno in _MISSING else None
            self._failed = Result(self.argv, code, "", f"{self.argv[0]}: {error.strerror}")

    def poll(self) -> Result | None:
        """The result; None while it runs, or waits for its turn."""
        if self._program is None and self._failed is None:
            self._start()
        if self._program is None:
            return self._failed
        ended = self._program.poll()
        if ended is None:
            return None
        # A part of a list is no answer: what is missing would count as gone.
        err = f"it printed more than {len(ended.out)} bytes" if ended.is_cut else ended.err.decode(errors="replace")
        return Result(self.argv, ended.code, ended.out.decode(errors="replace"), err)

    def terminate(self) -> None:
        """Ask it to end; `poll` then gives its result."""
        if self._program is not None:
            self._program.terminate()

    def wait(self) -> Result:
        """The result, waited for."""
        while (result := self.poll()) is None:
            if self._program is not None:
                self._program.wait()
            else:
                time.sleep(self._pace.wait_s(time.monotonic()) if self._pace is not None else 0.0)
        return result


class StartCommand(Protocol):
    """Starts a command: `Command` itself, or a world's."""

    def __call__(self, argv: Sequence[str], env: Mapping[str, str], deadline_s: float = DEADLINE_S,
                 cwd: str = "/") -> Command:
        """The command, started."""


def run(argv: Sequence[str], env: Mapping[str, str], deadline_s: float = DEADLINE_S, cwd: str = "/") -> Result:
    """The result of a command, waited for; never raises for the command's failure (see Result.check)."""
    return Command(argv, env, deadline_s, cwd).wait()


def jobs_named(name: str, env: Mapping[str, str]) -> tuple[slurmtext.QueuedJob, ...]:
    """One's own unfinished jobs of that name; raises SlurmError when Slurm gives no clear answer."""
    result = run(squeue_by_name(name), env).check()
    return tuple(job for job in slurmtext.parse_squeue(result.stdout) if job.name == name)
