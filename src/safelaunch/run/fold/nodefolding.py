"""What the journal's events about nodes change in a run's state; run.fold.folding has all other events."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, TypeVar

from safelaunch.base.model import Event
from safelaunch.base.records import replace
from safelaunch.run.fold.state import Exclusion, State

Row = TypeVar("Row", bound=tuple[Any, ...])


def names_of(value: Any) -> tuple[str, ...]:
    """Node names of a list; a string is not a list of letters."""
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"not a list of names: {value!r}")
    return tuple(map(str, value))


def _has(rows: tuple[Row, ...], node: str) -> bool:
    return node in map(itemgetter(0), rows)


def _without(rows: tuple[Row, ...], node: str) -> tuple[Row, ...]:
    """The rows of other nodes; a row begins with its node."""
    return tuple(row for row in rows if row[0] != node) if _has(rows, node) else rows


def _checks_passed(state: State, event: Event) -> State:
    """Of nodes that have passed, and of those that could not be checked."""
    asked = (*names_of(event.data.get("nodes", ())), *names_of(event.data.get("unknown", ())))
    usual = (*state.usual_failures, *names_of(event.data.get("shared", ())))
    before = tuple(node for node in state.unfit_before if node not in asked)
    return replace(state, checked=tuple(dict.fromkeys((*state.checked, *asked))), pause=None,
                   checked_after=_after(state, event), usual_failures=tuple(dict.fromkeys(usual)), unfit_before=before)


def _checks_failed(state: State, event: Event) -> State:
    nodes, why = names_of(event.data.get("nodes", ())), str(event.data.get("why", ""))
    unfit = {**dict(state.unfit), **dict.fromkeys(nodes, why)} if event.data.get("unused") else dict(state.unfit)
    return replace(state, checked=tuple(dict.fromkeys((*state.checked, *nodes))), unfit=tuple(unfit.items()),
                   pause=None, checked_after=_after(state, event))


def _after(state: State, event: Event) -> int | None:
    """The failed attempt after which nodes were checked last."""
    after = event.data.get("after")
    return state.checked_after if after is None else int(after)


def _node_suspected(state: State, event: Event) -> State:
    node, why = str(event.data["node"]), str(event.data.get("why", ""))
    if _has(state.suspects, node):
        return state
    return replace(state, suspects=(*state.suspects, (node, why)))


def _node_excluded(state: State, event: Event) -> State:
    node, until = str(event.data["node"]), event.data.get("until")
    new = Exclusion(node, str(event.data.get("why", "")), str(event.data.get("owner", "safelaunch")),
                    None if until is None else float(until))
    return replace(state, exclusions=(*_without(state.exclusions, node), new),
                   left_out=_without(state.left_out, node))


def _node_readmitted(state: State, event: Event) -> State:
    """It is used as any other; what speaks against it stays."""
    node = str(event.data["node"])
    return replace(state, exclusions=_without(state.exclusions, node),
                   left_out=_without(state.left_out, node))


def _node_left_out(state: State, event: Event) -> State:
    """It would be excluded, and cannot be: Slurm has no such node for this run, or the run needs it."""
    node, why = str(event.data["node"]), str(event.data.get("why", ""))
    return replace(state, exclusions=_without(state.exclusions, node),
                   left_out=(*_without(state.left_out, node), (node, why)))


def _node_cleared(state: State, event: Event) -> State:
    node = str(event.data["node"])
    return replace(state, exclusions=_without(state.exclusions, node),
                   left_out=_without(state.left_out, node),
                   suspects=_without(state.suspects, node))


NODE_STEPS: dict[str, Callable[[State, Event], State]] = {
    "checks_passed": _checks_passed,
    "checks_failed": _checks_failed,
    "node_suspected": _node_suspected,
    "node_lost": _node_suspected,
    "node_excluded": _node_excluded,
    "node_cleared": _node_cleared,
    "node_readmitted": _node_readmitted,
    "node_left_out": _node_left_out,
}
