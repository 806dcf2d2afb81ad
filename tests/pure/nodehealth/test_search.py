"""The swap as the last proof: whether the speed has come back without the nodes that were found slow."""

from __future__ import annotations

from safelaunch.run.slowsearch import PROOF_VALUES, SlowSearch, judge_swap
from tests.tables import each

FOUND = SlowSearch((3,), 1000.0, 3, 4, (("n2", "matmul: 2.5 % slower"),), 105.0, 111.0, step=500)
ENOUGH = PROOF_VALUES


@each(("name", "search", "attempt", "nodes", "lasts", "values", "now_s", "won"), [
    ("it is over", FOUND, 4, ("n0", "n1", "n3"), False, 9, 111.0, True),
    ("of steps that are made once more", FOUND._replace(step=501), 4, ("n0", "n1", "n3"), False, 9, 111.0, None),
    ("it lasts", FOUND, 4, ("n0", "n1", "n3"), True, ENOUGH, 111.0, False),
    ("in noise no recovery is told yet", FOUND, 4, ("n0", "n1", "n3"), True, ENOUGH, 106.0, None),
    ("its first steps alone", FOUND, 4, ("n0", "n1", "n3"), True, ENOUGH, None, None),
    ("too early to say", FOUND, 4, ("n0", "n1", "n3"), True, ENOUGH - 1, 111.0, None),
    ("the node is used all the same", FOUND, 4, ("n0", "n1", "n2"), False, ENOUGH, 111.0, None),
    ("the attempt before", FOUND, 3, ("n0", "n1"), False, ENOUGH, 111.0, None),
    ("told already", FOUND._replace(has_won=False), 4, ("n0",), False, ENOUGH, 111.0, None),
    ("nobody was slow", SlowSearch((3,), 1000.0, 3, 4), 4, ("n0",), False, ENOUGH, 111.0, None),
])
def test_what_a_swap_has_proved(name: str, search: SlowSearch, attempt: int, nodes: tuple[str, ...], lasts: bool,
                                values: int, now_s: float | None, won: bool | None) -> None:
    step = 500 + PROOF_VALUES
    assert judge_swap(search, attempt, nodes, step=step, lasts=lasts, values=values, now_s=now_s) is won
