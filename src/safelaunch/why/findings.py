"""What `why` reasons about: rules, what they found in a set of logs, and evidence from outside the logs.

The contract between reading (`loglines`, `scan`, adapters' `logfiles`), rules (`rulebook`, `rules/`) and judgement
(`judge`). Plain frozen values, so that they can cross a process border and be kept in an index.

A role says what a line means for the run:
  cause      it can be the reason of the end          symptom   it follows from a reason that stands elsewhere
  teardown   it reports that the end has come         context   it says more about a cause, and is none alone
  progress   a sign of life: a step, an evaluation    done      the program says that it has finished well
  launch     the training starts here (an episode)    noise     it frightens and means nothing: never shown
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

Role = Literal["cause", "symptom", "teardown", "context", "progress", "done", "launch", "noise"]
Blames = Literal["node", "rank", "job", "nobody"]
CLOCK_STAMPS, CLOCK_ORDER = "time stamps", "file order"
RankLayout = tuple[tuple[str, ...], int]   # an attempt's nodes in order, and how many ranks each has


class Pattern(Protocol):
    """A compiled pattern, perhaps with a limit of time."""

    def search(self, text: bytes, /) -> re.Match[bytes] | None:
        """As that of re.Pattern."""
        ...


@dataclass(frozen=True)
class Rule:
    """One rule: what a line of one meaning looks like, and what it means.

    anchor   literals, case-sensitive, ≥ 4 bytes: any line that the pattern matches holds at least one of them.
    pattern  regex over one line's payload (prefixes of launchers removed), searched, not matched; linear.
    weight   how sure the line is about its category, 0..1: what the verdict's confidence starts from.
    order    which rule has a line that several match: the highest; then the highest weight; then the table's order.
    """

    id: str
    category: str
    anchor: tuple[bytes, ...]
    pattern: bytes
    role: Role = "cause"
    blames: Blames = "job"
    weight: float = 0.5
    action: str = ""
    summary: str = ""        # may use the pattern's groups: "{name}"
    explain: str = ""        # what the line means
    do: str = ""             # what a person can do
    source: str = ""         # who prints it
    ask_site: str = ""       # what only administrators can mend, where that is not what its category asks for
    host_group: str = ""     # the group that names the culprit host, when the line names one
    rank_group: str = ""
    order: int = 0
    sample: str = ""         # as its software prints it; of several lines, the last is the rule's
    counter_sample: str = ""   # a line near it that is to be left alone


class Finding(NamedTuple):
    """One line that a rule matched. `offset` is that of the line's start in its file, decompressed."""

    rule: str                        # id of the rule
    file: int                        # index into Log.files
    offset: int
    line_number: int | None          # 1-based; None = not counted (a window far into a big file)
    text: str                        # the payload: no launcher prefixes, colours, control characters; ≤ 2000 characters
    host: str | None = None          # who printed it, as far as its prefix or its file says
    rank: int | None = None
    t: float | None = None           # epoch seconds on the clock of Log.clock; None = no stamp on it or before it
    groups: Mapping[str, str] = {}   # the pattern's named groups
    block: tuple[str, ...] = ()      # the traceback that ends in this line: payloads, ≤ 60, all of one rank; it starts
                                     # with the line before "Traceback (most recent call last)", which tells whether
                                     # anybody minds ("Exception ignored in", "--- Logging error ---")
    chain: int = 0                   # n-th exception of a chained traceback of one rank, 0 = the first raised


class Progress(NamedTuple):
    """A sign of life."""

    file: int
    offset: int
    step: int | None
    rank: int | None = None
    host: str | None = None
    t: float | None = None


class Line(NamedTuple):
    """A line as it stands in the log, for the last words of a file and for context around a finding."""

    file: int
    offset: int
    line_number: int | None
    text: str
    host: str | None = None
    rank: int | None = None
    t: float | None = None
    level: str = ""                  # "E", "W", "I" as its logger calls it; "R": PyTorch's label of a rank and no level


