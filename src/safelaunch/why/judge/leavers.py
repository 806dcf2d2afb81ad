"""A rank that left with exit code 0 while others trained. All that the others print is that they have lost it, which
was taken for the network's fault.

Where each rank is a task, its guard has seen that. Ranks below one torchrun are told apart by what it says of its node:
at the first rank that fails it ends the others ("closing signal"), and lists all that did not end by themselves with 0.
PyTorch before 2.6 lists those that it has ended not; then only their number is known.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from safelaunch.why.findings import Finding, OutsideEvidence
from safelaunch.why.fingerprint import make_fingerprint
from safelaunch.why.rulebook import BY_ID
from safelaunch.why.verdict import Verdict

LEFT_EARLY = 0.7      # below budget.SURE: why it left, nobody has said
# A peer whose process has gone. One that waits in vain may as well live.
LOST_A_PEER = frozenset({"network.gloo_closed", "network.nccl_peer_gone", "network.nccl_remote",
                         "network.store_refused", "store.lost"})
OF_PEERS = ("network", "rendezvous", "hang")   # categories of symptoms
MOST_LINES = 200      # of one kind, all of which the reader keeps (why.read.parts.KEEP_ALL)
ADVICE = ("Find out why it left: its data may have run out before the others' (drop_last, shards of unequal length), "
          "or the program calls sys.exit or os._exit there.")


def find_leaver(verdict: Verdict, known: OutsideEvidence, findings: Sequence[Finding] = ()) -> Verdict | None:
    """The verdict on ranks that ended well while others trained; None = none did, or the log names a cause.
    `findings`: of the last launch, with ranks of the training.
    """
    bad, rule = known.first_bad, BY_ID.get(verdict.rule or "")
    if bad is None or bad.signal is not None or known.lost or rule is None:
        return None
    if not is_of_lost_peer(rule.id):
        return None
    first = known.exits[0]
    if not first.code and rule.id in LOST_A_PEER:   # each rank is a task
        return _verdict(verdict, first.who, first.host)
    if known.layout is None:
        return None
    nodes, per_node = known.layout
    well = {nodes.index(one.host) for one in known.exits if one.host in nodes and not one.code and one.signal is None}
    left = _left(len(nodes), per_node, findings, well, rule.id in LOST_A_PEER)
    if not left:
        return None
    hosts = list(dict.fromkeys(nodes[rank // per_node] for rank in left))   # ranks are numbered node by node
    who = f"rank{'s' if len(left) > 1 else ''} {', '.join(map(str, left))} on {', '.join(hosts)}"
    return _verdict(verdict, who, hosts[0], left[0])


def is_of_lost_peer(rule_id: str | None) -> bool:
    """Whether lines of that rule only tell that another rank has gone, or does not answer."""
    rule = BY_ID.get(rule_id or "")
    return rule is not None and (rule.id in LOST_A_PEER or (rule.role == "symptom" and rule.category in OF_PEERS))


def _left(nodes: int, per_node: int, findings: Sequence[Finding], well: Set[int], is_gone: bool) -> list[int]:
    """The ranks that have not lost another one, and of which no launcher says that it has failed or was ended.
    `well`: nodes whose launcher ended with 0. `is_gone`: the others' words mean that a process has gone.
    """
    lost = {found.rank for found in findings if found.rank is not None and (rule := BY_ID.get(found.rule)) is not None
            and rule.role == "symptom" and rule.category in OF_PEERS}
    told = {int(found.groups["rank"]) for found in findings if found.rule == "elastic.rank_line"}
    silent = [rank for rank in range(nodes * per_node) if rank not in lost | told]
    ended = sum(found.rule == "elastic.closing" for found in findings)
    listed = sum(found.rule == "elastic.ended_rank" for found in findings)
    if told and ended <= listed and ended < MOST_LINES:
        reports = {rank // per_node for rank in told}
        if left := [rank for rank in silent if rank // per_node in reports | well]:
            return left
    return silent if is_gone and len(silent) == 1 and len(lost) > 1 else []


def _verdict(verdict: Verdict, who: str, host: str, rank: int | None = None) -> Verdict:
    them = "them" if who.startswith("ranks") else "it"
    said = f"{who} ended with exit code 0 while others trained, which then lost {them}"
    followed = (*((verdict.cause,) if verdict.cause else ()), *verdict.symptoms)
    return replace(
        verdict, category="user_code", summary=said, confidence=LEFT_EARLY, action="fix_user_code", suspects=(),
        evidence=(said,), host=host or None, rank=rank, rule=None, cause=None, cited=(), symptoms=followed,
        runner_up=None, fingerprint=make_fingerprint("user_code", "left_early", ""), place="", do=ADVICE,
        changes="a line of that rank says why it ended")
