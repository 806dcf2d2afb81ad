"""What grows with a run's attempts, events, tasks or nodes grows in proportion, and not with their square.

Counted are the interpreter's instructions: the same on each machine, busy or not. benchmarks/growth.py measures larger
runs by their processor time.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from safelaunch.base.model import Event, Exit
from safelaunch.decide.facts.seen import Live, Observation
from safelaunch.decide.turn import rows
from safelaunch.guard.io.callers import Guard
from safelaunch.guard.io.job import Allocation
from safelaunch.run import journal, story
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.slurm import nodefold
from safelaunch.status import shares
from safelaunch.supervisor.io.fence import Fencer
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.verbs.overview import overview
from tests.doorplay import Door, Line, greet
from tests.pure.decide.situations import NOW, PLAN
from tests.tables import each

MOST = 1.1            # exponent: 1 is proportional, 2 a square
SIZES = (60, 120, 240)

Work = Callable[[], object]


def counted(work: Work) -> int:
    """The instructions of Python that a call takes."""
    if sys.version_info >= (3, 12):
        return counted_by_monitoring(work)
    count = 0

    def trace(frame: Any, what: str, arg: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += what == "opcode"
        return trace
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def counted_by_monitoring(work: Work) -> int:
    """The same where a trace function misses instructions (3.13)."""
    count = 0

    def note(code: object, offset: int) -> None:
        nonlocal count
        count += 1

    monitoring: Any = getattr(sys, "monitoring")  # noqa: B009 - of Python 3.12
    tool, event = 4, monitoring.events.INSTRUCTION
    monitoring.use_tool_id(tool, "growth")
    monitoring.register_callback(tool, event, note)
    monitoring.set_events(tool, event)
    try:
        work()
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
    return count


def events_of(attempts: int, steps: int = 1) -> list[Event]:
    """A run of so many failed attempts, with so many lines of steps each."""
    said: list[tuple[str, dict[str, Any]]] = [
        ("submitted", {"job": "1"}), ("job_started", {"job": "1", "nodes": ["n0", "n1"], "batch_host": "n0"})]
    for number in range(1, attempts + 1):
        own: dict[str, Any] = {"attempt": number}
        said += [("decision", {**own, "row": "launch", "action": "launch", "why": f"attempt {number}"}),
                 ("intent", {**own, "claim": number, "act": "launch"}),
                 ("attempt_started", {**own, "job": "1", "nodes": ["n0", "n1"], "resume_step": number * 10,
                                      "resume_path": f"/ckpt/{number}"}),
                 ("outcome", {"claim": number, "act": "launch", "ok": True}),
                 *(("progress", {**own, "step": number * 10 + step}) for step in range(1, steps + 1)),
                 ("verdict", {**own, "category": "cuda_error", "summary": "a kernel failed", "confidence": 0.7,
                              "node": "n0", "fingerprint": f"cause {number % 7}", "suspects": ["n0"]}),
                 ("attempt_ended", {**own, "how": "failed", "exit_code": 1}),
                 ("checkpoint", {**own, "step": number * 10 + 5})]
    return [Event(1e6 + seq, 1, seq, "n0", event, data) for seq, (event, data) in enumerate(said, start=1)]


def folding(size: int) -> Work:
    events = events_of(size)
    return lambda: fold(events)


def folding_one_by_one(size: int) -> Work:
    """As a leader does."""
    events = events_of(size)

    def work() -> None:
        state = State()
        for event in events:
            state = fold([event], state)
    return work


def folding_steps(size: int) -> Work:
    events = events_of(4, size)
    return lambda: fold(events)


def excluding(size: int) -> Work:
    events = [Event(1e6 + seq, 1, seq, "n0", "node_excluded", {"node": f"n{seq}", "why": "bad", "until": 2e6})
              for seq in range(size)]
    return lambda: fold(events)


def reading(size: int) -> Work:
    content = b"".join(map(journal.render, events_of(size)))
    return lambda: journal.merge({"000001-n0-1.jsonl": content})


def naming(size: int) -> Work:
    """Since when the state has its name: `status`."""
    events = events_of(size)
    return lambda: overview._fold_since(events)


def accounting(size: int) -> Work:
    events = events_of(size)
    state = fold(events)
    return lambda: shares.settle(events, state, 2e6)


def telling(size: int) -> Work:
    events = events_of(size)
    return lambda: list(story.select(events))


def deciding(size: int) -> Work:
    state = fold(events_of(size))
    return lambda: rows.decide(state, Observation(now=NOW, nodes=("n0", "n1")), PLAN)


def ending(size: int) -> Work:
    """All tasks of an attempt end, and each report comes twice."""
    running = RunningAttempt(0.0)
    running.begin(Live(1, ("n0",), tasks=size))

    def work() -> None:
        for task in (*range(size), *range(size)):
            running.note_task_end(Exit("n0", task, 1), NOW, 1.0)
        assert running.live is not None and len(running.live.exits) == size
    return work


def fencing(size: int) -> Work:
    """Four tasks a node: all have gone."""
    nodes = tuple(f"n{number}" for number in range(size // 4))
    door = Door()
    door.guards = {(node, task): Guard(node, task, 1, gone=True) for node in nodes for task in range(4)}

    def nobody(*_: Any, **__: Any) -> Any:
        raise AssertionError("no command is needed")
    plan = PLAN._replace(ntasks_per_node=4)
    fencer, live = Fencer(plan, Allocation("7", nodes, nodes[0], "/", False, {}), door, nobody, nobody), Live(1, nodes)

    def work() -> None:
        assert not fencer.advance(live, 1.0, {}, lambda: True) and fencer.is_done(live)
        door.kernel_lines(nodes)
    return work


def greeting(size: int) -> Work:
    door = Door()

    def work() -> None:
        for number in range(size):
            greet(door, Line(f"n{number}"))
        door.tick(1e6, 1.0)
    return work


def naming_nodes(size: int) -> Work:
    nodes = [f"n{number:05d}" for number in range(0, 3 * size, 3)]
    return lambda: nodefold.fold(nodes)


WORKS: dict[str, Callable[[int], Work]] = {
    work.__name__: work for work in (
        folding, folding_one_by_one, folding_steps, excluding, reading, naming, accounting, telling, deciding, ending,
        fencing, greeting, naming_nodes)}


def growths(work: Callable[[int], Work]) -> Iterator[float]:
    """The exponent from each size to the next."""
    counts = [(size, counted(work(size))) for size in SIZES]
    for (small, few), (large, many) in pairwise(counts):
        yield math.log(many / few) / math.log(large / small)


@each("name", WORKS)
def test_work_grows_in_proportion(name: str) -> None:
    work = WORKS[name]
    work(8)()   # what is made once, such as a compiled pattern
    assert max(growths(work)) <= MOST


def test_a_square_would_be_noticed() -> None:
    def compares(size: int) -> Work:
        return lambda: [any(one == other for other in range(one)) for one in range(size)]
    assert min(growths(compares)) > 1.5
