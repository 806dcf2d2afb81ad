"""Slurm's words that differ by release, as one table: every row has its releases and its source. A text may come from a
node of any release, so all rows are tried. A text of no row is "unknown", never a guess. tests/slurmwords/ holds real
texts of each release, and docs/slurm-releases.md is this table for people.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from safelaunch.base.endings import JobEnd

# docs/slurm-releases.md says of each how its words are known.
RELEASES = ("22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05")
UNKNOWN = JobEnd.UNKNOWN
OWN = "safelaunch "   # begins each line that the job script or a supervisor writes into the job's output

_REQ = "src/slurmd/slurmstepd/req.c, _handle_signal_container"
_RECORDED_NEW = "recorded on 25.11.2 and 26.05.5"


class Phrase(NamedTuple):
    """Words of Slurm's and ours: a regular expression, what it means, the releases that write it, its source.

    `until` "" = the newest release known still does.
    """

    pattern: str
    word: str
    source: str
    since: str = "22.05"
    until: str = ""


# How slurmstepd's error lines begin in a job's output. 25.11 and newer write a log line's stamp and no program;
# LogTimeFormat of slurm.conf(5) says which stamp. "error: " alone is anybody's.
HEADS = (
    Phrase(r"(?:slurmstepd|srun)(?:-[^\s:]{1,255})?: ", "program", "src/common/log.c; recorded on 22.05.8 and 24.11.5",
           until="25.05"),
    Phrase(r"\[[0-9A-Z][\w .:+-]{4,60}\] ", "stamp", _RECORDED_NEW, since="25.11"),
)
# What follows "*** JOB 12 ON n0 CANCELLED AT 2026-11-22T18:25:39" up to the stars. SIGNAL gives no reason: like the
# bare words of older releases, it does not say who ended the job or step.
REASONS = (
    Phrase("", JobEnd.CANCELLED, _REQ, until="25.05"),
    Phrase("DUE to SIGNAL (?:Terminated|Killed)", JobEnd.CANCELLED, _RECORDED_NEW, since="25.11"),
    Phrase("DUE TO TIME LIMIT", JobEnd.TIME_LIMIT, _REQ),
    Phrase("DUE TO PREEMPTION", JobEnd.PREEMPTED, _REQ),
    Phrase("DUE TO JOB REQUEUE", JobEnd.REQUEUED, _REQ),
    Phrase("DUE TO NODE FAILURE(?:, SEE SLURMCTLD LOG FOR DETAILS)?", JobEnd.NODE_FAILURE, _REQ),
    # srun ends the step after a bad exit (-K); up to 25.05 those are the bare words.
    Phrase("DUE TO TASK FAILURE", "task_failure", _RECORDED_NEW, since="25.11"),
)
# The words that a job's own end can have; of those about steps only some speak of the job.
JOB_ENDINGS = tuple(end for end in JobEnd if end not in (JobEnd.ORPHANED, JobEnd.UNKNOWN))
# "no answer": whether the act happened is unknown.
UNREACHABLE = (
    Phrase("Unable to contact slurm controller", "no contact", "slurm_errno.c; recorded on all"),
    Phrase("Socket timed out", "no answer", "slurm_errno.c; recorded on all"),
    # What other releases call a timeout, of slurmctld that is stopped: a job may have been made all the same.
    Phrase("Unexpected message received", "no answer", "slurm_errno.c, SLURM_UNEXPECTED_MSG_ERROR; recorded on 23.11.4",
           since="23.11"),
    Phrase("Connection refused|Connection reset|Connection timed out|Transport endpoint is not connected"
           "|Resource temporarily unavailable", "no connection", "errno(3), as Slurm prints it"),
    Phrase("Zero Bytes were transmitted", "cut off", "slurm_errno.c"),
    Phrase("communication connection failure", "no connection", "slurm_errno.c"),
    Phrase("Slurm backup controller in standby mode", "standby", "slurm_errno.c"),
    Phrase("Controller is in standby mode", "standby", "slurm_errno.c: the library's text", since="24.11"),
    Phrase("Slurm controller not responding|Slurmctld is not responding", "no answer", "src/api"),
)
# A command with --clusters asks slurmdbd for that cluster's address first. Where that fails, nothing was asked for.
NOT_SENT = (
    Phrase("remove --cluster from your command line", "no address", "src/common/proc_args.c, print_db_notok; recorded "
           "on 22.05.8"),
)
# What sacct says of a slurmdbd that is down; a site without one: "accounting storage is disabled".
DATABASE_AWAY = (
    Phrase("talking to the database|persistent connection|PersistInit", "database", "recorded on 22.05.8"),
)
# srun and slurmctld where a step was asked for in a job that ends, or has ended.
JOB_OVER = (
    Phrase("Expired or invalid job", "over", "src/api/allocate.c; recorded on 22.05.8 and 26.05.5"),
    Phrase("Slurm job [0-9]{1,12} has expired", "over", "src/api/step_launch.c; recorded on 22.05.8"),
    Phrase("Invalid job id specified", "over", "slurm_errno.c; recorded on all"),
    Phrase("Job/step already completing or completed", "over", "slurm_errno.c"),
)
# squeue of a job that slurmctld does not know, or no longer does (MinJobAge).
UNKNOWN_JOB = (
    Phrase("Invalid job id", "unknown job", "slurm_errno.c, ESLURM_INVALID_JOB_ID; recorded on all"),
)
# Why a job waits: squeue(1), "JOB REASON CODES". What 22.05 printed for exclusions that leave too few nodes:
# BadConstraints for healthy nodes, "ReqNodeNotAvail, UnavailableNodes:n0" when others are down or drained.
NEVER_STARTS = (
    Phrase("BadConstraints|ReqNodeNotAvail|Nodes?[_ ]required|NodeDown|PartitionNodeLimit|PartitionConfig",
           "too few nodes", "squeue(1); recorded on 22.05.8"),
)
# ... for nodes, be they busy, down or kept out, and not for its turn, its owner's limits or a time.
LACKS_NODES = (
    Phrase(r"^\(?(?:Resources|BadConstraints|ReqNodeNotAvail|Nodes?[_ ]required|NodeDown)", "it lacks nodes",
           "squeue(1); recorded on 22.05.8"),
)
IS_HELD = (
    Phrase(r"JobHeld|launch_?\s?failed|Hold", "held", "squeue(1)"),
)
# One name of a list of nodes is unknown, whichever: of --exclude, --nodelist and ExcNodeList.
UNKNOWN_NODE = (
    Phrase("Invalid node name specified", "unknown node", "slurm_errno.c, ESLURM_INVALID_NODE_NAME; recorded on all"),
)
# sbatch refuses a job that could never start: its exclusions leave too few nodes, or it asks for too much.
TOO_FEW_NODES = (
    Phrase("Requested node configuration is not available", "too few nodes",
           "slurm_errno.c, ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE; recorded on 24.11"),
)
# srun could not even create its step, or Slurm gave it nothing to run on just now.
NO_STEP = (
    Phrase("^srun: (?:error: )?Unable to create step for job", "no step", "src/srun; recorded on all"),
    Phrase("^srun: (?:error: )?Unable to confirm allocation", "no step", "src/api/allocate.c; recorded on all"),
)
# srun refuses its own command line: no node was asked.
REFUSED_BY_SRUN = (
    Phrase("cli_filter plugin terminated with error", "cli_filter", "recorded on 22.05.8, cli_filter/lua"),
    Phrase("^srun: (?:unrecognized|invalid) option", "option", "getopt(3), as srun prints it"),
)
# A step waits for others in its job, which one with --overlap never does: the site has taken the option away.
STEP_WAITS = (
    Phrase(r"step creation temporarily disabled, retrying \(Requested nodes are busy\)", "waits",
           "src/api/step_ctx.c; recorded on 22.05.8"),
)
# srun has seen a task end, or ends the step itself: what slurmstepd says of the step then is an echo.
SRUN_SAW = (
    # But for a SIGTERM from elsewhere, which srun tells of before or behind slurmstepd (both recorded on 24.11.5).
    Phrase(r"srun: error: \S{1,4096}: tasks? (?!\S{1,64} (?:Terminated|Exited with exit code 143)$)", "task",
           "src/srun/libsrun; recorded on all"),
    Phrase("srun: launch/slurm: _step_signal", "ends the step", "recorded on 22.05.8", until="23.02"),
    Phrase("srun: Terminating", "ends the step", "recorded on 23.11.4 to 26.05.5", since="23.11"),
    Phrase("srun: Job step aborted", "ends the step", "src/api/step_launch.c; recorded on all"),
    Phrase("srun: First task exited", "ends the step", "src/srun; recorded on all"),
)
# The Prolog of slurm.conf(5) failed on a node, which is drained. slurmd tells a job that may not be requeued, and
# cancels it.
PROLOG_FAILED = (
    Phrase(r"Prolog failure on node (?P<node>\S{1,255})", "node failed",
           "src/slurmd/slurmd/req.c; recorded on 22.05.8, 24.11.5 and 26.05.5"),
)
# The same of the batch host: nothing of the job has run, and this is all that its output holds. Of 24.11.5 and 26.05.5
# there is no output at all (seen on both).
PROLOG_FAILED_FIRST = (
    Phrase("^Error running slurm prolog: [0-9]{1,12}$", "batch host failed", "src/slurmd/slurmd/req.c, _prolog_error; "
           "recorded on 22.05.8", until="23.11"),
)
# Patterns are compiled where they are first used: each verb imports this table, and few read a job's output.
# The version line of every command: "slurm 24.11.5", Debian's "slurm-wlm 26.05.5", "slurm 25.05.0-0rc1".
_VERSION = r"^slurm(?:-\S{1,64})? (?P<number>(?P<release>\d\d\.\d\d)(?:\.\S{1,64})?)[ \t\r]{0,8}$"
_HEAD = rf"(?:{'|'.join(f'(?:{head.pattern})' for head in HEADS)}){{1,4}}error: "
_LINE = (_HEAD + r"\*\*\* {kind} (?P<id>[0-9]{1,12}){step} ON (?P<host>\S{1,255}) CANCELLED AT (?P<at>\S{1,64})"
         r"(?P<due> [^*\n]{0,200}?)? \*\*\*")
_JOB_END = _LINE.replace("{kind}", "JOB").replace("{step}", "")
_STEP_END = _LINE.replace("{kind}", "STEP").replace("{step}", r"\.\S{1,64}")
_PROLOG = "|".join(f"{_HEAD}{row.pattern}$" for row in PROLOG_FAILED)


class EndLine(NamedTuple):
    """slurmstepd's line about the end of a job, or of one of its steps: `word` is ours, `said` Slurm's reason."""

    start: int
    word: str
    said: str

    @property
    def has_reason(self) -> bool:
        """Whether it gives a reason, not only "cancelled"; no line tells who sent a signal."""
        return self.word != JobEnd.CANCELLED


def job_ends(output: str, job: str, begin: int = 0) -> tuple[EndLine, ...]:
    """The lines about the job itself, in their order."""
    return tuple(_end(match) for match in re.compile(_JOB_END, re.MULTILINE).finditer(output, begin)
                 if match["id"] == job and _begins(output, match.start()))


def step_ends(output: str, job: str, end: int | None = None) -> tuple[EndLine, ...]:
    """The lines about the job's steps, in their order."""
    found = re.compile(_STEP_END, re.MULTILINE).finditer(output, 0, len(output) if end is None else end)
    return tuple(_end(match) for match in found if match["id"] == job and _begins(output, match.start()))


