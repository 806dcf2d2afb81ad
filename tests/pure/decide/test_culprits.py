"""Whom the end of an attempt accuses: nobody where the supervisor itself, or the user's own hook, ended the ranks."""

from __future__ import annotations

from typing import Any

from safelaunch.base.model import Exit
from safelaunch.decide.budget.blame import Culprits
from safelaunch.decide.ends.closing import culprits_of_end
from safelaunch.decide.facts.seen import Live
from safelaunch.why.verdict import Verdict
from tests.tables import each

FIRST = Culprits(("n1",), is_first_only=True)


@each(("live", "verdict", "said"), [
    ({}, {}, FIRST),
    ({}, {"spoken_by": ("n0",)}, Culprits(("n0",))),
    ({}, {"spoken_by": ("login",)}, FIRST),
    ({}, {"echoed_by": ("n1",)}, Culprits(("n0",), is_first_only=True)),
    ({}, {"spoken_by": ("n0",), "suspects": ("n2",)}, Culprits(("n2",))),
    ({"hung": "two checks agree"}, {}, Culprits()),
    ({"lost": "it began at step 0"}, {}, Culprits()),
    ({"stuck": "srun waits"}, {}, Culprits()),
    ({"is_hook": True}, {}, Culprits()),
    ({"hung": "two checks agree"}, {"suspects": ("n2",)}, Culprits(("n2",))),
    ({"exits": ()}, {}, Culprits(is_first_only=True)),
], ids=["the first to end", "a line of the cause", "of a host beside the attempt", "the first one only echoes",
        "the verdict names another", "a hang", "lost progress", "no start", "a hook", "a hang with a suspect", "none"])
def test_whom_an_end_accuses(live: dict[str, Any], verdict: dict[str, Any], said: Culprits) -> None:
    exits = (Exit("n1", 1, 1), Exit("n0", 0, 3))
    ended = Live(**{"number": 1, "nodes": ("n0", "n1"), "tasks": 2, "exits": exits, **live})
    assert culprits_of_end(ended, Verdict("unknown", "", 0.5, "restart", **verdict)) == said
