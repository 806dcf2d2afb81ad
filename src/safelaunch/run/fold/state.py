"""A run's state: the fold of its journal (run.fold.folding), and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from safelaunch.base.endings import BAD_ENDS, RunEnd
from safelaunch.base.model import Request
from safelaunch.base.numbers import percent
from safelaunch.run.fold.attempts import Attempts
from safelaunch.run.nancut import NanCut
from safelaunch.run.notices import Notices
from safelaunch.run.slowsearch import SlowSearch
from safelaunch.run.steppace import StepPace


class Resize(NamedTuple):
    """What before_resize converts a checkpoint from and to, in nodes, and where it writes that."""

    from_nodes: int
    to_nodes: int
    output: str = ""
    is_removed: bool = False


class TrainingReach(NamedTuple):
    """How far the training of an attempt came, as its log says (run.reach)."""

    unit: str                       # "step" | "epoch"
    step: float | None              # the last one; of epochs perhaps a fraction
    total: int | None               # None = the log names none
    is_all: bool = False            # nothing was left to train
    is_early: bool = False          # far before the total, and nothing says that this was meant
    lines: tuple[str, ...] = ()     # that say so

    @property
    def share(self) -> str:
        """For people: "47 of 400 (11.8 %)"."""
        return f"{self.step} of {self.total} ({percent((self.step or 0) / (self.total or 1))})"

    @property
    def told_early(self) -> str:
        """What people are told of an end with exit code 0 far before the total."""
        return f"completed at {self.unit} {self.share}: the log names {self.total} {self.unit}s"


@dataclass(frozen=True)
class Attempt:
    """One launch of the command, or of before_resize (`resize`). `ended` None = as far as the journal knows, it may
    still be alive.
    """

    number: int
    job: str
    nodes: tuple[str, ...]
    started_t: float
    resume_step: int | None = None
    resume_path: str | None = None
    ended: str | None = None            # completed | linked | failed | stopped | lost | interrupted
    ended_t: float | None = None
    exit_code: int | None = None
    not_before: float | None = None     # epoch s: Slurm could not start it, and is asked again then
    step: int | None = None             # the last step seen in the log
    is_log_read: bool = True            # to its end, by the supervisor that saw the end
    checkpoint_step: int | None = None  # the newest complete checkpoint seen at its end
    category: str | None = None
    summary: str | None = None
    confidence: float = 0.0
    failed_node: str | None = None      # where it failed first
    blamed: tuple[str, ...] = ()        # nodes that showed the cause
    is_first_only: bool = False         # ... by no line of theirs: their tasks ended first
    is_of_loading: bool | None = None   # its lines are about its checkpoint (checkpoints.loading); None = unknown
    evidence: tuple[str, ...] = ()      # the lines of its log that the verdict rests on, a few
    fingerprint: str = ""               # the cause without ranks, nodes, times and addresses; "" = none
    asked_t: float | None = None        # when it was told to end, and by which row: exit code 0 means little then
    asked_row: str | None = None
    whole_steps: tuple[int, ...] = ()   # of the complete checkpoints that were there when it started
    first_step: int | None = None       # the first one that its log has named
    counter: str | None = None          # of trainlog.counters; "" = it began anew, None = not known
    epoch: float | None = None          # the last one that its log has named
    lost: str | None = None             # why it seems to have started below its checkpoint
    lost_surely: bool = False           # ... with a proof that stops a run
    asked_bytes: int | None = None      # how long its log was then: words of a SIGTERM behind that are echoes
    heard: int | None = None            # processes that took the signal then; None = nobody knows
    end_by_t: float | None = None       # until when it has time
    waits_for: str | None = None        # and for what: decide.facts.patience
    resize: Resize | None = None        # it runs before_resize, for this
    unread: str | None = None           # a line of its log, of which none has named a step for a while
    first_t: float | None = None        # when its log had named a step, as far as the journal tells
    reach: TrainingReach | None = None          # how far its training came, as its log says; None = that is not known
    nan_end: str | None = None          # it ended well, its last losses no finite numbers (nodehealth.slow.nanend)
    link: Mapping[str, Any] | None = None   # with which its script goes on (decide.jobs.links)

    @property
    def made_steps(self) -> bool:
        """It got further than the checkpoint that it started from, as far as its log tells."""
        return self.step is not None and (self.resume_step is None or self.step > self.resume_step)

    @property
    def has_had_its_time(self) -> bool:
        """Its job's time limit ended it."""
        return self.asked_row == "limit_near" or self.category == "time_limit"

    @property
    def has_failed(self) -> bool:
        """It ended in a way that costs budget."""
        return self.ended in BAD_ENDS


