"""All that is known of a run at one moment. Each field is one of `status --json` (docs/verbs.md), under its name and in
its order; None = not known. Times are epoch seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from safelaunch.base.jsonform import to_json
from safelaunch.base.model import Request
from safelaunch.run.fold.state import EarlyEnd, Ended, ToldFigure
from safelaunch.slurm import via
from safelaunch.status.costs import RestartCost
from safelaunch.status.silence import SILENT, LateStep, SeenHeartbeat
from safelaunch.status.states import ENDING, RUNNING

VERSION = 1
STYLES = {"completed": "green", "running": "green", "gave_up": "red", "stopped": "yellow", "unknown": "yellow",
          "preserving": "red", "queued": "cyan", "waiting": "cyan", "stopping": "yellow", "ending": "yellow",
          "on_hold": "yellow", SILENT: "yellow"}
Number = float | str   # a word for what JSON has no number for: "nan", "inf", "-inf"


class RunJob(NamedTuple):
    """The newest job; `ends_t` None = it has no time limit, or Slurm does not say."""

    id: str
    nodes: tuple[str, ...]
    nodelist: str
    batch_host: str | None
    started_t: float | None
    ends_t: float | None


class Resizing(NamedTuple):
    """The checkpoint is being converted for another number of nodes."""

    from_: int
    to: int


class RunAttempt(NamedTuple):
    """The newest launch of the command. `began_step`: where it went on by itself."""

    number: int
    nodelist: str
    nodes: tuple[str, ...]
    started_t: float
    resume_step: int | None
    ended: str | None
    ended_t: float | None
    exit_code: int | None
    category: str | None
    summary: str | None
    of_nodes: int
    began_step: int | None
    resize: Resizing | None


class LostProgress(NamedTuple):
    """What speaks for a start of the newest attempt below its checkpoint."""

    attempt: int
    sure: bool
    why: str


class SlowerSteps(NamedTuple):
    """The drop of speed that lasts, and what follows."""

    attempt: int
    step: int
    t: float
    from_s: float
    to_s: float
    confidence: float
    total: int | None
    follows: str


class NodeReason(NamedTuple):
    """A node, and why."""

    node: str
    why: str


class ExcludedNode(NamedTuple):
    """A node that the next attempts must not use; `until_t` None = until it is cleared."""

    node: str
    why: str
    owner: str
    until_t: float | None


class NodeSearch(NamedTuple):
    """What was done to find the node behind a drop. The last two are of an earlier version, kept in the form of v 1."""

    experiments: tuple[int, ...]
    attempt: int
    measured: int
    slow: tuple[NodeReason, ...]
    from_s: float
    to_s: float
    won: bool | None
    seen: tuple[()] = ()
    seen_why: None = None


class UnreadLine(NamedTuple):
    """A line of those that name no step, and the pattern that was tried."""

    line: str
    pattern: str


class Throughput(NamedTuple):
    """What the log says of its speed."""

    value: float
    unit: str


class SkippedCheckpoint(NamedTuple):
    """One that is newer, and not complete."""

    path: str
    reason: str


class NewestCheckpoint(NamedTuple):
    """What a look at resume.dir has found; `path` None = none is complete, or unknown for the reason in `trouble`."""

    dir: str
    path: str | None = None
    step: int | None = None
    format: str | None = None
    t: float | None = None
    skipped: tuple[SkippedCheckpoint, ...] = ()
    trouble: str = ""
    age_s: float | None = None
    steps_at_risk: int | None = None


class RestartLosses(NamedTuple):
    """What restarts have cost; `goodput` is what they have left, as older readers know it."""

    steps: int
    seconds: float
    since_t: float | None
    overhead: float | None
    goodput: float | None
    restarts: tuple[RestartCost, ...]


class ToldDecision(NamedTuple):
    """What the supervisor has decided."""

    t: float
    row: str
    why: str


class ListedJob(NamedTuple):
    """A job as squeue tells it."""

    id: str
    state: str
    user: str
    name: str
    reason: str
    nodelist: str
    left_s: float | None
    start_t: float | None


class UnknownWords(NamedTuple):
    """The words by which Slurm ended something of a job, unread."""

    job: str
    said: str


class SlurmWord(NamedTuple):
    """What Slurm says; `jobs` None = no clear answer, for the reason in `trouble`."""

    jobs: tuple[ListedJob, ...] | None
    trouble: str
    version: str | None
    is_known: bool | None
    unknown_words: UnknownWords | None


class LocalFolder(NamedTuple):
    """A folder on a node that is another user's."""

    node: str
    path: str
    owner: str


NO_LOSSES, UNASKED = RestartLosses(0, 0.0, None, None, None, ()), SlurmWord(None, "", None, None, None)


