"""What the journal's events about step times and losses change in a run's state, and what followed from them."""

from __future__ import annotations

from collections.abc import Callable

from safelaunch.base.model import Event
from safelaunch.base.records import replace
from safelaunch.run.fold.nodefolding import names_of
from safelaunch.run.fold.state import Slower, State, ToldFigure
from safelaunch.run.nancut import NanCut, SavedAt
from safelaunch.run.steppace import from_event

MOST_ODD = 20    # odd figures that are remembered
MOST_CUTS = 20   # attempts whose loss was no finite number


def _slower(state: State, event: Event) -> State:
    """A second drop, before the first one is over, counts from the first one's level on."""
    data, pace = event.data, from_event(event.data)
    from_s = pace.normal_s if pace.normal_s is not None else float(data["from_s"])
    t = round(event.t, 3)   # as the journal's line has it, so that each reader knows the drop by the same time
    slower = Slower(pace.attempt, int(data["since_step"]), t, from_s, pace.level_s, float(data["confidence"]),
                    None if data.get("total") is None else int(data["total"]))
    return replace(state, pace=pace, slower=slower)


def _odd_figure(state: State, event: Event) -> State:
    data, usual = event.data, event.data.get("usual")
    float(data["value"])   # a number, be it "nan"
    odd = ToldFigure(int(data["attempt"]), str(data["kind"]), int(data["step"]), str(data["value"]),
                     None if usual is None else float(usual), event.t,
                     None if data.get("before") is None else int(data["before"]))
    return state if odd in state.odd else replace(state, odd=(*state.odd, odd)[-MOST_ODD:])


def _nodes_benched(state: State, event: Event) -> State:
    """Once for each drop: a second line of the same round changes nothing."""
    data, slower = event.data, state.slower
    drop_t = float(data["drop_t"])
    state = replace(state, pause=None)
    if state.search.drop_t == drop_t:
        return state
    slow = tuple((str(node), str(why)) for node, why in dict(data["slow"]).items())
    of_drop = (slower.from_s, slower.to_s, slower.step) if slower is not None and slower.t == drop_t else (0.0, 0.0, 0)
    return replace(state, search=state.search._replace(
        drop_t=drop_t, attempt=int(data["attempt"]), measured=len(names_of(data["nodes"])), slow=slow,
        from_s=of_drop[0], to_s=of_drop[1], step=of_drop[2], has_won=None))


def _swap_judged(state: State, event: Event) -> State:
    return replace(state, search=state.search._replace(has_won=bool(event.data["won"])))


def _evidence_withdrawn(state: State, event: Event) -> State:
    """What spoke against it was wrong; other evidence stays."""
    said = (str(event.data["node"]), str(event.data["of"]))
    return replace(state, suspects=tuple(known for known in state.suspects if known != said))


def _checkpoints_cut(state: State, event: Event) -> State:
    data = event.data
    cut = NanCut(int(data["attempt"]), int(data["step"]), int(data["upto"]), tuple(
        SavedAt(str(path), None if step is None else int(step), float(t)) for path, step, t in data["checkpoints"]),
        bool(data["is_left"]))
    if any(known.attempt == cut.attempt for known in state.nan_cuts):
        return state
    return replace(state, nan_cuts=(*state.nan_cuts, cut)[-MOST_CUTS:])


FIGURE_STEPS: dict[str, Callable[[State, Event], State]] = {
    "odd_figure": _odd_figure,
    "step_time": lambda state, event: replace(state, pace=from_event(event.data)),
    "slower": _slower,
    "slower_over": lambda state, event: replace(state, pace=from_event(event.data), slower=None),
    "nodes_benched": _nodes_benched,
    "swap_judged": _swap_judged,
    "evidence_withdrawn": _evidence_withdrawn,
    "checkpoints_cut": _checkpoints_cut,
}
