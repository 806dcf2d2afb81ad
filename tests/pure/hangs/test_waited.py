"""Who is waited for in a training that makes steps."""

from __future__ import annotations

from safelaunch.stacks.ranks import ObservedRank, Stack
from safelaunch.stacks.waited import judge_moving
from tests.pure.hangs.stack_values import ALL_REDUCE, USER, rank
from tests.tables import each

BACKWARD: Stack = ("_engine_run_backward (torch/autograd/graph.py:979)", "backward (torch/_tensor.py:623)",
                   "<module> (train.py:78)")


def seen(number: int, waits: int, of: int = 10, wait: Stack = BACKWARD) -> ObservedRank:
    """A rank that waits in some of its samples."""
    return rank(number, *(wait,) * waits, *(USER,) * (of - waits), per_node=2)


@each(("ranks", "said"), [
    ([seen(0, 6), seen(1, 5), seen(2, 0), seen(3, 1)], "the others wait for 2 ranks (2-3) on n1, mostly in save_extra, "
     "train.py:10: each did in 50% of the samples or more"),
    ([seen(0, 6, wait=ALL_REDUCE), seen(1, 5), seen(2, 5), seen(3, 1)], "wait for rank 3 on n1, mostly in"),
    ([seen(0, 3), seen(1, 2), seen(2, 1), seen(3, 1)], "no rank is waited for"),
    ([seen(0, 6), seen(1, 0), seen(2, 0), seen(3, 0)], "no rank is waited for"),
    ([seen(0, 6), seen(1, 6), seen(2, 6), seen(3, 0, of=2)], "no rank is waited for"),
    ([seen(0, 10), seen(1, 10)], "no rank is waited for"), ([], "no rank is waited for"),
], ids=["a slow node", "a slow rank", "alike", "most work", "too few samples", "all wait", "nobody"])
def test_the_few_that_never_wait_are_named_and_blamed_for_nothing(ranks: list[ObservedRank], said: str) -> None:
    found = judge_moving(ranks)
    assert (found.kind, found.suspects, found.witnesses) == ("moving", (), ())
    assert said in found.summary, found.summary
    assert bool(found.odd) == ("wait for" in said)
