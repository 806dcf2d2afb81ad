"""Ends of attempts that no log has to explain: the journal knows who or what ended them, and why.

The leader writes its verdict by this, and `why` reads the journal by it, so that both say the same. Words of a signal
that safelaunch itself has sent are echoes (`ECHOES`), wherever they come from.
"""

from __future__ import annotations

from safelaunch.base.endings import ENDED_BY, GOOD_ENDS, JOB_ENDS, AttemptEnd
from safelaunch.why.categories import advice
from safelaunch.why.findings import EndFacts
from safelaunch.why.verdict import Verdict

# What launchers, shells and slurmstepd print when a SIGTERM has reached them.
ECHOES = frozenset({"elastic.sigterm", "batch.terminated", "slurm.step_cancelled", "slurm.cancelled_signal",
                    "slurm.forced", "slurm.interrupt"})

# The row that ended the attempt → category, confidence; what is said of it is base.endings'.
_OF_ROW = {"limit_near": ("time_limit", 1.0), "took_over": ("unknown", 0.3), "unconfirmed": ("unknown", 0.3),
           "slow_restart": ("none", 0.95), "restart": ("none", 0.95)}


def judge_end(end: EndFacts) -> Verdict | None:
    """The verdict on an attempt that nobody has to look into; None = it failed or was lost, or nothing is known."""
    if end.how in GOOD_ENDS:
        return _verdict("none", 0.95, "every task ended with exit code 0")
    is_known = end.how in (AttemptEnd.STOPPED, AttemptEnd.INTERRUPTED) or end.row in (
        "lost_progress", "nan", "step_stuck")
    if end.told is not None and is_known:
        return _verdict(*end.told)
    if end.how == AttemptEnd.STOPPED:
        return _verdict("cancelled", 1.0, end.person or "a person stopped it")
    if end.how != AttemptEnd.INTERRUPTED:
        return None
    if end.row in ("took_over", "unconfirmed"):
        return _of_row(end.row)
    if end.ending in JOB_ENDS:
        return _verdict(*JOB_ENDS[end.ending][1:])
    if end.is_suspended:
        return _verdict("unknown", 0.3, "the whole job stood still, and the node guards ended the ranks: nobody could "
                                        "tell them from ranks whose node had vanished")
    if end.is_refused:
        return _verdict("unknown", 0.3, "Slurm could not start it, or ended it in words that are not known: no word "
                                        "against the training")
    return _of_row(end.row) if end.row in _OF_ROW else None


def _of_row(row: str) -> Verdict:
    return _verdict(*_OF_ROW[row], ENDED_BY[row])


def _verdict(category: str, confidence: float, said: str) -> Verdict:
    return Verdict(category, said, confidence, advice(category))
