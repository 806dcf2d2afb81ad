"""How a script that has submitted itself goes on: as the next link of the run's chain (node/standin).

The words of a link are those of node/standin/links.py: `kind` (sbatch, requeue, or cancel: it ends), `when` (any, ok or
notok: after which end of this job it starts), `args`, `env`, `gone`, `options`, `cwd`, `chdir`, `text` where that of
the script has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from safelaunch.base.endings import AttemptEnd
from safelaunch.run.fold.state import Attempt, State

Link = Mapping[str, Any]

LONG_S = 300.0     # a link whose log names no steps, and that lived for so long, has come somewhere
MOST_LINKS = 100   # in a row that have changed nothing but their own arguments


def take(links: Iterable[Link], how: AttemptEnd, is_limit: bool) -> tuple[AttemptEnd, Link | None]:
    """How the attempt has ended, and the link that starts after it. `is_limit`: by the job's time limit.

    A lost node, or a supervisor that went, is no end of a job for sbatch: the same link starts again.
    """
    links = list(links)
    cancel = next((link for link in links if link.get("kind") == "cancel"), None)
    if cancel is not None and how in (AttemptEnd.COMPLETED, AttemptEnd.FAILED):   # the script has cancelled its own job
        after = next((link for link in links if link.get("when") in ("any", "notok")), None)
        return (AttemptEnd.STOPPED, cancel) if after is None else (AttemptEnd.LINKED, after)
    if how == AttemptEnd.INTERRUPTED and not is_limit:
        return how, None
    wanted = {AttemptEnd.COMPLETED: ("any", "ok"), AttemptEnd.FAILED: ("any", "notok"),
              AttemptEnd.INTERRUPTED: ("any", "notok")}.get(how, ())
    taken = next((link for link in links if link.get("when") in wanted), None)
    is_requeue = taken is not None and taken.get("kind") == "requeue"
    if taken is not None and (how == AttemptEnd.COMPLETED or (how == AttemptEnd.FAILED and is_requeue)):
        return AttemptEnd.LINKED, taken
    return how, taken


def in_force(state: State) -> Link:
    """The link that the next attempt runs; {} = the script as it was submitted."""
    return next((attempt.link for attempt in reversed(state.attempts)
                 if attempt.link is not None and attempt.link.get("kind") == "sbatch"), {})


def restarts_before(state: State) -> int:
    """SLURM_RESTART_COUNT of the next attempt: attempts since the link was new. Failures are restarts of it."""
    count = 0
    for attempt in state.attempts:
        if attempt.resize is None:
            is_new = attempt.link is not None and attempt.link.get("kind") == "sbatch"
            count = 0 if is_new and attempt.ended != AttemptEnd.FAILED else count + 1
    return count


def why_no_more(state: State, most: int) -> str | None:
    """Why a chain is over whose links come nowhere; None = it goes on. sbatch would go on for ever."""
    attempts = [attempt for attempt in state.attempts if attempt.resize is None]
    idle = alone = 0
    while attempts and attempts[-1].ended == AttemptEnd.LINKED and not _got_further(attempts):
        idle += 1
        alone += not alone < idle - 1 and not _has_changed(attempts)
        attempts.pop()
    if alone >= most:
        return (f"{_count(alone)} in a row made no step and no checkpoint, and submitted itself again with the same "
                "arguments: see when the script calls sbatch or scontrol requeue")
    if idle >= MOST_LINKS:
        return f"{_count(idle)} in a row made no step and no checkpoint: see when the script calls sbatch"
    return None


def _count(number: int) -> str:
    return "one link of the chain" if number == 1 else f"{number} links of the chain"


def _got_further(attempts: Sequence[Attempt]) -> bool:
    """Whether the last of these attempts did: by its steps, else by its checkpoint or its time."""
    last, before = attempts[-1], attempts[:-1]
    if last.step is not None:
        return last.step > max((one.step for one in before if one.step is not None), default=-1)
    if before and last.resume_path != before[-1].resume_path:
        return True
    return last.ended_t is not None and last.ended_t - last.started_t > LONG_S


def _has_changed(attempts: Sequence[Attempt]) -> bool:
    """Whether the link after the last attempt differs from the one that it ran."""
    new = attempts[-1].link or {}
    if new.get("kind") != "sbatch":
        return False
    old = next((one.link for one in reversed(attempts[:-1]) if one.link and one.link.get("kind") == "sbatch"), {})
    return any((new.get(name) or None) != (old.get(name) or None) for name in ("args", "env", "options", "text"))
