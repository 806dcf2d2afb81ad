"""A policy tried against history: for each ended attempt of a journal, what was decided and what it would have been.

History is not played on: each attempt is judged as it really came about. So of what a policy would have saved the most
is known (attempts that were made), of what it would have added only that there would have been another attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from safelaunch.core import decide
from safelaunch.core.budget import reason_to_give_up
from safelaunch.core.config.keys import KEYS
from safelaunch.core.config.resolve import Source, resolve
from safelaunch.core.model import Event, Request
from safelaunch.core.plan import Plan
from safelaunch.core.policy import response
from safelaunch.core.state import Attempt, State, fold
from safelaunch.errors import UsageError

# Keys that have a part in what follows a failure.
SECTIONS = ("restart.", "suspects.", "preserve_site.", "resume.keep_trying")
_ENDS = ("completed", "gave_up", "stopped")
_NEXT_JOB = ("held", "job_ends", "too_few_nodes")
# A person's word, or an end by itself: no policy changes that.
_NOT_POLICYS = ("ended", "completed", "killed_by_person", "cancelled")


@dataclass(frozen=True)
class Choice:
    """What follows an attempt: done, restart, next_job, stop, or unknown where the journal does not say."""

    kind: str
    row: str = ""
    why: str = ""
    pause_s: float = 0.0

    @property
    def goes_on(self) -> bool:
        """Another attempt follows."""
        return self.kind in ("restart", "next_job")


@dataclass(frozen=True)
class Replayed:
    """One ended attempt. `is_moot`: with this policy it would not have been made."""

    attempt: Attempt
    then: Choice
    now: Choice
    policy: str                 # this policy's word for the category, such as "exclude 6"
    is_moot: bool = False

    @property
    def differs(self) -> bool:
        """One goes on where the other stops."""
        known = "unknown" not in (self.then.kind, self.now.kind)
        return known and not self.is_moot and self.then.goes_on != self.now.goes_on

    @property
    def node_hours(self) -> float | None:
        """What it held; None = nobody wrote down when it ended."""
        if self.attempt.ended_t is None:
            return None
        return max(0.0, self.attempt.ended_t - self.attempt.started_t) * len(self.attempt.nodes) / 3600


@dataclass(frozen=True)
class Replay:
    """A run's attempts. `saved`: attempts that this policy would not have made; `added`: at least so many more."""

    attempts: tuple[Replayed, ...]
    gpus_per_node: int | None
    harm: str = ""              # what came of attempts that this policy would not have made; "" = nothing known

    @property
    def saved(self) -> tuple[Replayed, ...]:
        """The attempts that would not have been made."""
        return tuple(one for one in self.attempts if one.is_moot)

    @property
    def differing(self) -> int:
        """Decisions that would have been others."""
        return sum(one.differs for one in self.attempts)

    @property
    def added(self) -> int:
        """Ends that would have been another attempt."""
        return sum(one.differs and one.now.goes_on for one in self.attempts)

    @property
    def node_hours(self) -> float | None:
        """Held by what would not have been made; None = not known of all of it."""
        hours = [one.node_hours for one in self.saved]
        return None if None in hours else sum(hour for hour in hours if hour is not None)

    @property
    def gpu_hours(self) -> float | None:
        """The same in GPUs; None = not known, or not asked for by node."""
        if not self.saved:
            return 0.0
        return None if self.node_hours is None or not self.gpus_per_node else self.node_hours * self.gpus_per_node


def replay(events: Sequence[Event], plan: Plan) -> Replay:
    """What `plan` would have made of a journal, whose events must be in order."""
    found: list[Replayed] = []
    stopped_at: State | None = None
    state, at = State(), 0
    for index, number in _ends(events):
        point = max(at, _point(events, index))
        state, at = fold(events[at:point], state), point
        attempt = next((known for known in state.attempts if known.number == number), None)
        if attempt is None:
            continue
        then = _then(events, index)
        now = _now(state, attempt, then, events[index].t, plan)
        word = "-" if attempt.ended == "completed" else response(plan, attempt.category).text
        found.append(Replayed(attempt, then, now, word, is_moot=stopped_at is not None))
        if stopped_at is None and found[-1].differs and not now.goes_on:
            stopped_at = state
    return Replay(tuple(found), plan.gpus_per_node, _harm(stopped_at, fold(events[at:], state)))


def _ends(events: Sequence[Event]) -> Iterator[tuple[int, int]]:
    """(index, number) of each attempt's first end."""
    seen: set[int] = set()
    for index, event in enumerate(events):
        number = event.data.get("attempt")
        if event.event == "attempt_ended" and isinstance(number, int) and number not in seen:
            seen.add(number)
            yield index, number


