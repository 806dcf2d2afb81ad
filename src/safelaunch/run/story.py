"""The part of a journal for people: each event once. The journal also has lines for supervisors (claims, intents,
outcomes, fences), and repeats one reason in up to six lines.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from safelaunch.base.endings import AttemptEnd
from safelaunch.base.model import ELSEWHERE, Event
from safelaunch.slurm import via

HIDDEN = frozenset({"intent", "fenced", "progress", "step_time", "checkpoint", "advanced"})
# Rows that end an attempt for an event with a line of its own: the failure, the lost node, the request, the hang.
TOLD_ELSEWHERE = frozenset({"task_failed", "node_lost", "kill_now", "hung", "lost_progress"})
REASON_KEYS = ("why", "summary")
NEAR_S = 120.0     # a reason is news again after that
LAST_STEP_S = 2.0  # the last step of an attempt is noted with its end; an older one is not where it ended
SHORT = 8          # characters: such a text says nothing by which it could be known again


def select(events: Sequence[Event]) -> Iterator[Event]:
    """The events to show, in order, each without what another one has said already."""
    teller = _Narrator()
    for index, event in enumerate(events):
        told = teller.tell(event, events[index + 1:index + 8])
        if told is not None:
            yield told


class _Narrator:
    """Goes through a journal once."""

    def __init__(self) -> None:
        self._steps: dict[Any, tuple[float, Any]] = {}         # attempt → its last step, and when that was noted
        self._failed: set[Any] = set()                         # attempts whose failure was told
        self._failed_acts: set[str] = set()
        self._lost: dict[str, float] = {}                      # node → when its loss was told
        self._said: deque[tuple[float, str]] = deque(maxlen=24)

    def tell(self, event: Event, after: Sequence[Event]) -> Event | None:
        """The event as it is told; None = it is left out."""
        data, number = dict(event.data), _number(event)
        if event.event == "progress":
            self._steps[number] = (event.t, data.get("step"))
        if event.event in HIDDEN or self._check_told(event, after):
            return None
        noted_t, step = self._steps.get(number, (-math.inf, None))
        if event.event in ("failure", "attempt_ended") and event.t - noted_t < LAST_STEP_S:
            data["at_step"] = step
        if event.event == "attempt_started":
            data["why"] = _from_where(data)
        for key in ("row", "action", "claim"):   # words for programs
            data.pop(key, None)
        for key in REASON_KEYS:
            text = data.get(key)
            if isinstance(text, str) and self._repeats(event.t, text):
                if event.event in ("decision", "node_suspected"):   # there is nothing else in them
                    return None
                del data[key]
        self._note(event)
        return replace(event, data=data)

    def _check_told(self, event: Event, after: Sequence[Event]) -> bool:
        """Whether other lines tell all of it."""
        data, number = event.data, _number(event)
        match event.event:
            case "outcome":
                return data.get("ok") is True or self._failed_again(str(data.get("act")))
            case "slurm":
                return data.get("known", True) is True
            case "via_chosen":
                return data.get("via") == via.SUCCESSOR    # the queued successor is told
            case "decision":
                return data.get("action") == "launch" or (
                    data.get("action") == "end" and data.get("row") in TOLD_ELSEWHERE)
            case "attempt_ended":
                return number in self._failed or data.get("how") == AttemptEnd.COMPLETED   # the run's end tells that
            case "node_left_out":
                return data.get("why") in ELSEWHERE
            case "node_excluded":   # ... until Slurm was asked whether it is there
                return any(later.event == "node_left_out" and later.data.get("node") == data.get("node")
                           and later.data.get("why") in ELSEWHERE for later in after)
            case "node_suspected":
                lost_t = self._lost.get(str(data.get("node")))
                return (lost_t is not None and event.t - lost_t < NEAR_S) or any(
                    later.event == "node_excluded" and later.data.get("node") == data.get("node") for later in after)
        return False

    def _failed_again(self, act: str) -> bool:
        """Whether this act has failed before: what is tried again and again is told once."""
        is_known = act in self._failed_acts
        self._failed_acts.add(act)
        return is_known

    def _repeats(self, t: float, text: str) -> bool:
        return any(t - told_t < NEAR_S and (text in said or text.startswith(said) or text.endswith(said))
                   for told_t, said in self._said)

    def _note(self, event: Event) -> None:
        data = event.data
        if event.event == "failure":
            self._failed.add(_number(event))
        if event.event == "node_lost":
            self._lost[str(data.get("node"))] = event.t
        exits = data.get("exits")
        texts = [data.get(key) for key in REASON_KEYS] + (exits[:4] if isinstance(exits, list) else [])
        self._said.extend((event.t, text) for text in texts if isinstance(text, str) and len(text) > SHORT)


def _number(event: Event) -> Any:
    number = event.data.get("attempt")
    return number if isinstance(number, int) else None


def _from_where(data: dict[str, object]) -> str | None:
    """Why the attempt starts, if earlier lines do not tell."""
    head, found, start = str(data.get("why") or "").partition("; going on from ")
    if found:
        if data.get("resume_step") is None:
            return f"going on from {start}"
        at = f"checkpoint at step {data['resume_step']}"
        return start[len(at):].lstrip(",; ") or None if start.startswith(at) else None
    return None if head == "first attempt" else head or None
