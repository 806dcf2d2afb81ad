"""What follows a failure: one table from causes to actions. `restart.policy` in train.yaml replaces single rows.

The words:
- restart    again on the same nodes, after a growing pause from the second failure on
- exclude    restart, and keep nodes out that have enough evidence against them (core.ledger)
- once       restart only if the attempt got further than the last one that failed like this; else stop
- wait       restart once the folders of the run work again
- fall_back  restart from the checkpoint before the one that did not load
- continue   go on in the next job; costs no budget
- stop       never restart
A number behind a word is its budget: failures of this category without a new verified checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from safelaunch.core.plan import Plan


@dataclass(frozen=True)
class Response:
    """One row. `budget` None = only the run's own budgets count; `is_own` = the user wrote it."""

    category: str
    then: str
    budget: int | None
    why: str
    is_own: bool = False

    @property
    def text(self) -> str:
        """As train.yaml has it."""
        return self.then if self.budget is None else f"{self.then} {self.budget}"


def _row(category: str, then: str, budget: int | None, why: str) -> tuple[str, Response]:
    return category, Response(category, then, budget, why)


# The rows that stop (once, stop) obey confident verdicts only: a wrong "give up" is worse than one restart too many.
DEFAULTS: dict[str, Response] = dict((
    _row("gpu_hardware", "exclude", 10, "one dead GPU of 384 cost a 176B training 7.3 h until somebody looked"),
    _row("node_failure", "exclude", 10, "the others are fine; Slurm itself needs 5 min and more to notice"),
    _row("network", "exclude", 6, "a link flaps and comes back; a node is blamed from its second time on"),
    _row("hang", "exclude", 6, "the odd ranks' nodes are under suspicion, lightly"),
    _row("native_crash", "exclude", 4, "a bug or a bad GPU: the first to fail is watched, lightly"),
    _row("host_oom", "restart", 3, "a leak starts anew with the process"),
    _row("storage", "wait", 6, "a full or frozen filesystem fails every attempt until it works again"),
    _row("checkpoint", "fall_back", None, "the one before it was whole"),
    _row("rendezvous", "restart", 5, "a port in use, a store too slow: each attempt has a port of its own"),
    _row("data", "restart", 3, "a worker killed or a read that failed may go well the next time"),
    _row("hub_auth", "restart", 4, "hubs and trackers have bad minutes"),
    _row("user_code", "once", None, "the same code fails the same way"),
    _row("config", "once", None, "the same values fail the same way"),
    _row("environment", "once", None, "the same packages fail the same way"),
    _row("version_mismatch", "once", None, "the same packages fail the same way"),
    _row("cuda_oom", "once", None, "memory that is too small stays too small; fragmentation does not"),
    _row("numerical", "once", None, "a deterministic NaN comes back; one from a bad GPU does not"),
    _row("time_limit", "continue", None, "the job was too short, the training did nothing wrong"),
    _row("preempted", "continue", None, "somebody else needed the nodes"),
    _row("cancelled", "stop", None, "a person's word is final"),
    _row("unknown", "exclude", None, "a small budget, and the first to fail is watched, lightly"),
))


def table(own: Iterable[tuple[str, str]] = ()) -> dict[str, Response]:
    """Every category's row, the user's own ("word" or "word N") in place of the default's."""
    rows = dict(DEFAULTS)
    for category, text in own:
        word, _, number = text.partition(" ")
        before = rows.get(category, DEFAULTS["unknown"])
        rows[category] = Response(category, word, int(number) if number else None, before.why, is_own=True)
    return rows


def response(plan: Plan, category: str | None) -> Response:
    """The row of a category; one that this version does not know counts as unknown."""
    rows = table(plan.restart.policy)
    return rows.get(category or "unknown", rows["unknown"])
