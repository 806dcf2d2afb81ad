"""tests/lanes.py: who gets which tests."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from tests.lanes import COMPUTING, STEP_BACK, TESTS, WAITING, Lanes, choose, is_waiting, together

NAMES = ("tests/drills/test_a.py::a", "tests/drills/test_a.py::b", "tests/node/test_c.py::c", "tests/pure/test_d.py::d")


class Worker:
    """What the scheduler knows of a worker of pytest-xdist; keeps what it is told to run."""

    shutting_down = False
    gateway = SimpleNamespace(id="gw")

    def __init__(self) -> None:
        self.told: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.told += indices

    def shutdown(self) -> None:
        self.shutting_down = True


@pytest.mark.parametrize(("pending", "is_computing", "first"), [
    ((0, 1, 2, 3), False, 0), ((0, 1, 2, 3), True, 2), ((1, 3), True, 1), ((0, 1), True, 0), ((2, 3), False, 0),
], ids=["one that waits", "one that computes", "… later", "nothing is left to compute", "nothing is left to wait for"])
def test_each_lane_begins_with_its_own_tests_and_then_helps_the_other(
    pending: tuple[int, ...], is_computing: bool, first: int
) -> None:
    assert choose(pending, NAMES, is_computing) == first


def test_one_worker_of_three_computes_while_the_others_wait_and_every_test_is_run() -> None:
    names = [f"tests/drills/test_a.py::{number}" for number in range(20)]
    names += [f"tests/pure/test_b.py::{number}" for number in range(20)]
    config = pytest.Config.fromdictargs({"tx": ["3*popen"], "maxschedchunk": 1}, [])
    workers = [Worker() for _ in range(3)]
    lanes = Lanes(config)
    for worker in workers:
        lanes.add_node(worker)
        lanes.add_node_collection(worker, names)
    lanes.schedule()
    first = [list(worker.told) for worker in workers]
    while pending := [(worker, index) for worker, found in lanes.node2pending.items() for index in found[:1]]:
        for worker, index in pending:
            lanes.mark_test_complete(worker, index)

    assert [[is_waiting(names[index]) for index in told] for told in first] == [[False] * 2, [True] * 2, [True] * 2]
    assert sorted(index for worker in workers for index in worker.told) == list(range(40))
    assert any(is_waiting(names[index]) for index in workers[0].told) is False


@pytest.mark.parametrize(("pending", "count"), [((0, 1, 2, 3), 2), ((1, 2), 1), ((2, 0), 0), ((0, 1), 2), ((), 0)])
def test_rules_of_the_house_go_to_one_worker(pending: tuple[int, ...], count: int) -> None:
    names = (*(f"tests/house/test_{one}.py::a" for one in "ab"), *(f"tests/pure/test_{one}.py::a" for one in "cd"))
    assert together(pending, names) == count


@pytest.mark.parametrize("start", [*WAITING, *COMPUTING])
def test_the_long_tests_are_where_the_order_says(start: str) -> None:
    assert (TESTS / start).is_dir() or (TESTS / f"{start}.py").exists()


@pytest.mark.skipif(os.geteuid() != 0 or "PYTEST_XDIST_WORKER" not in os.environ, reason="for root beside others")
def test_a_test_that_computes_lets_others_go_first() -> None:
    assert os.getpriority(os.PRIO_PROCESS, 0) >= STEP_BACK