class Overview(NamedTuple):
    """A run."""

    name: str
    run_id: str
    run_dir: str
    cluster: str
    cluster_name: str | None
    state: str
    sentence: str
    silence: LateStep | None = None
    since_t: float | None = None
    now_t: float = 0.0
    submitted_t: float | None = None
    ended: Ended | None = None
    ended_early: EarlyEnd | None = None
    ended_nan: str | None = None
    job: RunJob | None = None
    attempt: RunAttempt | None = None
    lost_progress: LostProgress | None = None
    slower: SlowerSteps | None = None
    slow_search: NodeSearch | None = None
    odd_figures: tuple[ToldFigure, ...] = ()
    attempts: int = 0
    step: int | None = None
    step_total: int | None = None
    place: str | None = None
    unread: UnreadLine | None = None
    loss: Number | None = None
    step_time_s: Number | None = None
    typical_step_time_s: Number | None = None
    pace_s: float | None = None
    pace_trend: float | None = None
    eta_t: float | None = None
    throughput: Throughput | None = None
    checkpoint_step: int | None = None
    checkpoint: NewestCheckpoint | None = None
    restarts: int = 0
    max_restarts: int = 0
    failures_without_progress: int = 0
    max_without_progress: int = 0
    lost: RestartLosses = NO_LOSSES
    goodput: float | None = None
    time: Mapping[str, float] | None = None
    relaunch_t: float | None = None
    suspects: tuple[NodeReason, ...] = ()
    excluded: tuple[ExcludedNode, ...] = ()
    left_out: tuple[NodeReason, ...] = ()
    standby: str | None = None
    successor: str | None = None
    next_cancelled: str | None = None
    via: str | None = None
    requests: tuple[Request, ...] = ()
    later_jobs: Mapping[str, str] = MappingProxyType({})
    preserving_until_t: float | None = None
    node_hours: float = 0.0
    gpu_hours: float | None = None
    decisions: tuple[ToldDecision, ...] = ()
    pulse: SeenHeartbeat | None = None
    slurm: SlurmWord = UNASKED
    local_folder: LocalFolder | None = None
    journal_problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The object of `status --json`."""
        return {"v": VERSION, **to_json(self)}


class Brief(NamedTuple):
    """A run's line in the table of all runs."""

    name: str
    run_id: str
    run_dir: str
    owner: str
    cluster_name: str | None
    state: str
    sentence: str
    silence: LateStep | None
    since_t: float | None
    now_t: float
    ended_t: float | None
    job: str | None
    job_ends_t: float | None
    attempts: int
    step: int | None
    step_total: int | None
    loss: Number | None
    eta_t: float | None
    restarts: int
    max_restarts: int
    is_stale: bool
    values: Mapping[str, str]


def brief_of(row: Mapping[str, Any]) -> Brief:
    """The line of such an object; what another version has not written is None."""
    silence = row.get("silence")
    return Brief(**{**dict.fromkeys(Brief._fields), **{name: row[name] for name in Brief._fields if name in row},
                    "silence": LateStep(**silence) if silence else None, "values": row.get("values") or {}})


def word_of(one: Overview | Brief) -> str:
    """The state as people are told it: one that runs without a step is silent."""
    return SILENT if is_silent(one) else one.state.replace("_", " ")


def is_silent(one: Overview | Brief) -> bool:
    """Whether silence is all that is to be said of it: nobody ends it, and Slurm knows its job."""
    return one.state == RUNNING and one.silence is not None


def since_of(one: Overview | Brief) -> float | None:
    """Since when it is in that state."""
    return one.silence.since_t if one.silence is not None and is_silent(one) else one.since_t


def style_of(one: Overview | Brief) -> str:
    """Its style on a terminal."""
    return STYLES.get(SILENT if is_silent(one) else one.state, "")


def next_lines(seen: Overview) -> list[str]:
    """The commands, the most useful first. Where something is wrong, that is what says what it is."""
    where = seen.run_dir
    if seen.preserving_until_t is not None:
        host = (seen.job.batch_host if seen.job else None) or "NODE"
        return [f"safelaunch shell {where} {host}", f"safelaunch release {where}"]
    if seen.state == "gave_up":
        return [f"safelaunch why {where}", f"safelaunch events {where}"]
    if seen.state in ("completed", "stopped", "unknown"):
        is_lost = seen.state == "unknown" and via.has_next_job(seen.cluster)
        is_doubtful = seen.state == "completed" and (seen.ended_nan or seen.ended_early)
        first = ["safelaunch watch --once"] if is_lost else [f"safelaunch why {where}"] if is_doubtful else []
        return [*first, f"safelaunch events {where}"]
    if seen.state == "on_hold":
        return [f"safelaunch resume {where}"]
    if seen.state in ("queued", "waiting", "submitting", "stopping"):
        return [f"safelaunch status --watch {where}"]
    return [*_of_living(seen), f"safelaunch logs -f {where}"]


def _of_living(seen: Overview) -> list[str]:
    where, attempt = seen.run_dir, seen.attempt
    if is_silent(seen):
        return [f"safelaunch stacks {where}"]
    is_stale = seen.pulse is not None and seen.pulse.is_stale and seen.cluster != "local"
    lines = ["safelaunch watch --once"] if is_stale else []
    number = None if attempt is None else attempt.number
    has_nan = any(one.attempt == number for one in seen.odd_figures)
    if has_nan or seen.state in (ENDING, "restarting") or (number or 0) > 1:   # or another attempt failed before it
        return [*lines, f"safelaunch why {where}"]
    if seen.slower is not None:   # the ranks that the others wait for
        return [*lines, f"safelaunch stacks {where}"]
    return lines
