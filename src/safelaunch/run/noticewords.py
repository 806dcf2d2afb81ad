"""The words of notify.when: which event of the journal each stands for, and how grave it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.base.endings import RunEnd
from safelaunch.base.model import Event
from safelaunch.run.notices import HOUR_S, MOST_AN_HOUR, Notice, Notices

if TYPE_CHECKING:
    from safelaunch.run.fold.state import State  # submit reads these words, and no state

INFO, SUCCESS, WARNING, FAILURE = "info", "success", "warning", "failure"
SEVERITIES = (INFO, SUCCESS, WARNING, FAILURE)   # the later one counts in a message of several


class Word(NamedTuple):
    """One row: severity, headline, what it means (docs/notify.md), and its key, by the state before the event."""

    severity: str
    headline: str
    doc: str
    events: tuple[str, ...]
    key: Callable[[State, Event], str | None]   # behind the word; None: nothing to tell


def _of_attempt(_: State, event: Event) -> str | None:
    return str(int(event.data["attempt"]))


def _of_end(before: State, _: Event) -> str | None:
    return "" if before.ended is None else None


def _of_restart(before: State, event: Event) -> str | None:
    """The cause: the same one again is no news. An attempt that is known, or follows no failure, is none."""
    last, number = before.attempt, int(event.data["attempt"])
    if last is None or not last.has_failed or before.find_attempt(number) is not None:
        return None
    return last.fingerprint or last.category or str(last.ended)


def _of_site(_: State, event: Event) -> str | None:
    """Until when; that a person has kept it for longer, which names no nodes, is no news."""
    return str(event.data["until"]) if "nodes" in event.data else None


WORDS: dict[str, Word] = {
    "gave_up": Word(FAILURE, "has given up", "The run has given up: it is not restarted any more.",
                    (RunEnd.GAVE_UP,), _of_end),
    "completed": Word(SUCCESS, "has completed", "The run has completed.", (RunEnd.COMPLETED,), _of_end),
    "stopped": Word(INFO, "was stopped", "A person has stopped the run.", (RunEnd.STOPPED,), _of_end),
    "hang": Word(WARNING, "may hang", "An attempt is silent for too long: a hang check starts.",
                 ("hang_suspected",), _of_attempt),
    "suspect_node": Word(WARNING, "suspects a node", "A node is lost, or there is enough evidence to exclude it.",
                         ("node_excluded", "node_left_out", "node_lost"), lambda _, event: str(event.data["node"])),
    "restarted": Word(INFO, "was restarted", "A new attempt has started after a failure; once for each cause.",
                      ("attempt_started",), _of_restart),
    "took_over": Word(WARNING, "has a new leader", "The standby leads: the supervisor before it is dead or cut off.",
                      ("took_over",), lambda _, event: str(event.gen)),
    "lost_progress": Word(FAILURE, "has lost progress", "An attempt has started below its checkpoint.",
                          ("lost_progress",), _of_attempt),
    "preserved": Word(WARNING, "keeps its nodes for you", "The site of a failure is kept for people to look at.",
                      ("preserved",), _of_site),
    "held": Word(FAILURE, "waits for you", "safelaunch has put the run on hold: a person knows whether it is to go on.",
                 ("held",), lambda _, event: str(event.data["job"])),
}
ENDS = ("gave_up", "completed", "stopped")
_BY_EVENT = {event: name for name, word in WORDS.items() for event in word.events}


def notice_of(before: State, event: Event) -> Notice | None:
    """What an event gives to tell; `before` is the state that it changes. Raises as a step of run.fold.folding does."""
    name = _BY_EVENT.get(event.event)
    if name is None:
        return None
    key = WORDS[name].key(before, event)
    if key is None:
        return None
    attempt = event.data.get("attempt")
    if attempt is None and before.attempt is not None:
        attempt = before.attempt.number
    return Notice(name, f"{name} {key}".strip(), event.t, str(event.data.get("why", "")),
                  int(attempt) if attempt is not None else None)


def due(notices: Notices, when: tuple[str, ...], now: float) -> tuple[Notice, ...]:
    """What the next message tells: all that waits. () = nothing, or too many messages within the hour.

    What is held back comes in the first message of the next hour, or with the run's end, which is never held back.
    """
    wanted = tuple(one for one in notices.waiting if one.word in when)
    recent = sum(0 <= now - t < HOUR_S for t in notices.sent_t)
    if recent >= MOST_AN_HOUR and not any(one.word in ENDS for one in wanted):
        return ()
    return wanted
