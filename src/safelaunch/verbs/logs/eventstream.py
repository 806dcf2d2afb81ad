"""A run's events from its journal, each once: those until now, or until the run has ended."""

from __future__ import annotations

import time
from collections.abc import Iterator

from safelaunch.base.model import Event
from safelaunch.run import story
from safelaunch.run.fold.folding import fold
from safelaunch.run.io.runfolder import Run
from safelaunch.verbs.common import runs
from safelaunch.verbs.common.talk import Say

POLL_S = 0.5
QUIET_S = 1.0   # a leader writes its last lines right after the end


def stream(run: Run, follow: bool, with_all: bool, say: Say) -> Iterator[list[Event]]:
    """The events until now; with `follow` also new ones until the run has ended. Unreadable lines are reported once
    each. Without `with_all` only the selection of `run.story`.
    """
    watch = runs.JournalWatch(run.dir, None if with_all else 1, partly=True)   # steps are no part of the selection
    shown: set[tuple[int, int, str, str, float]] = set()
    complained: set[str] = set()
    quiet_since_s = time.monotonic()
    ended = None
    while True:
        journal = watch.poll()
        if journal is not None:
            told = journal.events if with_all else story.select(journal.events)
            new = [event for event in told if _key(event) not in shown]
            shown.update(map(_key, new))
            yield new
            for problem in journal.problems:
                if problem not in complained:
                    say(f"journal: {problem}")
            complained.update(journal.problems)
            quiet_since_s, ended = time.monotonic(), fold(journal.events).ended
        if not follow or (ended is not None and time.monotonic() - quiet_since_s > QUIET_S):
            return
        time.sleep(POLL_S)


def _key(event: Event) -> tuple[int, int, str, str, float]:
    return (event.gen, event.seq, event.host, event.event, event.t)
