"""Asking the live attempt to end: the signal, what is waited for then, and the look for its next checkpoint."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator

from safelaunch.adapters import checkpoints
from safelaunch.adapters.localtime import clock
from safelaunch.adapters.slurm import Result
from safelaunch.core.decide import patience
from safelaunch.node import fresh
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.state.tasks import Step, Work

ANSWER_S = 2.0         # for the guards to be there, and again for their answers
AGAIN_S = 5.0
MOST_ASKED = 100       # 8 min and more
LOOK_S = 3.0           # between two looks at the checkpoints
CONFIRM_S = 2.0        # a new one is complete when a second look says so, too: its files come one after the other
LOOK_DEADLINE_S = 1.5  # below the two seconds after which a standby doubts

# Of the complete checkpoint that was finished last: when (epoch s), and its path; (0, "") = there is none.
Newest = tuple[float, str]


def go_on(lead: Leader, is_answered: bool) -> Step:
    """Go on with what a supervisor that died had begun: nobody knows whether the ranks were told, unless it wrote down
    their answer.
    """
    if is_answered:
        yield from wait_for_checkpoint(lead, None)
    else:
        yield from ask_to_end(lead, lead.plan.kill_switch.signal)


def ask_to_end(lead: Leader, name: str) -> Step:
    """Signal the ranks that handle it; say whom it reached, and until when what is waited for.

    While not every guard has answered (they look for a supervisor that was born again, their cable is cut for a moment,
    or their launcher has not started yet), it is asked again: it reaches no process twice.
    """
    number, row = lead.attempt.number, lead.attempt.end_row
    before = look(lead) if row in ("kill", "checkpoint") else None
    reached: list[str] = []
    said: tuple[int | None, int] | None = None
    for again in range(MOST_ASKED):
        told = yield from _signal(lead, name)
        if not _is_asked(lead, number, row):
            return
        live, answers = lead.attempt, lead.server.signal_answers
        reached += [one for one in lead.server.signalled if one not in reached]
        knows = answers >= told and told + len(live.exits) >= live.tasks
        lead.running.has_heard(len(reached) if reached or knows else None)
        if said != (lead.attempt.heard, len(reached)):
            said = lead.attempt.heard, len(reached)
            _tell(lead, name, reached, f"{answers} of {live.tasks} guards have answered")
        if again == 0:   # once: a second wait would find the same checkpoint, and let the training leave later
            lead.tasks.begin(Work.WAIT_FOR_CHECKPOINT, wait_for_checkpoint(lead, before), f"{row} {number}")
        if knows:
            return
        yield AGAIN_S


def _signal(lead: Leader, name: str) -> Generator[float, Result | None, int]:
    """How many guards were told; their answers lie in the server then."""
    until_s = lead.now_s + ANSWER_S
    while lead.live is not None and _present(lead) + len(lead.live.exits) < lead.live.tasks and lead.now_s < until_s:
        yield 0.1
    lead.server.forget_answers()
    told = lead.server.tell({"do": "signal", "signal": int(getattr(signal, name))}, lead.now_s)
    until_s = lead.now_s + ANSWER_S
    while lead.server.signal_answers < told and lead.now_s < until_s:
        yield 0.02
    return told


def _present(lead: Leader) -> int:
    return sum(guard.connection is not None and guard.code is None for guard in lead.server.guards.values())


def _is_asked(lead: Leader, number: int, row: str | None) -> bool:
    """Whether the attempt that this row asked still lives, and was not asked or killed by another one since."""
    live = lead.live
    return live is not None and (live.number, live.end_row, live.killed_t) == (number, row, None)


def _tell(lead: Leader, name: str, reached: list[str], answers: str) -> None:
    live = lead.attempt
    given = patience.of(live, lead.seen(), lead.plan)
    if reached:
        text = f"{name} reached {len(reached)} processes ({', '.join(reached[:4])})"
    elif live.heard == 0:
        text = f"no process of the training handles {name} (it can watch $SAFELAUNCH_KILL_FILE instead)"
    else:
        text = f"nobody knows yet whether a process of the training handles {name}: {answers}"
    lead.tell("ask_to_end", f"{text}; waiting for {given.what}, until {clock(given.until_t)} at most",
              attempt=live.number, heard=live.heard, until=round(given.until_t, 3), waits_for=given.what)


def wait_for_checkpoint(lead: Leader, before: Newest | None) -> Generator[float, Result | None, None]:
    """Note the first checkpoint that becomes complete after `before` (None: after the first look that is answered),
    where the attempt is ended for it. A second look confirms it, or finds one that is newer still.
    """
    number, row, is_found = lead.attempt.number, lead.attempt.end_row, False
    while _is_asked(lead, number, row):
        is_wanted = patience.of(lead.attempt, lead.seen(), lead.plan).is_checkpoint
        newest = look(lead) if is_wanted else None
        if newest is not None and before is None:
            before = newest
        if newest is not None and before is not None and newest[0] > before[0]:
            if is_found:
                lead.running.has_saved(newest[1], lead.now)
                return
            is_found = True
            yield CONFIRM_S
        else:
            is_found = False
            yield LOOK_S


def look(lead: Leader) -> Newest | None:
    """The complete checkpoint that was finished last; None = the folder does not tell, or there is none to look at."""
    resume = lead.plan.resume
    if resume.dir is None:
        return None
    folder = os.path.join(lead.job.cwd, resume.dir)   # noqa: PTH118 - text only

    def find() -> Newest:
        fresh.see(folder)
        whole = [one.path for one in checkpoints.survey(folder, resume.format, resume.pattern) if one.reason is None]
        return max(((checkpoints.finished_t(path), path) for path in whole), default=(0.0, ""))

    answer = lead.ask_folder(find, LOOK_DEADLINE_S)
    return (float(answer.value[0]), str(answer.value[1])) if answer.is_ok and answer.value is not None else None
