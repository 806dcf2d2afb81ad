"""The output of Slurm's commands as values. Each format string is beside its parser; words that differ by release are
in slurmwords. Text of an unknown form is a ParseError, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from safelaunch.errors import ParseError
from safelaunch.slurm import jobstates, nodeset

# squeue --noheader --format: id, state, name, user, reason, nodelist. Ids, states and user names cannot hold "|", and
# the name is ours. The reason comes last but one, the nodelist last.
SQUEUE_FORMAT = "%i|%T|%u|%j|%r|%N"
# What `safelaunch status` asks: the time left until the job's limit and when it has started or is expected to, before.
STATUS_FORMAT = f"%L|%S|{SQUEUE_FORMAT}"
# For the team's table: also the batch script of other users' jobs, which comes last.
TEAM_FORMAT = f"{STATUS_FORMAT}|%o"
# To find another user's run: id, user, name, and the batch script, which is in the run folder. By squeue(1) %o is "the
# command to be executed"; of sbatch it is the script's absolute path (22.05, measured).
FINDING_FORMAT = "%i|%u|%T|%j|%o"
# What `safelaunch watch` asks: id, state, user, reason, nodelist, batch host, excluded nodes, dependency, partition,
# start, elapsed time, and the name last. %N of a COMPLETING job lists the nodes that are not done yet; %B still names a
# batch host that has left %N (both measured, 22.05).
WATCH_FORMAT = "%i|%T|%u|%r|%N|%B|%x|%E|%P|%S|%M|%j"
# The same of a job that squeue has forgotten: with --parsable2, the command line of its sbatch last (from 20.11 on).
ENDED_FORMAT = "JobIDRaw,User,State,JobName,SubmitLine"
SACCT_FORMAT = "JobID,State,ExitCode"    # with --parsable2: "12|CANCELLED by 1001|0:15"
SINFO_FORMAT = "%T|%N"

_NOTHING = dict.fromkeys(("(null)", "n/a", "N/A", "None"), "")   # Slurm's several words for it
_CLUSTER = r"^[ \t]*ClusterName[ \t]*=[ \t]*\"?([^\s\"#]+)"
_ACCOUNT = r"(\d[^|]{0,200})\|([A-Z_]{1,40})(?: by ([^\s|]{1,64}))?(?![A-Z_])[^|]{0,200}\|(\d{1,4}):\d{1,4}"
# sinfo(1), NODE STATE CODES; "error" and "no_respond" are words of older releases.
_UNUSABLE = ("down", "drain", "error", "fail", "future", "inval", "no_respond", "perfctrs", "power", "unk")
_RESERVED = ("maint", "reserved")


class QueuedJob(NamedTuple):
    """One line of squeue."""

    id: str
    state: str
    user: str
    name: str
    reason: str
    nodelist: str
    left_s: float | None = None   # until its time limit, of a running one; None = it has none, or nobody asked
    start: str = ""               # when Slurm expects a pending one to start, in the cluster's zone; "" = it does not
    script: str = ""              # its batch script; "" = it has none, or nobody asked


def parse_squeue(text: str) -> tuple[QueuedJob, ...]:
    """Jobs of `squeue --noheader --format=SQUEUE_FORMAT`; raises ParseError on a line of another form."""
    jobs = []
    for line in filter(None, map(str.strip, text.splitlines())):
        parts = line.split("|")
        if len(parts) < 6 or not re.match(r"\d", parts[0]):
            raise ParseError(f"squeue printed {line!r}, not {SQUEUE_FORMAT!r}")
        jobs.append(QueuedJob(parts[0], parts[1], parts[2], "|".join(parts[3:-2]), parts[-2], parts[-1]))
    return tuple(jobs)


def parse_status(text: str) -> tuple[QueuedJob, ...]:
    """Jobs of `squeue --noheader --format=STATUS_FORMAT`; raises ParseError on a line of another form."""
    jobs = []
    for line in filter(None, map(str.strip, text.splitlines())):
        left, *parts = line.split("|", 2)
        if len(parts) < 2:
            raise ParseError(f"squeue printed {line!r}, not {STATUS_FORMAT!r}")
        (job,), start = parse_squeue(parts[1]), parts[0]
        is_pending = job.state == jobstates.PENDING
        jobs.append(job._replace(left_s=None if is_pending else parse_time_left_s(left),
                                 start=_NOTHING.get(start, start) if is_pending else ""))
    return tuple(jobs)


def parse_team(text: str) -> tuple[QueuedJob, ...]:
    """Jobs of `squeue --noheader --format=TEAM_FORMAT`; raises ParseError on a line of another form."""
    jobs: list[QueuedJob] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        head, _, script = line.rpartition("|")
        jobs += (job._replace(script=script if script.startswith("/") else "") for job in parse_status(head))
    return tuple(jobs)


class FoundJob(NamedTuple):
    """One line of a search for another user's run; `folder` is that of its batch script."""

    job: str
    user: str
    state: str
    name: str
    folder: str


