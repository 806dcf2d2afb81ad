"""What follows when steps take longer for good (slow.then): measure the nodes, perhaps after a planned stop.

Laws:
- The nodes are measured once for each drop, between two attempts. A job that ends meanwhile makes that twice, and no
  more: a run whose jobs are shorter than a round would never train again.
- A planned stop loses no step that a checkpoint could have kept: it waits for the next complete one, however long.
- It is made at most MOST_PLANNED times a run, and never where it costs more than it would win.
- It is made of a drop that has lasted (an evaluation that no log names passes), and not any more once that is over.
"""

from __future__ import annotations

from typing import NamedTuple

from safelaunch.base.numbers import percent
from safelaunch.decide.facts.patience import LEAVES_S
from safelaunch.decide.facts.seen import Observation
from safelaunch.decide.nodes.nodes import good_nodes
from safelaunch.nodehealth.slow.fleet import LEAST_NODES
from safelaunch.run.fold.state import Slower, State
from safelaunch.run.plan import Plan
from safelaunch.trainlog.figures import median

MOST_PLANNED, MOST_BEGUN = 3, 2
LASTS_S, LASTS_STEPS = 300.0, 64   # of a drop that was reported, before anything is ended for it
BENCH_S = 240.0      # the most that the measurements may take
STALE_S = LEAVES_S + 60.0  # after its checkpoint nothing is ended for an experiment any more
STOPS_S = LEAVES_S + 5.0   # of steps behind the checkpoint at which the training stops


class Price(NamedTuple):
    """What an experiment costs and would win, in seconds; None = not known."""

    cost_s: float
    starts_s: float | None
    win_s: float | None
    has_spare: bool = True

    @property
    def is_worth_it(self) -> bool:
        """Where nobody knows what it would win, the user has asked for it, and that counts."""
        return self.win_s is None or self.win_s > self.cost_s

    @property
    def text(self) -> str:
        starts = "not known" if self.starts_s is None else span(self.starts_s)
        wins = "not known, as the log names no last step" if self.win_s is None else f"about {span(self.win_s)}"
        queue = "" if self.has_spare else ", and without a spare the time in the queue for a job without the slow node"
        return (f"it costs about {span(self.cost_s)} (steps behind its checkpoint: {span(STOPS_S)} at most, "
                f"measurements: {span(BENCH_S)} at most, until the first step: {starts}{queue}); it would win: {wins}")


def price(state: State, slower: Slower, plan: Plan) -> Price:
    """Of an experiment because of this drop."""
    starts = [one.first_t - one.started_t for one in state.attempts if one.first_t is not None]
    starts_s = median(starts) if starts else None
    step = state.attempt.step if state.attempt is not None else None
    left = None if slower.total is None or step is None else max(0, slower.total - step)
    win_s = None if left is None else left * (slower.to_s - slower.from_s)
    return Price(STOPS_S + BENCH_S + (starts_s or 0.0), starts_s, win_s, plan.spare_nodes > 0)


def nodes_to_measure(state: State, facts: Observation, plan: Plan) -> tuple[str, ...]:
    """The nodes to measure before the next attempt; () = none: nothing lasts, it was done, or too few to compare."""
    if facts.measuring:   # whatever has changed meanwhile: a training beside it would be measured, too
        return facts.nodes
    if plan.slow.then == "report" or plan.cluster == "local" or not _is_open(state):
        return ()   # "nodes" of one machine, and none to take another's place
    good = good_nodes(state, facts)
    return good if len(good) >= LEAST_NODES else ()


def why_experiment(state: State, facts: Observation, plan: Plan) -> str | None:
    """Why the run is to stop now for a round of measurements, with its price; None = it is not."""
    if plan.slow.then != "restart" or state.slower is None or not nodes_to_measure(state, facts, plan):
        return None
    if plan.resume.dir is None or len(state.search.planned) >= MOST_PLANNED or facts.frozen or facts.asked("hold"):
        return None   # nothing to go on from; or an end now would be no restart
    known = price(state, state.slower, plan)
    if not known.is_worth_it or not _has_lasted(state, state.slower, facts.now):
        return None
    longer = state.slower.to_s / state.slower.from_s - 1
    return (f"steps take {percent(longer)} longer since step {state.slower.step}; experiment "
            f"{len(state.search.planned) + 1} of {MOST_PLANNED} at most: {known.text}")


def is_wanted_still(state: State, facts: Observation) -> bool:
    """Whether an attempt that was asked to stop for an experiment is to be ended at its checkpoint. Not if the drop is
    over or the run would be on hold; nor if steps were made since (a hold that was taken back).
    """
    saved_t = facts.attempt.saved_t
    return state.slower is not None and not facts.asked("hold") and (saved_t is None or facts.now <= saved_t + STALE_S)


def _has_lasted(state: State, slower: Slower, now: float) -> bool:
    """Over a restart only the time tells."""
    last = state.attempt
    is_same = last is not None and last.number == slower.attempt
    steps = last.step - slower.step if is_same and last is not None and last.step is not None else LASTS_STEPS
    return now >= slower.t + LASTS_S and steps >= LASTS_STEPS


def what_follows(state: State, plan: Plan) -> str:
    """What follows from the drop that lasts, for people."""
    slower, then = state.slower, plan.slow.then
    if slower is None or then == "report":
        return "nothing is ended"
    if not _is_open(state):
        done = "the nodes have been measured" if state.search.drop_t == slower.t else "two rounds were broken off"
        return f"{done} for it; nothing more is ended"
    if plan.cluster == "local" or plan.allocated_nodes < LEAST_NODES:
        return f"nothing is ended: fewer than {LEAST_NODES} nodes, with nothing to compare"
    next_time = "all nodes are measured before the next attempt"
    if then == "exclude_next":
        return next_time
    if len(state.search.planned) >= MOST_PLANNED:
        return f"{MOST_PLANNED} experiments were made, so nothing more is ended; {next_time}"
    known = price(state, slower, plan)
    if not known.is_worth_it:
        return f"no experiment is made: {known.text}; {next_time}"
    return (f"if they do for {LASTS_STEPS} steps and {span(LASTS_S)}, an experiment is made at the next checkpoint: "
            f"{known.text}")


def _is_open(state: State) -> bool:
    """Whether a drop lasts for which nothing was measured, and no two rounds were broken off."""
    slower, search = state.slower, state.search
    return (slower is not None and search.drop_t != slower.t
            and sum(drop_t == slower.t for drop_t, _ in search.begun) < MOST_BEGUN)


def span(seconds: float) -> str:
    """A time in the unit that people would take."""
    for unit_s, word, least_s in ((3600.0, "h", 7200.0), (60.0, "min", 120.0)):
        if seconds >= least_s:
            return f"{seconds / unit_s:.0f} {word}"
    return f"{seconds:.0f} s"
