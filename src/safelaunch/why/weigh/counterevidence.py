"""What speaks against an error being the cause: somebody caught it, the run went on, it was only mentioned."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from safelaunch.why.categories import ENDS_OF_JOBS
from safelaunch.why.findings import Log
from safelaunch.why.order.episodes import Episode, Moment, is_comparable, order_of
from safelaunch.why.read.tracebacks import is_played_down
from safelaunch.why.weigh.groups import FindingGroup

LATE_COST = 0.18          # the run went on, unless the steps behind it only came late
CAUGHT_COST = 0.22        # nothing fell afterwards, and it is not near the end
SURVIVED_COST = 0.3       # the run went on until Slurm ended it …
RAISED_COST = 0.12        # … although a rank that has died may leave the others hanging until then
MENTIONED_COST = 0.25     # a line about an error, beside an exception that nothing caught
PLAYED_DOWN_COST = 0.35   # "falling back to …:" and a traceback, and nothing fell
OUTLIVED_COST = 0.25      # Slurm ended what had failed before
STEP_CANCELLED, WAIT_OVER, STEP_BUSY = "slurm.step_cancelled", "slurm.wait_over", "slurm.step_busy"
_FAILED = ("slurm.task_exit", "slurm.task_signal", "slurm.task_aborted", "memory.slurm_task_oom", "elastic.failed")
AFTER_A_FAILURE = 0.6     # what srun says of a step that had failed before, or has begun since, is no cause
KILLED_COST = 0.4         # srun itself ends a step one of whose tasks has failed
QUIET_BYTES = 32 << 10    # that much ordinary text after an error: somebody was still working
WENT_ON_COST = 0.2
SURE_END = 0.7            # weight of a good end that only a program that has finished says
ECHO_BYTES = 2000         # a script that says "done" right behind a traceback says it in any case

# Whole words: a mangled symbol holds "optional", a path "ignored".
SERVED = "life.served"     # a server that answers after an error has reported it only
_MENTION = re.compile(r"(?i)(?<![A-Za-z0-9_/])(?:warn|fall(?:ing)? ?back|optional\b|skipp|disabl|could not import"
                      r"|failed to import|unavailable|not available|deprecat|ignor|will not be|cannot be used"
                      r"|consider installing)")
_ENDED = ("slurm.time_limit", "slurm.preempted", "slurm.job_cancelled", "slurm.cancelled_signal", "slurm.requeued",
          "slurm.node_failure", "slurm.cancelled_node_failure")


class LogCourse(NamedTuple):
    """How an episode went on: moments of falls and of all events, the moment Slurm ended it, where files end."""

    falls: tuple[Moment, ...]
    events: tuple[Moment, ...]
    ended: Moment | None
    ends: tuple[int, ...]
    has_raised: bool
    failed_task: Moment | None   # when srun first reported a task that failed
    fell_before_end: bool     # a cause and a fall, and only then Slurm's line: the others hung until it came
    is_timed: bool
    never_began: bool = False   # the step waited to the end for what it needs
    served: tuple[Moment, ...] = ()   # requests that were answered well


def trace_course(groups: Sequence[FindingGroup], episode: Episode, log: Log) -> LogCourse:
    """The course of an episode."""
    timed = episode.is_timed
    falls = tuple(order_of(one, timed) for one in episode.findings if episode.role(one) == "teardown")
    events = tuple(order_of(one, timed) for one in episode.findings
                   if episode.role(one) in ("cause", "symptom", "teardown", "done"))
    ended = [order_of(one, timed) for one in episode.findings if one.rule in _ENDED]
    ends = tuple(max((line.offset for line in log.last if line.file == file), default=0)
                 for file in range(len(log.files)))
    raised = any(group.role == "cause" and group.first.block and not group.is_excused and group.weight >= 0.5
                 for group in groups)
    end = ended[0] if ended else None
    fell = end is not None and any(
        group.role == "cause" and group.weight >= 0.5 and not group.is_excused and group.category not in ENDS_OF_JOBS
        and any(order_of(group.first, timed) < fall < end for fall in falls) for group in groups)
    failed = [order_of(one, timed) for one in episode.findings if one.rule in _FAILED]
    served = tuple(order_of(one, timed) for one in episode.findings if one.rule == SERVED)
    return LogCourse(falls, events, end, ends, raised, failed[0] if failed else None, fell, timed,
                     _never_began(episode), served[-1:])


def _never_began(episode: Episode) -> bool:
    """Whether srun waited to the end for what its step needs: nothing has started since, and no step was made."""
    busy = [order_of(one, episode.is_timed) for one in episode.findings if one.rule == STEP_BUSY]
    begun = [order_of(one, episode.is_timed) for one in episode.findings if one.rule == "slurm.step_created"]
    steps = [order_of(one, episode.is_timed) for one in episode.progress]
    return bool(busy) and not any(one > busy[-1] for one in (*begun, *steps))


def doubt(group: FindingGroup, course: LogCourse) -> FindingGroup:
    """The group with what speaks against it taken off its weight."""
    cost = max(0.0, cost_of(group, course)) + (LATE_COST if group.is_doubtful else 0.0)
    return replace(group, weight=group.weight - cost)


def cost_of(group: FindingGroup, course: LogCourse) -> float:
    """What speaks against the group as the cause."""
    rule = group.rule
    if rule.id in (STEP_CANCELLED, WAIT_OVER):
        failed = course.failed_task
        cost = KILLED_COST if rule.id == STEP_CANCELLED else AFTER_A_FAILURE
        return cost if failed is not None and failed < order_of(group.first, course.is_timed) else 0.0
    if rule.id == STEP_BUSY:
        return 0.0 if course.never_began else AFTER_A_FAILURE
    if rule.category in ENDS_OF_JOBS:
        return OUTLIVED_COST if (course.fell_before_end or course.never_began) and rule.id in _ENDED else 0.0
    if rule.blames == "node":
        return 0.0
    at = order_of(group.last, course.is_timed)
    begun = order_of(group.first, course.is_timed)
    fell = any(begun < fall and (course.ended is None or fall < course.ended) for fall in course.falls)
    cost = 0.0
    if course.ended is not None and at < course.ended:
        if not fell:
            cost = RAISED_COST if group.first.block else SURVIVED_COST
    elif not fell and not group.is_fatal:
        cost = CAUGHT_COST
    if not group.first.block and course.has_raised and _MENTION.search(group.first.text):
        cost += MENTIONED_COST
    if is_played_down(group.first.block) and not fell and not group.is_fatal:
        cost += PLAYED_DOWN_COST
    if not group.first.block and any(one > at for one in course.served):
        cost += SURVIVED_COST
    if _quiet_after(group, course) > QUIET_BYTES:
        cost += WENT_ON_COST
    return cost


def is_past(group: FindingGroup, episode: Episode) -> bool:
    """Whether the program said afterwards that it had finished."""
    last = order_of(group.last, episode.is_timed)
    for found in episode.findings:
        rule = episode.rules[found.rule]
        if rule.role != "done" or not is_comparable(found, group.last, episode):
            continue
        if order_of(found, episode.is_timed) < last:
            continue
        end = order_of(found, episode.is_timed)
        near = found.file == group.last.file and found.offset - group.last.offset < ECHO_BYTES
        stepped = any(last < order_of(sign, episode.is_timed) < end for sign in episode.progress)
        if rule.weight >= SURE_END or stepped or not near:
            return True
    return False


def _quiet_after(group: FindingGroup, course: LogCourse) -> int:
    """Bytes of ordinary text between the group's last line and the next event of its file, or the file's end."""
    last = group.last
    after = [offset for _, file, offset in course.events if file == last.file and offset > last.offset]
    end = course.ends[last.file] if last.file < len(course.ends) else last.offset
    return (min(after) if after else max(end, last.offset)) - last.offset