def found_among(jobs: Iterable[QueuedJob]) -> tuple[FoundJob, ...]:
    """Those whose batch script is called job.sbatch, as those of safelaunch."""
    return _found((job.id, job.user, job.state, job.name, job.script) for job in jobs)


def parse_ended(text: str) -> tuple[FoundJob, ...]:
    """Such jobs of `sacct --parsable2 --noheader --allocations --format=ENDED_FORMAT`."""
    rows = (line.strip().split("|", 4) for line in text.splitlines())
    return _found((*row[:4], f"/{row[-1].partition(' /')[2]}") for row in rows)


def parse_finding(text: str) -> tuple[FoundJob, ...]:
    """Such jobs of a squeue with FINDING_FORMAT."""
    return _found(line.strip().split("|", 4) for line in text.splitlines())


def _found(rows: Iterable[Sequence[str]]) -> tuple[FoundJob, ...]:
    whole = (FoundJob._make(row) for row in rows if len(row) == len(FoundJob._fields))
    return tuple(job._replace(folder=job.folder.removesuffix("/job.sbatch")) for job in whole
                 if job.folder.startswith("/") and job.folder.endswith("/job.sbatch"))


class KnownJob(NamedTuple):
    """One line of the watch's squeue, in Slurm's own words; lists of nodes as Slurm folds them, "" = none."""

    id: str
    state: str
    user: str = ""
    reason: str = ""
    nodelist: str = ""
    batch_host: str = ""
    excluded: str = ""
    dependency: str = ""
    partition: str = ""
    start: str = ""           # 2026-11-21T20:51:56 in the cluster's zone; "" = not known
    elapsed_s: float = 0.0
    name: str = ""

    @property
    def number(self) -> str:
        """The id without its array task or component: 12 of "12_[1-3%1]", "12_4" and "12+1"."""
        return self.id if self.id.isdecimal() else re.split(r"\D", self.id, maxsplit=1)[0]


def parse_watch(text: str) -> tuple[KnownJob, ...]:
    """Jobs of `squeue --noheader --format=WATCH_FORMAT`; raises ParseError on a line of another form.

    A watch of a thousand runs reads two thousand lines at once: no pattern is matched that need not be.
    """
    jobs = []
    for line in text.splitlines():
        if not line:
            continue
        parts = [_NOTHING.get(part, part) for part in line.split("|", 11)]
        if len(parts) < 12 or not parts[0][:1].isdecimal():
            raise ParseError(f"squeue printed {line!r}, not {WATCH_FORMAT!r}")
        id, state, user, reason, nodelist, host, excluded, dependency, partition, start, elapsed, name = parts
        elapsed_s = 0.0 if elapsed == "0:00" else parse_elapsed_s(elapsed)
        jobs.append(KnownJob(id, state, user, reason, nodelist, host, excluded, dependency, partition, start,
                             elapsed_s, name.rstrip()))
    return tuple(jobs)


def parse_elapsed_s(text: str) -> float:
    """Seconds of squeue's elapsed time, "1-07:27:33", "7:27" or "INVALID" (0); raises ParseError on any other form."""
    match = re.fullmatch(r"(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})", text.strip())
    if match is None:
        if text.strip() in ("", "INVALID"):   # of a job that has not started; a clock that went back
            return 0.0
        raise ParseError(f"not an elapsed time: {text!r}")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(days * 86400 + hours * 3600 + minutes * 60 + seconds)


