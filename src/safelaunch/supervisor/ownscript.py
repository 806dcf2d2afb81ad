"""How a user's own script has ended, by what its guards, its log and the wrapper of its sruns say."""

from __future__ import annotations

from safelaunch.core.decide import scriptends
from safelaunch.core.decide.scriptends import ScriptWords, TaskEnd
from safelaunch.core.model import Exit
from safelaunch.node.guard.protocol import STEP_TASKS
from safelaunch.supervisor.leader import Leader


def exits_of_script(lead: Leader) -> tuple[Exit, ...]:
    """The ends of the ranks that made a script fail, or the script's own."""
    def hides() -> bool:
        from safelaunch.core.config.scriptcodes import looks_at_codes  # for a script that has hidden a failure

        return not looks_at_codes(lead.plan.command)

    process = lead.process
    words = ScriptWords(
        lead.attempt.nodes, (process.sruns() if process is not None else None) or [],
        lambda: process.tail().decode("latin-1") if process is not None else "")
    return scriptends.exits_of(lead.attempt.exits, _ends(lead), hides, words)


def let_pass(lead: Leader) -> tuple[Exit, ...]:
    """Ranks that failed although the attempt has not: nobody needed them."""
    return scriptends.let_pass(lead.attempt.exits, _ends(lead))


def _ends(lead: Leader) -> list[TaskEnd]:
    return [TaskEnd(guard.step, guard.ended_s, Exit(guard.node, guard.task % STEP_TASKS, guard.code, guard.signal))
            for guard in lead.server.guards.values() if guard.code is not None]
