"""How long the end of an attempt waits for its last lines, where srun has not ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from safelaunch.base.model import Exit
from safelaunch.decide.facts.seen import Live
from safelaunch.supervisor import observe
from safelaunch.supervisor.state.attempt import ReadLog
from safelaunch.supervisor.state.reach import Reach
from safelaunch.why.findings import OutsideEvidence

EVIDENCE: Any = OutsideEvidence
FAILED, KILLED = Exit("n1", 1, 1), Exit("n1", 1, 137, 9)


def waits_s(exits: tuple[Exit, ...], found: dict[str, Any] | None, read_size: int = 70, lost: bool = False,
            srun_code: int | None = None) -> float:
    """Seconds after the last message and line until the attempt is judged."""
    live = Live(1, ("n0", "n1"), exits=exits, tasks=2, srun_code=srun_code, fenced=True)
    running: Any = SimpleNamespace(live=live, grew_s=9.0, exit_s=10.0, size=70,
                                   read=ReadLog(1, read_size, EVIDENCE, found))
    reach = Reach(lambda node, why: None)
    if lost:
        reach.lose("n1", "dead")
    for step in range(400):
        clock: Any = SimpleNamespace(now_s=10.0 + step / 100)
        if observe.has_last_lines(clock, reach, running):
            return step / 100
    raise AssertionError("for ever")


UNKNOWN = {"category": "unknown"}


@pytest.mark.parametrize(("wanted_s", "facts"), [
    (0.04, {"exits": (FAILED,), "found": {"category": "program"}}),   # the log has told why
    (1.01, {"exits": (FAILED,), "found": UNKNOWN}),                   # a traceback may be on its way
    (0.0, {"exits": (FAILED,), "found": UNKNOWN, "srun_code": 1}),    # ... but not after srun's end
    (0.04, {"exits": (FAILED,), "found": UNKNOWN, "read_size": 60}),  # it has just come
    (0.04, {"exits": (KILLED,), "found": UNKNOWN}),                   # what is killed says nothing
    (1.01, {"exits": (KILLED, FAILED), "found": UNKNOWN}),
    (0.04, {"exits": (FAILED,), "found": UNKNOWN, "lost": True}),     # srun waits minutes for a dead node
    (0.04, {"exits": (FAILED,), "found": None}),                      # there was no time to read it
])
def test_an_attempt_whose_log_tells_no_cause_yet_waits_for_sruns_end_within_a_second(
    wanted_s: float, facts: dict[str, Any]
) -> None:
    assert waits_s(**facts) == pytest.approx(wanted_s, abs=0.011)