@dataclass(frozen=True)
class Log:
    """What reading one set of logs gave.

    findings  by (file, offset); of a rule that has more than a few hundred hits the first of each rank (or host) and
              the last are kept, `counts` has them all.
    progress  the first, last and highest sign of each (file, host, rank) and the last 64 of each file, in the order of
              findings: matches of rules whose role is progress; their group `step` is the step.
    findings of one line: of all rules that match it, the one with the highest order, then weight, then place in RULES.
    last      the last lines of each file that are not empty (≤ 40 a file).
    """

    files: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    progress: tuple[Progress, ...] = ()
    last: tuple[Line, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    size_bytes: int = 0
    read_bytes: int = 0              # less than the size: a healthy step bounded the search
    lines: int | None = None
    truncated: bool = False          # a file ended amid a line, or could not be decompressed to its end
    odd: tuple[str, ...] = ()        # files that are no common logs: empty, damaged, no text
    clock: str = CLOCK_ORDER
    offsets_s: Mapping[str, float] = field(default_factory=dict)   # per host, subtracted from its stamps
    rules: tuple[Rule, ...] = ()     # of rule packs, beside those of the rulebook


class Cited(NamedTuple):
    """A line that the verdict shows. `count` lines mean the same, over `hosts` and `ranks`."""

    rule: str
    role: Role
    file: str
    line_number: int | None
    text: str
    host: str | None = None
    rank: int | None = None
    t: float | None = None
    offset: int = 0
    count: int = 1   # type: ignore[assignment]
    hosts: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    block: tuple[str, ...] = ()      # as in Finding
    category: str = ""               # what it is a sign of


# Rows of decide that end the other ranks because something of the attempt had ended before.
FAILED_FIRST = frozenset({"task_failed", "srun_gone", "node_lost"})


class TaskExit(NamedTuple):
    """How a task ended, in the order in which the guards or Slurm reported it. `host` "": a script, of which nobody
    knows where it failed.
    """

    host: str
    task: int
    code: int
    signal: int | None = None

    @property
    def who(self) -> str:
        """For people: which one."""
        return f"task {self.task} on {self.host}" if self.host else "the script"


class EndFacts(NamedTuple):
    """What the journal knows of an attempt's end."""

    how: str                        # a word of AttemptEnd
    row: str | None = None          # of decide, that ended it; None = it ended by itself
    ending: str | None = None       # why Slurm ended its job, where it did
    person: str | None = None       # "bob touched kill-now"
    is_suspended: bool = False      # the whole job stood still
    is_refused: bool = False        # Slurm could not start it, or ended it in words that are not known
    told: tuple[str, float, str] | None = None   # the leader's own verdict on it: category, confidence, summary

    @property
    def sent_signals(self) -> bool:
        """Whether safelaunch itself has told the ranks to end."""
        return self.row not in (None, "step_cancelled")   # that step was cancelled by somebody else


@dataclass(frozen=True)
class OutsideEvidence:
    """What is known from outside the log; every part is optional, and nothing known is no evidence."""

    exits: tuple[TaskExit, ...] = ()
    lost: tuple[tuple[str, str], ...] = ()      # (host, why) of nodes that were lost
    srun_code: int | None = None
    states: tuple[str, ...] = ()                # Slurm's words: NODE_FAIL, OUT_OF_MEMORY, TIMEOUT, COMPLETED, …
    bad_nodes: tuple[tuple[str, str], ...] = ()   # (host, why) of nodes that went down by Slurm's own word
    # (host, names of checks, why) of suspects that have failed their full checks after the attempt
    failed_checks: tuple[tuple[str, tuple[str, ...], str], ...] = ()
    stacks: tuple[tuple[str, str], ...] = ()    # (host or "", where its odd ranks stand)
    stacks_rank: int | None = None              # the first of these
    stacks_sure: float = 0.6                    # that they show a hang, which the look's own verdict tells
    stacks_said: str = ""                       # what that verdict says
    stacks_suspects: tuple[str, ...] = ()       # nodes that it suspects
    is_hang: bool = False                       # the supervisor ended it for a hang
    ledger: Mapping[str, int] = field(default_factory=dict)   # host → earlier failures that blame it
    own_term_bytes: int | None = None           # from this byte of the first log on, SIGTERMs are safelaunch's own
    end: EndFacts | None = None                      # what the journal knows of the end
    running: bool = False                       # the run is alive: there may be no end to explain
    layout: RankLayout | None = None            # None = not known
    good: tuple[str, ...] = ()                  # what good logs of the same command say (why.read.usual)

    def in_good(self, text: str) -> bool | None:
        """Whether such a line stands in all good logs; None = in some, or there is none to compare with."""
        from safelaunch.why import usual  # few logs have good ones beside them

        held = {usual.holds(good, text) for good in self.good} if self.good else set()
        return held.pop() if len(held) == 1 else None

    @property
    def first_bad(self) -> TaskExit | None:
        """The task that ended badly before any other."""
        return next((exit for exit in self.exits if exit.code or exit.signal), None)

    def is_behind_own_end(self, file: int, offset: int) -> bool:
        """Whether a line came when safelaunch itself had told the ranks to end."""
        return file == 0 and self.own_term_bytes is not None and offset >= self.own_term_bytes

    def is_own_end(self, file: int, offset: int, host: str | None) -> bool:
        """Whether such a line can only tell of that. Where a task had failed before, its node's lines may come late."""
        if not self.is_behind_own_end(file, offset):
            return False
        first = self.first_bad
        is_others = host is not None and first is not None and host != first.host
        return is_others or self.end is None or self.end.row not in FAILED_FIRST
