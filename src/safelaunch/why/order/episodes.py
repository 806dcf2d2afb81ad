"""The order of what a set of logs says, which launch of the training it is about, and what later steps excuse."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from safelaunch.why.findings import CLOCK_STAMPS, Finding, Log, Progress, Role, Rule
from safelaunch.why.order import clocks, rising
from safelaunch.why.rulebook import BY_ID

Moment = tuple[float, int, int]   # sort key: time or 0, file, offset

BEGINNING: Moment = (float("-inf"), -1, -1)
RESTARTED = "launch.elastic_restart"
# Slurm's own words that the whole job has ended: what comes behind them in the file was said before, or while dying.
JOB_ENDS = ("slurm.time_limit", "slurm.preempted", "slurm.requeued", "slurm.job_cancelled",
            "slurm.cancelled_node_failure")
MANY_STEPS = 8            # more than a job that Slurm has ended can still make, or flush
MIN_STEPS_AFTER = 2       # other ranks finish the step that they are in: one more step excuses nothing
CLOCKS_APART_S = 120.0    # between files: the clocks of nodes may be off by this (an error too early excuses nothing)
UNTIED_APART_S = 3600.0   # … and by this where no common steps tie them: seen were minutes
LATE_S = 30.0             # a node's lines may reach a common file so late (stdout's buffers, srun's, the filesystem's)
SURE_AFTER_S = 120.0      # … unless it comes so much later that no rank can have been in it


class Episode(NamedTuple):
    """The last launch: its findings and signs of life, both in order, and how many launches came before."""

    findings: tuple[Finding, ...]
    progress: tuple[Progress, ...]
    number: int
    is_timed: bool
    rules: Mapping[str, Rule]
    files: tuple[str, ...] = ()
    tied: frozenset[str] = frozenset()   # hosts (or files) whose clocks common steps tie to each other

    def role(self, finding: Finding) -> Role:
        """What a finding means for the run."""
        return self.rules[finding.rule].role

    def are_tied(self, one: Finding | Progress, other: Finding | Progress) -> bool:
        """Whether it is known how the clocks of their writers stand to each other."""
        writers = {clocks.writer_of(one, self.files), clocks.writer_of(other, self.files)}
        return len(writers) == 1 or writers <= self.tied


def order_of(item: Finding | Progress, is_timed: bool) -> Moment:
    """Where an item stands among all: by time when the files have to be merged, by place within one file."""
    return (item.t or 0.0 if is_timed else 0.0, item.file, item.offset)


def last_episode(log: Log) -> Episode:
    """What belongs to the last launch of the training in the logs."""
    is_timed = len(log.files) > 1 and (log.clock == CLOCK_STAMPS or _is_stamped(log))
    rules = {**BY_ID, **{rule.id: rule for rule in log.rules}}
    findings = _in_order(log.findings, is_timed, rules)
    progress = tuple(sorted(log.progress or rising.signs_of(log.last), key=lambda one: order_of(one, is_timed)))
    whole = Episode(findings, progress, 1, is_timed, rules, log.files, clocks.tied_writers(log.progress, log.files))
    if len(log.files) > 1 and not is_timed:
        return whole   # which file's launch came later, nobody knows
    starts = _starts(findings, progress, is_timed, rules)
    if len(starts) < 2:
        return whole
    start = starts[-1]
    kept = tuple(one for one in findings if order_of(one, is_timed) >= start)
    after = tuple(one for one in progress if order_of(one, is_timed) >= start)
    if not after and not any(rules[one.rule].role in ("cause", "symptom", "done", "teardown") for one in kept):
        return whole   # only the words of a start: nothing to judge
    return whole._replace(findings=kept, progress=after, number=len(starts))


def _is_stamped(log: Log) -> bool:
    """Whether each file with findings has a stamp to place them by."""
    stamped = {item.file for items in (log.findings, log.progress) for item in items if item.t is not None}
    return {found.file for found in log.findings} <= stamped


def _in_order(findings: Sequence[Finding], is_timed: bool, rules: Mapping[str, Rule]) -> tuple[Finding, ...]:
    """By time. There a line without a stamp keeps to the one before it in its file, else to the one behind it. A launch
    does not, since what comes behind it may be hours later.
    """
    placed = sorted(findings, key=lambda one: (one.file, one.offset))
    if not is_timed:
        return tuple(placed)
    stamped = _fill(placed)
    launches = [one for one in stamped if rules[one.rule].role == "launch"]
    others = _fill([one for one in stamped if rules[one.rule].role != "launch"][::-1])
    return tuple(sorted([*launches, *others], key=lambda one: order_of(one, True)))


def _fill(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, those without a stamp with that of the one before them in their file."""
    known: dict[int, float] = {}
    filled = []
    for one in findings:
        t = one.t if one.t is not None else known.get(one.file)
        if t is not None:
            known[one.file] = t
        filled.append(one if t == one.t else one._replace(t=t))
    return filled