def _point(events: Sequence[Event], index: int) -> int:
    """Where the decision was made: the leader's first word about what comes next. Before it come the checkpoint that
    refills the budgets, and the nodes that are suspected.
    """
    for after, event in enumerate(events[index + 1:], start=index + 1):
        if _is_decision(event) or event.event in (*_ENDS, "attempt_started", "preserved", "job_started", "resubmitted"):
            return after
    return len(events)


def _is_decision(event: Event) -> bool:
    """Of the table between attempts; `ask_to_end` and its like come late from the attempt before."""
    return event.event == "decision" and event.data.get("row") in _between()


def _between() -> tuple[str, ...]:
    return tuple(row.__name__.strip("_") for row in decide.BETWEEN)


def _then(events: Sequence[Event], index: int) -> Choice:
    """What the journal says was decided after the end at `index`; waits on the way are passed over."""
    kind = ""
    for event in events[index + 1:]:
        why = str(event.data.get("why", ""))
        if event.event in _ENDS:
            kind = "done" if event.event == "completed" else "stop"
            return Choice(kind, _row_behind(events, event), why)
        if event.event == "attempt_started":
            return Choice("restart", "launch", why)
        if event.event in ("job_started", "resubmitted"):
            return Choice("next_job", "", why)
        if event.event == "preserved":
            kind = "stop"
        if _is_decision(event):
            row = str(event.data["row"])
            if row == "launch":
                return Choice("restart", row, why)
            if row == "give_up":
                return Choice("stop", row, why)
            if row in _NEXT_JOB:
                return Choice("next_job", row, why)
    return Choice(kind or "unknown")


def _row_behind(events: Sequence[Event], end: Event) -> str:
    """The row that ended the run: its decision is written right behind the end."""
    behind = events[events.index(end) + 1:]
    return next((str(event.data["row"]) for event in behind if _is_decision(event)), end.event)


def _now(state: State, attempt: Attempt, then: Choice, now: float, plan: Plan) -> Choice:
    """What this policy decides in that state. What the journal cannot tell (a person's word, the job's end) is as it
    was then.
    """
    if then.row in _NOT_POLICYS or attempt.ended in ("completed", "stopped"):
        return then
    reason = reason_to_give_up(state, plan)
    if reason is not None:
        return Choice("stop", reason.row, reason.why)
    held = (Request("hold", "somebody", now),) if then.row == "held" else ()
    nodes = state.job.nodes if state.job else attempt.nodes
    seen = decide.Seen(now=now, nodes=nodes, requests=held, limit_near=then.row == "job_ends")
    decision = decide.decide(state, seen, plan)
    if isinstance(decision.action, decide.Wait):
        seen = replace(seen, now=decision.action.until)
        decision = decide.decide(state, seen, plan)
    action, pause_s = decision.action, seen.now - now
    if isinstance(action, decide.HandOver):
        return Choice("next_job", decision.row, action.why, pause_s)
    kind = then.kind if then.goes_on else "restart"   # a lost node may be why the run went on elsewhere
    return Choice(kind, decision.row, action.why if action else "", pause_s)


def _harm(stopped_at: State | None, end: State) -> str:
    if stopped_at is None:
        return ""
    if end.ended is not None and end.ended.how == "completed":
        return "the run completed afterwards"
    before, after = stopped_at.best_step, end.best_step
    if after is not None and (before is None or after > before):
        since = "none" if before is None else f"step {before}"
        return f"its checkpoint advanced afterwards, from {since} to step {after}"
    return ""


def overridden(config: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A run's config with `key=value` of what has a part in the policy; raises ConfigError or UsageError."""
    changed: dict[str, Any] = {**config, **{name: dict(config.get(name) or {}) for name in (
        "restart", "suspects", "preserve_site", "resume")}}
    if not overrides:
        return changed
    wanted = resolve([Source("file", "the run", "command: 'true'\n")], overrides, {}).config
    for override in overrides:
        path = override.partition("=")[0]
        section, _, leaf = path.partition(".")
        if not path.startswith(SECTIONS) or not (path in KEYS or path.startswith("restart.policy.")):
            raise UsageError(f"{path} has no part in what follows a failure",
                             hint=f"what has: restart.policy.CATEGORY, {', '.join(_keys())}")
        if not leaf.startswith("policy"):
            changed[section][leaf] = wanted[section][leaf]
            continue
        rows, category = dict(changed["restart"].get("policy") or {}), leaf.partition(".")[2]
        new = wanted["restart"]["policy"] or {}
        rows = {**rows, **new} if new or category else {}
        if category and category not in new:
            rows.pop(category, None)   # restart.policy.network= goes back to the default
        changed["restart"]["policy"] = rows
    return changed


def _keys() -> list[str]:
    return [key for key in KEYS if key.startswith(SECTIONS)]
