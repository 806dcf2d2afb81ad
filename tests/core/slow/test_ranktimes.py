"""Step times that all ranks print, as evidence on nodes when steps take longer."""

from __future__ import annotations

from safelaunch.core.checks.results import CheckReport
from safelaunch.core.progress.steplines import Patterns
from safelaunch.core.slow.condition import compare, with_times
from safelaunch.core.slow.ranktimes import node_times

NODES = ("n0", "n1", "n2", "n3.cluster")


def log(*, slow: str = "", hosts: tuple[str, ...] = ("n0", "n1", "n2", "n3"), late: float = 0.08) -> bytes:
    lines = [f"[{host}:{2 * number + local}]: step {step} | loss: 2.5 | step_time: "
             f"{1.05 + 0.001 * ((step + number) % 3) + (late if host == slow and local else 0.0):.4f}"
             for step in range(100, 110) for number, host in enumerate(hosts) for local in range(2)]
    return "\n".join([*lines, "[n0:0]: step 110 | step_ti", "no prefix, step 1 step_time: 9"]).encode()


def verdict(text: bytes) -> str:
    times = node_times(text, Patterns(), NODES)
    return compare(with_times([CheckReport(node, "condition", ()) for node in NODES], times), {}).verdict


def test_the_node_of_the_rank_whose_steps_take_longer_is_named() -> None:
    assert verdict(log(slow="n3")) == "n3.cluster differs: step time of its ranks 1.131 s, others 1.051 s"
    assert verdict(log()) == verdict(log(slow="n1", late=0.004)) == "no node differs"


def test_what_steps_took_before_the_drop_does_not_count() -> None:
    assert verdict(log() * 20 + b"\n" + log(slow="n3")).startswith("n3.cluster differs: step time of its ranks")


def test_a_training_that_prints_on_one_node_gives_no_hint() -> None:
    assert node_times(log(hosts=("n0",)), Patterns(), NODES) == {}
    assert node_times(log(hosts=("n0", "n1", "stranger")), Patterns(), NODES) == {}
    assert node_times(b"", Patterns(), NODES) == {} == node_times(b"\xff[n0:1]: step_time: nan", Patterns(), NODES)


def test_the_users_own_pattern_of_the_time_is_used() -> None:
    text = "\n".join(f"[n{node}:{node}]: T {2 + node}" for node in range(3)).encode()
    assert node_times(text, Patterns(step_time=r"T (\d+)"), NODES) == {"n0": 2.0, "n1": 3.0, "n2": 4.0}
