"""A rank that left with exit code 0 while others trained. All that the others print is that they have lost it, which
was taken for the network's fault.
"""

from __future__ import annotations

from dataclasses import replace

from safelaunch.core.why.findings import OutsideEvidence
from safelaunch.core.why.fingerprint import make_fingerprint
from safelaunch.core.why.verdict import Verdict

LEFT_EARLY = 0.7      # below budget.SURE: why it left, nobody has said
LOST_A_PEER = frozenset({"network.gloo_closed", "network.nccl_peer_gone", "network.nccl_remote",
                         "network.store_refused", "store.lost"})
ADVICE = ("Find out why it left: its data may have run out before the others' (drop_last, shards of unequal length), "
          "or the program calls sys.exit or os._exit there.")


def find_leaver(verdict: Verdict, known: OutsideEvidence) -> Verdict | None:
    """The verdict on a rank that ended well while others trained; None = none did, or the log names a cause."""
    bad = known.first_bad
    if bad is None or bad.signal is not None or known.lost or verdict.rule not in LOST_A_PEER:
        return None
    first = known.exits[0]
    if not first.code:   # each rank is a task
        return _verdict(verdict, first.who, first.host)
    if (rank := _silent_rank(verdict, known)) is None or known.layout is None:
        return None
    nodes, per_node = known.layout
    host = nodes[rank // per_node]   # ranks are numbered node by node
    return _verdict(verdict, f"rank {rank} on {host}", host, rank)


def _silent_rank(verdict: Verdict, known: OutsideEvidence) -> int | None:
    """The only rank that has not lost another one; a launcher would have told of it, had it failed."""
    if known.layout is None or verdict.cause is None:
        return None
    nodes, per_node = known.layout
    silent = set(range(len(nodes) * per_node)) - set(verdict.cause.ranks)
    return silent.pop() if len(silent) == 1 and len(verdict.cause.ranks) > 1 else None


def _verdict(verdict: Verdict, who: str, host: str, rank: int | None = None) -> Verdict:
    said = f"{who} ended with exit code 0 while others trained, which then lost it"
    followed = (*((verdict.cause,) if verdict.cause else ()), *verdict.symptoms)
    return replace(
        verdict, category="user_code", summary=said, confidence=LEFT_EARLY, action="fix_user_code", suspects=(),
        evidence=(said,), host=host or None, rank=rank, rule=None, cause=None, cited=(), symptoms=followed,
        runner_up=None, fingerprint=make_fingerprint("user_code", "left_early", ""), place="", do=ADVICE,
        changes="a line of that rank says why it ended")
