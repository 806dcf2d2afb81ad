"""Sites on which no step runs beside the training: what a supervisor does without, and what it does instead.

Helper steps (standby, looks at ranks, sweeps) and each relaunch are asked for with --overlap. A site can refuse that
(cli_filter), or take the option away (a script around srun): then a helper waits until the training has ended, takes
its place, and the next attempt waits for ever (both seen in a drill). So once srun says that, there is no standby and
no look, a fence waits for the lease, and attempts start as steps of their own.
"""

from __future__ import annotations

from safelaunch.adapters.slurm import Result
from safelaunch.core import slurmtext
from safelaunch.lead.leader import Leader

WAITS_S = 3.0   # srun asks again after a second, and a step that has just ended is over for Slurm by then


def note_result(lead: Leader, result: Result | None) -> None:
    """Take in what srun said of a helper step."""
    if result is not None and not result.is_ok:
        note_words(lead, result.stderr)


def note_words(lead: Leader, said: str) -> None:
    """Take in words of a helper's srun: from its refusal on, nothing is asked for with --overlap."""
    why = slurmtext.why_no_overlap(said)
    if why is None or lead.no_overlap is not None or lead.job.is_local:
        return
    lead.no_overlap = lead.fencer.no_helpers = why
    lead.say(f"no step can run beside the training on this cluster ({why}): there is no standby and no look at the "
             f"ranks, and a restart waits for a lease")
    if lead.standby_process is not None:
        lead.standby_process.terminate()


def look_for_waiting(lead: Leader) -> None:
    """See whether the attempt itself waits for what a helper step holds: no guard is there, and its srun says so."""
    live, process = lead.live, lead.process
    if live is None or process is None or live.number == 1 or lead.no_overlap is not None or live.exits:
        return
    if lead.server.guards or lead.now_s - lead.launched_s < WAITS_S:
        return
    note_words(lead, process.tail().decode(errors="replace"))
