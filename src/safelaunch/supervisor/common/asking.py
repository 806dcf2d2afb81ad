"""Asks the live attempt to end: sends the signal, then waits for its answer and its next checkpoint."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from functools import partial
from typing import NamedTuple

from safelaunch.base.io.localtime import moment
from safelaunch.checkpoints.io import checkpoints
from safelaunch.decide.facts import patience
from safelaunch.decide.facts.patience import Patience
from safelaunch.decide.facts.seen import Live
from safelaunch.node import fresh
from safelaunch.slurm.io.slurm import Result
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.endpoint import GuardEndpoint
from safelaunch.supervisor.state.ports import FolderPort, Here, Say
from safelaunch.supervisor.state.tasks import BackgroundTasks, Step, Work

ANSWER_S = 2.0         # for guards to connect, and again for their answers
AGAIN_S = 5.0
LATE_S = 0.1           # a guard on a busy node answers late, and its ranks end right after that
MOST_ASKED = 100       # 8 min and more
LOOK_S = 3.0           # between two checks for checkpoints
CONFIRM_S = 2.0        # a second check confirms a new checkpoint: its files are written one after the other
LOOK_DEADLINE_S = 1.5  # below the two seconds after which a standby suspects the leader

# When the newest complete checkpoint was finished (epoch s), and its path; (0, "") = there is none.
Newest = tuple[float, str]


class Asking(NamedTuple):
    """Asking the live attempt to end, and the wait for its checkpoint. `newest` and `patience` may ask the folder."""

    clock: Clock
    guards: GuardEndpoint
    running: RunningAttempt
    tasks: BackgroundTasks
    say: Say
    newest: Callable[[], Newest | None]
    patience: Callable[[Live], Patience]

    def ask_to_end(self, name: str) -> Step:
        """Signal the ranks that handle it; report whom it reached, and until when the attempt has time.

        It asks again while a guard has not answered: its connection may be down, or its launcher not started yet. No
        process gets the signal twice.
        """
        running, server = self.running, self.guards.server
        number, row = running.now.number, running.now.end_row
        is_saving = row in ("kill", "checkpoint", "restart", "slow_restart")
        before = self.newest() if is_saving else None
        reached: list[str] = []
        said: tuple[int | None, int] | None = None
        for again in range(MOST_ASKED):
            told = yield from _signal(self.clock, self.guards, running, name)
            is_new, until_s = not again, self.clock.now_s + AGAIN_S
            while self.clock.now_s < until_s:
                if not _is_asked(running, number, row):
                    return
                live, answers = running.now, server.signal_answers
                reached += [one for one in server.signalled if one not in reached]
                knows = answers >= told and told + len(live.exits) >= live.tasks
                running.note_heard(len(reached) if reached or knows else None)
                if said != (running.now.heard, len(reached)):
                    said = running.now.heard, len(reached)
                    self.tell(name, reached, f"{answers} of {live.tasks} guards have answered")
                if is_new:   # once: a second wait would find the same checkpoint
                    is_new = False
                    self.tasks.begin(Work.WAIT_FOR_CHECKPOINT, self.wait_for_checkpoint(before), f"{row} {number}")
                if knows:
                    return
                yield LATE_S

    def tell(self, name: str, reached: list[str], answers: str) -> None:
        """Whom the signal has reached, and what is waited for."""
        live = self.running.now
        given = self.patience(live)
        if reached:
            text = f"{name} reached {len(reached)} processes ({', '.join(reached[:4])})"
        elif live.heard == 0:
            text = f"no process of the training handles {name} (it can watch $SAFELAUNCH_KILL_FILE instead)"
        else:
            text = f"nobody knows yet whether a process of the training handles {name}: {answers}"
        is_limit = live.end_row == "limit_near"   # Slurm ends the job before any grace is over
        until = "its time limit" if is_limit else f"{moment(given.until_t, self.clock.now)} at most"
        self.say.decision("ask_to_end", f"{text}; waiting for {given.what}, until {until}",
                          attempt=live.number, heard=live.heard, until=round(given.until_t, 3), waits_for=given.what)

    def wait_for_checkpoint(self, before: Newest | None) -> Generator[float, Result | None, None]:
        """Note the first checkpoint that completes after `before` (None: after the first check that is answered), if
        the attempt is to end with it. A second check confirms it, or finds a newer one.
        """
        running, is_found = self.running, False
        number, row = running.now.number, running.now.end_row
        while _is_asked(running, number, row):
            newest = self.newest() if self.patience(running.now).is_checkpoint else None
            if newest is not None and before is None:
                before = newest
            if newest is not None and before is not None and newest[0] > before[0]:
                if is_found:
                    running.note_saved(newest[1], self.clock.now)
                    return
                is_found = True
                yield CONFIRM_S
            else:
                is_found = False
                yield LOOK_S


def asking_of(lead: Leader) -> Asking:
    """For the live attempt of this leader."""
    return Asking(lead.clock, lead.guard_endpoint, lead.running, lead.tasks, lead.say,
                  partial(find_newest, lead.here, lead.files), lambda live: patience.of(live, lead.seen(), lead.plan))


def ask_to_save(clock: Clock, guards: GuardEndpoint, running: RunningAttempt, say: Say, name: str) -> Step:
    """Signal the ranks that handle it, so that they save and go on (`safelaunch save`); report whom it reached."""
    number = running.now.number
    told = yield from _signal(clock, guards, running, name, "save")
    reached, answers = tuple(guards.server.signalled), guards.server.signal_answers
    whom = f"reached {len(reached)} processes ({', '.join(reached[:4])})" if reached else "reached no process"
    say.decision("save", f"asked to save and go on: {name} {whom}", attempt=number,
                 heard=len(reached) if reached or answers >= told else None)


def _signal(
    clock: Clock, guards: GuardEndpoint, running: RunningAttempt, name: str, order: str = "signal"
) -> Generator[float, Result | None, int]:
    """How many guards were told; their answers are in the server then."""
    until_s = clock.now_s + ANSWER_S
    while clock.now_s < until_s and (live := running.live) and _present(guards) + len(live.exits) < live.tasks:
        yield 0.1
    guards.server.forget_answers()
    told = guards.server.tell({"do": order, "signal": int(getattr(signal, name))}, clock.now_s)
    until_s = clock.now_s + ANSWER_S
    while guards.server.signal_answers < told and clock.now_s < until_s:
        yield 0.02
    return told


def _present(guards: GuardEndpoint) -> int:
    return sum(guard.connection is not None and guard.code is None for guard in guards.server.guards.values())


def _is_asked(running: RunningAttempt, number: int, row: str | None) -> bool:
    """Whether the attempt that this row asked still lives, and nobody has asked or killed it since."""
    live = running.live
    return live is not None and (live.number, live.end_row, live.killed_t) == (number, row, None)


def find_newest(here: Here, files: FolderPort) -> Newest | None:
    """The newest complete checkpoint; None = the folder does not answer, or there is no checkpoint folder."""
    resume = here.plan.resume
    if resume.dir is None:
        return None
    folder = os.path.join(here.job.cwd, resume.dir)   # noqa: PTH118 - text only

    def find() -> Newest:
        fresh.see(folder)
        whole = [one.path for one in checkpoints.survey(folder, resume.format, resume.pattern) if one.reason is None]
        return max(((checkpoints.finished_t(path), path) for path in whole), default=(0.0, ""))

    answer = files.ask(find, LOOK_DEADLINE_S)
    return (float(answer.value[0]), str(answer.value[1])) if answer.is_ok and answer.value is not None else None