def failed_prologs(output: str, begin: int = 0, end: int | None = None) -> tuple[str, ...]:
    """The nodes whose Prolog failed, in their order."""
    found = re.compile(_PROLOG, re.MULTILINE).finditer(output, begin, len(output) if end is None else end)
    return tuple(match["node"] for match in found if _begins(output, match.start()))


def find_batch_prolog(output: str, begin: int = 0) -> EndLine | None:
    """What slurmd writes of a job whose batch host's Prolog failed; None = no such line."""
    start = find_phrase(PROLOG_FAILED_FIRST, output[begin:])
    if start is None:
        return None
    return EndLine(begin + start, JobEnd.NODE_FAILURE, output[begin + start:].partition("\n")[0])


def srun_saw(output: str) -> int | None:
    """Where srun first says that a task has ended, or that it ends the step itself; None = nowhere."""
    found = (match.start() for row in SRUN_SAW for match in re.finditer(row.pattern, output, re.MULTILINE)
             if _begins(output, match.start()))
    return min(found, default=None)


def _begins(text: str, start: int) -> bool:
    """Whether Slurm's words begin a line there, or follow a progress bar, which writes no line end.

    Public logs of 2026: "Epoch 3: 5%|▍ | 5/105 [00:03<01:11, loss=0.4596][2026-01-18T20:48:23.608] error: *** JOB …". A
    bar is recognised by its carriage return. Words inside any other line are quoted, as in safelaunch's own lines.
    """
    line = text.rfind("\n", 0, start) + 1
    return start == line or (text.rfind("\r", line, start) >= 0 and not text.startswith(OWN, line))


