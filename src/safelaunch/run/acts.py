"""Acts on the world outside: claim ▸ intent ▸ command ▸ outcome. What writes an intent here also writes its outcome, so
that one without the other means one thing: its writer died in between.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from safelaunch.base.model import Event
from safelaunch.errors import SlurmRefused

Y = TypeVar("Y")
S = TypeVar("S")
T = TypeVar("T")
MOST_WHY = 500   # characters of an error
NOTE = "note_cancelled"   # the act by which a watcher writes down that a person cancelled a job


class Settling(Enum):
    """How the next supervisor finds out about an act whose writer died."""

    FIND_ATTEMPT = "its process lives, or not"
    END_JOB = "a job that the run has gone on from is ended, if it runs still"
    LOOK_LATER = "nobody knows; the next look at the queue tells what there is"


class ActKind(NamedTuple):
    """An act: what is done, for people, and how the next supervisor settles it."""

    sentence: str
    settling: Settling = Settling.LOOK_LATER


ACTS = {
    "submit": ActKind("submit the run"),
    "launch": ActKind("start an attempt", Settling.FIND_ATTEMPT),
    "queue_successor": ActKind("queue the next job"),
    "hand_over": ActKind("hand the run over to its next job", Settling.END_JOB),
    "requeue": ActKind("put this job back into the queue"),
    "tell_follower": ActKind("change what another run's job waits for"),
    "shrink": ActKind("give nodes back"),
    "cancel": ActKind("cancel a job", Settling.END_JOB),
    "cancel_queued": ActKind("take the run's jobs out of the queue"),
    "hold_jobs": ActKind("hold the run's queued jobs"),
    "change_jobs": ActKind("change the run's queued jobs"),
    "release_jobs": ActKind("let the run's held jobs go"),
    "relax": ActKind("let the next job use nodes again"),
    "make_smaller": ActKind("let the next job start with fewer nodes"),
    "free_successor": ActKind("let the next job start beside one that hangs at its end"),
    "start_now": ActKind("let the requeued job start at once"),
    NOTE: ActKind("note that a person cancelled a job"),
}


class Scribe(Protocol):
    """What events are numbered by: run.io.journal.Writer."""

    def event(self, event: str, **data: Any) -> Event:
        """An event of now."""


class Actor(Protocol):
    """Who acts: a leader, a watch, or a person's command."""

    @property
    def writer(self) -> Scribe:
        """Numbers its events."""

    def announce(self, *events: Event) -> object:
        """Write events down before the act; raises where nothing may be done that is not written down."""

    def record(self, *events: Event) -> object:
        """Write events down after the act."""


class ActOutcome(Generic[T]):
    """Whether it happened (None = unknown), what the caller gets, and what is journalled with it. `fields`: more fields
    of the outcome; `first`: events before it; `then`: functions that make the events after it, in order.
    """

    def __init__(self, ok: bool | None, value: T, fields: Mapping[str, object] = MappingProxyType({}),
                 first: Sequence[Event] = (), then: Sequence[Callable[[], Event]] = ()) -> None:
        self.ok, self.value, self.fields, self.first, self.then = ok, value, fields, first, then


def wait_for_claim(claim: Callable[[], int], every_s: float) -> Generator[float, Any, int]:
    """The number of a claim that is ours, however long the folder does not answer."""
    while (number := claim()) == 0:
        yield every_s
    return number


def perform(
    actor: Actor, act: str, claim: int, doing: Generator[Y, S, ActOutcome[T]], told: Sequence[Event] = (), **fields: Any
) -> Generator[Y, S, T]:
    """Announce an act of ACTS under a claim, do it, and journal the outcome, also of an error, which is raised again.
    `told`: events to write before the intent; `fields`: more fields of the intent.
    """
    assert act in ACTS, act
    actor.announce(*told, actor.writer.event("intent", claim=claim, act=act, **fields))
    try:
        outcome = yield from doing
    except Exception as error:
        # After a clear no it is settled; else the intent stays open, for the next supervisor (run.fold.state).
        ends = {"ok": False} if isinstance(error, SlurmRefused) else {"ok": None, "raised": True}
        with contextlib.suppress(OSError):   # the folder's, perhaps the very error
            actor.record(actor.writer.event("outcome", claim=claim, act=act, **ends,
                                            why=(str(error) or type(error).__name__)[:MOST_WHY]))
        raise
    event = actor.writer.event("outcome", claim=claim, act=act, ok=outcome.ok, **outcome.fields)
    actor.record(*outcome.first, event, *(then() for then in outcome.then))
    return outcome.value


def perform_now(
    actor: Actor, act: str, claim: int, do: Callable[[], ActOutcome[T]], told: Sequence[Event] = (), **fields: Any
) -> T:
    """`perform` of what waits for nothing: `do` returns when it is done."""
    def doing() -> Generator[None, None, ActOutcome[T]]:
        return do()
        yield   # never reached: it makes this a generator

    try:
        next(perform(actor, act, claim, doing(), told, **fields))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError(f"{act} waited")


def settle(actor: Actor, claim: int, act: str, happened: bool | None) -> None:
    """Write the outcome of an act whose writer died."""
    actor.record(actor.writer.event("outcome", claim=claim, act=act, ok=happened,
                                    note="settled by the next supervisor"))