def render_elapsed(seconds: float) -> str:
    """Slurm's form of an elapsed time: 1-07:27:33, 07:27:33."""
    days, left = divmod(int(max(0.0, seconds)), 86400)
    clock = f"{left // 3600:02d}:{left % 3600 // 60:02d}:{left % 60:02d}"
    return f"{days}-{clock}" if days else clock


class JobAccount(NamedTuple):
    """How a job ended, as sacct tells: state, who cancelled it (a uid), exit code."""

    state: str
    cancelled_by: str | None = None
    exit_code: int | None = None


def parse_sacct(text: str) -> dict[str, JobAccount]:
    """job id → Account of `sacct --parsable2 --noheader --allocations --format=SACCT_FORMAT`; raises ParseError."""
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        match = re.fullmatch(_ACCOUNT, line)
        if match is None:
            raise ParseError(f"sacct printed {line!r}, not {SACCT_FORMAT!r}")
        found[match[1]] = JobAccount(match[2], match[3], int(match[4]))
    return found


def parse_sinfo(text: str) -> tuple[tuple[str, str], ...]:
    """(state, nodelist) of `sinfo --noheader --format=SINFO_FORMAT`; raises ParseError on a line of another form."""
    rows = []
    for line in filter(None, map(str.strip, text.splitlines())):
        state, bar, nodes = line.partition("|")
        if not bar or not re.fullmatch(r"[a-z_+]+[*~#!%$@^-]*", state):
            raise ParseError(f"sinfo printed {line!r}, not {SINFO_FORMAT!r}")
        rows.append((state, nodes))
    return tuple(rows)


def usable_nodes(text: str, own: Collection[str] | None = None) -> tuple[str, ...] | None:
    """Nodes that jobs can get, sooner or later, of `sinfo --format=SINFO_FORMAT`; None = a text of another form.

    `own`: the nodes of the run's own reservation, if it has one; it can get no others. Idle ones are listed as
    "reserved", like those of other reservations (22.05, measured), in one for maintenance as "maint" (sinfo(1)).
    """
    try:
        return usable_of(parse_sinfo(text), own)
    except (ParseError, ValueError):
        return None


def usable_of(rows: Iterable[tuple[str, str]], own: Collection[str] | None = None) -> tuple[str, ...]:
    """The same of parsed rows; raises ParseError for a list of nodes that cannot be read."""
    found = (node for state, nodes in rows if is_usable(state, is_reserving=own is not None)
             for node in nodeset.expand(nodes))
    return tuple(node for node in found if own is None or node in own)


def is_usable(state: str, *, is_reserving: bool = False) -> bool:
    """Whether jobs can get a node of that state, sooner or later. `is_reserving`: the run has a reservation, perhaps
    this very one. A star: it does not answer, and gets no new work (sinfo(1)).
    """
    unusable = _UNUSABLE if is_reserving else (*_UNUSABLE, *_RESERVED)
    return not (state.startswith(unusable) or state.endswith("*"))


def reserved_nodes(text: str, names: str) -> tuple[str, ...] | None:
    """The nodes of reservations ("a" or "a,b"), as `sinfo --noheader --reservation` lists them: name, state, start,
    end, duration, nodes (22.05, measured). None where one of them is not there.
    """
    lines = {words[0]: words[-1] for words in map(str.split, text.splitlines()) if len(words) == 6}
    try:
        return tuple(node for name in names.split(",") for node in nodeset.expand(lines[name]))
    except (KeyError, ParseError, ValueError):
        return None


def all_nodes(text: str) -> tuple[str, ...] | None:
    """All nodes of `sinfo --format=SINFO_FORMAT`, also those that are down today; None = a text of another form."""
    return _nodes_of(text, lambda state: True)


def _nodes_of(text: str, is_wanted: Callable[[str], bool]) -> tuple[str, ...] | None:
    try:
        rows = parse_sinfo(text)
        return tuple(node for state, nodes in rows if is_wanted(state) for node in nodeset.expand(nodes))
    except (ParseError, ValueError):
        return None


def parse_time_left_s(text: str) -> float | None:
    """Seconds of squeue's %L; None for UNLIMITED, INVALID and unknown."""
    try:
        return parse_elapsed_s(text) if re.match(r"\d", text.strip()) else None
    except ParseError:
        return None