def _end(match: re.Match[str]) -> EndLine:
    said = (match["due"] or "").strip()
    return EndLine(match.start(), parse_reason(said), said)


def parse_reason(said: str) -> str:
    """Our word for the text after the time: "" or "DUE TO …"; UNKNOWN for a reason of no row."""
    return next((row.word for row in REASONS if re.fullmatch(row.pattern, said, re.IGNORECASE)), UNKNOWN)


def has_phrase(rows: tuple[Phrase, ...], text: str) -> bool:
    """Whether any of the rows stands in the text."""
    return find_phrase(rows, text) is not None


def find_phrase(rows: tuple[Phrase, ...], text: str) -> int | None:
    """Where the first of any of the rows stands in the text; None = nowhere."""
    found = (re.search(row.pattern, text, re.MULTILINE | re.IGNORECASE) for row in rows if text)
    return min((match.start() for match in found if match), default=None)


def parse_version(text: str) -> str | None:
    """"24.11.5" from the output of `sbatch --version`, also between banners of a site; None = no version in it."""
    match = re.search(_VERSION, text, re.MULTILINE)
    return match["number"] if match else None


def is_known(version: str | None) -> bool:
    """Whether the words of this version's release are known; a release between two known ones counts as known."""
    match = re.match(r"(\d\d)\.(\d\d)\b", version or "")
    return match is not None and RELEASES[0] <= match[0] <= RELEASES[-1]
