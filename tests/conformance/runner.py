"""Runs many scripts at once in one sandbox, both sides of each, and says how each went.

One loop looks at Slurm's queue for all of them. A side has ended when no job of its folder is queued any more: the next
job of a run is in the queue as long as the run lives.
"""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.conformance.case import Case
from tests.conformance.compare import Difference, compare, is_said
from tests.conformance.observe import Observed, observe, parse_records
from tests.conformance.oracles import judge
from tests.conformance.place import PLAIN, SAFE, Place, Side

AT_ONCE = 10        # sides
TOGETHER = 5        # cases of one submission
LOOK_S = 1.0        # each look is a squeue: 30 ms of processor time
EQUAL, SAID, REFUSED, UNSAID, RIGHT, WRONG = VERDICTS = ("equal", "said", "refused", "unsaid", "right", "wrong")


@dataclass(frozen=True)
class Result:
    """How a script went: equal, said, refused with its line, or unsaid; under a fault right or wrong."""

    case: Case
    verdict: str
    differences: list[Difference] = field(default_factory=list)
    wrongs: list[str] = field(default_factory=list)
    took_s: float = 0.0

    @property
    def is_bad(self) -> bool:
        """Whether a user would be surprised."""
        return self.verdict in (UNSAID, WRONG)


@dataclass
class _Pending:
    case: Case
    begun_s: float
    waiting: dict[str, Side]
    seen: dict[str, Observed] = field(default_factory=dict)


def run_all(place: Place, cases: Iterable[Case], at_once: int = AT_ONCE, is_keeping: bool = False) -> Iterator[Result]:
    """The results as they come; those that take whole nodes run last, alone."""
    listed = list(cases)
    for some, limit in (([one for one in listed if not one.is_alone], at_once),
                        ([one for one in listed if one.is_alone], 2)):
        yield from _run(place, deque(some), limit, is_keeping)


def _run(place: Place, left: deque[Case], at_once: int, is_keeping: bool) -> Iterator[Result]:
    pending: list[_Pending] = []
    while left or pending:
        room = at_once - sum(len(one.waiting) for one in pending)
        if left and room >= min(2 * len(left), TOGETHER, at_once):
            new = [_begin(place, left.popleft()) for _ in range(min(max(1, room // 2), len(left), TOGETHER))]
            place.submit([side for one in new for side in one.waiting.values()])
            pending += new
        ended = [(one, side, is_late) for one, side, is_late in _look(place, pending)]
        records = parse_records(place.sandbox.slurm(["scontrol", "show", "job", "-o"])) if ended else []
        for one, side, is_late in ended:
            one.seen[side.name] = observe(side, records, is_late)
            del one.waiting[side.name]
        for one in [one for one in pending if not one.waiting]:
            pending.remove(one)
            result = _judge(one)
            if not (is_keeping and result.is_bad):
                shutil.rmtree(next(iter(one.seen.values())).side.room.parent, ignore_errors=True)
            yield result
        if not ended:
            time.sleep(LOOK_S)


def _begin(place: Place, case: Case) -> _Pending:
    names = (SAFE,) if case.has_oracle else (PLAIN, SAFE)
    return _Pending(case, time.monotonic(), {name: place.lay_out(case, name) for name in names})


def _look(place: Place, pending: list[_Pending]) -> Iterator[tuple[_Pending, Side, bool]]:
    """Sides that have ended, and those whose time is over, whose jobs are cancelled then."""
    living = place.living()
    for one in pending:
        for side in one.waiting.values():
            jobs = [job for folder, found in living.items() for job in found if side.owns(job, folder)]
            if not jobs:
                yield one, side, False
            elif time.monotonic() - one.begun_s > one.case.limit_s:
                place.sandbox.run(["scancel", *jobs], user="root", cwd=place.base)
                yield one, side, True


def _judge(one: _Pending) -> Result:
    took_s = time.monotonic() - one.begun_s
    safe = one.seen[SAFE]
    if one.case.has_oracle:
        wrongs = judge(safe)
        return Result(one.case, WRONG if wrongs else RIGHT, wrongs=wrongs, took_s=took_s)
    differences = compare(one.seen[PLAIN], safe)
    unsaid = [difference for difference in differences if not is_said(difference, one.case, safe.said)]
    is_refused = any(difference.kind == "refused" for difference in differences)
    verdict = UNSAID if unsaid else REFUSED if is_refused else SAID if differences else EQUAL
    return Result(one.case, verdict, unsaid or differences, took_s=took_s)