def _starts(findings: Sequence[Finding], progress: Sequence[Progress], is_timed: bool,
            rules: Mapping[str, Rule]) -> list[Moment]:
    """Where launches begin, the log's own beginning first.

    A launch line begins a launch when its speaker has launched before and there were steps or an end since. For the
    launchers of many nodes print one each, and a late node's must not hide why another one failed.
    """
    # Among several files a step without a stamp has no place: it says nothing of what came before or after.
    steps = [order_of(one, is_timed) for one in progress if one.t is not None or not is_timed]
    starts: list[Moment] = [BEGINNING]
    speakers: set[tuple[str | None, int | None]] = set()
    has_ended = False
    for one in findings:
        role = rules[one.rule].role
        at = order_of(one, is_timed)
        if role == "launch":
            speaker = (one.host, one.rank)
            stepped = bisect_right(steps, at) > bisect_right(steps, starts[-1])
            if (has_ended or stepped) and (speaker in speakers or one.rule == RESTARTED or speaker == (None, None)):
                starts.append(at)
                speakers.clear()
                has_ended = False
            speakers.add(speaker)
        elif role in ("teardown", "done"):
            has_ended = True
    return starts


def is_comparable(one: Finding | Progress, other: Finding | Progress, episode: Episode) -> bool:
    """Whether it can be told which of two came first: always within one file, between files by time only."""
    return episode.is_timed or one.file == other.file


def is_excused(last: Finding, episode: Episode, same_run: bool = False) -> bool:
    """Whether steps went on after the last occurrence of an error; `same_run`: those of the same training only."""
    after = _signs_after(last, episode)
    if same_run:
        after = _rising(after, _step_before(last, episode))
    if not after:
        return False
    steps = {one.step for one in after if one.step is not None}
    speakers = Counter((one.host, one.rank) for one in after)
    if len(steps) > MIN_STEPS_AFTER or (not steps and max(speakers.values()) > MIN_STEPS_AFTER):
        return True
    end = after[-1]
    return not steps and end.t is not None and last.t is not None and end.t - last.t > SURE_AFTER_S


def is_perhaps_late(last: Finding, episode: Episode) -> bool:
    """Whether the steps behind an error in its file may have been made before it, by a host whose lines came late.

    They span no more than lines are late, and an end follows them: had they gone on, there would be more of them.
    Behind the end of the whole job many steps, or the time, tell that it was started again.
    """
    if last.rule in JOB_ENDS:
        begun = [one for one in episode.progress if one.file == last.file and one.offset > last.offset]
        latest = max((one.t for one in begun if one.t is not None), default=0.0)
        has_fallen = any(found.file == last.file and found.offset > last.offset
                         and episode.role(found) in ("symptom", "teardown") for found in episode.findings)
        is_again = len({one.step for one in begun}) >= MANY_STEPS and not has_fallen
        return not is_again and latest <= (last.t or latest) + SURE_AFTER_S
    steps = [one for one in episode.progress if one.file == last.file and one.step is not None]
    after = [one for one in steps if one.offset > last.offset]
    if not after or any(one.host is not None and one.host == last.host for one in after):
        return False
    known = [one for one in steps if one.offset < last.offset][-1:] + after
    times = [one.t for one in known if one.t is not None]
    if len(times) < len(known) or max(times) - min(times) > LATE_S:
        return False
    return any(found.file == last.file and found.offset > after[-1].offset
               and episode.role(found) in ("symptom", "teardown") for found in episode.findings)


def _signs_after(last: Finding, episode: Episode) -> list[Progress]:
    """The signs of life after an error: of its own file by place, of others by time and by their steps."""
    reached = _step_before(last, episode)
    return [one for one in episode.progress if (
        one.offset > last.offset if one.file == last.file else
        episode.is_timed and _is_surely_later(one, last, episode) and (one.step is None or one.step > reached))]


def _is_surely_later(one: Progress, last: Finding, episode: Episode) -> bool:
    """Whether a sign in another file came after the error, however far apart the clocks may be."""
    apart_s = CLOCKS_APART_S if episode.are_tied(one, last) else UNTIED_APART_S
    return one.t is not None and last.t is not None and one.t > last.t + apart_s


def _step_before(last: Finding, episode: Episode) -> int:
    """The last step that the error's own file had reached; -1 = it names none."""
    steps = [one.step for one in episode.progress
             if one.file == last.file and one.offset < last.offset and one.step is not None]
    return steps[-1] if steps else -1


def _rising(signs: Sequence[Progress], reached: int) -> list[Progress]:
    """The signs up to the place where the steps begin anew: another training in the same log."""
    kept: list[Progress] = []
    for one in signs:
        if one.step is not None and one.step < reached:
            break
        reached = reached if one.step is None else one.step
        kept.append(one)
    return kept
