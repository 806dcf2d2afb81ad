"""Who states the cause of a failure in its own lines, and who only says that others have gone.

A rank that lost its peer, a launcher's summary, srun's report of an exit: such lines name no node. A node that prints
nothing else has only heard of the failure, though its tasks end with an exit code as well.
"""

from __future__ import annotations

from dataclasses import replace

from safelaunch.why.findings import OutsideEvidence
from safelaunch.why.judge.witnesses import UNEXPLAINED_KILLS
from safelaunch.why.order.episodes import Episode, is_excused
from safelaunch.why.verdict import Verdict

# Reports of a SIGKILL, which srun also sends to the tasks of all others. torchrun tells of its own ranks only.
OF_ALL = UNEXPLAINED_KILLS - {"memory.sigkill_elastic"}


def name_speakers(verdict: Verdict, episode: Episode, known: OutsideEvidence) -> Verdict:
    """The verdict with the hosts whose lines state its cause, and those whose lines are echoes of it. Where there are
    only echoes its place is the first task that ended elsewhere.
    """
    cause = verdict.cause
    rule = episode.rules.get(cause.rule) if cause is not None else None
    is_own = rule is not None and rule.role == "cause" and rule.id == verdict.rule and rule.id not in OF_ALL
    spoken = cause.hosts if cause is not None and is_own else ()
    echoed = dict.fromkeys(found.host for found in episode.findings if found.host is not None
                           and found.host not in spoken and episode.role(found) == "symptom"
                           and not is_excused(found, episode))
    verdict = replace(verdict, spoken_by=spoken, echoed_by=tuple(echoed))
    if rule is None or rule.role != "symptom" or verdict.host not in echoed:
        return verdict
    silent = next((one.host for one in known.exits if one.code and one.host and one.host not in echoed), None)
    return verdict if silent is None else replace(verdict, host=silent, rank=None)