class Job(NamedTuple):
    """One Slurm job of the run."""

    id: str
    submitted_t: float
    started_t: float | None = None
    nodes: tuple[str, ...] = ()
    batch_host: str | None = None
    over: bool = False
    restart_count: int = 0              # how often Slurm had requeued it when it started last


@dataclass(frozen=True)
class Intent:
    """An outside act that was announced; without an outcome unknown whether it happened."""

    claim: int
    act: str
    data: Mapping[str, Any] = field(default_factory=dict)


class Exclusion(NamedTuple):
    """A node excluded from the next attempts: why, who wants it, and until when (epoch s; None = until cleared)."""

    node: str
    why: str
    owner: str = "safelaunch"
    until: float | None = None


class ToldFigure(NamedTuple):
    """A figure of the log that was reported at `t` (nodehealth.slow.oddfigures); `value` as text, such as "nan"."""

    attempt: int
    kind: str
    step: int
    value: str
    usual: float | None
    t: float
    before: int | None = None   # the last step before it whose loss was a finite number


class Slower(NamedTuple):
    """Steps take longer since `step`, as was reported at `t`; `from_s`: what one took before."""

    attempt: int
    step: int
    t: float
    from_s: float
    to_s: float
    confidence: float
    total: int | None = None   # steps of the whole training, as its log says


class EarlyEnd(NamedTuple):
    """A run that has completed far before its total."""

    unit: str
    step: float | None
    total: float | None
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Ended:
    """The named state in which a run ended: completed, gave_up or stopped."""

    how: str
    exit_code: int
    why: str
    t: float


NO_NOTICES, NO_SEARCH = Notices(), SlowSearch()
# The events that may change State.name.
NAMING = frozenset({"submitted", "job_started", "attempt_started", "attempt_ended", "preserved", "released",
                    "ended_alone", *RunEnd})