def parse_submitted(text: str) -> str:
    """Job id of `sbatch --parsable` ("123" or "123;cluster"), also between banners of a site."""
    for line in reversed(text.strip().splitlines()):
        said = line.strip()
        if said.isdecimal():
            return said
        if match := re.fullmatch(r"(\d+);\S+", said):
            return match.group(1)
    raise ParseError(f"sbatch printed {text.strip()[:200]!r}, not a job id")


def _says(table: str, text: str) -> bool:
    """Whether a phrase of that table of slurmwords stands in the text. A submission that Slurm takes imports none."""
    if not text:
        return False
    from safelaunch.slurm import slurmwords

    return slurmwords.has_phrase(getattr(slurmwords, table), text)


def has_no_step(output: str) -> bool:
    """Whether srun says that it could not even create its step."""
    return _says("NO_STEP", output)


def why_no_overlap(said: str) -> str | None:
    """Why a step asked for with --overlap cannot run beside others on this site; None = srun says nothing of that."""
    if _says("REFUSED_BY_SRUN", said):
        return "srun itself refuses --overlap"
    waits = _says("STEP_WAITS", said)
    return "srun waits in spite of --overlap: requested nodes are busy" if waits else None


def parse_steps(text: str) -> dict[int, str]:
    """Steps made by srun that `squeue --steps` lists, with their names: "7.0|bash" is one, "7.batch|batch" is none."""
    lines = (re.fullmatch(r"\d[^|\s]{0,60}\.(\d{1,10})\|(.*)", line.strip()) for line in text.split("\n"))
    return {int(found[1]): found[2] for found in lines if found is not None}


def is_job_over(stderr: str) -> bool:
    """Whether srun was refused because its job ends or has ended."""
    return _says("JOB_OVER", stderr)


def has_given_up_node(stderr: str) -> bool:
    """Whether srun gave up the node of a helper step: slurmctld was heard, and the node was not."""
    return "Job step aborted" in stderr


def is_unknown_node(stderr: str) -> bool:
    """Whether Slurm refuses a list of nodes because it knows no node of some name in it."""
    return _says("UNKNOWN_NODE", stderr)


def is_unknown_job(stderr: str) -> bool:
    """Whether squeue says that Slurm does not know the job."""
    return _says("UNKNOWN_JOB", stderr)


def can_never_start(reason: str) -> bool:
    """Whether a job waits, by squeue's reason, for nodes that it may never get."""
    return _says("NEVER_STARTS", reason)


def lacks_nodes(reason: str) -> bool:
    """Whether a job waits, by squeue's reason, for nodes alone: busy ones, or such as it cannot get."""
    return _says("LACKS_NODES", reason)


def is_held(reason: str) -> bool:
    """Whether a job waits, by squeue's reason, until somebody lets it go."""
    return _says("IS_HELD", reason)


def has_too_few_nodes(stderr: str) -> bool:
    """Whether sbatch refuses a job for want of nodes that it could ever use."""
    return _says("TOO_FEW_NODES", stderr)


def parse_cluster(text: str) -> str:
    """The ClusterName of slurm.conf or of `scontrol show config`, in small letters as Slurm has it; "" = none."""
    found = re.search(_CLUSTER, text, re.MULTILINE | re.IGNORECASE)
    return found[1].lower() if found else ""


def parse_federation(text: str) -> str:
    """The name that the cluster here has in its federation, of `scontrol show federation`; "" = it is in none."""
    found = re.search(r"^Self:[ \t]+([^\s:]+):", text, re.MULTILINE) if "Self:" in text else None
    return found[1].lower() if found else ""


def is_unreachable(stderr: str) -> bool:
    """Whether a Slurm command failed because it got no answer, so that its effect is unknown."""
    is_sent = not _says("NOT_SENT", stderr)
    return is_sent and _says("UNREACHABLE", stderr)


def is_database_away(stderr: str) -> bool:
    """Whether sacct failed because its database gave no answer; never so of a site that keeps no accounts."""
    return is_unreachable(stderr) or _says("DATABASE_AWAY", stderr)


def parse_addresses(text: str) -> dict[str, str]:
    """node → NodeAddr of `scontrol --oneliner show node`; nodes without one are left out."""
    pairs = (re.search(r"(?:^|\s)NodeName=(\S+)\s.*?\sNodeAddr=(\S+)", line) for line in text.splitlines())
    return {match[1]: match[2] for match in pairs if match}