@dataclass(frozen=True)
class State:
    """All that the journal says of a run."""

    submitted_t: float | None = None
    jobs: tuple[Job, ...] = ()
    attempts: Sequence[Attempt] = ()        # Attempts, where the fold has made them
    intents: tuple[Intent, ...] = ()        # those without an outcome
    successor: str | None = None            # job id of the queued successor
    successor_excludes: tuple[str, ...] = ()
    next_cancelled: str | None = None       # the successor that a person cancelled: the run ends with this job
    best_step: int | None = None            # the newest verified checkpoint of the whole run
    failures_without_progress: int = 0      # in a row; a dead node's are its own category's (decide.budget.budget)
    failed_categories: tuple[str, ...] = ()      # of each failure since the last progress (decide.facts.advance)
    advanced_by: int = 0                    # the last attempt whose progress no checkpoint told
    idle_from: int = 0                      # of `lives`: those before it made progress, or a person let them go on
    used_s: float = 0.0                     # for how long the jobs before this one ran, together
    life_t: float | None = None             # since when this job runs; None = it has handed over
    before_t: float | None = None           # the last event before this generation's
    restarts: int = 0                       # failures that cost budget
    suspects: tuple[tuple[str, str], ...] = ()   # node, why; evidence, see nodehealth.ledger
    left_out: tuple[tuple[str, str], ...] = ()   # node, why: it would be excluded, and cannot be
    exclusions: tuple[Exclusion, ...] = ()
    # (job, how often it had been requeued, attempts before it) of each start of a job, in order.
    lives: tuple[tuple[str, int, int], ...] = ()
    is_cancelled_before: bool = False       # a person cancelled the job before this one: the run ends
    checked: tuple[str, ...] = ()           # nodes of this job that were asked for their checks, whatever they said
    unfit: tuple[tuple[str, str], ...] = ()      # node, why: it has failed them, and this job does not use it
    unfit_before: tuple[str, ...] = ()      # had failed them in an earlier job, and the run has not advanced since
    checked_after: int | None = None        # the last failed attempt after which nodes were checked
    usual_failures: tuple[str, ...] = ()    # checks that have failed on most nodes of this job, which blames none
    # Path and step of each checkpoint that did not load. The path alone is not enough: `last.ckpt` is overwritten.
    rejected: tuple[tuple[str, int | None], ...] = ()
    rejected_in_a_row: int = 0              # since one has advanced; outputs of before_resize do not count
    skipped: tuple[tuple[str, str], ...] = ()   # path, reason: of what looked like a checkpoint and is none
    cancelled_jobs: tuple[str, ...] = ()    # by safelaunch itself: no person's request
    via: str | None = None                  # how the next job is made: successor | requeue | resubmit | watch
    standby: str | None = None              # host of the standby
    preserving_until: float | None = None
    pause: str | None = None                # until when the next attempt waits, and why
    pause_until: float | None = None        # the same as a time, where one is known
    slurm: str | None = None                # the version of the Slurm on the last job's nodes
    local_folder_taken: tuple[str, str, str] | None = None   # node, path, owner: this user's folder is another's there
    unknown_words: tuple[str, str] | None = None   # job, and the words by which Slurm ended something of it, unread
    held: str | None = None                 # why safelaunch itself put the run on hold; None once an attempt starts
    kill_who: str | None = None
    restart: Request | None = None          # a person wants the next attempt now; None once it has started
    restart_touches: tuple[tuple[str, float], ...] = ()   # name and time of such requests: each counts once
    pace: StepPace | None = None            # the level of seconds per step that the next supervisor goes on with
    slower: Slower | None = None            # the drop of speed that lasts
    search: SlowSearch = NO_SEARCH          # for the node behind it
    nan_cuts: tuple[NanCut, ...] = ()       # checkpoints that are not used, because the loss was no finite number
    odd: tuple[ToldFigure, ...] = ()               # the newest odd figures
    failed_alone: tuple[str, int] | None = None   # the last job and its exit code, where nobody supervised its end
    ended: Ended | None = None
    notices: Notices = NO_NOTICES           # what people are to be told, and were told
    gen: int = 0
    leader: str | None = None
    last_t: float | None = None

    def holder(self, who: str) -> str:
        """Who put the run on hold, where the request for it is the user `who`'s."""
        return who if self.held is None else "safelaunch"

    @property
    def job(self) -> Job | None:
        """The job that has started last, else the newest submitted. `over` decides, not the order of `jobs`: a job that
        a watch submits beside a live leader has generation 0 and sorts first (simulated: test_found "a leader that dies
        in a job that a watch had queued beside another is born again beside no second attempt").
        """
        started = [job for job in self.jobs if job.started_t is not None]
        current = [job for job in started if not job.over]
        known = current or started or self.jobs
        return known[-1] if known else None

    @property
    def restarted(self) -> int:
        """Restarts that cost budget: behind the last attempt a failure has brought none."""
        return max(0, min(self.restarts, len(self.attempts) - 1))

    @property
    def attempt(self) -> Attempt | None:
        """The newest attempt."""
        return self.attempts[-1] if self.attempts else None

    def find_attempt(self, number: int) -> Attempt | None:
        """The attempt of that number."""
        return Attempts.of(self.attempts).find(number)

    @property
    def ended_early(self) -> EarlyEnd | None:
        """How far a run has come that has completed far before its total; None = it has not."""
        reach = self.attempt.reach if self.attempt is not None else None
        if self.ended is None or self.ended.how != RunEnd.COMPLETED or reach is None or not reach.is_early:
            return None
        return EarlyEnd(reach.unit, reach.step, reach.total, reach.lines)

    @property
    def ended_nan(self) -> str | None:
        """What people are told of a run that has completed with a loss that is no finite number; None = it has not."""
        is_done = self.ended is not None and self.ended.how == RunEnd.COMPLETED
        return self.attempt.nan_end if is_done and self.attempt is not None else None

    def had_nan(self, number: int) -> ToldFigure | None:
        """The report that the loss of this attempt was no finite number."""
        return next((one for one in self.odd if (one.attempt, one.kind) == (number, "nan")), None)

    def starts_from_rejected(self, attempt: Attempt) -> bool:
        """Whether the checkpoint that an attempt started from was left out later: that one explains its end."""
        return (attempt.resume_path, attempt.resume_step) in self.rejected

    @property
    def excluded(self) -> tuple[str, ...]:
        """Nodes that the next attempt must not use, sorted."""
        return tuple(sorted({known.node for known in self.exclusions}))

    @property
    def name(self) -> str:
        """One word for people: what the run is doing, by the journal."""
        if self.ended:
            return self.ended.how
        if self.preserving_until is not None:
            return "preserving"
        attempt = self.attempt
        if attempt and attempt.ended is None:
            return "running"
        if self.job and self.job.started_t is not None and not self.job.over:
            return "restarting" if attempt else "starting"
        return "queued" if self.jobs else "submitting"
